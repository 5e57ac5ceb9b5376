"""V0: a model that predicts any policy's success from that policy's recent results."""

from __future__ import annotations

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import InContext, PredictedAllocator


@method(
    paper=Paper(
        title="V_0: A Generalist Value Model for Any Policy at State Zero",
        authors="Zhang, Yi-Kai and others",
        year=2026,
        arxiv="2602.03584",
    ),
    changes="GRPO whose rollouts go where a predictor, shown what the policy scored lately, expects to teach most.",
    room="sampling",
    tier="reading",
)
def v0(*, group: int = 8, least: int = 2, most: int = 128, model: str | None = None) -> Algorithm:
    """p(x) = V0(x | the policy's latest prompts and scores), before any rollout of x, and counts n, `group` on average,

        maximise sum_x V(n_x, p(x)),   V(n, p) = (1 - p^n - (1 - p)^n) p (1 - p)^2,   least <= n_x <= most.

    Baseline and objective are GRPO's. The predictor is frozen while the policy learns; its context, the last 256 tasks
    and their mean outcomes, is part of the checkpoint. The predictor also serves as `v0.5`'s prior, and
    its predictions as the input of `metrics.route`.

    The paper's encoder is a 0.6B language model with queries read out of its hidden states, and its head TabPFN, with
    scores rounded to 0 and 1. Ours is small: hashed runs of bytes, a residual layer, and a logistic regression in
    context that takes scores as they are (`sampling.InContext`). The predictor is trained by the paper's loss, 0.25
    pairwise and 0.75 cross entropy, over all pairs of a step's questions instead of every second one: `sampling.fit`.
    `model` names a folder with a trained one (docs/success-prediction.md); None starts from an untrained predictor,
    which uses its context alone.
    The allocation rule is not known to us; it is that of arXiv:2509.25849.
    """
    return grpo(group=group, kl=0.0).but(
        **{"sampling.budget": PredictedAllocator(predictor=InContext(model=model), least=least, most=most)}
    )
