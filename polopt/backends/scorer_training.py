"""Training of scorers: on preferences, on reactions, and on the authorship of texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polopt.backends.preference_models import BradleyTerry, PreferenceModel
from polopt.backends.scorer import TextScorer
from polopt.backends.text_classifier import TextClassifier


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of texts, the first of which should score higher.

    references: for a scorer that compares answers with a reference.
    margins: [N] by how much each better text should be ahead, in units of the scores.
    probabilities: [N] in (0, 1], of each better text to be preferred, as the share of the votes for it.

    Raises:
        ValueError: lists of different lengths, or probabilities outside (0, 1].
    """

    prompts: Sequence[str]
    better: Sequence[str]
    worse: Sequence[str]
    references: Sequence[str] | None = None
    margins: Sequence[float] | None = None
    probabilities: Sequence[float] | None = None

    def __post_init__(self) -> None:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        lengths = {name: len(x) for name, x in fields.items() if x is not None}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"Pairs: {', '.join(lengths)} must be of one length, found {list(lengths.values())}")
        if wrong := [p for p in self.probabilities or () if not 0 < p <= 1]:
            raise ValueError(f"Pairs: probabilities must be in (0, 1], found {wrong[0]}")

    def __len__(self) -> int:
        return len(self.prompts)


def prefers(higher: Tensor, lower: Tensor) -> Tensor:
    """Bradley-Terry loss: the mean of -log sigmoid(higher - lower), [B] scores each."""
    return BradleyTerry().loss(higher, lower)


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
    micro_rows: int | None = None,
    rate: float = 3e-3,
    decay: float = 0.0,
    seed: int = 0,
    model: PreferenceModel | None = None,
    passes: bool = False,
    max_grad_norm: float | None = None,
    watch: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Trains a scorer in place, on pairs by the loss of a preference model, or on (prompts, answers, liked [N]) by
    `likes`; returns the losses.

    The optimiser is AdamW with a learning rate that falls linearly to 0; batches of `rows` rows are drawn with `seed`.

    micro_rows: the most rows in one forward pass, which bounds the memory; the gradients of a batch are added up.
    rate: its first value, which suits a `TextScorer`; a pretrained classifier learns at some 1e-5.
    model: of pairs; `BradleyTerry()` if none.
    passes: whether batches are consecutive rows of the data in a new order for each pass, and not independent draws.
    max_grad_norm: longer gradients are shortened to this norm.
    watch: called with each step and its loss.

    Raises:
        ValueError: there are no rows, the pairs have references and the scorer reads none, or the scorer is none of the
            model's kind.
    """
    model = BradleyTerry() if model is None else model
    count = len(data.prompts if isinstance(data, Pairs) else data[0])
    _check(scorer, data, model, count)
    scorer.requires_grad_(True).train()
    chunk = rows if micro_rows is None else micro_rows
    optimiser = torch.optim.AdamW(scorer.parameters(), lr=rate, weight_decay=decay)
    batches = (_passes if passes else _draws)(count, rows, torch.Generator().manual_seed(seed))
    device = next(scorer.parameters()).device
    losses = []
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # of dropout
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 - step / steps)
            batch = next(batches)
            optimiser.zero_grad()
            losses.append(0.0)
            for at in range(0, rows, chunk):
                some = batch[at : at + chunk]
                loss = _loss(scorer, data, some, model) * (len(some) / rows)
                loss.backward()
                losses[-1] += loss.item()
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(scorer.parameters(), max_grad_norm)
            optimiser.step()
            if watch is not None:
                watch(step, losses[-1])
    scorer.eval()
    return losses


def _check(scorer: TextScorer | TextClassifier, data: object, model: PreferenceModel, count: int) -> None:
    if not count:
        raise ValueError("fit_scorer: there are no rows to learn from")
    if isinstance(data, Pairs) and data.references is not None:
        if not _compares(scorer):
            raise ValueError("fit_scorer: the pairs have references, and the scorer compares with none; leave them out")
        if type(model) is not BradleyTerry:
            raise ValueError(f"fit_scorer: pairs with references are learned by BradleyTerry(), found {model!r}")
        return
    if (scorer.outputs, scorer.compares) != (model.outputs, model.compares) and isinstance(data, Pairs):
        raise ValueError(
            f"fit_scorer: {model!r} needs a scorer with outputs={model.outputs} and compares={model.compares}, found "
            f"{scorer.outputs} and {scorer.compares}"
        )


def _draws(count: int, rows: int, generator: torch.Generator) -> Iterator[list[int]]:
    while True:
        yield torch.randint(count, (rows,), generator=generator).tolist()


def _passes(count: int, rows: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Yields the rows in batches that may reach from one pass into the next."""
    order: list[int] = []
    while True:
        while len(order) < rows:
            order += torch.randperm(count, generator=generator).tolist()
        yield order[:rows]
        order = order[rows:]


def _compares(scorer: TextScorer | TextClassifier) -> TypeGuard[TextScorer]:
    return isinstance(scorer, TextScorer) and scorer.compares


def _loss(
    scorer: TextScorer | TextClassifier,
    data: Pairs | tuple[Sequence[str], Sequence[str], Tensor],
    rows: list[int],
    model: PreferenceModel,
) -> Tensor:
    def pick(texts: Sequence[str]) -> list[str]:
        return [texts[i] for i in rows]

    if not isinstance(data, Pairs):
        prompts, answers, liked = data
        return likes(scorer(pick(prompts), pick(answers)), liked[rows])
    prompts, better, worse = pick(data.prompts), pick(data.better), pick(data.worse)
    if data.references is None:
        scores = model.score(scorer, prompts, better, worse)
    else:
        assert _compares(scorer)
        reference = scorer.encode(prompts, pick(data.references))
        scores = tuple(scorer.compare(reference, scorer.encode(prompts, x)) for x in (better, worse))
    margin, probability = (
        None if values is None else scores[0].new_tensor([values[i] for i in rows])
        for values in (data.margins, data.probabilities)
    )
    return model.loss(*scores, margin=margin, probability=probability)
