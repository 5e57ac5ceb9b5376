"""Rows of the battery: metrics of the methods, which read something else than logged decisions."""

from __future__ import annotations

from polopt.checks.metric_rules import DataRow
from polopt.lab.measured import (
    estimated_candidates,
    feature_samples,
    frontier_points,
    predicted_outcomes,
    preferences_by_principle,
    ranked,
    recommended,
    reward_pair,
    scored_answers,
    simulated,
)
from polopt.methods.alignment_discretion import DiscretionAudit
from polopt.methods.off_policy_realizability import ValueClassDiagnostics
from polopt.methods.one_map_many_trials import TrialDifference
from polopt.methods.online_offline_gap import FrontierGap
from polopt.methods.r_to_q import TokenCredit
from polopt.methods.ranking_accuracy import RankingAccuracy
from polopt.methods.recsys_metrics import RecommendationMetrics
from polopt.methods.sharpe_at_k import SharpeRatio
from polopt.methods.starc import Dard, Epic, LeastL2, RewardDistance, Uncanonical, ValueLevelled, ValueShaped
from polopt.methods.wm_policy_evaluation import SimulatorAgreement
from polopt.metrics import LinearShrinkage
from polopt.objectives import SquaredLink

CANONICAL = (ValueLevelled(), ValueShaped(), LeastL2(), Epic(), Dard(), Uncanonical())

DATA_METRICS = {
    **{f"starc, {type(c).__name__}": DataRow(RewardDistance(canonical=c), reward_pair) for c in CANONICAL},
    "starc, linf of l1": DataRow(RewardDistance(norm="l1", metric="linf", max_policies=1), reward_pair),
    "ranking accuracy": DataRow(RankingAccuracy(), ranked),
    "ranking accuracy, IPO": DataRow(RankingAccuracy(beta=1.0, link=SquaredLink(target=5.0), target_loss=1.0), ranked),
    "token credit": DataRow(TokenCredit(), scored_answers),
    "Sharpe ratio": DataRow(SharpeRatio(threshold=0.0), estimated_candidates),
    "frontier gap": DataRow(FrontierGap(), frontier_points),
    "trial difference, Tweedie": DataRow(TrialDifference(resamples=20), predicted_outcomes),
    "trial difference, linear": DataRow(
        TrialDifference(resamples=20, correction=LinearShrinkage()), predicted_outcomes
    ),
    "recommendations": DataRow(RecommendationMetrics(k=(1, 3, 20), catalogue=30), recommended),
    "simulator agreement": DataRow(SimulatorAgreement(resamples=20), simulated),
    "value class": DataRow(ValueClassDiagnostics(resamples=20), feature_samples),
    "discretion": DataRow(DiscretionAudit(resamples=20, priority_resamples=2), preferences_by_principle),
}
