"""V0: a model that predicts any policy's success from that policy's recent results."""

from __future__ import annotations

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import InContext
from polopt.sampling.allocation import allocate
from polopt.sampling.parts import RolloutAllocator, RolloutFn
from polopt.sampling.predicted import UsesPredictor, noted
from polopt.sampling.predictor import Predictor
from polopt.sampling.source_protocols import PromptSource


@method(
    paper=Paper(
        title="V_0: A Generalist Value Model for Any Policy at State Zero",
        authors="Zhang, Yi-Kai and others",
        year=2026,
        arxiv="2602.03584",
    ),
    changes="GRPO whose rollouts go to the tasks that a predictor, given the policy's recent scores, finds useful.",
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


class PredictedAllocator(UsesPredictor, RolloutAllocator):
    """Allocates between `least` and `most` rollouts a task, `group` on average, to maximise their value (`allocate`) at
    predicted success rates.

    Tasks that are all but certain either way get few rollouts. Source: V0, arXiv:2602.03584; the value of a count is
    that of arXiv:2509.25849.
    """

    predictor: Predictor = InContext()
    context: int = 256
    low: float = 0.0
    high: float = 1.0
    least: int = 2
    most: int = 128

    def setup(self) -> None:
        super().setup()
        if not 1 <= self.least <= self.most:
            raise ValueError(
                f"methods.v0.PredictedAllocator: need 1 <= least <= most, found {self.least} and {self.most}"
            )

    def forward(self, source: PromptSource, tasks: Tensor, group: int, rollout: RolloutFn) -> Experience:
        rate = self.predict(source, tasks)
        counts = allocate(rate.cpu(), group * len(tasks), self.least, self.most).to(tasks.device)
        return noted(rollout(counts), rate)
