"""polopt and TRL on one GPU: long answers, gradient checkpointing, each measurement in a new process.

python -m benchmarks.gpu                        0.5B and 1.5B, into benchmarks/results/, at most 450 seconds
python -m benchmarks.gpu --device cpu --quick   does it run? measures nothing of use
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import table
from benchmarks.floors import Machine, Shape, floors
from benchmarks.language import ROOT, Bench
from benchmarks.spec import HERE, Spec

# Dense bfloat16 FLOP/s by the maker's data sheets, by a part of the device's name.
DATA_SHEET = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
DTYPE, BYTES = "bfloat16", 2.0
GIGA = 2**30
# Seconds without which no process is begun.
LEAST = 20.0


@dataclasses.dataclass(frozen=True)
class Load:
    """What every model is measured on. limit: new tokens of each answer. prompt: digits of a prompt, on average."""

    rows: int
    group: int
    limit: int
    micro_rows: int
    prompt: int
    warm: int
    models: tuple[str, ...]
    products: tuple[int, ...]
    copied: int


WHOLE = Load(256, 8, 1024, 8, 100, 128, ("0.5B", "1.5B"), (4096, 8192, 16384), 2**33)
QUICK = Load(8, 4, 6, 4, 12, 2, ("tiny",), (64, 128), 2**22)


class Session:
    """Measures part by part until the time is over; `results` holds what there is, and why the rest is missing."""

    def __init__(
        self, bench: Bench, load: Load, device: str, seconds: float, save: Callable[[dict[str, Any]], None]
    ) -> None:
        self.bench, self.load, self.device, self.save = bench, load, device, save
        self.begun, self.end = time.perf_counter(), time.perf_counter() + seconds
        self.results: dict[str, Any] = {
            "about": {**table.about(ROOT, bench.threads, "gpu"), "device": device, "deadline": seconds},
            "load": dataclasses.asdict(load),
            "parts": [],
            "machine": None,
            "models": {},
        }

    @property
    def left(self) -> float:
        return self.end - time.perf_counter()

    def part(self, name: str, module: str, order: Any, most: float | None = None) -> dict[str, Any] | None:
        """One process's answer, or None if it failed or ran out of time; noted and saved either way."""
        # A repeat takes about as long as the first time.
        took = max((part["seconds"] for part in self.results["parts"] if part["name"] == name), default=LEAST)
        if self.left < took:
            self._note(name, 0.0, f"not begun: it takes {took:.0f} s or more, {max(0.0, self.left):.0f} were left")
            return None
        start, most = time.perf_counter(), min(self.left, most or self.left)
        found, failed = None, ""
        try:
            found = self.bench.call(module, order, timeout=most)
        except subprocess.TimeoutExpired:
            failed = f"ended after {most:.0f} s"
        except SystemExit as error:
            failed = str(error)[-3000:]
        self._note(name, time.perf_counter() - start, failed)
        return found

    def _note(self, name: str, seconds: float, failed: str) -> None:
        self.results["parts"].append({"name": name, "seconds": seconds, "failed": failed})
        self.results["about"]["seconds"] = time.perf_counter() - self.begun
        print(f"{name}: {'failed: ' + last_line(failed) if failed else 'done'}, {seconds:.0f} s", flush=True)
        self.save(self.results)

    def prepare(self) -> None:
        """The device's ceilings, and the models."""
        order = {"threads": self.bench.threads, "device": self.device, "dtype": DTYPE}
        sizes = {"products": self.load.products, "copied": self.load.copied}
        self.results["machine"] = self.part("ceilings", "device", {**order, **sizes})
        for name in self.load.models:
            model = {"name": name, "world": self.world, "seed": 1, "folder": str(self.bench.folder / name)}
            shape = self.part(f"{name}: made", "random_model", {**order, **model})
            if shape is not None:
                self.results["models"][name] = {"shape": shape, "runs": []}
        self.save(self.results)

    @property
    def world(self) -> dict[str, Any]:
        kind = f"{HERE / 'world.py'}:digits"
        return {"kind": kind, "length": self.load.prompt, "train": self.load.rows // self.load.group}

    def spec(self, name: str, limit: int) -> Spec:
        return Spec(
            model=str(self.bench.folder / name),
            world=self.world,
            rows=self.load.rows,
            group=self.load.group,
            limit=limit,
            steps=1,
            minibatches=1,
            micro_rows=self.load.micro_rows,
            optimiser={"lr": 1e-6},
            threads=self.bench.threads,
            seed=1,
            dtype=DTYPE,
            device=self.device,
            checkpointing=True,
            problems=0,
            reward="first token",
            warm=self.load.warm,
        )

    def measure(self, name: str, side: str, limit: int, most: float | None = None) -> str:
        """Why it failed, if it did."""
        run = self.part(f"{name}: {side}, {limit} tokens", f"{side}_side", self.spec(name, limit), most)
        if run is not None:
            self.results["models"][name]["runs"].append({"side": side, "limit": limit, **run})
            self.save(self.results)
        return self.results["parts"][-1]["failed"]

    def rounds(self, count: int, trl_limit: int | None) -> None:
        """Model by model polopt, then TRL, `count` times. Each part of the first round may take half as long again
        as an equal share of the time that is left. Where time or memory does not suffice for TRL at the full
        length, both are measured at a quarter of it."""
        limits = dict.fromkeys(self.results["models"], trl_limit or self.load.limit)
        for number in range(count):
            for i, name in enumerate(limits):
                parts = len(self.bench.sides) * (len(limits) - i)
                share = lambda parts=parts, first=number == 0: 1.5 * self.left / parts if first else None  # noqa: E731
                self.measure(name, "polopt", self.load.limit, share())
                if "trl" not in self.bench.sides:
                    continue
                failed = self.measure(name, "trl", limits[name], share())
                shorter = max(1, self.load.limit // 4)
                if too_much(failed) and number == 0 and limits[name] > shorter:
                    limits[name] = shorter
                    self.measure(name, "trl", shorter, share())
                if limits[name] != self.load.limit:
                    self.measure(name, "polopt", limits[name])


def too_much(failed: str) -> bool:
    return failed.startswith("ended after") or "out of memory" in failed


def last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


def rates(run: dict[str, Any], results: dict[str, Any], shape: Shape) -> dict[str, float]:
    """One process in a few numbers; those of a ceiling that was not measured are left out."""
    load = results["load"]
    found: dict[str, float] = {}
    step = {key: median(s[key] for s in run["steps"]) for key in ("tokens", "longest", "rollout", "learn", "whole")}
    for stage in ("rollout", "learn", "whole"):
        found[stage] = step["tokens"] / step[stage]
    found |= {"step": step["whole"], "pass": step["rollout"] / step["longest"] * 1e3}
    if run["gpu"]:
        found |= {key: run["gpu"][key] / GIGA for key in ("allocated", "reserved")}
    if machine := results["machine"]:
        reached = Machine(machine["flops"], machine["bandwidth"])
        least = floors(shape, load["rows"] // load["group"], load["rows"], step, reached, BYTES)
        found["mfu"] = 100 * least["learn"]["flops"] / step["learn"] / reached.flops
        found["bandwidth"] = 100 * least["rollout"]["bytes"] / step["rollout"] / reached.bandwidth
        sheet = next((rate for name, rate in DATA_SHEET.items() if name in machine["name"]), None)
        if sheet:
            found["mfu_sheet"] = 100 * least["learn"]["flops"] / step["learn"] / sheet
    return found


# name in `rates`, what it is called, how it is written, whether larger is better
MEASURES: list[tuple[str, str, str, bool]] = [
    ("rollout", "rollout, tokens/s", "{:,.0f}", True),
    ("learn", "learner, tokens/s", "{:,.0f}", True),
    ("whole", "whole step, tokens/s", "{:,.0f}", True),
    ("step", "whole step, s", "{:.1f}", False),
    ("pass", "rollout, ms per token of each row", "{:.1f}", False),
    ("bandwidth", "rollout, % of the bandwidth floor", "{:.1f}", True),
    ("mfu", "learner, MFU, % of the measured rate", "{:.1f}", True),
    ("mfu_sheet", "learner, MFU, % of the data sheet's", "{:.1f}", True),
    ("allocated", "peak device memory, allocated, GiB", "{:.1f}", False),
    ("reserved", "peak device memory, reserved, GiB", "{:.1f}", False),
]


def markdown(results: dict[str, Any]) -> str:
    it, load, machine = results["about"], results["load"], results["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in it["versions"].items() if number)
    lines = [
        "# polopt and TRL on one GPU",
        "",
        f"{it['date']}, commit {it['commit'] or 'unknown'}, `{it['command']}`, {it['seconds']:.0f} s.",
        "",
        f"{machine['name'] if machine else it['device']}, CUDA {machine['cuda'] if machine else 'unknown'}; "
        f"{it['machine']['cpu']}, {it['machine']['usable']} cores, {it['threads']} threads. "
        f"Python {it['python']}, {packages}.",
        "",
        f"{load['rows']} rows in groups of {load['group']}, every answer as long as the limit; weights, gradients "
        f"and Adam's moments in {DTYPE} on both sides; gradient checkpointing, {load['micro_rows']} rows at a time. "
        f"A batch of {load['warm']} tokens first, then the one that counts; the median of as many processes as named. "
        "TRL generates with transformers. Ratios say how many times better polopt is.",
    ]
    if machine:
        lines += [
            "",
            f"Reached: {machine['flops'] / 1e12:.2f} TFLOP/s in {DTYPE} products, "
            f"{machine['bandwidth'] / 1e9:,.0f} GB/s copying, bytes read and written.",
        ]
    for name, model in results["models"].items():
        for limit in sorted({run["limit"] for run in model["runs"]}, reverse=True):
            lines += ["", *_table(name, limit, model, results)]
    missing = [f"- {part['name']}: {last_line(part['failed'])}" for part in results["parts"] if part["failed"]]
    if missing:
        lines += ["", "## What is missing", "", *missing]
    return "\n".join(lines) + "\n"


def _table(name: str, limit: int, model: dict[str, Any], results: dict[str, Any]) -> list[str]:
    shape = Shape(**model["shape"])
    runs = {
        side: [rates(run, results, shape) for run in model["runs"] if run["side"] == side and run["limit"] == limit]
        for side in ("polopt", "trl")
    }
    counts = ", ".join(f"{side} {len(found)}" for side, found in runs.items())
    lines = [
        f"## {name}: {shape.total:,} parameters, {limit} new tokens",
        "",
        f"Prompts of {shape.prompt:.0f} tokens. Processes: {counts}.",
        "",
        "| |polopt|TRL|ratio|",
        "|---|---:|---:|---:|",
    ]
    for key, title, form, larger in MEASURES:
        of_polopt, of_trl = ([run[key] for run in runs[side] if key in run] for side in ("polopt", "trl"))
        if not of_polopt and not of_trl:
            continue
        cells = [form.format(median(values)) if values else "–" for values in (of_polopt, of_trl)]
        ratio = "–"
        if of_polopt and of_trl:
            better = median(of_polopt) / median(of_trl)
            ratio = f"{better if larger else 1 / better:.2f}"
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {ratio} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test on a tiny model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="+", default=[], help="some of: 0.5B, 1.5B")
    parser.add_argument("--limit", type=int, help="new tokens of each answer")
    parser.add_argument("--trl-limit", type=int, help="new tokens of TRL's answers; polopt is then measured at both")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each side and model, as far as time allows")
    parser.add_argument("--deadline", type=float, default=450.0, help="seconds after which nothing more is waited for")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "gpu", help="path without ending")
    options = parser.parse_args()
    load = QUICK if options.quick else WHOLE
    load = dataclasses.replace(load, limit=options.limit or load.limit, models=tuple(options.models) or load.models)

    def save(results: dict[str, Any]) -> None:
        if options.quick and options.output == parser.get_default("output"):
            return
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.with_suffix(".json").write_text(json.dumps(results, indent=1))
        options.output.with_suffix(".md").write_text(markdown(results))

    with tempfile.TemporaryDirectory() as folder:
        session = Session(Bench(Path(folder), options.threads), load, options.device, options.deadline, save)
        session.prepare()
        session.rounds(1 if options.quick else options.rounds, options.trl_limit)
    print(markdown(session.results))


if __name__ == "__main__":
    main()
