"""InfoCons: GRPO over paraphrases of a question, with rewards for information content and its consistency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.credit.parts import Credit
from polopt.credit.wrappers import RewardTransform
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt, Strata, WholeBatch
from polopt.features.rows import RowField
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling.parts import PromptAugmenter, Start
from polopt.sampling.source_protocols import Source


@method(
    paper=Paper(
        title="Information-Consistent Language Model Recommendations through Group Relative Policy Optimization",
        authors="Prabhune, Sonal and Padmanabhan, Balaji and Dutta, Kaushik",
        year=2025,
        arxiv="2512.12858",
    ),
    changes="GRPO whose group is all phrasings of a question, rewarded for information and its consistency over them.",
    room="credit",
    tier="reading",
)
def infocons(
    *,
    group: int = 4,
    phrasings: Sequence[str] = ("", " please", " thanks", " now"),
    by: Literal["entropy", "content"] = "entropy",
    helpful: float = 1.0,
    steady: float = 1.0,
    outcome: float = 0.0,
    within: Grouping | None = None,
    kl: float = 0.04,
) -> Algorithm:
    """Reward of a row of phrasing v, where every question has V phrasings, with `group` independent rollouts each:

        helpful H_v / log U_v - steady |H_v - mean_w H_w|,

    H_v the entropy of the terms in the answers to v, U_v the number of distinct ones; the advantage is the
    z-score over all rows of the question. outcome weights the environment's reward, 0 in the paper. The paper's exact
    forms are not known to us: these are our reading of "entropy-based helpfulness and stability rewards" over groups of
    prompt variants.

    Entropies may agree where contents do not. by="content" rewards minus the Jensen-Shannon divergence between a
    row's terms and each other phrasing's, in bits: the variant to use. phrasings: endings of the prompt. Tasks that
    bring phrasings of their own, one after the other in the data, take within=features.SameMeaning() and, by `but`,
    sampling.guide None and sampling.choice ConsecutiveTasks.
    """
    if within is None:
        within = Strata(by=RowField(name="index"), within=WholeBatch())
    compared = RelativeAdvantage(baseline=GroupMean(within=within.but()), scale=GroupStd(within=within.but()))
    return grpo(group=group, kl=kl).but(
        {
            "sampling.guide": Paraphrases(endings=list(phrasings)),
            "credit": ReturnsPlusMeasures(
                measures=[TermEntropy(), ParaphraseConsistency(by=by, within=within.but())],
                weights=[helpful, steady],
                own=outcome,
                credit=compared,
            ),
        }
    )


def term_counts(experience: Experience) -> Tensor:
    """Counts each of the U terms (token ids, in any order) of the batch in the decisions of each row, [B, U]."""
    mask = experience.mask
    _, number = torch.unique(torch.where(mask, experience.extras["tokens"], -1), return_inverse=True)
    counts = torch.zeros(len(mask), int(number.max()) + 1 if number.numel() else 0, dtype=torch.float64)
    return counts.to(mask.device).scatter_add(1, number, mask.to(torch.float64))


def shares(counts: Tensor) -> Tensor:
    """Normalises counts [N, U] by each row's sum; a row of zeros stays 0."""
    return counts / counts.sum(-1, keepdim=True).clamp(min=1)


def share_entropy(p: Tensor) -> Tensor:
    """Computes the entropy in nats of shares [..., U]."""
    return -torch.special.xlogy(p, p).sum(-1)


def share_distance(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence of shares [..., U] in bits, 0 to 1; 1 where exactly one of the two is all 0."""
    mixed = share_entropy((p + q) / 2) - (share_entropy(p) + share_entropy(q)) / 2
    some = [x.sum(-1) > 0 for x in (p, q)]
    distance = torch.where(some[0] & some[1], mixed / math.log(2), (some[0] != some[1]).to(p.dtype))
    return distance.clamp(0, 1)


class TermEntropy(RowFeature):
    """H / log U of the terms that a prompt's answers use together: 1 if its U terms are equally frequent, 0 for one.

    H is the entropy of the terms' shares, over all rows of the prompt; a term is a token id. The measure does not
    depend on the correctness of the answers. Source: InfoCons, arXiv:2512.12858.
    """

    of: Grouping = SamePrompt()

    reads = frozenset({"extras.tokens"})
    reads_batch = True

    def forward(self, experience: Experience) -> Tensor:
        prompt, _ = ops.group_index(self.of(experience))
        counts = _pooled(term_counts(experience), prompt)
        used = (counts > 0).sum(-1)
        entropy = share_entropy(shares(counts)) / used.clamp(min=2).double().log()
        return entropy[prompt]


class ParaphraseConsistency(RowFeature):
    """Consistency of a prompt's answers over its phrasings, 0 at best. Phrasings are the prompts, `of`, of one meaning,
    `within`.

        entropy: -|H_v - mean_w H_w|, H_v the entropy of the terms that phrasing v's answers use together
        content: -mean over the other phrasings w of JS(row, w), the row's own shares of terms against w's, in bits

    Each phrasing counts once. A single phrasing is consistent. Equal entropies do not imply equal contents: two
    phrasings without a common term can be perfectly consistent by "entropy" and are at -1 by "content". On answers of
    one term "content" is self-consistency, the share of other phrasings' answers that are equal, minus 1. Source of
    "entropy": InfoCons, arXiv:2512.12858.
    """

    by: Literal["entropy", "content"] = "entropy"
    within: Grouping = WholeBatch()
    of: Grouping = SamePrompt()

    reads = frozenset({"extras.tokens"})
    reads_batch = True

    def forward(self, experience: Experience) -> Tensor:
        within = self.within(experience)
        prompt, _ = ops.group_index(ops.crossed(within, self.of(experience)))
        meaning = within[ops.group_first(prompt)]  # of each phrasing
        counts = term_counts(experience)
        pooled = shares(_pooled(counts, prompt))
        if self.by == "entropy":
            entropy = share_entropy(pooled)
            return -(entropy - ops.group_mean(entropy, meaning)).abs()[prompt]
        own, consistency = shares(counts), torch.zeros(len(prompt), dtype=torch.float64, device=prompt.device)
        for number in meaning.unique():
            phrasings = (meaning == number).nonzero().flatten()
            rows = (meaning[prompt] == number).nonzero().flatten()
            distance = share_distance(own[rows, None], pooled[phrasings])
            others = prompt[rows, None] != phrasings
            total = torch.where(others, distance, 0).sum(1)
            consistency[rows] = -total / others.sum(1).clamp(min=1)
        return consistency


def _pooled(counts: Tensor, prompt: Tensor) -> Tensor:
    """Sums the counts [B, U] of each prompt's rows to [prompts, U]."""
    return counts.new_zeros(int(prompt.max()) + 1 if len(prompt) else 0, counts.shape[1]).index_add(0, prompt, counts)


class ReturnsPlusMeasures(RewardTransform):
    """own * return + sum_k weight_k m_k, with measures that may read other rows of the batch. weights: one for each
    measure. own: the weight of the row's own return."""

    credit: Credit = RelativeAdvantage()
    measures: Sequence[RowFeature]
    weights: Sequence[float]
    own: float = 1.0

    def setup(self) -> None:
        if not len(self.measures) or len(self.measures) != len(self.weights):
            raise ValueError(
                "methods.infocons.ReturnsPlusMeasures needs measures and as many weights, found "
                f"{len(self.measures)} and "
                f"{len(self.weights)}"
            )

    def worth(self, returns: Tensor, experience: Experience) -> Tensor:
        added = [w * m(experience).to(returns.dtype) for w, m in zip(self.weights, self.measures, strict=True)]
        return self.own * returns + torch.stack(added).sum(0)


class Paraphrases(PromptAugmenter):
    """Repeats every task with each of these endings of its prompt, "" for the prompt as it is.

    Each ending makes a group of its own; the rollouts of one do not see those of another.
    `features.Strata(by=features.RowField(name="index"), within=features.WholeBatch())` puts the rows of one task
    together.
    """

    endings: Sequence[str]

    def setup(self) -> None:
        if len(set(self.endings)) < len(self.endings) or not self.endings:
            raise ValueError(
                f"methods.infocons.Paraphrases needs endings that differ, one at least, found {list(self.endings)}"
            )

    @property
    def each(self) -> int:  # type: ignore[override]
        return len(self.endings)

    def forward(self, source: Source, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        starts = [Start(hint=ending) for ending in self.endings]
        return torch.repeat_interleave(tasks, self.each), starts * len(tasks)
