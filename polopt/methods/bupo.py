"""BuPO: training first the policy of an inner layer, then the whole network."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.layers import Layer, check_layer
from polopt.method import Paper, method
from polopt.objectives import Clip, ObjectiveSchedule, Phase, Surrogate, TokenMean, TokenRatio, WithMetrics
from polopt.objectives.compositions import DecisionMetric
from polopt.objectives.parts import Ratio
from polopt.ops import LIMIT
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


class LayerEntropy(DecisionMetric):
    """Entropy in nats of the policy that layer `layer` of the network defines; see `LayerRatio`."""

    layer: int
    among: int | None = None
    final_norm: bool = False

    def setup(self) -> None:
        check_layer("methods.bupo.LayerEntropy", self.layer, self.among)

    @property
    def _name(self) -> str:
        return Layer(self.layer, self.final_norm, self.among).name("entropy")

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras." + self._name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return evaluation.extras[self._name]


class LayerRatio(Ratio):
    """Per-decision ratio of an inner layer's policy: log r_t = logp_t - old logp_t, both of softmax(W_U h), with h
    the output of layer `layer` (from 1) and W_U the output layer. among: if given, `layer` is counted in a network of
    that many layers, and the layer at the same relative depth is taken.

    Its gradient reaches the layers up to that one, and W_U. final_norm: whether h is normalised as the last layer's
    output is; without, the scale of h differs from layer to layer. This is not the ratio to the behaviour policy.
    Source: BuPO, arXiv:2512.19673.
    """

    layer: int
    among: int | None = None
    final_norm: bool = False

    def setup(self) -> None:
        check_layer("methods.bupo.LayerRatio", self.layer, self.among)

    @property
    def _name(self) -> str:
        return Layer(self.layer, self.final_norm, self.among).name("logp")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({OLD + self._name})

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras." + self._name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        old = experience.extras[OLD.removeprefix("extras.") + self._name]
        return torch.where(experience.mask, evaluation.extras[self._name] - old, 0).clamp(-LIMIT, LIMIT)
