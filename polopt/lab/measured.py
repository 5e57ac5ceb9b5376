"""Small data for the metrics that read something else than logged decisions, by the format of their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from polopt.metrics import (
    DetectedViolations,
    EstimatedPolicies,
    FrontierCurves,
    PolicyRuns,
    PrinciplePreferences,
    RankedPairs,
    ScoredTokens,
    TabularRewardPair,
)
from polopt.metrics.detection import DETECTION_ROWS
from polopt.metrics.discretion import COMPARISON_ROWS
from polopt.metrics.estimated_policies import ESTIMATE_ROWS
from polopt.metrics.frontier import FRONTIER_ROWS
from polopt.metrics.policy_runs import POLICY_RUN_ROWS
from polopt.metrics.ranking import PAIR_ROWS
from polopt.metrics.reward_rows import TRANSITION_ROWS
from polopt.metrics.row_format import RowFormat
from polopt.metrics.token_credit import TOKEN_ROWS
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


def detections(seed: int) -> DetectedViolations:
    """Returns 60 detections in two domains, two of each trajectory, by a detector that is right more often than not."""
    draw = np.random.default_rng(seed)
    violated = draw.random(60) < 0.4
    probability = np.clip(0.3 + 0.4 * violated + 0.2 * draw.standard_normal(60), 0, 1)
    names = np.repeat([f"trajectory {i}" for i in range(30)], 2)
    return DetectedViolations(violated, probability, draw.random(60), np.tile(["map", "shop"], 30), names)


def runs_under_policies(seed: int) -> PolicyRuns:
    """Returns 20 tasks of two runs each, with three policies of two dimensions."""
    draw = np.random.default_rng(seed)
    dormant = draw.random(120) < 0.3
    return PolicyRuns(
        task=np.repeat([f"task {i}" for i in range(20)], 6),
        run=np.tile(np.repeat(["0", "1"], 3), 20),
        success=np.repeat(draw.random(40) < 0.6, 3),
        policy=np.tile(["a", "b", "c"], 40),
        dimension=np.tile(["scope", "scope", "consent"], 40),
        violated=~dormant & (draw.random(120) < 0.2),
        dormant=dormant,
    )


# Format -> data from a seed, that can be indexed by a permutation of len(data).
EXAMPLES: dict[RowFormat, Callable[[int], Any]] = {
    TRANSITION_ROWS: reward_pair,
    PAIR_ROWS: ranked,
    FRONTIER_ROWS: frontier_points,
    COMPARISON_ROWS: preferences_by_principle,
    TOKEN_ROWS: scored_answers,
    ESTIMATE_ROWS: estimated_candidates,
    DETECTION_ROWS: detections,
    POLICY_RUN_ROWS: runs_under_policies,
}
