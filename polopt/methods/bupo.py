"""BuPO: training first the policy of an inner layer, then the whole network."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import (
    Clip,
    LayerEntropy,
    LayerRatio,
    ObjectiveSchedule,
    Phase,
    Surrogate,
    TokenMean,
    TokenRatio,
    WithMetrics,
)
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Bottom-up Policy Optimization: Your Language Model Policy Secretly Contains Internal Policies",
        authors="Tan, Yuqiao and others",
        year=2025,
        arxiv="2512.19673",
    ),
    changes="For the first batches GRPO's ratio is that of an inner layer's policy: only the layers up to it learn.",
    room="objectives",
    tier="faithful",
)
def bupo(
    *,
    group: int = 8,
    layer: int = 6,
    among: int | None = 36,
    batches: int = 30,
    final_norm: bool = False,
    clip: float = 0.2,
    dual: float | None = 10.0,
) -> Algorithm:
    """pi_k = softmax(W_U h_k), h_k the output of layer k, W_U the output layer. For `batches` batches

        L = (1 / sum_i |y_i|) sum_it max(-A_i r_it, -A_i clip(r_it, 1 - clip, 1 + clip)),  r_it = pi_k / old pi_k

    with A_i the z-score in the group, on answers that the whole network sampled; then GRPO with its own ratio. dual: in
    both phases a term of A < 0 is at most -dual A, as in the authors' scripts (None: no such bound). In the first phase
    the layers above k have no gradient at all, and the ratio is not that to the behaviour policy. final_norm normalises
    h_k as the last layer's output is: the authors' code does not, so that the scale of h_k, and with it the entropy of
    pi_k (logged as `LayerEntropy`), differs from layer to layer. k counts from 1: their internal_layer 5 of 36 is layer
    6; a network of another depth takes the layer at the same relative depth, and `among` None counts its own. The
    authors' module policies, of attention or MLP outputs alone, are not implemented.
    """
    grpo = Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip, dual=dual), aggregate=TokenMean())
    inner = WithMetrics(
        objective=grpo.but(ratio=LayerRatio(layer=layer, among=among, final_norm=final_norm)),
        gauges=[LayerEntropy(layer=layer, among=among, final_norm=final_norm)],
    )
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=ObjectiveSchedule(phases=[Phase(objective=inner, batches=batches), Phase(objective=grpo)]),
    )
