"""Results of a run: accuracy before and after, problems solved and unsolved, the output files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polopt.display.format import duration, one_line, rate
from polopt.training.estimates import estimates_of, label_of, score_of

if TYPE_CHECKING:
    from polopt.training.run import Run

# Problems shown, solved and unsolved each.
SHOWN = 3
# Characters of a kind's name, which may come from data.
KIND = 60


def show_results(console: Console, run: Run) -> None:
    """Prints the results at the end of `polopt train`."""
    from polopt.report import run_notices, write_report

    page = write_report(run.folder)
    evaluations = run.read("evaluations")
    before = next((e for e in evaluations if e["when"] == "before"), None)
    # A run that was extended has one for each end that it had.
    after = next((e for e in reversed(evaluations) if e["when"] == "after"), None)
    for notice in run_notices(run.folder):
        console.print()
        console.print(Text(notice, style="yellow"), soft_wrap=True)
    if before and after:
        console.print()
        others = others_of(run.read("others"))
        console.print(accuracy_table(before, after, others))
        samples = [s for s in run.read("samples") if "other" not in s]
        shown = [s for s in samples if s["when"] == "after" and s["step"] == after["step"]]
        if shown:
            console.print()
            console.print(samples_table(shown, console.width))
    console.print()
    console.print(f"Report  {page}", soft_wrap=True)
    console.print(f"Policy  {run.folder / 'policy'}", soft_wrap=True)
    console.print(f"Time    {duration(run.about['seconds'])}")


def others_of(records: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Returns the first and last measurement of each set of other problems, by its name."""
    found = {}
    for name in dict.fromkeys(record["name"] for record in records):
        own = [record for record in records if record["name"] == name]
        found[name] = (own[0], own[-1])
    return found


def accuracy_table(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    others: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = MappingProxyType({}),
) -> Table:
    """Tabulates held-out accuracy with 95 % intervals, over the mix and for each kind of task; below, problems that
    were not trained on."""
    first_score, (score, last_score) = score_of(before)[1], score_of(after)
    heading = label_of(score, last_score).capitalize()
    table = Table(title=f"{heading}, 95 % intervals", title_justify="left", box=None, pad_edge=False)
    table.add_column("tasks")
    table.add_column("n", justify="right")
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("change", justify="right", no_wrap=True)
    rows = [("all", before["problems"], first_score, last_score)]
    if len(after.get("kinds", ())) > 1:
        rows += [(kind, a["problems"], before["kinds"][kind], a) for kind, a in after["kinds"].items()]
    for name, problems, b, a in rows:
        whole = a is last_score
        change = points(before, after, None if whole else name)
        cells = (Text(one_line(name, KIND)), str(problems), rate(b), rate(a), change)
        table.add_row(*cells, style="bold" if whole else None)
    for name, (first, last) in others.items():
        label = Text(one_line(f"{name} (not trained)", KIND))
        rates = (rate(score_of(first)[1]), rate(score_of(last)[1]), points(first, last, None))
        table.add_row(label, str(last["problems"]), *rates, style="dim")
    return table


def points(before: Mapping[str, Any], after: Mapping[str, Any], kind: str | None) -> str:
    """Formats the change of accuracy in percentage points with its paired interval: +3.7 [-0.4, +7.9]."""
    from polopt.training.evaluate import change

    found = change(before, after, kind)
    if found is None:
        return "–"
    return f"{100 * found.estimate:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def samples_table(samples: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Tabulates a few problems, solved and unsolved, of as many kinds as possible."""
    chosen = _some(samples, True) + _some(samples, False)
    table = Table(title="Some of its answers", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for name in ("problem", "answer", "expected"):
        table.add_column(name, no_wrap=True)
    room = min(width, 110) - 12
    for sample in chosen:
        mark = Text("✓", style="green") if sample["solved"] else Text("✗", style="red")
        table.add_row(
            mark,
            Text(one_line(sample["prompt"], room // 2, tail=True)),
            Text(one_line(sample["completion"], room // 4)),
            Text(one_line(sample.get("reference") or "", room // 4)),
        )
    return table


def _some(samples: Sequence[Mapping[str, Any]], solved: bool) -> list[Mapping[str, Any]]:
    of_kind: dict[str, list[Mapping[str, Any]]] = {}
    for sample in samples:
        if sample["solved"] is solved:
            of_kind.setdefault(sample["kind"], []).append(sample)
    turns = [found for n in range(SHOWN) for kind in of_kind.values() for found in kind[n : n + 1]]
    return turns[:SHOWN]


def return_table(record: Mapping[str, Any]) -> Table:
    """Tabulates the mean returns of a control policy and of rules, and each rule's difference from the policy."""
    from polopt.metrics import welch_difference

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for head in ("mean return, 95 % interval", "episodes", "against the policy"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_row("policy", rate(record["return"]), str(record["problems"]), "", style="bold")
    for name, found in record.get("rules", {}).items():
        difference = welch_difference(found["returns"], record["returns"])
        shown = f"{difference.estimate:+.4g} [{difference.low:+.4g}, {difference.high:+.4g}]"
        table.add_row(Text(one_line(name, KIND)), rate(found["return"]), str(found["problems"]), shown)
    return table


def pass_table(record: Mapping[str, Any]) -> Table:
    """Tabulates each estimate over the mix, and the main one for each kind of task."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("problems", justify="right")
    for name, found in estimates_of(record).items():
        table.add_row(name, rate(found), str(record["problems"]), style="bold")
    for kind, found in record["kinds"].items() if len(record["kinds"]) > 1 else ():
        table.add_row(Text(f"  {one_line(kind, KIND)}"), rate(found), str(found["problems"]))
    return table
