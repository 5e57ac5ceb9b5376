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
from polopt.metrics.calibration import (
    ReliabilityBin,
    brier_score,
    calibration_error,
    fit_temperature,
    log_loss,
    reliability,
)
from polopt.metrics.classification import average_precision, balanced_accuracy, f1_score
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
from polopt.metrics.cost import cost_curve
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
from polopt.metrics.feedback import ReleaseGate, auroc, chronological, release_gate, tic_rate
from polopt.metrics.filtering import most_reliable, r_squared
from polopt.metrics.frontier import FrontierCurves, frontier
from polopt.metrics.hacking import RewardDivergence, reward_parting
from polopt.metrics.intervals import (
    Interval,
    bootstrap,
    clopper_pearson,
    rate_change,
    rate_interval,
    t_interval,
    wilson,
)
from polopt.metrics.least_error import LeastError
from polopt.metrics.logged import LoggedDataError, LoggedDecisions
from polopt.metrics.logged_rows import LoggedRow, logged_decisions, logged_row, logged_table
from polopt.metrics.marginalised import MarginalImportanceSampling
from polopt.metrics.metric import BoundPlot, LoggedMetric, Measured, Metric, MetricError
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
from polopt.metrics.passk import pass_all_k, pass_at_k
from polopt.metrics.policy_runs import PolicyRuns
from polopt.metrics.preference_audit import PreferenceAudit, PreferenceRow, audit_preferences
from polopt.metrics.proxy import ProxyHacking, correlation, least_true_gain, proxy_hacking
from polopt.metrics.ranking import RankedPairs, idealised_margin, margin_at_loss
from polopt.metrics.reward_distance import SampledRewardPair, TabularRewardPair, sampled_rewards
from polopt.metrics.reward_regret import RewardRegret, reward_regret, worst_regret
from polopt.metrics.routing import route, router_regret
from polopt.metrics.row_format import MetricDataError, RowFormat
from polopt.metrics.scaling import Sigmoid, fit_sigmoid
from polopt.metrics.sequential import anytime_interval, anytime_p, evidence
from polopt.metrics.signal import mixed_groups
from polopt.metrics.stability import Stability, policy_stability, q_values
from polopt.metrics.token_credit import ScoredTokens, TokenTrace
from polopt.metrics.weight_limits import ClippedWeights, ShrunkWeights, SwitchedWeights, WeightLimit
from polopt.metrics.weighted import WeightedTerms, WeightsError

__all__ = [
    "ActionValueModel",
    "ActionValues",
    "AnnotatorAgreement",
    "BoundPlot",
    "ClippedWeights",
    "Comparison",
    "ComparisonRow",
    "Concordance",
    "Correction",
    "DetectedViolations",
    "DirectMethod",
    "DoublyRobust",
    "EntropyLaw",
    "EstimatedPolicies",
    "FrontierCurves",
    "GradientNoise",
    "Interval",
    "LeastError",
    "LoggedDataError",
    "LoggedDecisions",
    "LoggedMetric",
    "LoggedRow",
    "LoggedValues",
    "MarginalImportanceSampling",
    "Measured",
    "MethodRuns",
    "Metric",
    "MetricDataError",
    "MetricError",
    "Mismatch",
    "OffPolicyEstimator",
    "PerDecisionImportanceSampling",
    "PolicyRuns",
    "PreferenceAudit",
    "PreferenceLabels",
    "PreferenceRow",
    "PrinciplePreferences",
    "Priorities",
    "ProxyHacking",
    "RankedPairs",
    "ReleaseGate",
    "ReliabilityBin",
    "RewardDivergence",
    "RewardRegret",
    "RowFormat",
    "SampledRewardPair",
    "ScoredTokens",
    "ShrunkWeights",
    "Sigmoid",
    "Stability",
    "SwitchedWeights",
    "TabularRewardPair",
    "TabularValues",
    "TokenTrace",
    "TrajectoryImportanceSampling",
    "VerifierErrors",
    "ViolationDetection",
    "WeightLimit",
    "WeightedTerms",
    "WeightsError",
    "annotator_agreement",
    "anytime_interval",
    "anytime_p",
    "attempts",
    "audit_preferences",
    "audit_verifier",
    "auroc",
    "average_precision",
    "balanced_accuracy",
    "bootstrap",
    "both_orders",
    "brier_score",
    "calibration_error",
    "chronological",
    "clopper_pearson",
    "cohen_kappa",
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
    "f1_score",
    "fit_sigmoid",
    "fit_temperature",
    "frontier",
    "gradient_noise",
    "holm",
    "idealised_margin",
    "improvement",
    "iqm",
    "krippendorff_alpha",
    "least_true_gain",
    "log_loss",
    "logged_decisions",
    "logged_row",
    "logged_table",
    "logp_mismatch",
    "margin_at_loss",
    "mean_difference_p",
    "mixed_groups",
    "most_reliable",
    "near_duplicates",
    "paired_difference",
    "pass_all_k",
    "pass_at_k",
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
    "t_interval",
    "tic_rate",
    "timed_detections",
    "welch_difference",
    "wilson",
    "worst_regret",
]
