"""MAGIC: partial importance sampling, a blend of a model and the doubly robust estimate."""

from polopt.method import Paper, method
from polopt.metrics import ActionValueModel, BlendedReturns, TabularValues


@method(
    paper=Paper(
        title="Data-Efficient Off-Policy Policy Evaluation for Reinforcement Learning",
        authors="Thomas, Philip S. and Brunskill, Emma",
        year=2016,
        arxiv="1604.00923",
    ),
    changes="A blend of the model's value and doubly robust estimates of each length, with the weights of least "
    "estimated error.",
    room="metrics",
    tier="proven",
)
def magic(
    *,
    gamma: float = 1.0,
    model: ActionValueModel | None = None,
    folds: int = 2,
    bias_level: float = 0.5,
    bias_resamples: int = 200,
    level: float = 0.95,
) -> BlendedReturns:
    """Value of the target policy, estimated from n logged episodes of T decisions as sum_j x_j g_j of

        g_j = 1/n sum_i [sum_{t < j} gamma^t w_t (r_t - q_t) + sum_{t <= j} gamma^t w_{t-1} v_t],    j = 0, ..., T

    with w_t the product of the probability ratios up to step t over its mean, and w_{-1} = 1: g_0 is the model's value,
    g_T the weighted doubly robust estimate. x has the least x' (Omega + b b') x of all weights that are 0 or more and
    add up to 1: Omega is the covariance of the g_j, and b_j the distance of g_j to a confidence interval of g_T.

    bias_level, bias_resamples: of that interval, a percentile bootstrap. A higher level trusts the model more.
    model, folds: as in `doubly-robust`. level: of the reported interval, which is that of g_T, extended to contain the
        estimate.

    Omega is of the weighted terms, as in the authors' program, and has the factor n that the program of the paper's
    experiments lacked, by their own note; bias_level is that program's default. The program adds 1e-5 to Omega's
    diagonal, which depends on the rewards' unit and is left out.
    """
    return BlendedReturns(
        gamma=gamma,
        model=TabularValues() if model is None else model,
        folds=folds,
        bias_level=bias_level,
        bias_resamples=bias_resamples,
        level=level,
    )
