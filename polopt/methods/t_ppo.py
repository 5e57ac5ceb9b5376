"""T-PPO: PPO on partial rollouts, so that no batch has to wait for the longest answer."""

from __future__ import annotations

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GAE
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.masks import FieldMask, Finished
from polopt.method import Paper, method
from polopt.objectives import (
    AuxiliaryLoss,
    Branch,
    BranchedObjective,
    Clip,
    Surrogate,
    TokenMean,
    TokenRatio,
    ValueLoss,
)
from polopt.sampling import PartialRollouts


@method(
    paper=Paper(
        title="Truncated Proximal Policy Optimization",
        authors="Fan, Tiantian and Liu, Lingjun and Yue, Yu and Chen, Jiaze and Wang, Chengyi and others",
        year=2025,
        arxiv="2506.15050",
    ),
    changes="PPO on answers that grow by a window a batch: advantages of unfinished answers, a critic taught by "
    "finished ones.",
    room="sampling",
    tier="reading",
)
def t_ppo(
    *, window: int = 8192, clip: float = 0.2, lam: float = 0.95, value_lam: float = 1.0, value: float = 0.5
) -> Algorithm:
    """PPO on batches that generate at most `window` tokens of every answer. Finished answers leave, new prompts enter,
    unfinished answers continue in the next batch. Extended GAE ends an unfinished answer y_0..y_(l-1) with
    V(s_l) := V(s_(l-1)),

        delta_t = r_t + V(s_(t+1)) - V(s_t),    A_t = sum_(u >= t) lam^(u - t) delta_u,    so A_(l-1) = 0,

    and L = mean_w max(-A r, -A clip(r, 1 - clip, 1 + clip)) + value * mean_f 0.5 (V - R)^2, with w the tokens of this
    batch's window, each of them policy data once, and f all tokens of the answers that this batch finished; R is their
    lambda-return with `value_lam`, at 1 the outcome.

    Ratios are to the policy that sampled the window. Values of earlier windows are those of the current critic. An
    answer truncated at the episode's own limit has value 0 from there on, as in `ppo`; with a window as long as that
    this is PPO with decoupled lambdas, without whitening and KL. The paper's are a window of 8k of 24k tokens and
    learning rates of its own for actor and critic, which share a trunk and an optimiser here, and a critic that is
    warmed up. Which tokens each loss takes, and both lambdas, could not be confirmed and are our reading.
    """
    critic = ValueLoss(coefficient=value, clip=None)
    actor = Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean())
    return Algorithm(
        sampling=PartialRollouts(window=window),
        credit=DecoupledTargets(credit=GAE(lam=lam, cut="zero", open="last"), target=GAE(lam=value_lam, cut="zero")),
        objective=BranchedObjective(
            routes=[
                Branch(objective=actor, rows=FieldMask(name="window", unit="token")),
                Branch(objective=AuxiliaryLoss(regularise=[critic]), rows=Finished()),
            ]
        ),
    )


class DecoupledTargets(Credit):
    """The advantage of one credit with the critic's targets of another, such as GAE with two values of lambda.

    credit: computes the advantage. target: computes `value_target`. Source: decoupled GAE in VC-PPO, arXiv:2503.01491.
    """

    credit: Credit
    target: Credit

    def setup(self) -> None:
        if "value_target" not in self.target.all_writes:
            raise ValueError(
                f"methods.t_ppo.DecoupledTargets: target must have targets for a critic, found {self.target!r}"
            )

    def forward(self, experience: Experience) -> Tensor:
        return self.credit(experience)

    def value_target(self, experience: Experience) -> Tensor | None:
        return self.target.value_target(experience)
