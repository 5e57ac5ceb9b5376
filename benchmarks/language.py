"""polopt and TRL side by side: the same model, tasks, verifier and settings, each measurement in a new process.

python -m benchmarks.language             import, 1M, 25M, memory and job, into benchmarks/results/
python -m benchmarks.language --only 135M 135M-bfloat16 135M-512 135M-job
                                          the smollm recipe's pretrained model, which must be installed
python -m benchmarks.language --quick     seconds: shows that everything runs, measures nothing of use
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks import table
from benchmarks.spec import HERE, Size, Spec, pretrained, sizes, tiny

ROOT = HERE.parent
# What TRL offers for this machine; `--only tune` tries each. README.md says which was chosen and why.
TRL_CHOSEN: dict[str, Any] = {}
IMPORTS = {
    "torch": "import torch",
    "polopt": "import polopt",
    "trl": "from trl import GRPOConfig, GRPOTrainer",
}
TARGET = 0.8
# Of the pretrained model's job: so much above where it begins.
POINTS = 0.15


def trl_settings(rows: int) -> dict[str, dict[str, Any]]:
    whole = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": 1, "steps_per_generation": 1}
    return {
        "as in the table": {},
        "static cache": {"cache_implementation": "static"},
        "no micro-batches": whole,
        "continuous batching": {"use_transformers_continuous_batching": True},
        "torch.compile": {"torch_compile": True},
    }


class Bench:
    """Runs measurements in processes of their own, and remembers their results."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.laptop: dict[str, Any] = yaml.safe_load((ROOT / "polopt/recipes/laptop.yaml").read_text())
        self.sides = ["polopt", *(["trl"] if importlib.util.find_spec("trl") else [])]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "OMP_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }

    def call(self, module: str, order: Any, timeout: float | None = None) -> dict[str, Any]:
        """The answer of one module of this folder, run as a program with its order in a file.

        Raises:
            SystemExit: it failed. subprocess.TimeoutExpired: it was ended after `timeout` seconds.
        """
        given, answer = self.folder / "order.json", self.folder / "answer.json"
        given.write_text(json.dumps(dataclasses.asdict(order) if dataclasses.is_dataclass(order) else order))
        command = [sys.executable, "-m", f"benchmarks.{module}", str(given), str(answer)]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
        return json.loads(answer.read_text())

    def alternate(self, spec: Spec, repeats: int, name: str) -> list[dict[str, Any]]:
        """polopt, TRL, polopt, TRL, ...: whatever else the machine does, both sides suffer it."""
        runs = []
        for i in range(repeats):
            run = {}
            for side in self.sides:
                start = time.perf_counter()
                run[side] = self.call(f"{side}_side", dataclasses.replace(spec, seed=spec.seed + i))
                print(f"{name}: {side} {i + 1}/{repeats} took {time.perf_counter() - start:.0f} s", flush=True)
            runs.append(run)
        return runs

    def prepare(self, size: Size | None, name: str) -> tuple[Path, dict[str, Any]]:
        place = self.folder / name
        order = {"threads": self.threads, "recipe": self.laptop, "folder": str(place)}
        facts = self.call("prepare", {**order, "size": dataclasses.asdict(size) if size else None})
        return place if size else place / "policy", facts

    def speed_spec(self, size: Size, model: Path, **changes: Any) -> Spec:
        tasks = {**self.laptop["tasks"], "train": size.rows // size.group * size.steps, "heldout": 8}
        spec = Spec(
            model=str(model),
            world={"kind": f"{HERE / 'world.py'}:speed", "tasks": tasks},
            rows=size.rows,
            group=size.group,
            limit=size.limit,
            steps=size.steps,
            minibatches=1,
            micro_rows=size.micro_rows,
            # Small enough that lengths stay as calibrated.
            optimiser={"lr": 1e-6},
            threads=self.threads,
            seed=1,
            warm=size.warm,
            trl=TRL_CHOSEN,
        )
        return dataclasses.replace(spec, **changes)

    def speed(self, size: Size) -> dict[str, Any]:
        model, facts = self.prepare(size, size.name)
        weights = 4.0 * (facts["shape"]["matrix"] + facts["shape"]["head"])
        machine = self.call("floors", {"threads": self.threads, "weights": {"it": weights}})["it"]
        runs = self.alternate(self.speed_spec(size, model), size.repeats, size.name)
        return {"size": dataclasses.asdict(size), "facts": facts, "machine": machine, "runs": runs}

    @functools.cached_property
    def smollm(self) -> dict[str, Any]:
        return yaml.safe_load((ROOT / "polopt/recipes/smollm.yaml").read_text())

    @functools.cached_property
    def endless(self) -> tuple[Path, dict[str, Any]]:
        """The pretrained model with answers that never stop, and its facts."""
        place = self.folder / "endless"
        order = {"threads": self.threads, "recipe": self.smollm, "folder": str(place), "endless": True}
        return place, self.call("prepare", order)

    def pretrained(self, size: Size, changes: dict[str, str]) -> dict[str, Any]:
        """Speed of the smollm recipe's model: answers of maximal length, rewarded by the first token."""
        (model, facts), compute = self.endless, changes.get("compute")
        spec = self.speed_spec(size, model, world=self.smollm["tasks"], problems=0, reward="first token", **changes)
        wide = 2.0 if compute == "bfloat16" else 4.0
        weights = wide * (facts["shape"]["matrix"] + facts["shape"]["head"])
        order = {"threads": self.threads, "weights": {"it": weights}, "dtype": compute or "float32"}
        machine = self.call("floors", order)["it"]
        runs = self.alternate(spec, size.repeats, size.name)
        facts = {**facts, "length": size.limit}
        row = {"size": dataclasses.asdict(size), "changes": changes, "facts": facts, "machine": machine}
        return {**row, "bytes": wide, "runs": runs}

    def pretrained_job(self, repeats: int) -> dict[str, Any]:
        """From the smollm recipe's warmed-up policy to so many points more, in batches of 64 rows."""
        place = self.folder / "pretrained"
        order = {"threads": self.threads, "recipe": self.smollm, "folder": str(place), "size": None}
        facts, stage = self.call("prepare", order), self.smollm["stages"]["rl"]
        spec = Spec(
            model=str(place / "policy"),
            world=self.smollm["tasks"],
            rows=64,
            group=stage["group"],
            limit=self.smollm["limit"],
            steps=stage["steps"],
            minibatches=1,
            optimiser=stage["optimiser"],
            threads=self.threads,
            seed=0,
            every=3,
            problems=200,
            target=facts["accuracy"] + POINTS,
            trl=TRL_CHOSEN,
        )
        return {"facts": facts, "spec": _without_paths(spec), "runs": self.alternate(spec, repeats, "135M-job")}

    def job(self, repeats: int) -> dict[str, Any]:
        model, facts = self.prepare(None, "job")
        stage = list(self.laptop["stages"].values())[-1]
        spec = Spec(
            model=str(model),
            world=self.laptop["tasks"],
            rows=stage["rows"],
            group=stage.get("group", 8),
            limit=self.laptop["limit"],
            steps=stage["steps"],
            minibatches=stage.get("minibatches", 1),
            optimiser=stage["optimiser"],
            threads=self.threads,
            seed=self.laptop["seed"],
            every=5,
            problems=400,
            target=TARGET,
            trl=TRL_CHOSEN,
        )
        return {"facts": facts, "spec": _without_paths(spec), "runs": self.alternate(spec, repeats, "job")}

    def memory(self, repeats: int, *, limit: int) -> dict[str, Any]:
        """One batch of four answers that all run to the limit, from a vocabulary of 151,936."""
        folder = self.folder / "vocabulary"
        world = {"kind": f"{HERE / 'world.py'}:digits", "length": 12, "train": 1}
        order = {"threads": self.threads, "device": "cpu", "dtype": "float32", "seed": 1, "world": world}
        shape = self.call("random_model", {**order, "name": "vocabulary", "folder": str(folder)})
        spec = Spec(
            model=str(folder),
            world=world,
            rows=4,
            group=4,
            limit=limit,
            steps=1,
            minibatches=1,
            micro_rows=2,
            optimiser={"lr": 1e-6},
            threads=self.threads,
            seed=1,
            problems=0,
            reward="first token",
        )
        runs = self.alternate(spec, repeats, "memory")
        return {"shape": shape, "spec": _without_paths(spec), "runs": runs}

    def tune(self, size: Size) -> dict[str, Any]:
        """Each of TRL's settings once; one that fails here is a result too."""
        model, _ = self.prepare(size, f"tune-{size.name}")
        found: dict[str, Any] = {}
        for name, settings in trl_settings(size.rows).items():
            try:
                found[name] = self.call("trl_side", self.speed_spec(size, model, trl=settings, steps=4))
            except SystemExit as error:
                found[name] = {"failed": str(error).strip().splitlines()[-1]}
            print(f"tune: {name}", flush=True)
        return found

    def imports(self, repeats: int) -> dict[str, list[float]]:
        """Seconds of each import in a new process; the first round warms the file cache and is dropped."""
        names = [name for name in IMPORTS if name != "trl" or "trl" in self.sides]
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(repeats + 1):
            for name in names:
                code = f"import time; t = time.perf_counter(); {IMPORTS[name]}; print(time.perf_counter() - t)"
                done = subprocess.run(
                    [sys.executable, "-c", code], cwd=ROOT, env=self.environment, capture_output=True, text=True
                )
                seconds[name].append(float(done.stdout.split()[-1]))
        return {name: values[1:] for name, values in seconds.items()}


def _without_paths(spec: Spec) -> dict[str, Any]:
    """What of a specification belongs into results that others read."""
    return {name: value for name, value in dataclasses.asdict(spec).items() if name not in ("model", "world")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test on a tiny model")
    parser.add_argument(
        "--only", nargs="+", default=[], help="some of: import, 1M, 25M, memory, job, tune, and the rows of 135M"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0, help="number of other processes that compute all the time")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "language", help="path without ending")
    options = parser.parse_args()
    requested = options.only or ["import", "1M", "25M", "memory", "job"]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, busy(options.busy):
        bench = Bench(Path(folder), options.threads)
        results: dict[str, Any] = {"about": table.about(ROOT, options.threads), "speed": {}}
        results["about"]["busy"] = options.busy
        for _ in sections(bench, results, requested, quick=options.quick):
            results["about"] |= {"seconds": time.perf_counter() - start, "load_after": os.getloadavg()}
            if not options.quick:  # after every section, so that an interrupted run leaves what it has
                options.output.parent.mkdir(parents=True, exist_ok=True)
                options.output.with_suffix(".json").write_text(json.dumps(results, indent=1))
                options.output.with_suffix(".md").write_text(table.markdown(results))
    print(table.markdown(results))


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """`count` other processes, each of which keeps a core busy as long as the block runs."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def sections(bench: Bench, results: dict[str, Any], requested: list[str], *, quick: bool) -> Iterator[None]:
    """Measure the requested sections, one by one, into `results`."""
    if "import" in requested:
        results["imports"] = bench.imports(1 if quick else 5)
        yield
    by_name = {size.name: size for size in ([tiny(bench.laptop)] if quick else sizes(bench.laptop))}
    for name, size in by_name.items():
        if quick or name in requested:
            results["speed"][name] = bench.speed(size)
            yield
    for name, (size, changes) in pretrained().items():
        if name in requested:
            results["speed"][name] = bench.pretrained(size, changes)
            yield
    if "135M-job" in requested:
        results["pretrained_job"] = bench.pretrained_job(repeats=1)
        yield
    if "memory" in requested or quick:
        results["memory"] = bench.memory(1 if quick else 2, limit=4 if quick else 2032)
        yield
    if "job" in requested and not quick:
        results["job"] = bench.job(repeats=3)
        yield
    if "tune" in requested:
        results["tune"] = bench.tune(next(iter(by_name.values())))
        yield


if __name__ == "__main__":
    main()
