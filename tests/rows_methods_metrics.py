"""Rows of the battery: metrics of the methods, which read something else than logged decisions."""

from __future__ import annotations

from polopt.checks.metric_rules import DataRow
from polopt.lab.measured import (
    detections,
    estimated_candidates,
    frontier_points,
    preferences_by_principle,
    ranked,
    reward_pair,
    runs_under_policies,
    scored_answers,
)
from polopt.methods.alignment_discretion import DiscretionAudit
from polopt.methods.online_offline_gap import FrontierGap
from polopt.methods.r_to_q import TokenCredit
from polopt.methods.ranking_accuracy import RankingAccuracy
from polopt.methods.sharpe_at_k import SharpeRatio
from polopt.methods.st_webagentbench import CompletionUnderPolicy
from polopt.methods.starc import Dard, Epic, LeastL2, RewardDistance, Uncanonical, ValueLevelled, ValueShaped
from polopt.metrics import ViolationDetection
from polopt.objectives import SquaredLink

CANONICAL = (ValueLevelled(), ValueShaped(), LeastL2(), Epic(), Dard(), Uncanonical())

DATA_METRICS = {
    "violation detection": DataRow(ViolationDetection(resamples=20), detections),
    "completion under policy": DataRow(CompletionUnderPolicy(k=(2,), resamples=20), runs_under_policies),
    **{f"starc, {type(c).__name__}": DataRow(RewardDistance(canonical=c), reward_pair) for c in CANONICAL},
    "starc, linf of l1": DataRow(RewardDistance(norm="l1", metric="linf", max_policies=1), reward_pair),
    "ranking accuracy": DataRow(RankingAccuracy(), ranked),
    "ranking accuracy, IPO": DataRow(RankingAccuracy(beta=1.0, link=SquaredLink(target=5.0), target_loss=1.0), ranked),
    "token credit": DataRow(TokenCredit(), scored_answers),
    "Sharpe ratio": DataRow(SharpeRatio(threshold=0.0), estimated_candidates),
    "frontier gap": DataRow(FrontierGap(), frontier_points),
    "discretion": DataRow(DiscretionAudit(resamples=20, priority_resamples=2), preferences_by_principle),
}
