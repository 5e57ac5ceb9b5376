"""Measures this machine on small configurations, each in a process of its own, as the basis of `polopt plan`'s
predictions."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from polopt.config import ConfigError, parse
from polopt.plan.clock import fastest
from polopt.plan.fit import Point, fitted
from polopt.plan.hardware import Device
from polopt.training.estimate import AlternatingOutcome
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.learner import Learner
from polopt.training.stage_learning import StageLearning
from polopt.worlds.answers import TaskList
from polopt.worlds.protocol import Task, TaskSplit

_LLAMA = {"model_type": "llama", "num_key_value_heads": 2, "num_attention_heads": 4, "tie_word_embeddings": True}


def _llama(width: int, layers: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": layers}
    return {**_LLAMA, **sizes, "vocab_size": vocabulary, **more}


def _gpt2(width: int, layers: int, vocabulary: int) -> dict[str, Any]:
    sizes = {"n_embd": width, "n_layer": layers, "n_head": 4, "n_positions": 512, "vocab_size": vocabulary}
    return {"model_type": "gpt2", **sizes, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def grid() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yields (name, the model's config, the batch): sizes, lengths, groups, vocabularies and micro-batches in turn,
    about a second a step at most."""
    models = {
        "llama 64x2": _llama(64, 2, 256),
        "llama 128x4": _llama(128, 4, 512),
        "llama 256x4": _llama(256, 4, 1024),
        "llama 384x6": _llama(384, 6, 1024),
        "llama 128x2, vocabulary 16384": _llama(128, 2, 16384),
        "gpt2 128x4": _gpt2(128, 4, 512),
        "qwen3 192x8": _llama(192, 8, 512, model_type="qwen3", head_dim=48),
    }
    batches = {
        "short": {"rows": 64, "group": 8, "prompt": 16, "limit": 32, "mean": 12, "micro_rows": 64},
        "long tail": {"rows": 32, "group": 4, "prompt": 32, "limit": 192, "mean": 40, "micro_rows": 16},
        "long prompt": {"rows": 32, "group": 16, "prompt": 192, "limit": 48, "mean": 24, "micro_rows": 16},
        "wide": {"rows": 128, "group": 8, "prompt": 24, "limit": 64, "mean": 24, "micro_rows": 32},
    }
    chosen = {
        "llama 64x2": ("short", "long tail", "long prompt", "wide"),
        "llama 128x4": ("short", "long tail", "long prompt", "wide"),
        "llama 256x4": ("short", "long tail", "long prompt", "wide"),
        "llama 384x6": ("short", "long prompt"),
        "llama 128x2, vocabulary 16384": ("short", "long tail"),
        "gpt2 128x4": ("long tail", "wide"),
        "qwen3 192x8": ("short", "long tail"),
    }
    for model, names in chosen.items():
        for batch in names:
            yield f"{model}, {batch}", models[model], batches[batch]
    yield "llama 256x4, wide, checkpointing", models["llama 256x4"], {**batches["wide"], "checkpointing": True}


def tasks(prompt: int, train: int, *, seed: int) -> TaskSplit:
    """Returns `train` tasks with prompts of `prompt` letters, one token each, and a reward of 0 for every answer."""
    listed = [Task(f"task/{i}", "letters", "abcdefgh"[i % 8] * prompt, "a", {}) for i in range(train)]

    def nothing(completion: str, task: Task) -> tuple[float, dict[str, Any]]:
        return 0.0, {}

    return TaskSplit(TaskList(listed, nothing), TaskList(listed[:1], nothing))


def _clock() -> float:
    """Returns the time in seconds: the processor's with one thread, which other programs disturb little, and else the
    wall's."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


class _TimedLearner(Learner):
    """A learner that measures the duration of its last update."""

    def update(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        start = _clock()
        metrics = super().update(*args, **kwargs)
        self.duration = _clock() - start
        return metrics


class _RecordingPlayer(AlternatingOutcome):
    """A player that records the lengths of the last batch's answers, and their duration."""

    def play(self, *args: Any, **kwargs: Any) -> list[Any]:
        start = _clock()
        rows = super().play(*args, **kwargs)
        self.duration = _clock() - start
        self.lengths = [sum(turn >= 0 for turn in row.turn) for row in rows]
        self.prompt = sum(turn < 0 for turn in rows[0].turn)
        return rows


def _model(config: dict[str, Any], mean: float, folder: Path, texts: list[tuple[str, str, str]]) -> None:
    """Saves a model with random weights, and with so many stop ids that its answers have the mean length."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    from polopt.policies.tokenizer import make_tokenizer

    logging.disable_progress_bar()
    tokenizer = make_tokenizer(texts)
    settings = {**config, "bos_token_id": None, "eos_token_id": None}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
    # Near-uniform choices: k of V ids end an answer after V / k tokens on average.
    vocabulary = config["vocab_size"]
    stop = max(1, round(vocabulary / mean))
    model.generation_config.eos_token_id = list(range(vocabulary - stop, vocabulary))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measure(config: dict[str, Any], settings: dict[str, Any], steps: int, threads: int) -> dict[str, Any]:
    """Measures a configuration: the fastest of `steps` equal steps after a first that warms up. With a learning rate of
    nearly nothing and the same random numbers, each batch equals the one before."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="polopt-calibrate-") as place:
        folder = Path(place)
        prompts = settings["rows"] // settings["group"]
        world = {"kind": "polopt.training.calibrate:tasks", "prompt": settings["prompt"], "train": prompts}
        split = tasks(settings["prompt"], prompts, seed=0).train
        _model(config, settings["mean"], folder / "model", [(split[0].kind, "abcdefgh", "a")])
        stage = {"method": {"name": "grpo", "kl": 0.0}, "group": settings["group"], "steps": steps + 1}
        stage |= {"rows": settings["rows"], "micro_rows": settings["micro_rows"], "optimiser": {"lr": 1e-12}}
        recipe = parse(
            LanguageRecipe,
            {
                "policy": {"model": str(folder / "model"), "checkpointing": settings.get("checkpointing", False)},
                "tasks": world,
                "limit": settings["limit"],
                "threads": threads,
                "stages": {"rl": stage},
            },
            "calibration",
        )
        domain = LanguageDomain(recipe)
        algorithm, spec = domain.algorithms["rl"], recipe.stages["rl"]
        player = _RecordingPlayer(domain.policy, domain.splits["rl"].train, settings["limit"], domain.engine)
        learning = StageLearning(domain, algorithm, spec, domain.source("rl", player=player), torch.Generator())
        learning.learner = learner = _TimedLearner(domain.policy, algorithm, spec, torch.Generator())
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _bytes("VmRSS")
        durations: list[dict[str, float]] = []
        for step in range(steps + 1):
            domain.sampling.manual_seed(1)
            start = _clock()
            learning.step(step)
            durations.append({"rollout": player.duration, "learn": learner.duration, "step": _clock() - start})
        return {
            "seconds": {name: min(one[name] for one in durations[1:]) for name in durations[0]},
            "spread": max(one["step"] for one in durations[1:]) / min(one["step"] for one in durations[1:]),
            "lengths": player.lengths,
            "prompt": player.prompt,
            "peak": _bytes("VmHWM") - before,
        }


def _bytes(name: str) -> int:
    """Returns this process's memory in bytes: VmRSS, the present one, or VmHWM, the largest so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def ceilings(threads: int) -> Device:
    """Measures the processor's highest speeds: FLOP/s of square matrix products, and bytes per second of reading a
    buffer that fits its cache and one that does not."""
    torch.set_num_threads(threads)
    flops = 0.0
    for n in (256, 512, 1024):
        a, b = torch.randn(n, n), torch.randn(n, n)
        flops = max(flops, 2 * n**3 / fastest(lambda a=a, b=b: a @ b, clock=_clock))  # type: ignore[misc]
    speeds = []
    for size in (2**22, 2**28):
        buffer = torch.ones(size // 4)
        speeds.append(size / fastest(buffer.sum, clock=_clock))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Device(
        name="cpu",
        kind="cpu",
        flops={"float32": flops, "bfloat16": flops},
        memory=total,
        bandwidth=speeds[1],
        cache=2**24,
        cache_bandwidth=max(speeds),
        held=0.0,
    )


def calibrate(
    threads: int = 1,
    steps: int = 5,
    seconds: float = 420.0,
    report: Callable[[str], None] = lambda line: None,
    among: list[tuple[str, dict[str, Any], dict[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Measures the grid, as much of it as the time allows, and fits the plan's constants. `raw` of the result holds the
    measurements.

    Raises:
        ConfigError: this is not Linux, where the peak memory of a process can be read.
    """
    if not Path("/proc/self/clear_refs").exists():
        raise ConfigError("calibrating needs Linux, which reports the peak memory of a process")
    load, begun = os.getloadavg()[0], time.perf_counter()
    device, raw = _in_subprocess(ceilings, threads), []
    for name, config, settings in list(grid()) if among is None else among:
        if time.perf_counter() - begun > seconds:
            report(f"{name}: left out, the time is over")
            continue
        found = _in_subprocess(measure, config, settings, steps, threads)
        raw.append({"name": name, "config": config, "settings": settings | {"prompt": found.pop("prompt")}, **found})
        report(f"{name}: {found['seconds']['step']:.3f} s a step, the slowest {found['spread']:.2f} times that")
    about = {
        "machine": f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "load": [load, os.getloadavg()[0]],
        "seconds": time.perf_counter() - begun,
    }
    return fitted(points(raw), device, about) | {"raw": raw}


def points(raw: list[dict[str, Any]]) -> list[Point]:
    fields = [field.name for field in dataclasses.fields(Point)]
    return [Point(**{name: one[name] for name in fields}) for one in raw]


def _in_subprocess(work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs work(*arguments) in a process with memory of its own, and returns the result. The process is a fork of this
    one, which is safe as long as this one has run nothing on several threads."""
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments).result()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores"
