"""Training of a success predictor on the scores of many policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from polopt.sampling.predictor import InContext, ngrams


class History(NamedTuple):
    """Scores of one policy at one point of its training.

    prompts: the prompts.
    scores: the policy's mean score in [0, 1] at each prompt, [prompts].
    """

    prompts: Sequence[str]
    scores: Tensor


def predictor_loss(logits: Tensor, scores: Tensor, pairwise: float = 0.25) -> Tensor:
    """Returns a weighted sum of a pairwise ranking loss and a cross entropy, for logits and scores [...,
    queries]:

        pairwise * mean over score_i > score_j of -log sigmoid(l_i - l_j) + (1 - pairwise) * CE(scores, logits)
    """
    difference = logits[..., :, None] - logits[..., None, :]
    above = scores[..., :, None] > scores[..., None, :]
    order = -torch.where(above, functional.logsigmoid(difference), 0).sum() / above.sum().clamp(min=1)
    rates = functional.binary_cross_entropy_with_logits(logits, scores)
    return pairwise * order + (1 - pairwise) * rates


def fit(
    predictor: InContext,
    histories: Sequence[History],
    *,
    steps: int = 400,
    policies: int = 4,
    context: int = 256,
    queries: int = 64,
    rate: float = 0.01,
    decay: float = 0.01,
    pairwise: float = 0.25,
    seed: int = 0,
    watch: Callable[[int, float], None] | None = None,
) -> InContext:
    """Trains a predictor, in place, to predict a policy's scores at some prompts from its scores at others.

    Each step draws `policies` histories, and of each a context of at most `context` prompts, often far fewer, and
    `queries` others. The optimiser is AdamW with a cosine schedule to 0.

    steps: optimiser steps.
    rate: the initial learning rate.
    decay: weight decay.
    pairwise: the weight of the ranking loss (`predictor_loss`).
    watch: is called with each step and its loss.

    Raises:
        ValueError: a history has fewer than two prompts, or its scores are not [prompts] in [0, 1].
    """
    _check(histories)
    texts = list(dict.fromkeys(text for history in histories for text in history.prompts))
    number = {text: i for i, text in enumerate(texts)}
    runs = [ngrams(text, predictor.longest, predictor.buckets) for text in texts]
    places = [torch.tensor([number[text] for text in history.prompts]) for history in histories]
    scores = [history.scores.double() for history in histories]
    g = torch.Generator().manual_seed(seed)
    predictor.requires_grad_(True)
    optimiser = torch.optim.AdamW(predictor.parameters(), lr=rate, weight_decay=decay)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        chosen = torch.randint(len(histories), (policies,), generator=g).tolist()
        shortest = min(len(scores[i]) for i in chosen)
        queried = min(queries, shortest // 2)
        most = min(context, shortest - queried)
        # Context sizes are log-uniform on odd steps, the largest possible on even ones.
        given = max(1, round(math.exp(float(torch.rand((), generator=g)) * math.log(most)))) if step % 2 else most
        drawn = [torch.randperm(len(scores[i]), generator=g)[: given + queried] for i in chosen]
        rows = torch.stack([places[i][d] for i, d in zip(chosen, drawn, strict=True)])
        y = torch.stack([scores[i][d] for i, d in zip(chosen, drawn, strict=True)]).to(predictor.table.device)
        needed, at = rows.unique(return_inverse=True)
        x = predictor.encode([runs[i] for i in needed.tolist()])[at]
        logits = predictor.logits(x[:, :given], y[:, :given], x[:, given:])
        loss = predictor_loss(logits, y[:, given:], pairwise)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(predictor.parameters(), 1.0)
        optimiser.step()
        cosine.step()
        if watch is not None:
            watch(step, loss.item())
    return predictor.requires_grad_(False)


def _check(histories: Sequence[History]) -> None:
    if not histories:
        raise ValueError("fit needs at least one history, found none")
    for i, (prompts, scores) in enumerate(histories):
        if len(prompts) < 2 or scores.shape != (len(prompts),) or not ((scores >= 0) & (scores <= 1)).all():
            raise ValueError(
                f"fit: history {i} needs two prompts or more and a score in [0, 1] for each, found {len(prompts)} "
                f"prompts and scores of shape {list(scores.shape)}"
            )
