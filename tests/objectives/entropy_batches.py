"""Batches for objectives that watch the entropy, and their decisions as plain lists."""

from __future__ import annotations

import math
import statistics

import loops
import pytest
from batches import SampleBatch

from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.experience import Experience

SEEDS = pytest.mark.parametrize("seed", range(4))
TOKENS = RelativeAdvantage(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))


def places(experience: Experience) -> list[tuple[int, int]]:
    return [(i, t) for i, row in enumerate(loops.decisions(experience)) for t in row]


def numbers(batch: SampleBatch) -> list[dict[str, float]]:
    """What is known of each decision, in plain numbers."""
    leaves = {k.removeprefix("extras."): v.detach() for k, v in batch.leaves.items()}
    found = []
    for i, t in places(batch.experience):
        r = math.exp(leaves["logp"][i, t].item() - batch.experience.rollout_logp[i, t].item())
        known = {n: leaves[n][i, t].item() for n in ("logp", "entropy", "entropy_slope")}
        found.append({"A": batch.experience.advantage[i, t].item(), "r": r, **known})
    return found


def surveyed(batch: SampleBatch) -> Experience:
    return batch.experience.with_full_batch_evaluation(batch.evaluation())


def release(entropy: list[float], quantile: float) -> list[float]:
    """Entropy levels as HAPO's program computes them: standardised about the pivot, then each side by its extreme."""
    z = [math.log(max(h, 1e-8)) for h in entropy]
    pivot = sorted(z)[round(quantile * (len(z) - 1))]
    std = math.sqrt(max(statistics.fmean((x - pivot) ** 2 for x in z), 1e-8))
    h = [(x - pivot) / std for x in z]
    high, low = max(*(x for x in h), 1e-8), min(*(x for x in h), -1e-8)
    return [x / high if x > 0 else x / low for x in h]


def levels(batch: SampleBatch, quantile: float, compat: str) -> dict[tuple[int, int], float]:
    entropies = [n["entropy"] for n in numbers(batch)]
    found = release(entropies, quantile)
    if compat == "text":
        pivot = sorted(entropies)[round(quantile * (len(entropies) - 1))]
        found = [-h if e <= pivot else h for h, e in zip(found, entropies, strict=True)]
    return dict(zip(places(batch.experience), found, strict=True))
