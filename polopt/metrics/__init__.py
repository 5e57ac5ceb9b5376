"""Evaluation: estimates with confidence intervals, comparisons over seeds, training diagnostics."""

from polopt.metrics.action_values import ActionValueModel, ActionValues, LoggedValues, TabularValues
from polopt.metrics.agreement import (
    AnnotatorAgreement,
    PreferenceLabels,
    annotator_agreement,
    cohen_kappa,
    krippendorff_alpha,
    preference_labels,
)
from polopt.metrics.audit import VerifierErrors, audit_verifier
from polopt.metrics.blended import BlendedReturns, least_on_simplex
from polopt.metrics.calibration import (
    ReliabilityBin,
    brier_score,
    calibration_error,
    fit_temperature,
    log_loss,
    reliability,
)
from polopt.metrics.classification import average_precision, balanced_accuracy, f1_score, implied_false_positive_rate
from polopt.metrics.collected_data import CollectedData
from polopt.metrics.compare import (
    Comparison,
    ComparisonRow,
    MethodRuns,
    detectable_difference,
    holm,
    improvement,
    iqm,
    mean_difference_p,
    paired_difference,
    permutation_p,
    power,
    probability_of_improvement,
    seeds_needed,
    welch_difference,
)
from polopt.metrics.concordance import Concordance, concordance
from polopt.metrics.correction import Correction, attempts, correction
from polopt.metrics.correlation import kendall_tau, pearson, rank_correlation
from polopt.metrics.cost import cost_curve
from polopt.metrics.decision_frequency import frequency_averaged_score
from polopt.metrics.detection import DetectedViolations, ViolationDetection, timed_detections
from polopt.metrics.discretion import (
    PrinciplePreferences,
    Priorities,
    both_orders,
    discretion_discrepancy,
    priorities,
)
from polopt.metrics.drift import perplexity, reference_kl
from polopt.metrics.entropy import EntropyLaw, entropy_law, entropy_shift
from polopt.metrics.estimated_policies import EstimatedPolicies
from polopt.metrics.families import FamilyScores, choose_settings
from polopt.metrics.feedback import ReleaseGate, auroc, chronological, release_gate, tic_rate
from polopt.metrics.filtering import most_reliable, r_squared
from polopt.metrics.frontier import FrontierCurves, frontier
from polopt.metrics.hacking import RewardDivergence, reward_parting
from polopt.metrics.hierarchy_episodes import HierarchyEpisodes
from polopt.metrics.induced import (
    Aspect,
    AspectMatching,
    Clustering,
    Grounding,
    InducedMetric,
    SentenceGrounding,
    TraitJudge,
    WordClustering,
    WordJudge,
    WordMatching,
    WrittenFeedback,
)
from polopt.metrics.intervals import (
    Interval,
    bootstrap,
    clopper_pearson,
    rate_change,
    rate_interval,
    t_interval,
    wilson,
)
from polopt.metrics.jackknife import jackknife
from polopt.metrics.least_error import LeastError, least_error_of_limits
from polopt.metrics.letters import compact_letters
from polopt.metrics.lifelong import LifelongLog
from polopt.metrics.logged import LoggedDataError, LoggedDecisions
from polopt.metrics.logged_rows import LoggedRow, logged_decisions, logged_row, logged_table
from polopt.metrics.marginalised import MarginalImportanceSampling
from polopt.metrics.metric import BoundPlot, LoggedMetric, Measured, Metric, MetricError, ResultTable
from polopt.metrics.mismatch import Mismatch, effective_sample_size, logp_mismatch
from polopt.metrics.near_duplicates import near_duplicates
from polopt.metrics.noise import GradientNoise, gradient_noise
from polopt.metrics.off_policy import (
    DirectMethod,
    DoublyRobust,
    OffPolicyEstimator,
    PerDecisionImportanceSampling,
    TrajectoryImportanceSampling,
)
from polopt.metrics.passk import CapabilityFlow, capability_flow, pass_all_k, pass_at_k
from polopt.metrics.policy_runs import PolicyRuns
from polopt.metrics.policy_selection import CandidatePolicy, PolicySelection, select_policy
from polopt.metrics.policy_tests import PolicyTestResults
from polopt.metrics.policy_trials import PolicyTrials
from polopt.metrics.pooled_values import MinimumVarianceValues, ValuesByAction
from polopt.metrics.power_law import PowerLaw, fit_power_law
from polopt.metrics.preference_audit import PreferenceAudit, PreferenceRow, audit_preferences
from polopt.metrics.proxy import ProxyHacking, correlation, least_true_gain, proxy_hacking
from polopt.metrics.ranking import RankedPairs, idealised_margin, margin_at_loss
from polopt.metrics.recommended_rows import Recommendations
from polopt.metrics.replies import LoggedReplies
from polopt.metrics.requirements import GatedRequirements, GateReport, MeasuredScore, Requirement, gate
from polopt.metrics.return_distribution import ReturnDistribution
from polopt.metrics.revision_rounds import RevisionRounds
from polopt.metrics.revisions import RevisedAnswers
from polopt.metrics.reward_distance import SampledRewardPair, TabularRewardPair, sampled_rewards
from polopt.metrics.reward_regret import RewardRegret, reward_regret, worst_regret
from polopt.metrics.routing import route, router_regret
from polopt.metrics.row_format import MetricDataError, RowFormat
from polopt.metrics.scaling import Sigmoid, fit_sigmoid
from polopt.metrics.sequential import anytime_interval, anytime_p, betting_evidence, evidence
from polopt.metrics.several_metrics import PolicyMetrics, hypervolume, pareto_front
from polopt.metrics.shrinkage import (
    CorrectedValues,
    LinearShrinkage,
    PredictedTrial,
    ShrinkageCorrection,
    TweedieShrinkage,
)
from polopt.metrics.signal import mixed_groups
from polopt.metrics.simulated_policies import RandomFeatureDynamics, SimulatedPolicies, rank_violation, simulated_value
from polopt.metrics.slates import IndependentImportanceSampling, PseudoInverse
from polopt.metrics.stability import Stability, policy_stability, q_values
from polopt.metrics.state_divergence import StateDivergence, state_divergence
from polopt.metrics.stationary import StationaryImportanceSampling
from polopt.metrics.success_rates import beta_posterior, exact_difference_p
from polopt.metrics.token_credit import ScoredTokens, TokenTrace
from polopt.metrics.transitions import LoggedTransitions, logged_transitions
from polopt.metrics.value_class import FeatureTransitions, Incompleteness, bellman_incompleteness, concentrability
from polopt.metrics.weight_limits import ClippedWeights, ShrunkWeights, SwitchedWeights, WeightLimit
from polopt.metrics.weighted import WeightedTerms, WeightsError

__all__ = [
    "ActionValueModel",
    "ActionValues",
    "AnnotatorAgreement",
    "Aspect",
    "AspectMatching",
    "BlendedReturns",
    "BoundPlot",
    "CandidatePolicy",
    "CapabilityFlow",
    "ClippedWeights",
    "Clustering",
    "CollectedData",
    "Comparison",
    "ComparisonRow",
    "Concordance",
    "CorrectedValues",
    "Correction",
    "DetectedViolations",
    "DirectMethod",
    "DoublyRobust",
    "EntropyLaw",
    "EstimatedPolicies",
    "FamilyScores",
    "FeatureTransitions",
    "FrontierCurves",
    "GateReport",
    "GatedRequirements",
    "GradientNoise",
    "Grounding",
    "HierarchyEpisodes",
    "Incompleteness",
    "IndependentImportanceSampling",
    "InducedMetric",
    "Interval",
    "LeastError",
    "LifelongLog",
    "LinearShrinkage",
    "LoggedDataError",
    "LoggedDecisions",
    "LoggedMetric",
    "LoggedReplies",
    "LoggedRow",
    "LoggedTransitions",
    "LoggedValues",
    "MarginalImportanceSampling",
    "Measured",
    "MeasuredScore",
    "MethodRuns",
    "Metric",
    "MetricDataError",
    "MetricError",
    "MinimumVarianceValues",
    "Mismatch",
    "OffPolicyEstimator",
    "PerDecisionImportanceSampling",
    "PolicyMetrics",
    "PolicyRuns",
    "PolicySelection",
    "PolicyTestResults",
    "PolicyTrials",
    "PowerLaw",
    "PredictedTrial",
    "PreferenceAudit",
    "PreferenceLabels",
    "PreferenceRow",
    "PrinciplePreferences",
    "Priorities",
    "ProxyHacking",
    "PseudoInverse",
    "RandomFeatureDynamics",
    "RankedPairs",
    "Recommendations",
    "ReleaseGate",
    "ReliabilityBin",
    "Requirement",
    "ResultTable",
    "ReturnDistribution",
    "RevisedAnswers",
    "RevisionRounds",
    "RewardDivergence",
    "RewardRegret",
    "RowFormat",
    "SampledRewardPair",
    "ScoredTokens",
    "SentenceGrounding",
    "ShrinkageCorrection",
    "ShrunkWeights",
    "Sigmoid",
    "SimulatedPolicies",
    "Stability",
    "StateDivergence",
    "StationaryImportanceSampling",
    "SwitchedWeights",
    "TabularRewardPair",
    "TabularValues",
    "TokenTrace",
    "TraitJudge",
    "TrajectoryImportanceSampling",
    "TweedieShrinkage",
    "ValuesByAction",
    "VerifierErrors",
    "ViolationDetection",
    "WeightLimit",
    "WeightedTerms",
    "WeightsError",
    "WordClustering",
    "WordJudge",
    "WordMatching",
    "WrittenFeedback",
    "annotator_agreement",
    "anytime_interval",
    "anytime_p",
    "attempts",
    "audit_preferences",
    "audit_verifier",
    "auroc",
    "average_precision",
    "balanced_accuracy",
    "bellman_incompleteness",
    "beta_posterior",
    "betting_evidence",
    "bootstrap",
    "both_orders",
    "brier_score",
    "calibration_error",
    "capability_flow",
    "choose_settings",
    "chronological",
    "clopper_pearson",
    "cohen_kappa",
    "compact_letters",
    "concentrability",
    "concordance",
    "correction",
    "correlation",
    "cost_curve",
    "detectable_difference",
    "discretion_discrepancy",
    "effective_sample_size",
    "entropy_law",
    "entropy_shift",
    "evidence",
    "exact_difference_p",
    "f1_score",
    "fit_power_law",
    "fit_sigmoid",
    "fit_temperature",
    "frequency_averaged_score",
    "frontier",
    "gate",
    "gradient_noise",
    "holm",
    "hypervolume",
    "idealised_margin",
    "implied_false_positive_rate",
    "improvement",
    "iqm",
    "jackknife",
    "kendall_tau",
    "krippendorff_alpha",
    "least_error_of_limits",
    "least_on_simplex",
    "least_true_gain",
    "log_loss",
    "logged_decisions",
    "logged_row",
    "logged_table",
    "logged_transitions",
    "logp_mismatch",
    "margin_at_loss",
    "mean_difference_p",
    "mixed_groups",
    "most_reliable",
    "near_duplicates",
    "paired_difference",
    "pareto_front",
    "pass_all_k",
    "pass_at_k",
    "pearson",
    "permutation_p",
    "perplexity",
    "policy_stability",
    "power",
    "preference_labels",
    "priorities",
    "probability_of_improvement",
    "proxy_hacking",
    "q_values",
    "r_squared",
    "rank_correlation",
    "rank_violation",
    "rate_change",
    "rate_interval",
    "reference_kl",
    "release_gate",
    "reliability",
    "reward_parting",
    "reward_regret",
    "route",
    "router_regret",
    "sampled_rewards",
    "seeds_needed",
    "select_policy",
    "simulated_value",
    "state_divergence",
    "t_interval",
    "tic_rate",
    "timed_detections",
    "welch_difference",
    "wilson",
    "worst_regret",
]
