"""DiffusionNFT: flow matching towards good points and, by reflection at the sampling policy, away from bad ones."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupStd, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import Regulariser, Surrogate, TokenMean
from polopt.objectives.parts import SurrogateTerm
from polopt.sampling import RolloutRequest, Sampling, TaskSampler, UniformTasks, WeightBank
from polopt.sampling.source_protocols import WeightSource
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="DiffusionNFT: Online Diffusion Reinforcement with Forward Process",
        authors="Zheng, Kaiwen and others",
        year=2025,
        arxiv="2509.16117",
    ),
    changes="Supervised learning of a flow on its own points, on bad ones through the velocity that is as far on the "
    "other side of the sampling policy's.",
    room="objectives",
    tier="proven",
)
def diffusion_nft(
    *, group: int = 24, b: float = 1.0, limit: float = 5.0, kl: float = 1e-4, rate: float = 0.001, most: float = 0.5
) -> Algorithm:
    """With v the policy's velocity, v_o that of the slow policy that made the points, A_i as in GRPO,

        r_i = clip(A_i, -limit, limit) / (2 limit) + 1/2
        L = mean_it (limit / b) [ r_i d(b v + (1 - b) v_o) + (1 - r_i) d((1 + b) v_o - b v) ] + kl |v - v_base|^2 / D

    where d(w) = sum_j (x_j - xhat_j)^2 / (D m), xhat = x_t - t w, is the error of the point that the velocity w leads
    to, and m its mean absolute deviation, at least 1e-5 and without gradient. After batch n the slow policy is moved to
    decay v_o + (1 - decay) v, decay = min(rate n, most).

    b: beta of the paper, 1 or 0.1. limit, kl, rate, most: its code's. v_base is the policy of the beginning.
    No likelihood is computed, and any solver may make the points. The optimality r is 1/2 at the group's mean; at v =
    v_o the two errors are alike, and rows of advantage 0 then move nothing.
    """
    return Algorithm(
        sampling=SlowRollouts(group=group, rate=rate, most=most),
        credit=RelativeAdvantage(scale=GroupStd(eps=1e-4, correction=0)),
        objective=Surrogate(
            ratio=None,
            trust=ReflectedFlow(b=b, limit=limit),
            aggregate=TokenMean(),
            regularise=[VelocityDistance(coefficient=kl)] if kl else [],
        ),
    )


class SlowRollouts(Sampling):
    """Points of a slow copy of the policy, `group` of each context.

    Before batch n = 1, 2, ... the copy moves to decay copy + (1 - decay) policy, decay = min(rate n, most).
    `extras["slow_velocity"]` is the velocity of the copy on the batch's draws, `extras["base_velocity"]` that of the
    policy of the first batch.

    group, rate, most: as above; rate 0 samples from the policy itself. choice: selects the contexts.
    Source: DiffusionNFT, arXiv:2509.16117.
    """

    group: int = 24
    rate: float = 0.001
    most: float = 0.5
    choice: TaskSampler = UniformTasks()

    writes = frozenset({"extras.slow_velocity", "extras.base_velocity"})
    source_capabilities = frozenset({"weights"})

    def setup(self) -> None:
        if self.group < 2 or self.rate < 0 or not 0 <= self.most < 1:
            raise ValueError(
                "methods.diffusion_nft.SlowRollouts: group >= 2, rate >= 0 and 0 <= most < 1 are needed, found "
                f"{self.group}, {self.rate} and {self.most}"
            )
        self.copies = WeightBank()  # of the beginning, and the slow one
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @property
    def group_size(self) -> int:
        return self.group

    @property
    def compared(self) -> int:
        return self.group

    def forward(self, source: WeightSource) -> Experience:
        self._follow(source.weights())
        tasks = self.choice(source, max(1, source.rows // self.group))
        with source.using(self.copies[1]):
            batch = source.rollout(RolloutRequest(tasks, self.group))
            slow = source.evaluate(batch, frozenset({"extras.velocity"})).extras["velocity"]
        with source.using(self.copies[0]):
            base = source.evaluate(batch, frozenset({"extras.velocity"})).extras["velocity"]
        self.choice.observe(batch)
        return batch.replace(extras={"slow_velocity": slow, "base_velocity": base})

    def _follow(self, present: Tensor) -> None:
        batches = self.get_buffer("batches")
        if not len(self.copies):
            self.copies.append(present)
            self.copies.append(present)
        else:
            decay = min(self.rate * int(batches), self.most)
            self.copies[1] = self.copies[1].lerp(present, 1 - decay)
        batches.add_(1)


class ReflectedFlow(SurrogateTerm):
    """(limit / b) [ r d(b v + (1 - b) v_o) + (1 - r) d((1 + b) v_o - b v) ] of each draw, as in `diffusion_nft`.

    b (> 0): how far a good point's velocity goes from the slow policy's to the policy's. limit (> 0): advantages are
    clipped there, and r goes from 0 to 1 between its two ends. positive_only: leaves out the second error.
    Source: DiffusionNFT, arXiv:2509.16117.
    """

    b: float = 1.0
    limit: float = 5.0
    positive_only: bool = False

    reads = frozenset({"advantage", "extras.point", "extras.noise", "extras.noise_level", "extras.slow_velocity"})
    policy_outputs = frozenset({"extras.velocity"})

    def setup(self) -> None:
        if not (self.b > 0 and self.limit > 0):
            raise ValueError(
                f"methods.diffusion_nft.ReflectedFlow: b and limit must be > 0, found {self.b} and {self.limit}"
            )

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        velocity, slow = evaluation.extras["velocity"], ops.cleared(experience.extras["slow_velocity"], experience.mask)
        share = experience.advantage.clamp(-self.limit, self.limit) / (2 * self.limit) + 0.5
        terms = share * _point_error(self.b * velocity + (1 - self.b) * slow, experience)
        if not self.positive_only:
            terms = terms + (1 - share) * _point_error((1 + self.b) * slow - self.b * velocity, experience)
        clipped = (experience.advantage.abs() > self.limit).to(log_ratio)
        return self.limit / self.b * terms, clipped


def _point_error(velocity: Tensor, experience: Experience) -> Tensor:
    """Returns d, the normalised error of the points that a velocity [B, T, D] leads to, [B, T]."""
    noise, level = (ops.cleared(experience.extras[name], experience.mask) for name in ("noise", "noise_level"))
    point = experience.extras["point"]
    off = ops.noised(point, noise, level) - level[..., None] * velocity - point[:, None]
    return off.square().mean(-1) / off.detach().abs().mean(-1).clamp(min=1e-5)


class VelocityDistance(Regulariser):
    """|v - v_base|^2 / D of each draw, with v_base the velocity of the policy of the first batch, in `extras`. Source:
    DiffusionNFT, arXiv:2509.16117."""

    coefficient: float | Schedule = 1e-4

    reads = frozenset({"extras.base_velocity"})
    policy_outputs = frozenset({"extras.velocity"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        base = ops.cleared(experience.extras["base_velocity"], experience.mask)
        return (evaluation.extras["velocity"] - base).square().mean(-1)
