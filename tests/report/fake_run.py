"""A run folder as the training loop writes it, with numbers from a seeded generator."""

import json
import math
from pathlib import Path

import numpy as np

from polopt.metrics import wilson

WARM, STEPS, EVERY = 40, 240, 20
KINDS = {"chain_sum": 0.92, "gcd": 0.7, "number_sorting": 0.55, "letter_counting": 0.35}

RECIPE = """\
name: warm-up, then GRPO
seed: 7
policy:
  name: char-transformer-3m
  layers: 6
  width: 256
tasks: [chain_sum, gcd, number_sorting, letter_counting]
method: grpo
algorithm:
  part: Algorithm
  credit: {part: credit.GroupRelative}
  objective:
    trust: {part: objectives.Clip, low: 0.2, high: 0.28}
training:
  stages:
  - {name: warm-up, steps: 40, lr: 0.001}
  - {name: rl, steps: 200, lr: 0.00003, groups: 32, per_group: 8, temperature: 1.0}
"""

HOSTILE = '<script>document.title = "owned"</script><img src=x onerror="alert(1)">\u2028 & "quoted" {{ 7 * 7 }}'


def skill(step: int, ceiling: float) -> float:
    warm = 0.28 * ceiling * min(step / WARM, 1) ** 2
    learned = 1 / (1 + math.exp(-(step - 120) / 28)) - 1 / (1 + math.exp((120 - WARM) / 28))
    return warm + (ceiling - warm) * max(learned, 0)


def metrics(generator: np.random.Generator) -> list[dict]:
    records, seconds = [], 0.0
    for step in range(STEPS):
        noise = generator.normal
        base = {"step": step, "stage": "warm-up" if step < WARM else "rl", "stage_step": step % WARM}
        if step < WARM:
            seconds += 0.4
            fields = {"loss": 0.3 + 2 * math.exp(-step / 12) + noise(0, 0.03), "lr": 1e-3, "tokens": 16384}
            fields |= {"grad_norm": 1.5 * math.exp(-step / 15) + 0.4 + abs(noise(0, 0.05))}
            fields |= {"tokens_per_second": 40000 + noise(0, 900), "seconds/learn": 0.4}
        else:
            seconds += 2.3
            fields = rl_step(step, generator)
        records.append({**base, "seconds": seconds, **fields})
    return records


def rl_step(step: int, generator: np.random.Generator) -> dict:
    noise, progress = generator.normal, (step - WARM) / (STEPS - WARM)
    by_kind = {k: float(np.clip(skill(step, c) + noise(0, 0.03), 0, 1)) for k, c in KINDS.items()}
    outcome = float(np.mean(list(by_kind.values())))
    rewards = generator.binomial(1, outcome, 256) * 1.0 + 0.1 * generator.binomial(1, 0.6 + 0.4 * progress, 256)
    counts, edges = np.histogram(rewards, bins=20, range=(0, 1.1))
    gap = 2e-4 * math.exp(noise(0, 0.3))
    return {
        "loss": noise(0, 0.02),
        "reward/mean": rewards.mean(),
        "reward/std": rewards.std(),
        "reward/histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        "outcome/mean": outcome,
        "solved": outcome,
        **{f"outcome/{k}": v for k, v in by_kind.items()},
        "signal/true": 0.96 * outcome + 0.01,
        "verifier/false_positive": 0.03,
        "verifier/false_negative": 0.01,
        "entropy": 0.18 + 0.9 * math.exp(-3 * progress) + noise(0, 0.02),
        "length/mean": 60 + 45 * progress + noise(0, 3),
        "length/max": min(192, 130 + 60 * progress + abs(noise(0, 15))),
        "truncated": max(0.0, 0.06 * progress + noise(0, 0.01)),
        "ratio/mean": 1 + noise(0, 0.002),
        "ratio/max": 1.3 + abs(noise(0, 0.35)),
        "clip_fraction": 0.004 + 0.01 * math.exp(-2 * progress) + abs(noise(0, 0.001)),
        "kl/reference": 0.05 * progress + abs(noise(0, 0.002)),
        "grad_norm": 0.35 + abs(noise(0, 0.08)),
        "grad_noise": 60 * math.exp(3 * progress + noise(0, 0.5)) if step % 9 else math.nan,
        "mismatch/mean": gap,
        "mismatch/max": gap * 60 * math.exp(noise(0, 0.4)),
        "mismatch/kl": gap**2 * 3e-6,
        "mismatch/ess": 1 - 40 * gap,
        "groups/signal": 0.35 + 0.45 * math.sin(math.pi * min(1, progress * 1.1)) + noise(0, 0.04),
        "groups/mixed": 0.3 + 0.4 * math.sin(math.pi * min(1, progress * 1.1)),
        "lr": 3e-5 * min(1, (step - WARM) / 10) * (1 - 0.8 * progress),
        "tokens": 18000,
        "tokens_per_second": 9000 + noise(0, 250),
        "seconds/rollout": 1.3 + noise(0, 0.06),
        "seconds/reward": 0.15 + abs(noise(0, 0.02)),
        "seconds/learn": 0.85 + noise(0, 0.04),
    }


def evaluations(generator: np.random.Generator) -> list[dict]:
    plan = [(0, "warm-up", "before"), (WARM, "warm-up", "after"), (WARM, "rl", "before")]
    plan += [(s, "rl", "during") for s in range(WARM + EVERY, STEPS, EVERY)] + [(STEPS, "rl", "after")]
    return [evaluation(*place, generator) for place in plan]


def evaluation(step: int, stage: str, when: str, generator: np.random.Generator) -> dict:
    def written(right: int, n: int) -> dict:
        i = wilson(right, n)
        return {"estimate": i.estimate, "low": i.low, "high": i.high}

    right = {k: int(generator.binomial(100, skill(step, c))) for k, c in KINDS.items()}
    return {
        "step": step,
        "stage": stage,
        "when": when,
        "seconds": 2.0 * step,
        "problems": 400,
        "samples": 1,
        "pass@1": written(sum(right.values()), 400),
        "kinds": {k: {**written(r, 100), "problems": 100, "solved": solved(r, generator)} for k, r in right.items()},
        "length/mean": 60 + 0.2 * step,
    }


def solved(right: int, generator: np.random.Generator) -> list[int]:
    """Which of 100 problems these were: mostly the first, which are easier."""
    order = np.argsort(np.arange(100) + generator.normal(0, 15, 100))
    return np.isin(np.arange(100), order[:right]).astype(int).tolist()


def samples(generator: np.random.Generator) -> list[dict]:
    records = []
    for i in range(12):
        kind = list(KINDS)[i % len(KINDS)]
        terms = [int(t) for t in generator.integers(2, 99, size=4)]
        prompt = f"State the final answer to the following problem: {' + '.join(map(str, terms))} ="
        for when in ("before", "after"):
            solved = bool(generator.random() < (0.2 if when == "before" else 0.8))
            total = sum(terms) + (0 if solved else int(generator.integers(1, 20)))
            steps = [f"{sum(terms[:j])} + {terms[j]} = {sum(terms[: j + 1])}\n" for j in range(1, 4)]
            completion = "".join(steps[: 3 if solved else 2]) + f"<answer>{total}</answer>"
            tokens = list(completion)
            logp = (-(generator.exponential(0.9 if when == "before" else 0.12, len(tokens)) ** 1.6)).tolist()
            records.append(
                {"step": STEPS if when == "after" else 0, "when": when, "kind": kind, "prompt": prompt}
                | {
                    "completion": completion,
                    "reward": 1.1 if solved else 0.1,
                    "solved": solved,
                    "truncated": False,
                }
                | {"tokens": tokens, "logp": logp, "answer": str(total), "reference": str(sum(terms))}
            )
    words = HOSTILE.split(" ")
    tokens = [f"{w} " for w in words]
    records[0] |= {"prompt": HOSTILE, "completion": HOSTILE, "answer": HOSTILE, "truncated": True}
    records[0] |= {
        "tokens": tokens,
        "logp": [-0.5] * len(tokens),
        "decided": [i % 2 == 0 for i in range(len(tokens))],
    }
    return records


def write_run(folder: Path, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    info = {
        "polopt": "0.1.0",
        "torch": "2.13.0",
        "python": "3.11.2",
        "machine": {"cpu": "8 cores", "memory": "32 GiB", "gpu": "none"},
        "started": "2026-01-12T09:30:00+00:00",
        "parameters": 3_214_080,
        "method": "grpo",
        "citation": ["@article{shao2024deepseekmath,\n  title={DeepSeekMath},\n  year={2024}\n}"],
        "finished": True,
        "seconds": 512.4,
    }
    (folder / "run.json").write_text(json.dumps(info))
    for name, make in (("metrics", metrics), ("evaluations", evaluations), ("samples", samples)):
        lines = [json.dumps(record) for record in make(generator)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def comparison() -> dict:
    methods = []
    for i, (name, ceiling, n) in enumerate((("grpo", 0.62, 10), ("bnpo", 0.66, 10), ("rloo", 0.61, 4))):
        generator = np.random.default_rng(i)
        curves = [
            [(s, max(0.0, skill(s, ceiling + luck) + generator.normal(0, 0.012))) for s in range(0, STEPS + 1, EVERY)]
            for luck in generator.normal(0, 0.02, n)
        ]
        methods.append({"name": name, "seeds": list(range(n)), "curves": curves, "final": [c[-1][1] for c in curves]})
    return {"methods": methods, "differences": []}


def about() -> dict:
    """What was compared, as `training.compare.about` writes it."""
    methods = {}
    for i, name in enumerate(("grpo", "bnpo", "rloo")):
        changed = [["credit.scale", "GroupStd()", "BatchStd()"], ["objective.trust", "None", "Clip(low=0.2)"]][:i]
        methods[name] = {
            "diff": changed,
            "seconds": 100.25 + i,
            "tokens": 1_234_567.0 + i,
            "kinds": {kind: rate - 0.02 * i for kind, rate in KINDS.items()},
            "runs": [f"{name}-seed-{seed}" for seed in range(4 if name == "rloo" else 10)],
        }
    info = {"polopt": "0.1.0", "torch": "2.13.0", "threads": 1, "machine": {"cpu": "8 cores", "memory": "32 GiB"}}
    return {"recipe": RECIPE, "stage": "rl", "run": info, "methods": methods}
