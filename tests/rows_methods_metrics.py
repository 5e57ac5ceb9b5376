"""Rows of the battery: metrics of the methods, which read something else than logged decisions."""

from __future__ import annotations

from polopt.checks.metric_rules import DataRow
from polopt.lab.measured import (
    estimated_candidates,
    frontier_points,
    logged_walks,
    preferences_by_principle,
    ranked,
    reward_pair,
    scored_answers,
)
from polopt.methods.alignment_discretion import DiscretionAudit
from polopt.methods.dataset_perspective import DatasetPerspective
from polopt.methods.il_data_quality import DemonstrationQuality
from polopt.methods.online_offline_gap import FrontierGap
from polopt.methods.r_to_q import TokenCredit
from polopt.methods.ranking_accuracy import RankingAccuracy
from polopt.methods.sharpe_at_k import SharpeRatio
from polopt.methods.starc import Dard, Epic, LeastL2, RewardDistance, Uncanonical, ValueLevelled, ValueShaped
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
    "dataset perspective": DataRow(
        DatasetPerspective(random_return=0.0, expert_return=8.0, reference="one", bins=10), logged_walks
    ),
    "demonstration quality": DataRow(DemonstrationQuality(), logged_walks),
    "discretion": DataRow(DiscretionAudit(resamples=20, priority_resamples=2), preferences_by_principle),
}
