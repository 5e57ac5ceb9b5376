"""Run every method's claims and keep the result: benchmarks/results/claims.json, shown in docs/methods.md.

python -m benchmarks.claims               all claims, one process a core
python -m benchmarks.claims --only bnpo   these methods' claims again; the others' results stay
python -m benchmarks.claims --cluster auto   on every CPU of a Ray cluster
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="METHOD")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Ray cluster; processes of this machine if none")
    options = parser.parse_args()
    about, start = (
        {**table.about(ROOT, threads=1, module="claims"), "command": "python -m benchmarks.claims"},
        time.time(),
    )
    slugs = options.only or catalogue.slugs()
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
