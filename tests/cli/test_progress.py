"""The numbers of the progress display, on a clock of the test's own."""

import io
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console

from polopt.cli.results import accuracy_table, pass_table, samples_table
from polopt.display.format import duration, one_line, percent, sparkline
from polopt.display.live import Lines, Page, watching
from polopt.display.printable import printable
from polopt.display.progress import SAMPLED, Progress
from polopt.training import recipe as recipes


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def metrics(stage: str, step: int) -> dict:
    found = {"reward/mean": step / 4, "solved": step / 4, "entropy": 1.0, "loss": 0.5, "reference_kl": 0.25}
    return {"stage": stage, "stage_step": step, "step": step, **found}


def judged(step: int, stage: str, problems: int, when: str = "during") -> dict:
    accuracy = {"estimate": 0.5, "low": 0.25, "high": 0.75}
    return {"step": step, "stage": stage, "when": when, "problems": problems, "pass@1": accuracy}


def test_time_left_adds_every_stage_and_evaluation(recipe: Path) -> None:
    clock = Clock()
    progress = Progress(Path("run"), clock)
    progress.begin(recipes.load(recipe), {"parameters": 1, "step": 0, "seconds": 0.0})
    assert progress.left() is None
    for step in range(3):  # warm-up: 8 rows a step, 2 s each; 6 problems judged after the second in 3 s
        clock.now += 2.0
        progress.step(metrics("warmup", step))
        if step == 1:
            assert progress.judging() == 6
            clock.now += 3.0
            progress.evaluation(judged(2, "warmup", 6))
            assert progress.judging() == 0
    # To come: 4 steps of 16 rows, and 12 + 6 + 12 problems at half a second.
    assert progress.left() == pytest.approx(4 * (2.0 / 8 * 16 * SAMPLED) + 30 * 0.5)
    assert progress.judging() == 12
    clock.now += 6.0
    progress.evaluation(judged(3, "rl", 12))
    for step in range(2):
        clock.now += 5.0
        progress.step(metrics("rl", step))
    assert progress.left() == pytest.approx(2 * 5.0 + 18 * 0.5)
    clock.now += 1.0  # a second into what is being done
    assert progress.left() == pytest.approx(2 * 5.0 + 18 * 0.5 - 1)
    assert progress.elapsed() == clock.now
    assert (progress.steps, progress.total) == (5, 7)


def test_a_resumed_run_shows_what_it_has_behind_it(trained: tuple[Path, str], recipe: Path) -> None:
    clock = Clock()
    progress = Progress(trained[0], clock)
    progress.begin(recipes.load(recipe), {"parameters": 1, "step": 7, "seconds": 100.0})
    clock.now += 1.0
    assert (progress.steps, progress.elapsed(), progress.judging()) == (7, 101.0, 0)
    assert len(progress.rewards) == 4
    assert len(progress.heldout) == 4


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_live_page_fits_its_width(recipe: Path, width: int) -> None:
    progress = Progress(Path("runs/laptop-grpo-1"), Clock())
    progress.begin(recipes.load(recipe), {"parameters": 1_000_000, "step": 0, "seconds": 0.0})
    for step in range(3):
        progress.step({**metrics("rl", step), "tokens_per_second": 12345.6})
    progress.evaluation(judged(2, "rl", 6))
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(Page(progress))
    shown = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, shown)) <= width
    assert any("50.0 % [25.0, 75.0]" in line for line in shown)
    assert any("3 of 4 steps" in line for line in shown)
    assert any("12,346 tokens/s" in line for line in shown)


def logged(recipe: Path, steps: int, seconds: float) -> list[str]:
    """The lines of a run's last stage, each of whose steps takes so many seconds; the first line is the headline."""
    clock, console = Clock(), Console(file=io.StringIO(), width=200)
    lines = Lines(console, Progress(Path("run"), clock))
    lines.begin(recipes.load(recipe, {"stages.rl.steps": steps}), {"parameters": 1_000_000, "step": 0, "seconds": 0.0})
    lines.evaluation(judged(3, "warmup", 6))
    lines.evaluation(judged(3, "rl", 12, "before"))
    for step in range(steps):
        clock.now += seconds
        lines.step(metrics("rl", step))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_log_gets_twenty_lines_a_stage(recipe: Path) -> None:
    headline, _, _, *shown = logged(recipe, steps=400, seconds=0.01)
    assert headline.startswith("run: grpo, 1 million parameters")
    assert [line.split("  ")[0] for line in shown] == [f"rl {step}/400" for step in range(20, 401, 20)]
    line = next(line for line in shown if line.startswith("rl 40/400"))
    for word in ("reward 9.750", "loss 0.5", "KL to reference 0.25", "entropy 1.000", "left"):
        assert word in line


def test_a_log_gets_a_line_every_ten_seconds(recipe: Path) -> None:
    shown = logged(recipe, steps=400, seconds=6.0)[3:]
    assert [line.split("  ")[0] for line in shown] == [f"rl {step}/400" for step in range(2, 401, 2)]  # of 12 s


def test_a_log_names_the_stage_that_an_evaluation_belongs_to(recipe: Path) -> None:
    _, warmup, before, *_ = logged(recipe, steps=1, seconds=1.0)
    assert warmup.startswith("warmup 0/3  held-out accuracy")
    assert before.startswith("rl, before  held-out accuracy 50.0 %")


def test_a_notebook_redraws_one_output(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Output:
        def update(self, page: str) -> None:
            drawn.append(page)

    notebook = types.ModuleType("IPython.display")
    notebook.HTML = str  # type: ignore[attr-defined]
    notebook.display = lambda page, display_id: Output()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    clock, console = Clock(), Console(file=io.StringIO(), force_jupyter=True)
    with watching(console, Progress(Path("run"), clock)) as watcher:
        watcher.begin(recipes.load(recipe), {"parameters": 1, "step": 0, "seconds": 0.0})
        for step in range(4):
            clock.now += 0.25
            watcher.step(metrics("rl", step))
        assert len(drawn) == 3  # at the beginning, and every half second
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
    assert drawn[-1].startswith("<pre")
    assert "4 of 4 steps" in drawn[-1]


def test_words_for_numbers() -> None:
    assert [duration(s) for s in (1.25, 59, 61, 1800, 7260)] == ["1.2 s", "59 s", "1 min 01 s", "30 min", "2 h 01 min"]
    assert percent(0.4125) == "41.2 %"
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 1, 1], 2) == "▁█"
    assert sparkline([3.0, 3.0], 5) == "▁▁"
    assert sparkline([], 5) == ""
    assert one_line("a\n b  c", 20) == "a b c"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcdef", 4, tail=True) == "…def"


HOSTILE = {
    "clear the screen": "\x1b[2J",
    "write to the clipboard": "\x1b]52;c;cm0gLXJmIH4=\x1b\\",
    "write over the line": "\r\x08\x08",
    "eight-bit control": "\x9b2J\x9d52;c;AA==\x9c",
    "bell": "\x07",
    "turn what follows": "\u202e\u2066",
    "hide it": "\u200b\ufeff\U000e0041",
    "other lines": "\u2028\u2029\x85\x0b",
    "half a pair": "\ud800",
}


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
def test_what_a_terminal_would_obey_is_not_printed(bad: str) -> None:
    """By hand: of the two words nothing but they, and what stands between them as text, is left."""
    obeyed = {0x1B, 0x07, 0x08, 0x0D, 0x0B, 0x85, 0x9B, 0x9C, 0x9D, 0x202E, 0x2066, 0x200B, 0xFEFF, 0xE0041}
    obeyed |= {0x2028, 0x2029, 0xD800}
    for shown in (one_line(f"a{bad}b", 200), printable(f"a{bad}b")):
        assert not obeyed & {ord(c) for c in shown}
        assert (shown[0], shown[-1]) == ("a", "b")
    assert printable("line\nñ 漢 👩‍👩‍👧 \t.") == "line\nñ 漢 👩‍👩‍👧 ."
    sample = {"solved": True, "kind": "x", "prompt": f"p{bad}", "completion": f"c{bad}", "reference": f"a{bad}"}
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(samples_table([sample], 200))
    rate = {"estimate": 0.5, "low": 0.4, "high": 0.6}
    record = {
        "pass@1": rate,
        "problems": 2,
        "kinds": {f"k{bad}": {**rate, "problems": 1}, "l": {**rate, "problems": 1}},
    }
    console.print(pass_table(record))
    console.print(accuracy_table(record, record))
    assert isinstance(console.file, io.StringIO)
    assert not obeyed & {ord(c) for c in console.file.getvalue()}
