"""P3O: a policy gradient on differences of rewards between two answers to one prompt."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import EveryPair, Objective
from polopt.objectives.paired import check_groups, compared_by
from polopt.rewards import KLPenalty, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import Rollouts
from polopt.support import SupportError

Clipping = Literal["joint", "separate", "tokens"]


@method(
    paper=Paper(
        title="Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment",
        authors="Wu, Tianhao and Zhu, Banghua and Zhang, Ruoyu and Wen, Zhaojin and Ramchandran, Kannan "
        "and Jiao, Jiantao",
        year=2023,
        arxiv="2310.00212",
    ),
    changes="A policy gradient whose only signal is the difference of two answers' rewards, clipped as a pair: no "
    "critic, and no trace of what a reward model adds to all answers of a prompt.",
    room="objectives",
    tier="faithful",
)
def p3o_pairwise(
    *,
    group: int = 2,
    clipping: Clipping = "joint",
    clip: float = 0.2,
    max_weight: float = 10.0,
    kl: float = 0.05,
) -> Algorithm:
    """The loss is a mean over pairs,

        L = -E (R_1 - R_2) w bounded(z_1 - z_2) / 2,    z_i = log pi(y_i)/old(y_i)

    over every two of the `group` answers that the sampling policy, old, gave to a prompt, with w = pi(y_1) pi(y_2)
    / (old(y_1) old(y_2)) the pair's importance weight, without gradient, and R = r - kl log old(y)/ref(y) of whole
    answers.
    On policy its gradient is RLOO's, at any `group`; off policy, as long as nothing is bounded, it is unbiased. A
    constant of the prompt, which comparisons leave open in a reward model, cancels.

    group: the paper has pairs; a larger group is all its pairs.
    clipping: what is bounded from above, for answer 1 the better one. "joint", V2 of the paper: min(z_1 - z_2, clip).
        "separate", V1: min(z_1, clip) + min(-z_2, clip). "tokens": the same for each token's z, summed.
    clip: the bound, in nats. max_weight (>= 1): w is bounded to [1 / max_weight, max_weight].
    kl: the strength of the distance to the reference inside the reward; 0 drops it.

    A public P3O trainer on trlX, which we take for the authors', has "joint" and "tokens", with these defaults; there
    "tokens" is divided by the number of tokens, and R has the log-ratio of the present policy in old's place. The
    paper's text on V1 could not be read: "separate" is that program's bound on whole answers, and differs from a clip
    of the ratio to 1 +- clip by clip against log(1 +- clip).
    """
    reward: Reward = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=kl)]) if kl else OutcomeReward()
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=reward,
        credit=RelativeAdvantage(baseline=None, scale=None),
        objective=PairwiseSurrogate(clipping=clipping, clip=clip, max_weight=max_weight),
    )


class PairwiseSurrogate(Objective):
    """-mean over pairs of D w bounded(z_1 - z_2) / 2: the clipped pairwise policy gradient, with D = A_1 - A_2 >= 0 the
    difference of two rows' advantages, z their log-ratios to the behaviour policy and w = exp(z_1 + z_2), without
    gradient.

    Every two rows of a group that have decisions are a pair, of which those of equal advantage contribute 0.
    A row's advantage is that of its first decision. Log-ratios are sums over a row's decisions.

    clipping: "joint" bounds z_1 - z_2 from above by `clip`, "separate" each of z_1 and -z_2, "tokens" each decision's.
    clip (> 0): that bound, in nats.
    max_weight (>= 1): w is bounded to [1 / max_weight, max_weight], 1 leaves it out.

    Metrics are means over pairs: `pairs/weight`; `pairs/gap`, the difference of advantages; `clip_fraction`, the share
    of the bounded terms that lie beyond the bound. Source: P3O, arXiv:2310.00212.

    Raises:
        ExperienceError: a micro-batch holds a part of a group.
        SupportError: batch and evaluation hold log-probabilities over different supports.
    """

    clipping: Clipping = "joint"
    clip: float = 0.2
    max_weight: float = 10.0

    reads = frozenset({"advantage", "rollout_logp", "group"})
    binds = "group"

    def setup(self) -> None:
        if self.clip <= 0 or self.max_weight < 1:
            raise ValueError(
                "methods.p3o_pairwise.PairwiseSurrogate: need clip > 0 and max_weight >= 1, found "
                f"{self.clip} and {self.max_weight}"
            )

    def contributes(self, experience: Experience) -> Tensor:
        """Returns the rows that are in a pair of different advantages."""
        return EveryPair().partners(experience, compared_by(experience, "advantage")) > 0

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        if evaluation.support != experience.support:
            raise SupportError(
                f"methods.p3o_pairwise.PairwiseSurrogate: behaviour log-probs were taken over {experience.support}, "
                f"the policy's over {evaluation.support}; evaluate the policy with the batch's support"
            )
        check_groups(self, experience, _partners)
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        log_ratio = evaluation.logp - experience.rollout_logp
        row = log_ratio.sum(1)
        advantage = compared_by(experience, "advantage").detach().to(row)
        better, worse = EveryPair()(experience, advantage)
        gap = advantage[better] - advantage[worse]
        weight = self._weight(row[better], row[worse])
        bounded, beyond = self._bounded(log_ratio, experience.mask, better, worse)
        count = (_partners(experience.denominator_batch).sum() / 2).to(row).clamp(min=1)
        loss = -(gap * weight * bounded).sum() / 2 / count
        metrics = {"pairs/weight": weight, "pairs/gap": gap, "clip_fraction": beyond}
        return Loss(loss, {name: value.detach().sum() / count for name, value in metrics.items()})

    def _weight(self, first: Tensor, second: Tensor) -> Tensor:
        limit = math.log(self.max_weight)
        return (first + second).detach().clamp(-limit, limit).exp()

    def _bounded(self, log_ratio: Tensor, mask: Tensor, better: Tensor, worse: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the bounded terms of each pair, summed [P], and the share of them beyond the bound [P]."""
        if self.clipping == "tokens":
            terms = torch.cat([log_ratio[better], -log_ratio[worse]], 1)
            decided = mask[better].sum(1) + mask[worse].sum(1)
        else:
            row = log_ratio.sum(1)
            terms = torch.stack([row[better], -row[worse]], 1)
            terms = terms.sum(1, keepdim=True) if self.clipping == "joint" else terms
            decided = torch.full_like(better, terms.shape[1])
        return terms.clamp(max=self.clip).sum(1), (terms > self.clip).sum(1).to(log_ratio) / decided


def _partners(experience: Experience) -> Tensor:
    return EveryPair(ties=True).partners(experience, compared_by(experience, "advantage"))
