"""Run every method's claims and keep the result: benchmarks/results/claims.json, shown in docs/methods.md.

python -m benchmarks.claims               all claims, one process a core
python -m benchmarks.claims --only bnpo   these methods' claims again; the others' results stay
python -m benchmarks.claims --cluster auto   on every CPU of a Ray cluster
python -m benchmarks.claims --seeds 5     the fast ones on their own seeds and on four fresh ones; claims-seeds.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks import table
from benchmarks.spec import HERE
from polopt import catalogue
from polopt.training.spread import Spread, spread_over

ROOT = HERE.parent
RESULTS = HERE / "results" / "claims.json"
SEEDED = HERE / "results" / "claims-seeds.json"


def check(slug: str) -> list[dict[str, Any]]:
    """The claims of one method, run on one thread."""
    torch.set_num_threads(1)
    return [dataclasses.asdict(result) for result in catalogue.run_claims([slug])]


def checked(slugs: list[str], cluster: str | None) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        if cluster is None:
            spread: Spread = stack.enter_context(ProcessPoolExecutor(os.cpu_count() or 1)).map
        else:
            spread = stack.enter_context(spread_over(cluster))
        for rows in spread(check, slugs):
            yield from rows


def stored() -> dict[str, Any]:
    """The last full result; nothing if there is none."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"about": {}, "rows": []}


def on_seeds(slugs: list[str], seeds: int, about: dict[str, Any]) -> None:
    """Runs the fast claims on several seeds, and writes on how many each holds; a run that is stopped goes on."""
    found = seeded() if SEEDED.is_file() else {"rows": []}
    done = {(row["slug"], row["name"]) for row in found["rows"] if row["commit"] == about["commit"]}
    planned = [which for which in catalogue.planned_claims(slugs, "fast") if which not in done]
    rows = {(row["slug"], row["name"]): row for row in found["rows"]}
    for claim in catalogue.run_on_seeds(planned, seeds):
        first = claim.rows[0]
        rows[first.slug, first.name] = {
            "slug": first.slug,
            "name": first.name,
            "kind": first.kind,
            "held": claim.held,
            "seeds": len(claim.rows),
            "commit": about["commit"],
            "measured": [row.measured for row in claim.rows],
            "notes": [row.note for row in claim.rows if row.note.startswith("raised ")],
        }
        print(f"{first.slug} {first.name}: holds on {claim.held} of {len(claim.rows)} seeds", flush=True)
        data = {"about": about, "rows": [rows[key] for key in sorted(rows)]}
        SEEDED.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def seeded() -> dict[str, Any]:
    """The last result on several seeds; nothing if there is none."""
    return json.loads(SEEDED.read_text(encoding="utf-8")) if SEEDED.is_file() else {"about": {}, "rows": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="METHOD")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Ray cluster; processes of this machine if none")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="of the fast claims, the own one among them")
    options = parser.parse_args()
    about, start = (
        {**table.about(ROOT, threads=1, module="claims"), "command": "python -m benchmarks.claims"},
        time.time(),
    )
    slugs = options.only or catalogue.slugs()
    if options.seeds > 1:
        on_seeds(slugs, options.seeds, about)
        return
    rows = [row for row in stored()["rows"] if options.only and row["slug"] not in options.only]
    for row in checked(slugs, options.cluster):
        print(
            f"{row['slug']} {row['name']}: {'holds' if row['holds'] else 'FAILS'}, {row['seconds']:.1f} s", flush=True
        )
        rows.append(row)
    rows.sort(key=lambda row: row["slug"])
    about |= {"seconds": time.time() - start, "load_after": os.getloadavg()}
    if options.only:
        # What a full run was made with stays; these methods were run again since.
        before = stored()["about"]
        about = {**before, "again": {**before.get("again", {}), **dict.fromkeys(options.only, about["commit"])}}
    RESULTS.write_text(
        json.dumps({"about": about, "rows": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    held = sum(row["holds"] for row in rows)
    print(f"{held} of {len(rows)} claims hold, {about['seconds']:.0f} s; written to {Path(RESULTS).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
