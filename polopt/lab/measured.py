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
from polopt.metrics.recommended_rows import RECOMMENDED_ROWS, Recommendations
from polopt.metrics.reward_rows import TRANSITION_ROWS
from polopt.metrics.row_format import RowFormat
from polopt.metrics.shrinkage import TRIAL_ROWS, PredictedTrial
from polopt.metrics.simulated_policies import SIMULATED_ROWS, SimulatedPolicies
from polopt.metrics.token_credit import TOKEN_ROWS
from polopt.metrics.value_class import FEATURE_ROWS, FeatureTransitions
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


def predicted_outcomes(seed: int) -> PredictedTrial:
    """Returns 120 calibration rows and two arms of 60, predicted from measurements of the outcomes with unit noise."""
    draw = np.random.default_rng(seed)
    y = draw.normal(size=240) + 0.5 * (np.arange(240) >= 180)
    target = np.where(np.arange(240) < 120, y, np.nan)
    return PredictedTrial((y + draw.normal(size=240)) / 2, target, np.repeat(["", "a", "b"], [120, 60, 60]))


def recommended(seed: int) -> Recommendations:
    """Returns the lists of 12 users, of 8 items of 20 each, with equal scores, grades from 0 to 2 and all that can be
    known of an item."""
    draw = np.random.default_rng(seed)
    item = np.concatenate([draw.permutation(20)[:8] for _ in range(12)])
    return Recommendations(
        user=np.repeat([f"u{i}" for i in range(12)], 8),
        item=[f"i{i}" for i in item],
        score=draw.integers(0, 5, 96),
        relevance=draw.integers(0, 3, 96),
        prediction=draw.random(96),
        popularity=draw.uniform(0.01, 1, 20)[item],
        features=draw.normal(size=(20, 3))[item],
    )


def simulated(seed: int) -> SimulatedPolicies:
    """Returns eight policies' success rates in two simulators and in 20 trials each."""
    draw = np.random.default_rng(seed)
    true = draw.binomial(20, draw.random(8)) / 20
    predicted = np.clip(np.tile(true, 2) + draw.normal(0, 0.2, 16), 0, 1)
    models, names = np.repeat(["one", "other"], 8), [f"policy {i}" for i in range(8)] * 2
    return SimulatedPolicies(names, predicted, np.tile(true, 2), np.full(16, 20), models)


def feature_samples(seed: int) -> FeatureTransitions:
    """Returns 90 transitions of 15 states and actions with 3 features, in 9 episodes."""
    draw = np.random.default_rng(seed)
    phi, pair = draw.normal(size=(15, 3)), draw.integers(0, 15, 90)
    return FeatureTransitions(
        features=phi[pair],
        next_features=phi[draw.integers(0, 15, 90)],
        weight=draw.uniform(0.5, 2, 90),
        target_weight=draw.uniform(0.5, 2, 90),
        pair=pair,
        episode=np.repeat(np.arange(9), 10),
    )


# Format -> data from a seed, that can be indexed by a permutation of len(data).
EXAMPLES: dict[RowFormat, Callable[[int], Any]] = {
    TRANSITION_ROWS: reward_pair,
    PAIR_ROWS: ranked,
    FRONTIER_ROWS: frontier_points,
    COMPARISON_ROWS: preferences_by_principle,
    TOKEN_ROWS: scored_answers,
    ESTIMATE_ROWS: estimated_candidates,
    RECOMMENDED_ROWS: recommended,
    SIMULATED_ROWS: simulated,
    FEATURE_ROWS: feature_samples,
    TRIAL_ROWS: predicted_outcomes,
}
