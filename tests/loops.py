"""The textbook formulas, once more, in plain Python: one decision at a time, nothing masked, nothing shared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

from polopt.experience import Experience

Row = list[int]


def decisions(experience: Experience) -> list[Row]:
    """The columns at which each row decided."""
    return [[t for t, m in enumerate(row) if m] for row in experience.mask.tolist()]


def outcomes(experience: Experience) -> list[float]:
    reward = experience.reward.tolist()
    if experience.reward.ndim == 1:
        return reward
    return [math.fsum(reward[i][t] for t in row) for i, row in enumerate(decisions(experience))]


def group_of(experience: Experience, i: int) -> list[int]:
    groups = experience.group.tolist()
    return [j for j, g in enumerate(groups) if g == groups[i]]


def grpo_advantage(experience: Experience, eps: float) -> list[float]:
    """(R_i - mean) / (std + eps), the sample's std; a group of one has 0."""
    R, result = outcomes(experience), []
    for i in range(len(R)):
        group = [R[j] for j in group_of(experience, i)]
        std = statistics.stdev(group) if len(group) > 1 else 0.0
        result.append((R[i] - statistics.fmean(group)) / (std + eps))
    return result


def centred_advantage(experience: Experience) -> list[float]:
    """R_i - mean, as Dr. GRPO."""
    R = outcomes(experience)
    return [R[i] - statistics.fmean(R[j] for j in group_of(experience, i)) for i in range(len(R))]


def rloo_advantage(experience: Experience) -> list[float]:
    """R_i minus the mean of the others; alone, R_i."""
    R, result = outcomes(experience), []
    for i in range(len(R)):
        others = [R[j] for j in group_of(experience, i) if j != i]
        result.append(R[i] - (statistics.fmean(others) if others else 0.0))
    return result


def clipped(ratio: float, A: float, low: float, high: float, dual: float | None = None) -> tuple[float, float]:
    """PPO's term and its derivative by the ratio, case by case."""
    term, slope = -A * ratio, -A
    if A > 0 and ratio > 1 + high:
        term, slope = -A * (1 + high), 0.0
    if A < 0 and ratio < 1 - low:
        term, slope = -A * (1 - low), 0.0
    if dual is not None and A < 0 and ratio > dual:
        term, slope = -A * dual, 0.0
    return term, slope


def k3(logp: float, ref: float) -> tuple[float, float]:
    return math.exp(ref - logp) - (ref - logp) - 1, 1 - math.exp(ref - logp)


def total(rows: list[Row], weigh: Callable[[int], float], term: Any) -> tuple[float, dict[tuple[int, int], float]]:
    """sum_it weigh(i) term(i, t) and its gradient by each logp; `term` gives a value and {column: derivative}."""
    loss, grad = 0.0, {(i, t): 0.0 for i, row in enumerate(rows) for t in row}
    for i, row in enumerate(rows):
        for t in row:
            value, slopes = term(i, t)
            loss += weigh(i) * value
            for u, slope in slopes.items():
                grad[i, u] += weigh(i) * slope
    return loss, grad


def gae(experience: Experience, gamma: float, lam: float) -> list[dict[int, float]]:
    """A_t = sum_l (gamma lam)^l delta_{t+l} up to the end of the episode, each delta from its definition."""
    reward, value, final = (x.tolist() for x in (experience.reward, experience.value, experience.final_value))
    term, trunc = experience.terminated.tolist(), experience.truncated.tolist()
    result = []
    for i, row in enumerate(decisions(experience)):
        deltas: dict[int, float] = {}
        ends: dict[int, bool] = {}
        for k, t in enumerate(row):
            last = k == len(row) - 1
            done = term[i][t] if isinstance(term[i], list) else term[i] and last
            cut = (trunc[i][t] if isinstance(trunc[i], list) else False) or last
            r = reward[i][t] if isinstance(reward[i], list) else (reward[i] if last else 0.0)
            if done:
                following = 0.0
            elif cut:
                following = final[i][t] if isinstance(final[i], list) else final[i]
            else:
                following = value[i][row[k + 1]]
            deltas[t], ends[t] = r + gamma * following - value[i][t], done or cut
        advantage = {}
        for k, t in enumerate(row):
            sum_, weight = 0.0, 1.0
            for u in row[k:]:
                sum_ += weight * deltas[u]
                weight *= gamma * lam
                if ends[u]:
                    break
            advantage[t] = sum_
        result.append(advantage)
    return result
