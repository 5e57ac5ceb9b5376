"""Hostile answers to every scorer, through the processes that judge them.

    python -m benchmarks.fuzz_scorers --answers 100000 --out benchmarks/results/fuzz_scorers.md

Every data set of reasoning_gym and every verifier is asked about mutations of right answers, huge numbers, nested
brackets, Unicode, Python expressions and LaTeX. Counted is what must never happen: an exception in the learner, a trace
of code that ran, a batch that takes longer than its limits allow, memory that the learner does not give back. Seeded:
the same answers every time.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.rewards.unit_tests import metrics
from polopt.worlds import ReasoningGym, Task, make_verifier
from polopt.worlds.reasoning_gym import UNSTABLE, _registry
from polopt.worlds.scoring.fork_server import STARVED
from polopt.worlds.scoring.place import judged_in
from polopt.worlds.scoring.pool import ScorerPool

# Answers to a batch, and tasks of a data set.
BATCH, TASKS = 200, 8
VERIFIERS = ("exact", "numeric", "regex", "math-verify", "unit-tests")
PATTERNS = (r"(a+)+$", r"(\w+\s?)*!$", r"^(\d|\d\d)*x$", r"((a|a)+b?)+c", r"\d+")
MATHEMATICS = ("7", "1/2", "x^2+2x+1", "\\frac{2}{4}", "[0, 1)", "\\{1, 2\\}")
HUGE = ("1e999999999", "1e999,999,999", "１e99999999", "9**9**9**9", "10**10**10", "1/1e-999999999", "R1300000000")
HUGE += (
    "A+99999999999",
    "99999999999!",
    "2^{2^{2^{99}}}",
    "factorial(10**9)",
    "0x" + "f" * 4000,
    "1" * 5000,
    "٣" * 400,
)
HUGE += ("1e9_9_9_9_9", "nan", "-inf", "1e308*10", "(x+y+z+w)**500", "(1+x)**(1+x)**(1+x)**99", "exp(exp(exp(99)))")
LATEX = (
    "\\frac{1}{0}",
    "\\boxed{" * 200,
    "$" * 300,
    "\\int_0^\\infty e^{-x^{x^{x}}}dx",
    "\\sum_{i=1}^{10^{10}} i!",
    "\\sqrt" * 99,
)
LATEX += (
    "\\begin{matrix}" * 60,
    "\\left(" * 120,
    "{" * 400,
    "\\frac{" * 90 + "1",
    "\\binom{10^9}{5^8}",
    "9^{9^{9^9}}",
    "10^{10^{9}}!",
)
ODD = (
    "",
    " ",
    "\0",
    "\x1b[2J",
    "\u202e\u2066",
    "𝟙𝟚𝟛",
    "½",
    "Ⅷ",
    "İ" * 300,
    "\ud7ff",
    "é" * 999,
    "ﷺ" * 500,
    "a" * 60 + "b",
    "\n" * 999,
)
ODD += (
    "[]",
    "{}",
    "()",
    "None",
    "True",
    "False",
    "[[]]",
    '{"a": 1}',
    "'",
    '"""',
    "\\",
    "#",
    "0,0",
    "0 0",
    ",",
    "_",
    "-",
    ".",
    "…",
)


def code(folder: str) -> tuple[str, ...]:
    """Python that leaves a trace in a folder if anybody runs it."""
    trace = f"{folder}/ran"
    touch = f"__import__('pathlib').Path({trace!r}).touch()"
    system = f"__import__('os').system({f'touch {trace}'!r})"
    classes = "().__class__.__base__.__subclasses__()"
    return (
        touch,
        system,
        f"[{touch}]",
        f"(lambda: {touch})()",
        f"[x for x in [{touch}]]",
        f"f'{{{touch}}}'",
        f"exec({touch!r})",
        f"eval({touch!r})",
        f"open({trace!r}, 'w')",
        f"{classes}[0]",
        f"[c for c in {classes} if c.__name__ == 'Popen'][0]('touch {trace}', shell=True)",
        f"x.__class__.__init__.__globals__['__builtins__']['open']({trace!r}, 'w')",
        f"sympify({touch!r})",
        f"\\write18{{touch {trace}}}",
        "__import__('os')._exit(0)",
        "__import__('os').environ.clear()",
        "__import__('time').sleep(1e6)",
        "exit()",
    )


def mutated(text: str, draw: random.Random) -> str:
    """A right answer with something done to it."""
    place = draw.randrange(len(text) + 1)
    kind = draw.randrange(9)
    if kind == 0:
        return text[:place] + draw.choice("0123456789 ,.()[]{}+-*/^_\\$e\n٣１−") + text[place:]
    if kind == 1:
        return text[:place] + text[place + 1 :]
    if kind == 2:
        return text * draw.choice((2, 9, 50))
    if kind == 3:
        return "".join(draw.sample(text, len(text)))
    if kind == 4:
        return "".join(str(draw.randrange(10 ** draw.randrange(1, 30))) if c.isdigit() else c for c in text)
    if kind == 5:
        return text[::-1]
    if kind == 6:
        return text.upper() + draw.choice((" ", "\n", ",", " and more", "\0"))
    if kind == 7:
        return "".join(chr(0xFEE0 + ord(c)) if "!" <= c <= "~" else c for c in text)
    return text[:place] + draw.choice(HUGE) + text[place:]


def nested(draw: random.Random) -> str:
    depth = draw.choice((3, 50, 200, 1000, 5000))
    opening, closing = draw.choice(("()", "[]", "{}", "--", "~ ", "!.", "<>"))
    middle = draw.choice(("", "1", "x", "a,b"))
    return opening * depth + middle + closing * (depth if draw.random() < 0.7 else 0)


def expression(draw: random.Random, depth: int = 0) -> str:
    """Arithmetic, with powers in it."""
    if depth > 5 or draw.random() < 0.2:
        return draw.choice(("x", "y", "z", "C", "pi", "E", "I", "oo", str(draw.randrange(10 ** draw.randrange(1, 9)))))
    if draw.random() < 0.2:
        called = draw.choice(("sin", "exp", "sqrt", "log", "gamma", "factorial", "Sum", "tan"))
        return f"{called}({expression(draw, depth + 1)})"
    operation = draw.choice((" + ", " - ", "*", "/", "**", "**", "//", "%", "^", "!", ","))
    return f"({expression(draw, depth + 1)}{operation}{expression(draw, depth + 1)})"


def hostile(right: Sequence[str], traps: Sequence[str], draw: random.Random) -> str:
    """One answer. right: right answers to the like. traps: code that must not run."""
    kind = draw.random()
    if kind < 0.45:
        return mutated(draw.choice(right), draw)
    if kind < 0.60:
        return draw.choice((draw.choice(HUGE), draw.choice(LATEX), draw.choice(ODD)))
    if kind < 0.72:
        return nested(draw)
    if kind < 0.85:
        return expression(draw)
    trap = draw.choice(traps)
    return draw.choice((trap, f" {trap}", f"[{trap}]", f"{draw.choice(right)} + {trap}", f"${trap}$", f"({trap}, 1)"))


@dataclasses.dataclass
class FuzzResult:
    """What has happened so far. slow: batches that took longer than their limits allow."""

    answers: int = 0
    solved: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    raised: int = 0
    lost: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    losers: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    exceptions: list[str] = dataclasses.field(default_factory=list)
    slow: int = 0
    longest: float = 0.0

    def add(self, name: str, judged: Sequence[tuple[float, dict[str, Any]]]) -> None:
        self.answers += len(judged)
        for _, info in judged:
            self.solved[name] += bool(info.get("solved"))
            self.raised += "scorer_error" in info
            if "lost" in info:
                self.lost[info["lost"]] += 1
                self.losers[name] += 1


def run_batch(
    result: FuzzResult,
    name: str,
    score: Callable[[Sequence[tuple[str, Any]]], list[tuple[float, dict[str, Any]]]],
    answered: Sequence[tuple[str, Any]],
    seconds: float,
) -> None:
    """One batch. seconds: that one answer may take."""
    begun, lost = time.monotonic(), sum(result.lost.values())
    try:
        result.add(name, score(answered))
    except Exception as error:
        result.exceptions.append(f"{name}: {type(error).__name__}: {error}"[:200])
    took = time.monotonic() - begun
    # An answer that is not lost may have taken nearly as long as one that is, and a busy machine stretches both.
    allowed = 60 + STARVED * seconds * (sum(result.lost.values()) - lost) + seconds * len(answered)
    result.slow += took > allowed
    result.longest = max(result.longest, took)


def verifier(name: str, draw: random.Random) -> tuple[Callable[..., Any], list[tuple[str, Any]]]:
    """How this verifier judges, and (right answer, row) of some rows."""
    if name == "unit-tests":
        good = "def test_add_pair():\n    assert add(1, 2) == 3"
        return lambda many: [(sum(metrics(text, row).values()), {}) for text, row in many], [(good, "add")]
    weighted = make_verifier(name)
    if name == "regex":
        return weighted.judge_many, [("aaab 1", {"prompt": "p", "answer": "a", "pattern": p}) for p in PATTERNS]
    rights = ("7", "1/2", "12.5%") if name in ("exact", "numeric") else MATHEMATICS
    return weighted.judge_many, [(right, {"prompt": "p", "answer": right}) for right in rights]


def data_set(name: str) -> tuple[Callable[..., Any], list[tuple[str, Any]]]:
    """The same of a data set."""
    world = ReasoningGym({name: {}}, size=TASKS)
    tasks: list[Task] = [world[i] for i in range(TASKS)]
    return world.score_many, [(str(task.row["answer"]), task) for task in tasks]


def fuzz(names: Sequence[str], answers: int, pool: ScorerPool, seed: int = 0) -> Iterator[tuple[str, FuzzResult]]:
    """Run each of these scorers on its share of so many answers; yields the results after each.

    Raises:
        RuntimeError: code in an answer has run.
    """
    result = FuzzResult()
    with tempfile.TemporaryDirectory() as folder, judged_in(pool):
        traps = code(folder)
        for place, name in enumerate(names):
            draw = random.Random(f"{seed}/{name}")
            score, rows = verifier(name, draw) if name in VERIFIERS else data_set(name)
            right = [text for text, _ in rows]
            count = answers // len(names) + (place < answers % len(names))
            answered = [(hostile(right, traps, draw), draw.choice(rows)[1]) for _ in range(count)]
            for first in range(0, count, BATCH):
                run_batch(result, name, score, answered[first : first + BATCH], pool.timeout)
            if os.listdir(folder):
                raise RuntimeError(f"{name}: an answer has run as code: {os.listdir(folder)}")
            yield name, result


def scorers() -> list[str]:
    """Every data set that can be had here, and every verifier."""
    names = []
    for name in sorted(_registry()):
        with contextlib.suppress(ConfigError):
            data_set(name)
            names.append(name)
    return [*names, *VERIFIERS]


def memory() -> float:
    """MB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def report(found: FuzzResult, names: Sequence[str], settings: str, before: float, seconds: float) -> str:
    """The result as a page."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("reasoning-gym", "math-verify", "sympy", "torch"))
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    lost = ", ".join(f"{n} {why}" for why, n in found.lost.most_common()) or "none"
    lines = [
        "# Hostile answers to scorers",
        "",
        f"`{' '.join(['python -m benchmarks.fuzz_scorers', *settings.split()])}`, {platform.machine()}, "
        f"{os.cpu_count()} cores (shared with other work), Linux {platform.release()}, "
        f"Python {platform.python_version()}, {packages}.",
        "",
        f"{found.answers:,} answers to {len(names) - len(VERIFIERS)} data sets and {len(VERIFIERS)} verifiers, in "
        f"{seconds / 60:.0f} minutes.",
        "",
        "| what | count |",
        "|---|---|",
        f"| exceptions in the learner | {len(found.exceptions)} |",
        "| answers that ran as code | 0 |",
        f"| batches beyond the limits of their answers | {found.slow} |",
        f"| answers lost, by reason | {lost} |",
        f"| answers that a scorer raised on | {found.raised:,} |",
        f"| answers taken for right | {found.solved.total():,} |",
        f"| memory of the learner, before and after | {before:.0f} MB, {memory():.0f} MB |",
        f"| memory of the largest worker | {most:.0f} MB |",
        f"| longest batch of {BATCH} | {found.longest:.0f} s |",
        "",
        "Mutation leaves some answers right (spaces, letter case, a sign of no weight). Taken for right most often: "
        + ", ".join(f"{name} {n}" for name, n in found.solved.most_common(8))
        + f", of {found.answers // len(names)} each.",
        "",
        "Lost by scorer: " + (", ".join(f"{name} {n}" for name, n in found.losers.most_common()) or "none") + ".",
    ]
    lines += ["", *(f"- {one}" for one in found.exceptions)] if found.exceptions else []
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=1.0)
    parser.add_argument("--memory", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    if UNSTABLE and sys.flags.hash_randomization:
        sys.exit("set PYTHONHASHSEED=0, so that every data set can be scored")
    names, pool = scorers(), ScorerPool(options.workers, options.timeout, options.memory)
    begun, before = time.monotonic(), memory()
    settings = (
        f"--answers {options.answers} --workers {options.workers} --timeout {options.timeout} --memory {options.memory}"
    )
    write = functools.partial(report, names=names, settings=settings, before=before)
    for name, found in fuzz(names, options.answers, pool, options.seed):
        print(
            f"{time.monotonic() - begun:6.0f} s {found.answers:7} {name:28} lost {sum(found.lost.values())}", flush=True
        )
    pool.close()
    page = write(found, seconds=time.monotonic() - begun)
    print(page)
    if options.out is not None:
        options.out.write_text(page)
    sys.exit(bool(found.exceptions or found.slow))


if __name__ == "__main__":
    main()
