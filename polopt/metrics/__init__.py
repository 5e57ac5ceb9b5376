"""Is it really better, how sure: estimates with intervals, comparisons over seeds, training diagnostics."""

from polopt.metrics.compare import (
    Comparison,
    Row,
    Trials,
    improvement,
    iqm,
    paired_difference,
    probability_of_improvement,
    welch_difference,
)
from polopt.metrics.drift import perplexity, reference_kl
from polopt.metrics.entropy import EntropyLaw, entropy_law, entropy_shift
from polopt.metrics.filtering import most_reliable, r_squared
from polopt.metrics.intervals import Interval, bootstrap, rate_interval, t_interval, wilson
from polopt.metrics.mismatch import Mismatch, effective_sample_size, logp_mismatch
from polopt.metrics.noise import GradientNoise, gradient_noise
from polopt.metrics.passk import pass_all_k, pass_at_k
from polopt.metrics.proxy import ProxyHacking, correlation, least_true_gain, proxy_hacking
from polopt.metrics.stability import Stability, policy_stability, q_values

__all__ = [
    "Comparison",
    "EntropyLaw",
    "GradientNoise",
    "Interval",
    "Mismatch",
    "ProxyHacking",
    "Row",
    "Stability",
    "Trials",
    "bootstrap",
    "correlation",
    "effective_sample_size",
    "entropy_law",
    "entropy_shift",
    "gradient_noise",
    "improvement",
    "iqm",
    "least_true_gain",
    "logp_mismatch",
    "most_reliable",
    "paired_difference",
    "pass_all_k",
    "pass_at_k",
    "perplexity",
    "policy_stability",
    "probability_of_improvement",
    "proxy_hacking",
    "q_values",
    "r_squared",
    "rate_interval",
    "reference_kl",
    "t_interval",
    "welch_difference",
    "wilson",
]
