"""How far `polopt plan` is off on this machine: the grid measured, fitted, and each configuration foretold from others.

python -m benchmarks.plan               into benchmarks/results/plan.{json,md} and polopt/plan/calibrated.json
python -m benchmarks.plan --refit       the same from what was measured before
python -m benchmarks.plan --quick       two configurations: does it run? writes nothing
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.floors import Shape as FloorShape
from benchmarks.spec import HERE
from polopt.plan.efficiency import Efficiency
from polopt.plan.fit import fitted, predicted_seconds
from polopt.plan.hardware import Device
from polopt.plan.job import PlannedJob
from polopt.plan.requirements import MethodRequirements
from polopt.plan.shape import shape_of
from polopt.training.calibrate import calibrate, grid, points

RESULTS = HERE / "results" / "plan"
SHIPPED = HERE.parent / "polopt" / "plan" / "calibrated.json"
# What a program that plans needs of a calibration.
NEEDED = ("about", "device", "efficiency", "error")
# Answers of an untrained model end at random: their standard deviation is nearly their mean.
GEOMETRIC = 0.95


def elsewhere(found: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Steps of the benchmark against TRL, measured another day with other threads, foretold with the efficiencies found
    here and the ceilings measured there."""
    results = json.loads(path.read_text())
    eff, rows = Efficiency(**found["efficiency"]), []
    for name, row in results["speed"].items():
        size, facts = row["size"], row["facts"]
        shape = shape_of({**size["config"], "vocab_size": facts["vocabulary"]}, name)
        assert shape.matrix == FloorShape(**facts["shape"]).matrix
        device = Device(**found["device"]).model_copy(
            update={"flops": {"float32": row["machine"]["flops"]}, "bandwidth": row["machine"]["bandwidth"]}
        )
        for run in row["runs"]:
            steps = run["polopt"]["steps"][1:]
            answer = median(step["tokens"] for step in steps) / size["rows"]
            job = PlannedJob(
                shape=shape,
                device=device,
                demands=MethodRequirements(group=size["group"]),
                rows=size["rows"],
                group=size["group"],
                prompt=facts["shape"]["prompt"],
                answer=answer,
                limit=size["limit"],
                spread=GEOMETRIC,
                micro_rows=size["micro_rows"],
                dtype="float32",
                engine="native",
            )
            measured = {
                name_of_plan: median(step[name_of_run] for step in steps)
                for name_of_plan, name_of_run in (("rollout", "rollout"), ("learn", "learn"), ("step", "whole"))
            }
            rows.append({"name": name, "foretold": predicted_seconds(job, eff), "measured": measured})
    return rows


def markdown(found: dict[str, Any]) -> str:
    about, error, load, device = found["about"], found["error"], found["about"]["load"], found["device"]
    lines = [
        "# How far plans are off",
        "",
        f"{about['date']}, {about['machine']}, torch {about['torch']}, {about['configurations']} configurations, "
        f"{about['seconds'] / 60:.0f} minutes. Load average {load[0]:.1f} before and {load[1]:.1f} after.",
    ]
    if max(load) > 2:
        lines[-1] += " **The machine was busy with other work**: the fastest of the repeats counts, and still scatters."
    lines += [
        "",
        "Each configuration is foretold from a fit to all others, given the mean, the spread and the limit of its "
        "answers. With one thread seconds are the processor's, which other programs disturb little. An error of 50 % "
        "is half as long again, or two thirds as long.",
        "",
        "|error|median|worst|",
        "|---|---:|---:|",
        *(
            f"|{title}|{100 * error[name]['median']:.0f} %|{100 * error[name]['worst']:.0f} %|"
            for name, title in (
                ("step", "seconds of a step, tokens per second"),
                ("rollout", "seconds of rollouts"),
                ("learn", "seconds of learning"),
                ("memory", "bytes of training"),
            )
        ),
        "",
        "|efficiency|found|",
        "|---|---:|",
        *(f"|{name}|{value:.3g}|" for name, value in found["efficiency"].items()),
        "",
        f"Ceilings: {device['flops']['float32'] / 1e9:.0f} GFLOP/s, {device['bandwidth'] / 1e9:.1f} GB/s from memory, "
        f"{device['cache_bandwidth'] / 1e9:.1f} GB/s from the cache; beside what the formulas count training takes "
        f"{device['held'] / 1e6:.0f} MB.",
        "",
        "|configuration|step, s|foretold|rollout, s|foretold|learn, s|foretold|MB|foretold|",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found["points"]:
        cells = [f"{row[k][m]:.3g}" for m in ("step", "rollout", "learn") for k in ("measured", "foretold")]
        cells += [f"{row[k]['memory'] / 1e6:.0f}" for k in ("measured", "foretold")]
        lines.append(f"|{row['name']}|{'|'.join(cells)}|")
    lines += [
        "",
        "## Another benchmark, another day",
        "",
        "polopt's steps in [the comparison with TRL](language.md): two threads on an idle machine, whose ceilings were "
        "measured there; the efficiencies are those found here.",
        "",
        "|model|step, s|foretold|rollout, s|foretold|learn, s|foretold|",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found["elsewhere"]:
        cells = [f"{row[k][m]:.3g}" for m in ("step", "rollout", "learn") for k in ("measured", "foretold")]
        lines.append(f"|{row['name']}|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=420.0, help="no configuration is begun after so many")
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    log = lambda line: print(line, flush=True)  # noqa: E731
    if options.refit:
        before = json.loads(RESULTS.with_suffix(".json").read_text())
        device = Device(**{**before["device"], "held": 0.0})
        found = fitted(points(before["raw"]), device, before["about"]) | {"raw": before["raw"]}
    elif options.quick:
        found = calibrate(options.threads, 1, report=log, among=list(grid())[:2])
    else:
        found = calibrate(options.threads, seconds=options.seconds, report=log)
    found["elsewhere"] = elsewhere(found, HERE / "results" / "language.json")
    print(markdown(found))
    if options.quick:
        return
    RESULTS.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(markdown(found))
    SHIPPED.write_text(json.dumps({"machines": [{name: found[name] for name in NEEDED}]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
