"""Several target policies on one log, printed by polopt measure."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from polopt.cli import wording

if TYPE_CHECKING:
    from polopt.metrics import Interval, Measured, Metric, PolicySelection


@dataclasses.dataclass(frozen=True)
class PolicyResults:
    """The results of a metric for several target policies.

    found: the results by the policy's name. refused: why there is none, by name.
    """

    part: Metric
    metric: str
    file: Path
    found: dict[str, Measured]
    refused: dict[str, str]
    selection: PolicySelection

    def show(self, html: Path | None, *, as_json: bool) -> None:
        """Prints the results, and writes their page."""
        if html is not None:
            from polopt.report import write_policies

            write_policies(self.part, self.metric, self.found, self.refused, self.selection, self.file, html)
        if as_json:
            typer.echo(json.dumps(self.data(), indent=1, ensure_ascii=False))
            return
        screen = wording.screen()
        screen.print(self.table())
        for name, why in self.refused.items():
            screen.print(Text(f"\n{name} cannot be estimated: {why}.", style="yellow"), soft_wrap=True)
        cautions: dict[str, list[str]] = {}
        for name, found in self.found.items():
            for caution in found.cautions:
                cautions.setdefault(caution, []).append(name)
        for caution, names in cautions.items():
            screen.print(Text(f"\nCaution, {', '.join(names)}: {caution}.", style="yellow"), soft_wrap=True)
        screen.print(Text(f"\n{verdict(self.selection)}"), soft_wrap=True)
        if html is not None:
            screen.print(f"Report  {html}", soft_wrap=True)

    def data(self) -> dict[str, Any]:
        """Returns the results as JSON data."""
        rows = {one.name: dataclasses.asdict(one) for one in self.selection.candidates}
        policies = {name: {**plain(found), "gain": _finite(rows[name]["gain"])} for name, found in self.found.items()}
        for name, row in rows.items():
            policies[name] |= {"p": row["p"], "better": row["better"]}
        head = {"metric": self.metric, "file": str(self.file), "chosen": self.selection.chosen}
        return {**head, "policies": policies, "refused": self.refused}

    def table(self) -> Table:
        """Returns a line for each policy, the one with the highest lower end first."""
        table = Table(box=None, pad_edge=False)
        table.add_column("policy")
        for head in ("estimate", "", "more than the log", "", "effective episodes"):
            table.add_column(head, justify="right" if head else "left")
        for one in self.selection.candidates:
            size = self.found[one.name].values.get("effective_sample_size")
            table.add_row(
                one.name,
                f"{one.value.estimate:.4g}",
                ends(one.value),
                f"{one.gain.estimate:+.4g}{' *' if one.better else ''}",
                ends(one.gain),
                "" if size is None else f"{size:.4g}",
                style="bold" if one.name == self.selection.chosen else None,
            )
        return table


def policy_results(
    part: Metric, metric: str, file: Path, policies: Mapping[str, str], columns: Mapping[str, str]
) -> PolicyResults:
    """Measures a log for several target policies.

    policies: the column of the target probabilities, by name. columns: the file's own names of the others.
    """
    from polopt.metrics import select_policy
    from polopt.training import measuring

    found, refused = measuring.measure_policies(part, file, policies, columns)
    selection = select_policy(found, getattr(part, "level", 0.95))
    return PolicyResults(part, metric, file, found, refused, selection)


def verdict(selection: PolicySelection) -> str:
    """Returns the choice in a sentence."""
    if selection.chosen is None:
        return "No policy is shown to be better than the one that wrote the log."
    n = len(selection.candidates)
    return (
        f"Choose {selection.chosen}: better than the policy that wrote the log (*, after Holm's correction for {n} "
        f"{'policy' if n == 1 else 'policies'}), and of those the one with the highest lower end."
    )


def plain(found: Measured) -> dict[str, Any]:
    """Converts a result to JSON data; an infinite end of an interval is null."""
    intervals = {name: _finite(dataclasses.asdict(interval)) for name, interval in found.intervals.items()}
    tables = {"tables": [dataclasses.asdict(table) for table in found.tables]} if found.tables else {}
    return {"values": dict(found.values), "intervals": intervals, "cautions": list(found.cautions), **tables}


def _finite(interval: dict[str, Any]) -> dict[str, Any]:
    return interval | {end: None for end in ("low", "high") if not math.isfinite(interval[end])}


def ends(interval: Interval | None) -> str:
    """Returns the ends of an interval and its level."""
    return "" if interval is None else f"[{interval.low:.4g}, {interval.high:.4g}] ({interval.level:.0%})"
