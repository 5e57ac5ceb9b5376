"""What a prompt's answers say, and whether other phrasings of the prompt are told the same."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.groupings import SamePrompt, WholeBatch
from polopt.credit.parts import Grouping, Measure
from polopt.experience import Experience


def term_counts(experience: Experience) -> Tensor:
    """[B, U] how often each row decided each of the U terms of the batch: token ids, in any order."""
    mask = experience.mask
    _, number = torch.unique(torch.where(mask, experience.extras["tokens"], -1), return_inverse=True)
    counts = torch.zeros(len(mask), int(number.max()) + 1 if number.numel() else 0, dtype=torch.float64)
    return counts.to(mask.device).scatter_add(1, number, mask.to(torch.float64))


def shares(counts: Tensor) -> Tensor:
    """[N, U] counts as shares of each row's sum; a row of zeros stays one."""
    return counts / counts.sum(-1, keepdim=True).clamp(min=1)


def share_entropy(p: Tensor) -> Tensor:
    """[..., U] shares -> their entropy in nats."""
    return -torch.special.xlogy(p, p).sum(-1)


def share_distance(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence of shares [..., U] in bits, 0 to 1; that of nothing to something is 1."""
    mixed = share_entropy((p + q) / 2) - (share_entropy(p) + share_entropy(q)) / 2
    some = [x.sum(-1) > 0 for x in (p, q)]
    distance = torch.where(some[0] & some[1], mixed / math.log(2), (some[0] != some[1]).to(p.dtype))
    return distance.clamp(0, 1)


class SameMeaning(Grouping):
    """Rows whose tasks mean the same: `Task.row` holds the same value under `field`. A task without one stands alone.

    `sampling.ConsecutiveTasks` brings such tasks together, where they follow each other in the data.
    """

    field: str = "meaning"

    reads = frozenset({"extras.task", "extras.index"})

    def forward(self, experience: Experience) -> Tensor:
        numbers = experience.extras["index"].tolist()
        meanings = [
            ("one", str(task.row[self.field])) if self.field in task.row else ("alone", number)
            for task, number in zip(experience.extras["task"], numbers, strict=True)
        ]
        return torch.tensor(ops.numbered(meanings), dtype=torch.long, device=experience.device)


class TermEntropy(Measure):
    """H / log U of the terms that a prompt's answers use together: 1 if its U terms are equally frequent, 0 for one.

    H is the entropy of the terms' shares, over all rows of the prompt; a term is a token id. Nothing that is said
    needs to be true for it. Source: InfoCons, arXiv:2512.12858.
    """

    of: Grouping = SamePrompt()

    reads = frozenset({"extras.tokens"})

    def forward(self, experience: Experience) -> Tensor:
        prompt, _ = ops.group_index(self.of(experience))
        counts = _pooled(term_counts(experience), prompt)
        used = (counts > 0).sum(-1)
        entropy = share_entropy(shares(counts)) / used.clamp(min=2).double().log()
        return entropy[prompt]


class ParaphraseConsistency(Measure):
    """How little an answer depends on the phrasing, 0 at best. Phrasings are the prompts, `of`, of one meaning,
    `within`.

        entropy: -|H_v - mean_w H_w|, H_v the entropy of the terms that phrasing v's answers use together
        content: -mean over the other phrasings w of JS(row, w), the row's own shares of terms against w's, in bits

    Each phrasing counts once. One phrasing alone is steady. Equal entropies need not mean equal contents: two phrasings
    with nothing in common can be as steady as can be by the first, and are at -1 by the second. On answers of one term
    the second is self-consistency, the share of other phrasings' answers that are the same, minus 1. Source of the
    first: InfoCons, arXiv:2512.12858.
    """

    by: Literal["entropy", "content"] = "entropy"
    within: Grouping = WholeBatch()
    of: Grouping = SamePrompt()

    reads = frozenset({"extras.tokens"})

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
    """[B, U] -> [prompts, U]."""
    return counts.new_zeros(int(prompt.max()) + 1 if len(prompt) else 0, counts.shape[1]).index_add(0, prompt, counts)
