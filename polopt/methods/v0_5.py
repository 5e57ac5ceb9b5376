"""V0.5: a baseline that combines a predicted success rate with the mean of few rollouts."""

from __future__ import annotations

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage, ShrunkMean
from polopt.features.rows import RowField
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import InContext, SequentialAllocator


@method(
    paper=Paper(
        title="V_0.5: Generalist Value Model as a Prior for Sparse RL Rollouts",
        authors="Zhang, Yi-Kai and others",
        year=2026,
        arxiv="2603.10848",
    ),
    changes="GRPO on few rollouts: the baseline is a predicted success rate until they speak against it, and then more "
    "are bought.",
    room="credit",
    tier="reading",
)
def v0_5(
    *, group: int = 4, most: int = 16, cost: float = 0.0039, model: str | None = None, others: bool = False
) -> Algorithm:
    """With v the predicted value of a prompt and m the mean of k rollouts, both in [-1, 1],

        D = max(0, (m - v)^2 - 1/k),   w = D / (D + 1/k),   A_i = R_i - (w m + (1 - w) v)

    and one more rollout of the prompt is bought while D/(kD + 1) - D/((k + 1)D + 1) > cost, from `group` up to `most`.
    w = 1 is GRPO without its std, w = 0 a baseline by prediction alone. A group whose rewards are all equal still
    has a gradient, in proportion to the prediction's error.

    v comes from `sampling.InContext`, which stands for the paper's pre-trained V0: `model` names a folder with one that
    `sampling.fit` trained; None starts from a predictor that uses only this policy's recent scores. Outcomes are 0
    and 1 here, and 1/k becomes 1/4k. Whether the paper divides A by a std is not known to us: we do not, since an equal
    group has none. others: w and m leave row i out, which takes the bias of order 1/k from the gradient; the paper does
    not. The number of rows of a batch varies, `group` a prompt at least: it is the paper's k_init, 4, and a stage's
    `group:` in a recipe sets it, so that the usual 8 there begins with twice the paper's rollouts.
    """
    return grpo(group=group, kl=0.0).but(
        credit=RelativeAdvantage(baseline=ShrunkMean(prior=RowField(name="predicted"), others=others), scale=None),
        **{"sampling.budget": SequentialAllocator(predictor=InContext(model=model), most=most, cost=cost)},
    )
