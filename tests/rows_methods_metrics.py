"""Rows of the battery: metrics of the methods, which read something else than logged decisions."""

from __future__ import annotations

from polopt.checks.metric_rules import DataRow
from polopt.lab.logged import small_log
from polopt.lab.measured import (
    answers_by_round,
    detections,
    estimated_candidates,
    feature_samples,
    frontier_points,
    gated_scores,
    hierarchy,
    lifelong_measurements,
    logged_walks,
    policies_by_data,
    policies_with_metrics,
    predicted_outcomes,
    preferences_by_principle,
    ranked,
    recommended,
    remarked,
    replied,
    revised_samples,
    reward_pair,
    runs_under_policies,
    scored_answers,
    scores_over_a_family,
    simulated,
    tested_rules,
    trials_of_policies,
)
from polopt.methods.alignment_discretion import DiscretionAudit
from polopt.methods.autolibra import InducedMetrics
from polopt.methods.dataset_perspective import DatasetPerspective
from polopt.methods.il_data_quality import DemonstrationQuality
from polopt.methods.il_data_scaling import DataScaling
from polopt.methods.intellagent import PolicyTestReport
from polopt.methods.kitchen_r import HierarchyEvaluation
from polopt.methods.l2_lifelong import LifelongMetrics
from polopt.methods.lbm_evaluation import PolicyComparison
from polopt.methods.mdp_family_eval import FamilyEvaluation
from polopt.methods.off_policy_realizability import ValueClassDiagnostics
from polopt.methods.one_map_many_trials import TrialDifference
from polopt.methods.online_offline_gap import FrontierGap
from polopt.methods.r_to_q import TokenCredit
from polopt.methods.rai_inconsistency import MetricConflicts
from polopt.methods.ranking_accuracy import RankingAccuracy
from polopt.methods.recsys_metrics import RecommendationMetrics
from polopt.methods.selfcorrect_clcs import SelfCorrection
from polopt.methods.selfcorrect_gen_vs_mc import RevisionDynamics
from polopt.methods.sharpe_at_k import SharpeRatio
from polopt.methods.social_correction import ReplyPolicy
from polopt.methods.st_webagentbench import CompletionUnderPolicy
from polopt.methods.starc import Dard, Epic, LeastL2, RewardDistance, Uncanonical, ValueLevelled, ValueShaped
from polopt.methods.tai_sfma import RequirementGate
from polopt.methods.vitabench import Reliability
from polopt.methods.wm_policy_evaluation import SimulatorAgreement
from polopt.metrics import LinearShrinkage, ReturnDistribution, ViolationDetection
from polopt.objectives import SquaredLink

CANONICAL = (ValueLevelled(), ValueShaped(), LeastL2(), Epic(), Dard(), Uncanonical())

DATA_METRICS = {
    **{f"starc, {type(c).__name__}": DataRow(RewardDistance(canonical=c), reward_pair) for c in CANONICAL},
    "starc, linf of l1": DataRow(RewardDistance(norm="l1", metric="linf", max_policies=1), reward_pair),
    "ranking accuracy": DataRow(RankingAccuracy(), ranked),
    "ranking accuracy, IPO": DataRow(RankingAccuracy(beta=1.0, link=SquaredLink(target=5.0), target_loss=1.0), ranked),
    "token credit": DataRow(TokenCredit(), scored_answers),
    "return distribution": DataRow(ReturnDistribution(resamples=50), small_log),
    "return distribution, divided by n": DataRow(ReturnDistribution(resamples=50, self_normalised=False), small_log),
    "Sharpe ratio": DataRow(SharpeRatio(threshold=0.0), estimated_candidates),
    "frontier gap": DataRow(FrontierGap(), frontier_points),
    "release gate": DataRow(RequirementGate(), gated_scores),
    "lifelong metrics": DataRow(LifelongMetrics(), lifelong_measurements),
    "lifelong metrics, ratio": DataRow(LifelongMetrics(transfer="ratio", normalise=False), lifelong_measurements),
    "family evaluation": DataRow(FamilyEvaluation(resamples=20, budget=4, trials=5), scores_over_a_family),
    "metric conflicts": DataRow(MetricConflicts(lower=("cost",), resamples=20), policies_with_metrics),
    "discretion": DataRow(DiscretionAudit(resamples=20, priority_resamples=2), preferences_by_principle),
    "data scaling": DataRow(DataScaling(resamples=50), policies_by_data),
    "data scaling, floor": DataRow(DataScaling(floor=True, resamples=20), policies_by_data),
    "hierarchy": DataRow(HierarchyEvaluation(resamples=50), hierarchy),
    "policy comparison": DataRow(PolicyComparison(), trials_of_policies),
    "policy comparison, scores": DataRow(
        PolicyComparison(outcome="score", correction="bonferroni"), trials_of_policies
    ),
    "reliability": DataRow(Reliability(), trials_of_policies),
    "policy comparison, fixed": DataRow(PolicyComparison(test="fixed"), trials_of_policies),
    "trial difference, Tweedie": DataRow(TrialDifference(resamples=20), predicted_outcomes),
    "trial difference, linear": DataRow(
        TrialDifference(resamples=20, correction=LinearShrinkage()), predicted_outcomes
    ),
    "recommendations": DataRow(RecommendationMetrics(k=(1, 3, 20), catalogue=30), recommended),
    "simulator agreement": DataRow(SimulatorAgreement(resamples=20), simulated),
    "value class": DataRow(ValueClassDiagnostics(resamples=20), feature_samples),
    "confidence and critique": DataRow(SelfCorrection(resamples=20), revised_samples),
    "revision by round": DataRow(RevisionDynamics(resamples=20), answers_by_round),
    "replies": DataRow(ReplyPolicy(backfire=0.3), replied),
    "tests of rules": DataRow(PolicyTestReport(pairs=5, resamples=20), tested_rules),
    "induced metrics": DataRow(InducedMetrics(resamples=20), remarked),
    "dataset perspective": DataRow(
        DatasetPerspective(random_return=0.0, expert_return=8.0, reference="one", bins=10), logged_walks
    ),
    "demonstration quality": DataRow(DemonstrationQuality(), logged_walks),
    "violation detection": DataRow(ViolationDetection(resamples=20), detections),
    "completion under policy": DataRow(CompletionUnderPolicy(k=(2,), resamples=20), runs_under_policies),
}
