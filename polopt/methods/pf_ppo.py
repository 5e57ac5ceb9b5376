"""PF-PPO: PPO on the rollouts whose reward is most reliable."""

from __future__ import annotations

import torch

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.sampling.filters import RandomSelect


@method(
    paper=Paper(
        title="Policy Filtration for RLHF to Mitigate Noise in Reward Models",
        authors="Zhang, Chuheng and Shen, Wei and others",
        year=2024,
        arxiv="2409.06957",
    ),
    changes="PPO on the best and the worst answer of each group, where the reward model errs least.",
    room="sampling",
    tier="proven",
)
def pf_ppo(*, group: int = 8, best: int = 1, worst: int = 1, others: int = 0, kl: float = 0.05) -> Algorithm:
    """PPO on a subset of the N = `group` answers to a prompt, ordered by reward, rank_i = 1 the highest:

        w_i = 1 if rank_i <= best or rank_i > N - worst

    and for `others` of the rest, at random; else w_i = 0. BW is 1, 1, 0 (the default), BR 1, 0, 1, BoN 1, 0, 0.

    Measure which to take: `metrics.most_reliable` computes R^2 between reward and truth on the rows that each keeps of
    a few labelled answers, all answers among them. Advantages are computed and whitened before anything is left out;
    the authors' code (BR) whitens what is left. Ties at the top go to the earlier row. verl draws the whole batch again
    instead: select=[ResampledRows()] with its weights "power", "extremes" and "best".
    """
    return ppo(group=group, kl=kl).but(select=[RankedRows(best=best, worst=worst, others=others)])


class RankedRows(RandomSelect):
    """Keeps, of each group, the `best` rows of highest outcome, the `worst` of lowest, and `others` of the rest at
    random.

    Ties: the earlier row ranks higher. In a group with fewer rows the best are kept first, then the worst. The draw
    picks places in the ranking, so the order of the rows does not matter. Source: PF-PPO, arXiv:2409.06957; its rank
    weights BoN, BR and BW are best=1 alone, with others=1, and with worst=1.
    """

    tags = frozenset({"filter=outcome"})

    best: int = 1
    worst: int = 0
    others: int = 0

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        super().setup()
        if min(self.best, self.worst, self.others) < 0 or self.best + self.worst + self.others < 1:
            raise ValueError(
                "methods.pf_ppo.RankedRows: best, worst and others must be >= 0 and not all 0, found "
                f"{self.best}, {self.worst} and {self.others}"
            )

    def forward(self, experience: Experience) -> Experience:
        index, size = ops.group_index(experience.group)
        place = ops.group_place(experience.outcome, experience.group)
        keep = (place < self.best) | (place >= (size - self.worst)[index])
        if self.others:
            # Random numbers belong to ranks; rows that are kept already rank behind all others.
            draw = self.uniform(experience)[(size.cumsum(0) - size)[index] + place]
            keep = keep | (ops.group_place(torch.where(keep, -1, draw), experience.group) < self.others)
        return experience[keep]
