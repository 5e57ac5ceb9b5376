"""Rows of the battery: metrics of the methods, which read something else than logged decisions."""

from __future__ import annotations

from polopt.checks.metric_rules import DataRow
from polopt.lab.measured import (
    answers_by_round,
    estimated_candidates,
    frontier_points,
    preferences_by_principle,
    ranked,
    remarked,
    replied,
    revised_samples,
    reward_pair,
    scored_answers,
    tested_rules,
)
from polopt.methods.alignment_discretion import DiscretionAudit
from polopt.methods.autolibra import InducedMetrics
from polopt.methods.intellagent import PolicyTestReport
from polopt.methods.online_offline_gap import FrontierGap
from polopt.methods.r_to_q import TokenCredit
from polopt.methods.ranking_accuracy import RankingAccuracy
from polopt.methods.selfcorrect_clcs import SelfCorrection
from polopt.methods.selfcorrect_gen_vs_mc import RevisionDynamics
from polopt.methods.sharpe_at_k import SharpeRatio
from polopt.methods.social_correction import ReplyPolicy
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
    "discretion": DataRow(DiscretionAudit(resamples=20, priority_resamples=2), preferences_by_principle),
    "confidence and critique": DataRow(SelfCorrection(resamples=20), revised_samples),
    "revision by round": DataRow(RevisionDynamics(resamples=20), answers_by_round),
    "replies": DataRow(ReplyPolicy(backfire=0.3), replied),
    "tests of rules": DataRow(PolicyTestReport(pairs=5, resamples=20), tested_rules),
    "induced metrics": DataRow(InducedMetrics(resamples=20), remarked),
}
