"""EPO: an entropy bonus that is held near the entropy of the batches before."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit.parts import Credit
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import AuxiliaryLoss, Branch, BranchedObjective, EntropyBonus, Regulariser, TurnMean
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="EPO: Entropy-regularized Policy Optimization for LLM Agents Reinforcement Learning",
        authors="Xu, Wujiang and Zhao, Wentian and Wang, Zhenting and Li, Yu-Jhe and Jin, Can and others",
        year=2025,
        arxiv="2509.22576",
    ),
    changes="GRPO with an entropy bonus, and a penalty on tokens whose entropy is far from that of earlier batches.",
    room="objectives",
    tier="faithful",
)
def epo(
    *,
    group: int = 8,
    strength: float = 0.001,
    smoothing: float = 0.1,
    low: float = 0.5,
    high: float = 1.5,
    decay: float = 1.0,
    middle: int = 50,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """With H_iht the entropy at token t of turn h, W the mean of the mean entropies of all earlier batches, and

        P_iht = max(0, low W - H_iht) + max(0, H_iht - high W),    beta_k = 1 + exp(-decay k / middle)

    after k batches, P = 0 in the first,

        L = L_GRPO - strength mean_i mean_h mean_t (H_iht - beta_k smoothing P_iht)

    so that entropy neither dies out nor grows without bound in tasks of many turns and rare rewards.

    middle: half of the batches of the training. smoothing: alpha; 0 is a plain bonus. The paper's runs have low = 0 and
    high = 2 on ScienceWorld and ALFWorld.

    In the authors' code the penalty is a constant, which has no gradient, its history is kept by turn, and its phase
    falls from 1 to 0.04; here it is the paper's. decay and strength could not be confirmed beyond the scripts'
    settings. W is of the entropies that the sampler recorded.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    bonus = EntropyBonus(coefficient=strength)
    penalty = EntropySmoothing(coefficient=strength * smoothing, low=low, high=high, decay=decay, middle=middle)
    entropy = AuxiliaryLoss(regularise=[bonus, penalty], aggregate=TurnMean())
    routes = [Branch(objective=base.objective), Branch(objective=entropy)]
    return base.but(credit=EntropyHistory(credit=base.credit), objective=BranchedObjective(routes=routes))


class EntropyHistory(Credit):
    """Another credit, beside which `extras.entropy_history` [B] is written: the mean over all earlier batches of their
    mean entropies, each as `objectives.TurnMean` takes it, in nats; NaN in the first. Training alone adds a batch."""

    credit: Credit

    reads = frozenset({"entropy", "turn"})
    writes = frozenset({"extras.entropy_history"})

    def setup(self) -> None:
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, experience: Experience) -> Tensor:
        return self.credit(experience)

    def credited(self, experience: Experience) -> Experience:
        total, batches = self.get_buffer("total"), self.get_buffer("batches")
        mean = (total / batches).to(experience.precision).expand(len(experience)).clone()
        if self.training and experience.mask.any():
            entropy = torch.where(experience.mask, experience.entropy, 0).double()
            total.add_(TurnMean()(experience, entropy))
            batches.add_(1)
        return self.credit.credited(experience).replace(extras={"entropy_history": mean})


class EntropySmoothing(Regulariser):
    """coefficient * (1 + exp(-decay k / middle)) * (max(0, low W - H) + max(0, H - high W)) at each decision, with W of
    `extras["entropy_history"]`, 0 where that is NaN, and k the batches learned from."""

    binds = "decision"

    coefficient: float | Schedule = 0.0001
    low: float = 0.5
    high: float = 1.5
    decay: float = 1.0
    middle: int = 50

    reads = frozenset({"extras.entropy_history"})
    policy_outputs = frozenset({"entropy"})

    def setup(self) -> None:
        if not 0 <= self.low <= self.high or self.middle < 1:
            raise ValueError(
                "EntropySmoothing: needs 0 <= low <= high and middle >= 1, found "
                f"{self.low}, {self.high} and {self.middle}"
            )
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def on_step(self) -> None:
        self.get_buffer("batches").add_(1)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        history, entropy = experience.extras["entropy_history"][:, None], evaluation.entropy
        phase = 1 + math.exp(-self.decay * int(self.get_buffer("batches")) / self.middle)
        outside = (self.low * history - entropy).clamp(min=0) + (entropy - self.high * history).clamp(min=0)
        return torch.where(history.isnan(), 0, phase * outside)
