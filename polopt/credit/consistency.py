"""Measures of the terms in a prompt's answers, and of their consistency over paraphrases of the prompt."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt, WholeBatch


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
        own, steady = shares(counts), torch.zeros(len(prompt), dtype=torch.float64, device=prompt.device)
        for number in meaning.unique():
            phrasings = (meaning == number).nonzero().flatten()
            rows = (meaning[prompt] == number).nonzero().flatten()
            apart = share_distance(own[rows, None], pooled[phrasings])
            others = prompt[rows, None] != phrasings
            total = torch.where(others, apart, 0).sum(1)
            steady[rows] = -total / others.sum(1).clamp(min=1)
        return steady


def _pooled(counts: Tensor, prompt: Tensor) -> Tensor:
    """Sums the counts [B, U] of each prompt's rows to [prompts, U]."""
    return counts.new_zeros(int(prompt.max()) + 1 if len(prompt) else 0, counts.shape[1]).index_add(0, prompt, counts)
