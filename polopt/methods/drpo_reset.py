"""DR-PO: PPO whose rollouts begin in the middle of a data set's answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.sampling.parts import PromptAugmenter, Start
from polopt.sampling.source_protocols import SolutionSource


@method(
    paper=Paper(
        title="Dataset Reset Policy Optimization for RLHF",
        authors="Chang, Jonathan D. and Zhan, Wenhao and Oertell, Owen and Brantley, Kianté and Misra, Dipendra and "
        "Lee, Jason D. and Sun, Wen",
        year=2024,
        arxiv="2404.08495",
    ),
    changes="PPO in which a rollout begins with the first tokens of a data set's answer, as many as chance decides.",
    room="sampling",
    tier="proven",
)
def drpo_reset(
    *,
    mix: float = 1.0,
    group: int = 1,
    clip: float = 0.2,
    gamma: float = 1.0,
    lam: float = 0.95,
    value: float = 0.1,
    value_clip: float | None = 0.2,
    kl: float = 0.05,
) -> Algorithm:
    """Of each prompt with a data set's answer y* of L tokens, a rollout is

        with probability mix:  y*_1, ..., y*_t, then y_s ~ pi from s = t + 1 on, with t uniform from 1 to L - 1
        else:                  y_s ~ pi from the prompt on

    and the objective is PPO's over the sampled tokens. The reward is that of the whole answer. An answer of one token
    has no beginning to give.

    mix: the fraction of rollouts that begin in the data; 0 is `ppo`. With the authors' 1 an answer's first token is
        never sampled in training, and so never learned: keep mix below 1 unless the policy already begins well.
    group, clip, gamma, lam, value, value_clip, kl: as in `ppo`; the defaults are those of the authors' program, which
        makes 4 epochs of each batch.

    Deviations. The given tokens are read and in no loss. The authors' program masks them in the policy's loss alone:
    its value loss, the whitening of its advantages and its KL penalty count them too. Here the critic's loss, GAE and
    whitening see sampled tokens only, so that tokens which no policy chose do not set the scale of the others; the
    analysis of the paper too learns from the states behind a reset. The program also whitens rewards and gives -1 to
    an answer that does not end; `ppo` does neither. The paper's reward model is the reward of the task here.
    """
    guide = DatasetResets(mix=mix) if mix else None
    return ppo(group=group, clip=clip, gamma=gamma, lam=lam, value=value, value_clip=value_clip, kl=kl).but(
        {"sampling.guide": guide}
    )


class DatasetResets(PromptAugmenter):
    """Begins a task's rollouts with the first t decisions of its demonstrated solution with probability `mix`, t
    uniform on 1 to the solution's length less 1; otherwise, and for a solution of one decision, at the prompt.

    mix: probability in [0, 1].

    All rollouts of a group begin alike, so that they remain comparable. Source: DR-PO, arXiv:2404.08495.
    """

    mix: float = 1.0

    source_capabilities = frozenset({"demonstrations", "solutions"})

    def setup(self) -> None:
        if not 0 <= self.mix <= 1:
            raise ValueError(f"methods.drpo_reset.DatasetResets: mix must be in [0, 1], found {self.mix}")

    def forward(self, source: SolutionSource, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        generator = source.generator
        reset, place = torch.rand(2, len(tasks), generator=generator, device=generator.device).double().cpu()
        count = self.given(source.solution_lengths(tasks).cpu(), place)
        return tasks, [Start(given=t) for t in torch.where(reset < self.mix, count, 0).tolist()]

    @staticmethod
    def given(lengths: Tensor, place: Tensor) -> Tensor:
        """Returns the number of given decisions [M], uniform on 1..length - 1 for `place` [M] uniform on [0, 1); 0 for
        a solution of one decision."""
        inner = (lengths - 1).clamp(min=0)
        return torch.where(inner > 0, 1 + (place * inner).long(), 0)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the fraction of rows that began in the data, and their given decisions on average over all rows."""
        given = experience.extras["given"].double()
        return {"given/rows": float((given > 0).double().mean()), "given/decisions": float(given.mean())}
