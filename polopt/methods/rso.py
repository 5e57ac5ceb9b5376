"""RSO: preference pairs by rejection sampling from the policy that a reward and a reference define."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import EveryPair, HingeLink, LogisticLink, LogRatioReward, Matching, PairedObjective
from polopt.objectives.paired import compared_by
from polopt.rewards import OutcomeReward, Reward
from polopt.sampling import Rollouts
from polopt.sampling.filters import RandomSelect


@method(
    paper=Paper(
        title="Statistical Rejection Sampling Improves Preference Optimization",
        authors="Liu, Tianqi and Zhao, Yao and Joshi, Rishabh and Khalman, Misha and Saleh, Mohammad and Liu, Peter J. "
        "and Liu, Jialu",
        year=2023,
        arxiv="2309.06657",
    ),
    changes="DPO, or its hinge loss, on pairs whose answers follow the policy to be learned: candidates are accepted "
    "with a probability that grows with their reward.",
    room="sampling",
    tier="proven",
)
def rso(
    *,
    group: int = 64,
    count: int = 8,
    beta: float = 0.5,
    gamma: float = 0.05,
    loss: Literal["sigmoid", "hinge"] = "sigmoid",
    ranking: Literal["first_round", "tournament", "every_pair"] = "first_round",
    reward: Reward | None = None,
) -> Algorithm:
    """Of `group` candidates of a prompt, `count` are accepted, each with probability exp((r - r_max) / beta), as
    samples of ref exp(r / beta) / Z; they are ranked by r in pairs, and

        L = mean over pairs of -log sigmoid(m) or max(0, 1 - m),
        m = gamma [log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l)].

    beta: the trust in the reward: near 0 the best candidates are accepted, at infinity any.
    gamma: the slope of the loss, DPO's beta, which the paper separates from that of the sampling.
    loss: "sigmoid", DPO's, or "hinge".
    ranking: which of the accepted are compared: "first_round" in random pairs, "tournament" so until one has won,
        "every_pair".
    reward: None takes the outcome. The paper has r = logit P(y is preferred to y_b), with a trained judge P and a
        random answer y_b of the reference, and the judge's own comparison of a pair as its label.

    The paper samples all candidates beforehand, from the reference, at temperature 0.7 and with top-k 40. Here they are
    the present policy's, and log ref(y)/pi(y) is added to r / beta, so that what is accepted follows the same law; in
    the first batch that is 0. `.but` sampling.support for the temperature.
    """
    matchings = {"first_round": FirstRound(), "tournament": Tournament(), "every_pair": EveryPair()}
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=OutcomeReward() if reward is None else reward,
        credit=RelativeAdvantage(baseline=None, scale=None),
        select=[RejectionSampled(count=count, beta=beta)],
        objective=PairedObjective(
            implicit=LogRatioReward(scale=gamma),
            link=LogisticLink() if loss == "sigmoid" else HingeLink(),
            by="advantage",
            matching=matchings[ranking],
        ),
    )


class RejectionSampled(RandomSelect):
    """Keeps `count` rows of each group, accepted by rejection sampling with scores s = A / beta + log
    ref(y)/sampler(y), so that they are about samples of the law ref exp(A / beta) / Z.

    A pass goes through the candidates in random order and accepts each with probability exp(s - s_max), s_max the
    highest score among those that are left when the pass begins. Passes are repeated until `count` are accepted or none
    is left. Of candidates with one text, `extras["answer"]`, one is accepted at most. As the candidates become many,
    the law of the first that is accepted becomes exact. A row's A is the advantage of its first decision; rows without
    decisions are no candidates.

    count (>= 1): rows. beta (> 0): the unit of the advantage. law: "reference" as above; "sampler" leaves log
    ref(y)/sampler(y) out, for the law sampler exp(A / beta) / Z.

    `extras["seat"]` [B] numbers the rows of a group in random order, for `FirstRound` and `Tournament`. The part is for
    an algorithm's `select`. Source: RSO, arXiv:2309.06657, algorithm 1, which has "sampler".
    """

    tags = frozenset({"filter=outcome"})

    count: int = 8
    beta: float = 0.5
    law: Literal["reference", "sampler"] = "reference"

    writes = frozenset({"extras.seat"})

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        both = {"rollout_logp", "ref_logp"} if self.law == "reference" else set()
        return frozenset({"advantage", "group", "extras.answer"} | both)

    def setup(self) -> None:
        super().setup()
        if self.count < 1 or not self.beta > 0:
            raise ValueError(
                f"methods.rso.RejectionSampled: need count >= 1 and beta > 0, found {self.count} and {self.beta}"
            )

    def forward(self, experience: Experience) -> Experience:
        score = self._scores(experience)
        index, size = ops.group_index(experience.group)
        texts, seat = experience.extras["answer"], torch.full_like(index, -1)
        generator = self.generator()
        # Ranked by score within its group: the order of the rows does not matter.
        ranked = score.argsort(stable=True, descending=True)
        ranked = ranked[index[ranked].argsort(stable=True)]
        for rows in ranked.split(size.tolist()):
            texts_here = torch.tensor(ops.numbered([texts[row] for row in rows.tolist()]))
            chosen = torch.tensor(accepted(score[rows].cpu(), texts_here, self.count, generator), dtype=torch.long)
            seat[rows[chosen.to(rows.device)]] = torch.randperm(len(chosen), generator=generator).to(seat)
        return experience.replace(extras={"seat": seat})[seat >= 0]

    def _scores(self, experience: Experience) -> Tensor:
        clean = experience.zero_masked()
        score = compared_by(clean, "advantage").double() / self.beta
        if self.law == "reference":
            score = score + (clean.ref_logp - clean.rollout_logp).double().sum(1)
        return torch.where(experience.mask.any(1), score, -torch.inf)


def accepted(score: Tensor, text: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """Returns the indices of the candidates that rejection sampling accepts, in order, `count` at most.

    score: [N] logarithms of the unnormalised weights; -inf is never accepted. text: [N] the same number, the same text.
    """
    found, left = list[int](), score > -torch.inf
    while len(found) < count and left.any():
        chance = (score - score[left].max()).exp()
        draws = torch.rand(len(score), dtype=torch.double, generator=generator)
        for i in torch.randperm(len(score), generator=generator).tolist():
            if left[i] and draws[i] < chance[i]:
                found.append(i)
                left &= text != text[i]
                if len(found) == count:
                    break
    return found


class FirstRound(Matching):
    """Pairs the rows of a group by their seats, `extras["seat"]`: the first with the second, the third with the fourth.
    Rows of equal value are no pair; one that is left over is alone. Source: RSO, arXiv:2309.06657."""

    reads = frozenset({"group", "extras.seat"})

    def forward(self, experience: Experience, value: Tensor) -> tuple[Tensor, Tensor]:
        found = [_winners(rows, value)[1] for rows in _seated(experience)]
        return _stacked(found, experience)


class Tournament(Matching):
    """Pairs the rows of a group as `FirstRound` does, then those of higher value again, until one is left: n - 1 pairs
    of n rows. Of rows of equal value, which are no pair, that of the lower seat goes on. Source: SLiC-HF,
    arXiv:2305.10425; RSO, arXiv:2309.06657."""

    reads = frozenset({"group", "extras.seat"})

    def forward(self, experience: Experience, value: Tensor) -> tuple[Tensor, Tensor]:
        found = []
        for rows in _seated(experience):
            while len(rows) > 1:
                rows, pairs = _winners(rows, value)
                found.append(pairs)
        return _stacked(found, experience)


def _seated(experience: Experience) -> Iterator[Tensor]:
    """Yields the rows of each group that have decisions, in the order of their seats."""
    index, _ = ops.group_index(experience.group)
    order = experience.extras["seat"].argsort(stable=True)
    order = order[experience.mask.any(1)[order]]
    order = order[index[order].argsort(stable=True)]
    yield from order.split(index[order].unique_consecutive(return_counts=True)[1].tolist())


def _winners(rows: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rows that go on from a round, and its pairs of unequal rows, the higher first [P, 2]."""
    first, second = rows[: len(rows) // 2 * 2].view(-1, 2).T
    wins = value[first] >= value[second]
    better, worse = torch.where(wins, first, second), torch.where(wins, second, first)
    pairs = torch.stack([better, worse], 1)[value[better] > value[worse]]
    return torch.cat([better, rows[len(rows) // 2 * 2 :]]), pairs


def _stacked(pairs: list[Tensor], experience: Experience) -> tuple[Tensor, Tensor]:
    both = torch.cat([*pairs, experience.group.new_zeros(0, 2)])
    return both[:, 0], both[:, 1]
