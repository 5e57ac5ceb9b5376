"""polopt check."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from command import flat, polopt

from polopt import checks

PAGE = Path(__file__).parents[2] / "docs" / "check.md"
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHOWN = re.compile(r"^    polopt (check [^\n]*)\n\n```text\n(.*?)```", re.MULTILINE | re.DOTALL)

LOSSES = """
import torch

from polopt.credit import Baseline, ConstantAdvantage
from polopt.checks.sample_batches import random_batch

def good(logp, advantage, mask):
    return -torch.where(mask, torch.where(mask, logp, 0) * torch.where(mask, advantage, 0), 0).sum()

def bad(logp, advantage, mask):
    return -(logp * advantage * mask).sum() / mask.sum()

class First(Baseline):
    def forward(self, experience, returns):
        return returns[:1].expand_as(returns)

class Module(torch.nn.Module):
    def forward(self, logp, advantage, mask):
        return good(logp, advantage, mask)

class Heavy(ConstantAdvantage):
    value: float
    weight: float

class Weather(Baseline):
    reads = frozenset({"extras.weather"})

    def forward(self, experience, returns):
        return experience.extras["weather"]

def weather(seed, clean=False):
    batch = random_batch(seed, clean=clean)
    return batch.replace(extras={"weather": torch.arange(len(batch.mask)).double()})

def build(group: int = 8):
    return Heavy(value=1.0, weight=2.0)

part = Heavy(value=1.0, weight=2.0)
number = 3

def strange(logp, wisdom):
    return logp.sum()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(LOSSES)
    return tmp_path


def test_a_good_loss_ends_with_0(place: Path) -> None:
    result = polopt("check", "own.py:good", "--no-lab")
    assert result.exit_code == 0
    assert "own.py:good plain loss" in flat(result.output)
    assert "11 of 11 hold." in result.output
    assert re.search(r"^padding +holds", result.output, re.MULTILINE)


def test_a_bad_one_ends_with_1_and_shows_why(place: Path) -> None:
    result = polopt("check", "own.py:bad", "--no-lab")
    assert result.exit_code == 1
    assert re.search(r"^off the mask +breaks +NaN off the mask", result.output, re.MULTILINE)
    assert re.search(r"^micro-batches +choice +it divides by the decisions", result.output, re.MULTILINE)
    assert "Choices: micro-batches. Breaks: no decisions, off the mask." in result.output


def test_examples_can_be_pasted_from_the_screen(place: Path) -> None:
    output = polopt("check", "own.py:bad", "--no-lab").output
    blocks = re.findall(r"\n\n((?:    .*\n|\n)+?)\n\S", output)
    scripts = ["\n".join(line[4:] for line in block.splitlines()) for block in blocks]
    assert len(scripts) == 2
    for script in scripts:
        try:
            with pytest.raises(AssertionError):
                exec(compile(script, "pasted", "exec"), {})
        finally:
            torch.set_default_dtype(torch.float32)


def test_bias_and_variance_stand_under_the_table(place: Path) -> None:
    output = polopt("check", "own.py:good").output
    row = re.search(r"^lengths +300 of 4 x 4 answers +(\S+) +(\S+) +(\S+) +(\S+) +(\S+) ± (\S+)$", output, re.MULTILINE)
    assert row is not None
    (report,) = checks.check(checks.PlainLoss(function=lambda logp, advantage, mask: logp.sum()), lab=False)
    assert report.lab == ""
    cosine, scale, left, error, *_ = map(float, row.groups())
    # A sum over 4 prompts x 4 answers: 16 times the gradient, and as far off as sampling leaves it.
    assert cosine > 0.99
    assert scale == pytest.approx(16, rel=0.1)
    assert left < 3 * error


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("own.py:First", "baseline"),
        ("own.py:Module", "plain loss"),
        ("own.py:build", "credit"),
        ("own.py:part", "credit"),
        ("objectives.Clip", "trust region"),
        ("{part: objectives.Clip, low: 0.1}", "trust region"),
        ("wrong_parts:OffMask", "credit"),
        ("rloo", "objective"),
        ("{name: rloo, group: 3}", "objective"),
    ],
)
def test_what_can_be_named(place: Path, name: str, kind: str) -> None:
    reports = json.loads(polopt("check", name, "--no-lab", "--json").stdout)
    assert reports[0]["kind"] == kind
    assert reports[0]["name"].startswith(name)
    assert any(f["title"] == "padding" for f in reports[0]["findings"])


def test_json_holds_all_of_it(place: Path) -> None:
    result = polopt("check", "own.py:bad", "own.py:good", "--json")
    assert result.exit_code == 1
    bad, good = json.loads(result.stdout)
    assert (bad["breaks"], good["breaks"]) == (True, False)
    finding = next(f for f in bad["findings"] if f["title"] == "off the mask")
    assert finding["verdict"] == "breaks"
    assert finding["example"].splitlines()[-1].startswith("assert found.isfinite()")
    assert {"said", "why", "measured", "short"} <= finding.keys()
    assert [row["problem"] for row in good["lab"]] == ["digits", "lengths", "digits, off policy"]


def test_markdown_is_one_page_of_all(place: Path) -> None:
    result = polopt("check", "own.py:good", "own.py:bad", "--no-lab", "--markdown")
    assert result.exit_code == 1
    page = result.stdout
    table = [line for line in page.splitlines() if line.startswith("| `own.py")]
    assert table[0].count("holds") == 11
    assert "**breaks**: NaN, inf" in table[1]
    assert "choice: by its decisions" in table[1]
    assert "## Off the mask" in page
    assert "`own.py:bad`: **breaks**. NaN off the mask" in page
    assert "```py\n" in page
    assert "## Padding" not in page


def test_a_batch_of_ones_own(place: Path) -> None:
    assert polopt("check", "own.py:Weather", "--no-lab", "--batch", "own.py:weather").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gropo"], "there is no method 'gropo'; did you mean 'grpo'?"),
        (["objectives.Clp"], "polopt.objectives has no part 'Clp'; did you mean 'Clip'?"),
        (["own.py:goood"], "own.py has no 'goood'; did you mean 'good'?"),
        (["nowhere.py:loss"], "nowhere.py does not exist"),
        (["own.py:number"], "own.py:number is 3, expected a part or a function"),
        (["own.py:strange"], "strange: argument 'wisdom' is none that a check can give"),
        (["own.py:Heavy"], "own.py:Heavy does not build without settings"),
        (["own.py:weather"], "argument 'seed' is none that a check can give"),
        (["own.py:Weather", "--no-lab"], "needs extras.weather, which the batches of the check do not have"),
        (["schedules.Schedule"], "schedules.Schedule does not build without settings"),
        (["sampling.Rollouts"], "sampling.Rollouts is no kind of part that can be checked"),
        (
            ["broken.py:loss"],
            "broken.py cannot be loaded: NameError: name 'nothing' is not defined (broken.py, line",
        ),
        (["trl:grpoo"], "TRL has no loss 'grpoo' here; did you mean 'grpo'?"),
    ],
)
def test_bad_input_gets_one_sentence(place: Path, arguments: list[str], sentence: str) -> None:
    (place / "broken.py").write_text("\nnothing\n")
    result = polopt("check", *arguments)
    assert result.exit_code == 2, result.output
    assert sentence in flat(result.stderr)
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("name", "library"), [("trl:grpo", "trl"), ("verl:vanilla", "verl")])
def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch, name: str, library: str) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    result = polopt("check", name)
    assert result.exit_code == 2
    assert f"{name} needs {library}, which is not installed: pip install" in flat(result.stderr)


def without_numbers(text: str) -> list[str]:
    return [re.sub(r"\d[\d.e-]*", "#", " ".join(line.split())) for line in text.splitlines() if line.strip()]


def test_the_page_shows_what_is_printed(place: Path) -> None:
    """Every command of docs/check.md with its output, but for the digits, which depend on the machine."""
    page = PAGE.read_text()
    loss, part, *_ = SNIPPET.findall(page)
    (place / "my_loss.py").write_text(loss)
    (place / "my_credit.py").write_text(part)
    shown = SHOWN.findall(page)
    assert len(shown) == 3
    for command, output in shown:
        result = polopt(*command.split())
        assert without_numbers(result.output) == without_numbers(output), command
