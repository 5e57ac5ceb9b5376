"""Training of scorers: on preferences, on reactions, and on the authorship of texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeGuard

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.backends.scorer import TextScorer
from polopt.backends.text_classifier import TextClassifier


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of texts, the first of which should score higher.

    references: for a scorer that compares.

    Raises:
        ValueError: lists of different lengths.
    """

    prompts: Sequence[str]
    better: Sequence[str]
    worse: Sequence[str]
    references: Sequence[str] | None = None

    def __post_init__(self) -> None:
        lengths = {len(x) for x in (self.prompts, self.better, self.worse, self.references) if x is not None}
        if len(lengths) != 1:
            raise ValueError(f"Pairs: prompts, better, worse and references must be of one length, found {lengths}")

    def __len__(self) -> int:
        return len(self.prompts)


def prefers(higher: Tensor, lower: Tensor) -> Tensor:
    """Bradley-Terry loss: the mean of -log sigmoid(higher - lower), [B] scores each."""
    return -F.logsigmoid(higher - lower).mean()


def likes(score: Tensor, liked: Tensor) -> Tensor:
    """Mean binary cross-entropy of logits [B] against 0 or 1, for the probability of a reaction.

    Classes are not reweighted, so that sigmoid(score) stays a calibrated probability for rare reactions.
    """
    return F.binary_cross_entropy_with_logits(score, liked.to(score.dtype))


def choose_same(policies: int, count: int, samples: int, generator: torch.Generator) -> Tensor:
    """Samples indices [count, 4] for pre-training a policy discriminator: a policy, two different samples of it,
    another policy.

    Each policy has `samples` samples per prompt. The other policy's sample has the second sample's number.

    Raises:
        ValueError: fewer than two policies, or fewer than two samples of each.
    """
    if policies < 2 or samples < 2:
        raise ValueError(f"choose_same needs 2 policies and 2 samples of each at least, found {policies} and {samples}")
    draw = lambda most: torch.randint(most, (count,), generator=generator)  # noqa: E731
    policy, first = draw(policies), draw(samples)
    second = (first + 1 + draw(samples - 1)) % samples
    other = (policy + 1 + draw(policies - 1)) % policies
    return torch.stack([policy, first, second, other], 1)


def same_policy_pairs(
    prompts: Sequence[str], written: Sequence[Sequence[Sequence[str]]], count: int, generator: torch.Generator
) -> Pairs:
    """Samples POLAR's pairs: relative to a text of policy A, another text of A is better than a text of policy B for
    the same prompt.

    `written[policy][prompt]` holds the texts of a policy, as many for each policy and prompt.
    """
    samples = len(written[0][0])
    prompt_indices = torch.randint(len(prompts), (count,), generator=generator).tolist()
    chosen = choose_same(len(written), count, samples, generator).tolist()
    rows = list(zip(prompt_indices, chosen, strict=True))
    return Pairs(
        prompts=[prompts[p] for p in prompt_indices],
        references=[written[policy][p][first] for p, (policy, first, _, _) in rows],
        better=[written[policy][p][second] for p, (policy, _, second, _) in rows],
        worse=[written[other][p][second] for p, (_, _, second, other) in rows],
    )


def fit_scorer(
    scorer: TextScorer | TextClassifier,
    data: Pairs | tuple[Sequence[str], Sequence[str], Tensor],
    *,
    steps: int,
    rows: int = 64,
    rate: float = 3e-3,
    decay: float = 0.0,
    seed: int = 0,
    watch: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Trains a scorer in place, on pairs by `prefers`, or on (prompts, answers, liked [N]) by `likes`; returns the
    losses.

    The optimiser is AdamW with a learning rate that falls linearly to 0; batches of `rows` rows are drawn with `seed`.

    rate: its first value, which suits a `TextScorer`; a pretrained classifier learns at some 1e-5.
    watch: called with each step and its loss.

    Raises:
        ValueError: the pairs have references, and the scorer reads none.
    """
    if isinstance(data, Pairs) and data.references is not None and not _compares(scorer):
        raise ValueError("fit_scorer: the pairs have references, and the scorer compares with none; leave them out")
    generator = torch.Generator().manual_seed(seed)
    scorer.requires_grad_(True).train()
    optimiser = torch.optim.AdamW(scorer.parameters(), lr=rate, weight_decay=decay)
    count, losses = len(data.prompts if isinstance(data, Pairs) else data[0]), []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / steps)
        chosen = torch.randint(count, (rows,), generator=generator).tolist()
        loss = _loss(scorer, data, chosen)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if watch is not None:
            watch(step, losses[-1])
    scorer.eval()
    return losses


def _compares(scorer: TextScorer | TextClassifier) -> TypeGuard[TextScorer]:
    return isinstance(scorer, TextScorer) and scorer.shape.compares


def _loss(
    scorer: TextScorer | TextClassifier, data: Pairs | tuple[Sequence[str], Sequence[str], Tensor], rows: list[int]
) -> Tensor:
    def pick(texts: Sequence[str]) -> list[str]:
        return [texts[i] for i in rows]

    if not isinstance(data, Pairs):
        prompts, answers, liked = data
        return likes(scorer(pick(prompts), pick(answers)), liked[rows])
    prompts = pick(data.prompts)
    if data.references is None or not _compares(scorer):
        return prefers(scorer(prompts, pick(data.better)), scorer(prompts, pick(data.worse)))
    reference_vectors = scorer.encode(prompts, pick(data.references))
    better, worse = (
        scorer.compare(reference_vectors, scorer.encode(prompts, pick(x))) for x in (data.better, data.worse)
    )
    return prefers(better, worse)
