"""Run every method's claims, and keep the results: benchmarks/results/claims.json, shown on the pages of the methods.

python -m benchmarks.claims                 all claims and planted bugs, on five seeds that they were not made with
python -m benchmarks.claims --only bnpo     these methods' again; the others' results stay
python -m benchmarks.claims --only cot2:improves   one claim, and the bugs that it must notice
python -m benchmarks.claims --cost fast     those of a few seconds; the results of the others stay
python -m benchmarks.claims --cluster auto  on every CPU of a Ray cluster
python -m benchmarks.claims --processes 1   one at a time
python -m benchmarks.claims --first-seed 77 --flips   on other fresh seeds; names what changes, and keeps nothing
python -m benchmarks.claims --first-seed 77 --add     on other fresh seeds, which count beside those of the results

What is done is kept in runs/claims.jsonl, and continued when the command is stopped and given again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import table
from benchmarks.spec import HERE
from polopt import catalogue, evidence
from polopt.claim import Cost
from polopt.cli.claims_page import measured
from polopt.evidence import ClaimResult, ClaimRun
from polopt.names import nearest

ROOT = HERE.parent
RESULTS = HERE / "results" / "claims.json"
KEPT = ROOT / "runs" / "claims.jsonl"
SEEDS = 5


def killed(row: ClaimResult) -> dict[str, Any]:
    """A planted bug's row of the results."""
    bug = next(m for m in catalogue.mutations_of(row.slug) if m.name == row.mutation)
    return {
        "slug": row.slug,
        "name": row.mutation,
        "statement": bug.statement,
        "claim": row.name,
        "noticed": row.noticed,
        "why not": "" if row.ended else row.note,
    }


def stored() -> dict[str, Any]:
    """The last results; nothing if there are none."""
    empty: dict[str, Any] = {"about": {}, "rows": [], "mutations": []}
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else empty


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """New rows of claims in the place of the old ones of the same name, in the order of the names. Old ones whose claim
    is no more, or says something else now, go."""
    now = {
        (slug, claim.name): (claim.statement, list(claim.controls))
        for slug in catalogue.slugs()
        for claim in catalogue.claims_of(slug)
    }
    kept = [
        row for row in old if now.get((row["slug"], row["name"])) == (row["statement"], list(row.get("controls", ())))
    ]
    rows = {(row["slug"], row["name"]): row for row in [*kept, *new]}
    return [rows[key] for key in sorted(rows)]


def added(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """New rows of claims, each with the seeds of an old one of the same claim counted in. What is measured is that of
    the new seeds.

    Raises:
        ValueError: a seed is one of the old row's.
    """
    before = {(row["slug"], row["name"], row["statement"]): row for row in old}
    rows = []
    for row in new:
        earlier = before.get((row["slug"], row["name"], row["statement"]))
        if earlier is not None:
            if again := sorted({*earlier["seeds"]} & {*row["seeds"]}):
                raise ValueError(f"{row['slug']} {row['name']}: seeds {again} count already; take another --first-seed")
            row = row | {name: earlier[name] + row[name] for name in ("held", "runs", "seeds")}
            row["holds"] = row["held"] == row["runs"]
        rows.append(row)
    return rows


def merged_bugs(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As `merged`, of planted bugs."""
    now = {(slug, bug.name): bug.statement for slug in catalogue.slugs() for bug in catalogue.mutations_of(slug)}
    kept = [row for row in old if now.get((row["slug"], row["name"])) == row["statement"]]
    rows = {(row["slug"], row["name"]): row for row in [*kept, *new]}
    return [rows[key] for key in sorted(rows)]


def flips(rows: list[dict[str, Any]]) -> list[str]:
    """The claims whose verdict is not that of the results, with the seeds on which they hold. Results of a claim's own
    seeds alone count as one."""
    before = {(row["slug"], row["name"]): row for row in stored()["rows"]}
    found = []
    for row in rows:
        old = before.get((row["slug"], row["name"]))
        if old is not None and old["holds"] != row["holds"]:
            held, runs = old.get("held", int(old["holds"])), old.get("runs", 1)
            found.append(f"{row['slug']} {row['name']}: {row['held']} of {row['runs']}, was {held} of {runs}")
    return found


def chosen(only: Sequence[str], cost: Cost | None) -> tuple[list[tuple[str, str]], list[ClaimRun]]:
    """Returns the claims and the planted bugs that are to be run.

    only: names of methods, each for all of its claims, or METHOD:CLAIM; none for those of all methods. cost: as in
        `evidence.planned_claims`.

    Raises:
        ValueError: there is no such method, or it has no such claim of that cost; the nearest name is given.
    """
    wanted: dict[str, set[str]] = {}
    for name in only:
        slug, _, claim = name.partition(":")
        known = [name for _, name in evidence.planned_claims([slug], cost)]
        if claim and claim not in known:
            raise ValueError(f"{slug} has no claim {claim!r:.60} to run{nearest(claim, known)}")
        wanted.setdefault(catalogue.slug_of(slug), set()).update([claim] if claim else known)
    slugs = list(wanted) or catalogue.slugs()

    def of(slug: str, claim: str) -> bool:
        return not wanted or claim in wanted[slug]

    claims = [(slug, name) for slug, name in evidence.planned_claims(slugs, cost) if of(slug, name)]
    return claims, [run for run in evidence.planned_mutations(slugs, cost) if of(run.slug, run.claim)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="METHOD[:CLAIM]")
    parser.add_argument("--cost", choices=["fast", "slow"], help="the claims of a few seconds alone, or the others")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Ray cluster; processes of this machine if none")
    parser.add_argument("--processes", type=int, metavar="N", help="at once on this machine; one for each core if none")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N")
    parser.add_argument(
        "--first-seed", type=int, default=1, metavar="N", help="0 is the one that a claim was made with"
    )
    parser.add_argument("--flips", action="store_true", help="compare with the results instead of replacing them")
    parser.add_argument("--add", action="store_true", help="count the seeds of the results, too, instead of replacing")
    options = parser.parse_args()
    start = time.time()
    cost: Cost | None = options.cost
    planned, bugs_planned = chosen(options.only, cost)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs: list[ClaimRun] = [*evidence.planned_runs(planned, seeds), *bugs_planned]
    about = table.about(ROOT, threads=1, module="claims")
    found = measured(runs, Console(), evidence.run_spread(runs, options.cluster, KEPT, options.processes))
    seeded = evidence.by_claim([row for row in found if not row.mutation], planned)
    rows, bugs = [claim.summary() for claim in seeded], [killed(row) for row in found if row.mutation]
    seconds = time.time() - start
    if options.flips:
        changed = flips(rows)
        print("\n".join(changed) or "nothing flips")
        raise SystemExit(1 if changed else 0)
    for row in rows:
        row["commit"] = about["commit"]
    before = stored()
    if options.add:
        rows = added(before["rows"], rows)
    whole = not options.only and cost is None
    about = {**about, "seconds": seconds} if whole or not before["about"] else before["about"]
    data = {
        "about": about,
        "rows": merged(before["rows"], rows),
        "mutations": merged_bugs(before.get("mutations", []), bugs),
    }
    RESULTS.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    held, noticed = sum(row["holds"] for row in rows), sum(bug["noticed"] for bug in bugs)
    print(
        f"{held} of {len(rows)} claims hold on every seed, {noticed} of {len(bugs)} planted bugs are noticed, "
        f"{seconds:.0f} s; written to {Path(RESULTS).relative_to(ROOT)}"
    )


if __name__ == "__main__":
    main()
