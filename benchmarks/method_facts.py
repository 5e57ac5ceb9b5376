"""Collects what a page says of a method beyond its file: its claims as last measured, its parent, what it needs, where
it runs.

Stored results are read here and nowhere else, so that a change of their form is a change of this file.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import sys
import textwrap
from collections.abc import Mapping
from typing import Any, Literal

from benchmarks import claims, table
from benchmarks.spec import HERE
from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.bridges.table import HOSTS
from polopt.claim import CLAIM_KINDS, Claim
from polopt.method import Method, Tier
from polopt.part import Part
from polopt.part_diff import diff
from polopt.training.control.domain import CONTROL
from polopt.training.provided import LANGUAGE

MAIN_JOB = HERE / "results" / "methods.json"
# The parent of an algorithm whose builder calls no other method's: its groups and no KL where both sides have them.
ROOT, COMMON = "grpo", {"group": 8, "kl": 0.0}

Verdict = Literal["holds", "on some seeds", "fails", "not run yet"]


@dataclasses.dataclass(frozen=True)
class ClaimFacts:
    """A claim as a page shows it.

    measured: by name, the mean over the seeds on which it was run, and its 95 % interval, or None.
    held, runs: on how many of how many seeds it holds, each of them fresh; 0 of 0 if it was run on its own alone.
    won: of a claim that compares over seeds in one run, on how many of how many its criterion is met, or None.
    step_sizes: of such a claim, the step size of each side. commit: at which it was run; empty for that of all.
    """

    name: str
    kind: str
    statement: str
    baseline: str
    verdict: Verdict
    measured: Mapping[str, tuple[float, tuple[float, float] | None]]
    held: int
    runs: int
    won: tuple[int, int] | None
    step_sizes: Mapping[str, float]
    criterion: str
    note: str
    commit: str
    refuted: bool


def claim_facts(claim: Claim, row: Mapping[str, Any] | None) -> ClaimFacts:
    """Returns what a page shows of a claim, from its stored row."""
    row = row or {}
    intervals = row.get("intervals", {})
    measured: dict[str, tuple[float, tuple[float, float] | None]] = {
        name: (float(value), (intervals[name][0], intervals[name][1]) if name in intervals else None)
        for name, value in row.get("measured", {}).items()
    }
    held, runs = int(row.get("held", 0)), int(row.get("runs", 0))
    verdict: Verdict = "not run yet"
    if "holds" in row:
        verdict = "holds" if row["holds"] else "on some seeds" if held else "fails"
    won = row.get("won")
    return ClaimFacts(
        name=claim.name,
        kind=claim.kind,
        statement=claim.statement,
        baseline=claim.baseline,
        verdict=verdict,
        measured=measured,
        held=held,
        runs=runs,
        won=(int(won[0]), int(won[1])) if won else None,
        step_sizes=row.get("step_sizes", {}),
        criterion=str(row.get("criterion", "")),
        note=str(row.get("note", "")),
        commit=str(row.get("commit", "")),
        refuted=claim.refuted,
    )


@functools.cache
def _stored() -> dict[tuple[str, str], dict[str, Any]]:
    """The last rows of all claims, by method and name; none of a claim that said something else then."""
    return {(row["slug"], row["name"]): row for row in claims.merged(claims.stored()["rows"], [])}


def claims_of(slug: str) -> list[ClaimFacts]:
    """Returns a method's claims, by kind, headline effects first, and then in the order of their file."""
    order = list(CLAIM_KINDS)
    found = [claim_facts(claim, _stored().get((slug, claim.name))) for claim in catalogue.claims_of(slug)]
    return sorted(found, key=lambda claim: order.index(claim.kind))  # type: ignore[arg-type]


def earned_tier(m: Method[Any, Part]) -> Tier:
    """Returns the tier that a method has by its stored results.

    A formula that was confirmed at the source is proven where a headline effect, measured beside what it must beat,
    holds on every fresh seed, and no identity fails. A reading stays one: what holds is not the paper's formula.
    """
    if m.tier == "reading":
        return "reading"
    found = claims_of(m.slug)
    shown = any(
        claim.kind == "headline" and claim.verdict == "holds" and claim.runs and claim.baseline and not claim.refuted
        for claim in found
    )
    inexact = any(claim.kind == "identity" and claim.verdict in ("on some seeds", "fails") for claim in found)
    return "proven" if shown and not inexact else "faithful"


@functools.cache
def _planted() -> dict[tuple[str, str], bool]:
    rows = claims.merged_bugs(claims.stored().get("mutations", []), [])
    return {(row["slug"], row["name"]): bool(row["noticed"]) for row in rows}


def bugs_of(slug: str) -> list[tuple[str, str, bool | None]]:
    """Returns, for each bug that is planted in a method, what is wrong, the claim that must notice it, and whether it
    did when it was last run, or None."""
    return [(bug.statement, bug.kills.name, _planted().get((slug, bug.name))) for bug in catalogue.mutations_of(slug)]


@functools.cache
def main_job() -> dict[str, dict[str, Any]]:
    """Returns, by method, its row of the run of all methods on the main job."""
    rows = json.loads(MAIN_JOB.read_text(encoding="utf-8"))["rows"] if MAIN_JOB.is_file() else []
    return {row["name"].partition("(")[0]: row for row in rows}


@functools.cache
def suites() -> dict[str, list[str]]:
    """Returns, by method, sentences on what it reached where its idea matters."""
    found: dict[str, list[str]] = {}
    for file in sorted((HERE / "results").glob("methods-*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        for row in data["rows"]:
            if row["name"] == data["yardstick"]:
                continue
            gaps = ", ".join(
                f"{interval(gap)} at equal {budget}"
                for budget, gap in {"batches": row["difference"], **row["equal"]}.items()
            )
            found.setdefault(row["name"].partition("(")[0], []).append(
                f"On [{data['suite']}](../benchmarks/results/{file.stem}.md), as `{table.brief(row['name'])}` against "
                f"`{data['yardstick']}`, points of held-out accuracy: {gaps}."
            )
    return found


def interval(gap: Mapping[str, float]) -> str:
    """Formats a difference of shares in points, with its 95 % interval."""
    return f"{gap['estimate'] * 100:+.1f} ({gap['low'] * 100:+.1f} to {gap['high'] * 100:+.1f})"


Difference = list[tuple[str, Any, Any]]


@dataclasses.dataclass(frozen=True)
class Parent:
    """The method that another one is compared with.

    settings: those that it is built with. called: whether the other's builder calls it. own: settings that the other is
    built with for the comparison. differences: path, the parent's value, and the other's.
    """

    slug: str
    settings: Mapping[str, Any]
    called: bool
    own: Mapping[str, Any]
    differences: Difference


def parent_of(m: Method[Any, Part]) -> Parent | None:
    """Returns the method that this one is compared with.

    It is one that the builder calls, with the settings that both have; of several, the one with the fewest differences.
    Of a builder that calls none it is GRPO without KL, both with groups of one size. None for GRPO itself, and for a
    method of another kind that calls none.
    """
    module = vars(sys.modules[m.build.__module__])
    tree = ast.parse(textwrap.dedent(inspect.getsource(m.build)))
    names = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    called = {found.slug: found for name in names if isinstance(found := module.get(name), Method)}
    candidates = []
    for slug, found in called.items():
        shared = {key: value for key, value in m.settings().items() if key in found.settings()}
        candidates.append(Parent(slug, shared, True, {}, diff(found(**shared), m())))
    if candidates:
        return min(candidates, key=lambda one: sum(len(repr(b)) for _, _, b in one.differences))
    if m.kind != "algorithm" or m.slug == ROOT:
        return None
    own = {key: value for key, value in COMMON.items() if key in m.settings()}
    return Parent(ROOT, COMMON, False, own, diff(catalogue.method(ROOT, **COMMON), m(**own)))


# Field, output or capability -> what it takes, as the table of the methods names it.
NEEDS: Mapping[str, str] = {
    "value": "critic",
    "ref_logp": "reference policy",
    "prev_logp": "previous policy",
    "group": "groups",
    "turn": "turns",
    "extras.greedy_reward": "greedy answers",
    "logits": "whole distributions",
    "extras.mean_logp": "whole distributions",
    "extras.old_mean_logp": "whole distributions",
    "demonstrations": "demonstrations",
    "solutions": "demonstrations",
    "pairs": "preference pairs",
    "texts": "raw texts",
    "continuations": "continued rollouts",
    "steps": "token-by-token sampling",
    "restored_rows": "stored rollouts",
    "imported_answers": "answers of other learners",
    "gradient_norms": "gradient norms of tasks",
    "prompts": "texts of prompts",
}


def needs_of(m: Method[Any, Part]) -> list[str]:
    """Returns what training by a method takes beyond rollouts, rewards and a policy, with the paper's settings."""
    built = m()
    if not isinstance(built, Algorithm):
        return []
    fields = built.required_fields | built.required_outputs
    capabilities = frozenset[str]().union(*(part.source_capabilities for part in built.parts()))
    found = {NEEDS[name] for name in fields | capabilities if name in NEEDS}
    found |= {"signals of the environment"} if any(name.startswith("extras.signal_") for name in fields) else set()
    found |= {"inner layers"} if any("_of_layer_" in name for name in fields) else set()
    found |= {"teacher"} if built.teacher is not None else set()
    found |= {"tree of rollouts"} if type(built.sampling).__name__ in ("TreeRollouts", "LookaheadRollouts") else set()
    found |= {"second pass over the batch"} if built.objective.required_full_batch_outputs else set()
    return sorted(found)


# Control training of a method whose own sampling is plain: `sampling.Fragments` then takes its place.
_FRAGMENTS = dataclasses.replace(CONTROL, sampling_settings=frozenset({"group", "support"}))


def where_it_runs(m: Method[Any, Part]) -> list[tuple[str, str, str]]:
    """Returns, for each loop and trainer, its name, "yes", a condition or "no", and why not."""
    built = m()
    if not isinstance(built, Algorithm):
        return []
    native, control = LANGUAGE.refusals(built), _FRAGMENTS.refusals(built)
    if not control and "group" in built.required_fields:
        control = ["compares the rows of one prompt, and a fragment has no prompt"]
    rows = [
        ("polopt, language", "no" if native else "yes", "; ".join(native)),
        (
            "polopt, control",
            "no" if control else "with sampling.Fragments and rewards.EnvironmentReward",
            "; ".join(control),
        ),
    ]
    for host in HOSTS:
        refused = host.refusals(built)
        rows.append((host.name, "no" if refused else host.condition(built) or "yes", "; ".join(refused)))
    return rows
