"""Small data for the metrics that read something else than logged decisions, by the format of their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from polopt.metrics import (
    EstimatedPolicies,
    FrontierCurves,
    PrinciplePreferences,
    RankedPairs,
    ScoredTokens,
    TabularRewardPair,
)
from polopt.metrics.discretion import COMPARISON_ROWS
from polopt.metrics.estimated_policies import ESTIMATE_ROWS
from polopt.metrics.frontier import FRONTIER_ROWS
from polopt.metrics.ranking import PAIR_ROWS
from polopt.metrics.reward_rows import TRANSITION_ROWS
from polopt.metrics.row_format import RowFormat
from polopt.metrics.token_credit import TOKEN_ROWS
from polopt.metrics.transitions import DEMONSTRATION_ROWS, TRANSITION_LOG_ROWS, LoggedTransitions
from polopt.problems.mdp import random_mdp


def reward_pair(seed: int) -> TabularRewardPair:
    """Returns two random rewards on a random problem of 4 states, the last of them terminal."""
    g = torch.Generator().manual_seed(seed)
    problem = random_mdp(seed, states=4, actions=2)
    reward, other = torch.randn(2, 4, 2, 4, generator=g, dtype=torch.double)
    return TabularRewardPair(problem.transitions, reward, other, problem.start, torch.arange(4) == 3)


def ranked(seed: int) -> RankedPairs:
    """Returns 40 pairs of answers of 5 to 20 tokens, with a policy near its reference."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(5, 21, (2, 40))
    reference = -lengths * draw.exponential(1.0, (2, 40))
    policy = np.minimum(reference + draw.normal(0, 3, (2, 40)), -0.1)
    return RankedPairs(
        chosen_logps=policy[0],
        rejected_logps=policy[1],
        ref_chosen_logps=reference[0],
        ref_rejected_logps=reference[1],
        chosen_length=lengths[0],
        rejected_length=lengths[1],
        agreement=draw.random(40),
    )


def preferences_by_principle(seed: int) -> PrinciplePreferences:
    """Returns 60 comparisons by 4 principles, 30 % of them indifferent, and the labels of two annotators."""
    draw = np.random.default_rng(seed)
    votes = draw.choice([-1.0, 1.0, np.nan], p=[0.35, 0.35, 0.3], size=(60, 4))
    return PrinciplePreferences(votes, draw.choice([-1.0, 1.0], size=(60, 2)))


def scored_answers(seed: int) -> ScoredTokens:
    """Returns 40 answers of 1 to 8 tokens, with a policy near its reference and a wrong token in every second one."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 9, 40)
    mask = np.arange(8) < lengths[:, None]
    reference = -draw.exponential(1.0, mask.shape)
    policy = np.minimum(reference + draw.normal(0, 1, mask.shape), -0.01)
    wrong = (np.arange(8) == draw.integers(0, lengths)[:, None]) & (np.arange(40) % 2 == 0)[:, None]
    return ScoredTokens(mask, policy, reference, wrong)


def frontier_points(seed: int) -> FrontierCurves:
    """Returns 60 evaluations of two sources, of two runs each, with KLs up to 5."""
    draw = np.random.default_rng(seed)
    kl = np.tile(np.linspace(0, 5, 15), 4) + 0.05 * draw.random(60)
    return FrontierCurves(
        source=np.repeat(["online", "offline"], 30),
        run=np.tile(np.repeat(["0", "1"], 15), 2),
        kl=kl,
        win_rate=np.clip(0.5 + 0.08 * kl + 0.02 * draw.standard_normal(60), 0, 1),
        accuracy=draw.random(60),
    )


def estimated_candidates(seed: int) -> EstimatedPolicies:
    """Returns what two estimators say of eight policies from two logs, with errors as large as the values' spread."""
    draw = np.random.default_rng(seed)
    value = np.tile(draw.normal(size=8), 4)
    return EstimatedPolicies(
        estimator=np.repeat(["pdis", "wis"], 16),
        policy=np.tile([f"policy {i}" for i in range(8)], 4),
        estimate=value + draw.normal(size=32),
        value=value,
        behaviour=np.tile(np.arange(8) == 3, 4),
        log=np.tile(np.repeat(["monday", "tuesday"], 8), 2),
    )


def logged_walks(seed: int) -> LoggedTransitions:
    """Returns two data sets of six episodes of up to eight decisions on a line, every other episode not done."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(2, 9, 12)
    number, steps = np.repeat(np.arange(12), lengths), np.concatenate([np.arange(n) for n in lengths])
    return LoggedTransitions(
        episode=[f"{i:02}" for i in number],
        step=steps,
        state=draw.normal(size=(len(number), 2)).round(1),
        action=draw.integers(2, size=len(number)),
        reward=draw.choice([0.0, 1.0], len(number)),
        done=(steps == lengths[number] - 1) & (number % 2 == 0),
        dataset=np.where(number < 6, "one", "other"),
    )


# Format -> data from a seed, that can be indexed by a permutation of len(data).
EXAMPLES: dict[RowFormat, Callable[[int], Any]] = {
    TRANSITION_ROWS: reward_pair,
    PAIR_ROWS: ranked,
    FRONTIER_ROWS: frontier_points,
    COMPARISON_ROWS: preferences_by_principle,
    TOKEN_ROWS: scored_answers,
    ESTIMATE_ROWS: estimated_candidates,
    TRANSITION_LOG_ROWS: logged_walks,
    DEMONSTRATION_ROWS: logged_walks,
}
