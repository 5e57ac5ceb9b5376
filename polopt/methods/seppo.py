"""SePPO: preferences over the policy's own earlier points, which count as worse only while the policy improves."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.diffusion_dpo import diffusion_dpo
from polopt.objectives import DenoisingReward
from polopt.objectives.implicit import ImplicitReward, preferred_sign
from polopt.sampling import RolloutRequest, Sampling, WeightBank
from polopt.sampling.source_protocols import WeightSource


@method(
    paper=Paper(
        title="SePPO: Semi-Policy Preference Optimization for Diffusion Alignment",
        authors="Zhang, Daoan and others",
        year=2024,
        arxiv="2410.05255",
    ),
    changes="Diffusion-DPO without rejected points: an earlier policy makes them, and they are rejected or imitated "
    "according to which of the two policies fits the preferred point better.",
    room="objectives",
    tier="reading",
)
def seppo(*, beta: float = 2000.0, every: int = 30) -> Algorithm:
    """L = -log sigmoid(-(beta / 2) [D(x_w) - s D(x_r)]),  s = sign(-D(x_w)) without gradient

    with x_w a preferred point, x_r a point that an earlier policy, the reference, made for the same context, and
    D(x) = |e - e_theta(x_t)|^2 - |e - e_ref(x_t)|^2 the errors of denoising, means over dimensions and draws. While the
    policy fits the preferred point better than the reference, x_r is a rejected point, as in Diffusion-DPO; otherwise
    x_r is imitated, too. The reference is drawn uniformly from the checkpoints, one of every `every` updates, the first
    policy among them.

    beta (> 0), every (>= 1): of Diffusion-DPO, and the paper's.

    With s = 1 and the latest checkpoint this is SPIN on diffusion models. The places of s and beta are our reading: the
    paper's code has no training. The sign is that of the mean over a row's draws, where the paper's has one draw.
    """
    return diffusion_dpo(beta=beta).but(
        sampling=PastOpponents(every=every),
        **{"objective.implicit": AnchoredSign(of=DenoisingReward(scale=beta / 2, anchor="opponent"))},
    )


class PastOpponents(Sampling):
    """Preferred points, each in a group with a point that an earlier policy makes for its context.

    Points of a group share noise and level. `extras["opponent_logp"]` is under that earlier policy.

    every: batches between the policies that are kept, the first of which is that of the beginning. choice: the one that
    makes the points is drawn from all of them at each of these times ("uniform"), or is the "latest" or the "first".
    Source: SePPO, arXiv:2410.05255.
    """

    every: int = 30
    choice: Literal["uniform", "latest", "first"] = "uniform"

    writes = frozenset({"extras.opponent_logp"})
    source_capabilities = frozenset({"pairs", "weights"})

    def setup(self) -> None:
        if self.every < 1:
            raise ValueError(f"methods.seppo.PastOpponents: every must be >= 1, found {self.every}")
        self.bank = WeightBank()
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("chosen", torch.zeros((), dtype=torch.int64))

    @property
    def group_size(self) -> int:
        return 2

    def forward(self, source: WeightSource) -> Experience:
        self._advance(source)
        given = source.pairs(source.rows)  # type: ignore[attr-defined]
        won = given[preferred_sign(given) > 0]
        with source.using(self.bank[int(self.get_buffer("chosen"))]):
            made = source.rollout(RolloutRequest(won.extras["index"], 1))
            draws = {name: won.extras[name] for name in ("noise", "noise_level")}
            lost = won.outcome - 1
            made = made.replace(group=won.group, outcome=lost, reward=lost, rollout_logp=None, extras=draws)
            batch = Experience.join([won, made])
            return batch.replace(extras={"opponent_logp": source.evaluate(batch).logp})

    def _advance(self, source: WeightSource) -> None:
        """Keeps the policy, and chooses one of those kept, if it is time to."""
        batches, chosen = self.get_buffer("batches"), self.get_buffer("chosen")
        if int(batches) % self.every == 0:
            self.bank.append(source.weights())
            last = len(self.bank) - 1
            drawn = int(torch.randint(last + 1, (), generator=source.generator, device=source.generator.device))
            chosen.fill_({"uniform": drawn, "latest": last, "first": 0}[self.choice])
        batches.add_(1)


class AnchoredSign(ImplicitReward):
    """r_i of the preferred row of each group, and s r_i of its other rows, with s = 1, 0 or -1 the sign of r of the
    preferred row, without gradient; of the mean over the preferred rows, if there are several.

    of: the implicit reward r. Source: SePPO, arXiv:2410.05255.
    """

    of: ImplicitReward = DenoisingReward()

    reads = frozenset({"outcome", "group"})
    binds = "group"

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        reward = self.of(experience, evaluation)
        preferred = preferred_sign(experience) > 0
        return torch.where(preferred, reward, anchor_sign(reward.detach(), preferred, experience.group) * reward)


def anchor_sign(reward: Tensor, preferred: Tensor, group: Tensor) -> Tensor:
    """Returns the sign of the mean reward of the preferred rows of each row's group, [B]."""
    index = group.unique(return_inverse=True)[1]
    total = reward.new_zeros(int(index.max()) + 1 if len(index) else 0)
    return total.index_add(0, index, torch.where(preferred, reward, 0)).sign()[index]
