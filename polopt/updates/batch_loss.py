"""The loss of one batch, and the change of a policy's decisions on it, as functions of the policy's parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import Objective

# The law of each decision: tensors [B, T, ...].
Laws = tuple[Tensor, ...]


def laws_of(policy: Any, experience: Experience) -> Laws:
    """Returns the laws of a batch's decisions: the policy's own `laws`, or else log-probabilities [B, T, V] of its
    logits."""
    if hasattr(policy, "laws"):
        found: Laws = policy.laws(experience)
        return found
    return (policy.evaluate(experience, frozenset({"logits"})).logits.log_softmax(-1),)


def divergence(policy: Any, old: Laws, new: Laws) -> Tensor:
    """Computes KL(old || new) [B, T] in nats: the policy's own `law_divergence`, or else that of log-probabilities."""
    if hasattr(policy, "law_divergence"):
        found: Tensor = policy.law_divergence(old, new)
        return found
    return categorical_divergence(old[0], new[0])


def categorical_divergence(old: Tensor, new: Tensor) -> Tensor:
    """Computes sum_k p_k (log p_k - log q_k) over the last dimension of log p and log q; a term with p_k = 0 is 0, and
    has no gradient."""
    p = old.exp()
    apart = torch.where(p > 0, old - torch.where(p > 0, new, 0), 0)
    return (p * apart).sum(-1)


class BatchLoss:
    """The loss of one batch as a function of the policy's parameters, and the mean over its decisions of

        KL(pi_old || pi)

    where pi_old is the policy at the last call of `remember`.

    evaluate: evaluates the policy on a piece, with the outputs that the objective reads.
    pieces: the batch's micro-batches; the results do not depend on how it is divided.
    """

    def __init__(
        self,
        policy: Any,
        objective: Objective,
        evaluate: Callable[[Experience], Evaluation],
        pieces: Sequence[Experience],
    ) -> None:
        self.policy, self.objective, self.evaluate, self.pieces = policy, objective, evaluate, list(pieces)
        self.decisions = sum(int(piece.mask.sum()) for piece in self.pieces)
        self.metrics: list[dict[str, Tensor]] = []
        self.logp: list[Tensor] = []
        self._old: list[Laws] = []

    @torch.no_grad()
    def value(self) -> float:
        """Returns the loss at the present parameters."""
        losses = [self.objective(piece, self.evaluate(piece)).loss for piece in self.pieces]
        return float(torch.stack(losses).sum())

    def gradient(self, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        """Returns the loss's gradient, 0 for a parameter that it does not depend on. `metrics` are then those of each
        piece, the loss among them, and `logp` its log-probabilities."""
        total = [torch.zeros_like(p) for p in parameters]
        self.metrics, self.logp = [], []
        for piece in self.pieces:
            evaluation = self.evaluate(piece)
            result = self.objective(piece, evaluation)
            found = torch.autograd.grad(result.loss, list(parameters), allow_unused=True)
            total = [t if g is None else t + g for t, g in zip(total, found, strict=True)]
            self.metrics.append({"loss": result.loss.detach(), **result.metrics})
            self.logp.append(evaluation.logp.detach())
        return total

    @torch.no_grad()
    def remember(self) -> None:
        """Makes the present policy the one that `divergence` is measured from."""
        self._old = [tuple(x.clone() for x in laws_of(self.policy, piece)) for piece in self.pieces]

    def _shares(self) -> Iterator[Tensor]:
        """Yields each piece's share of the mean divergence, with gradient."""
        for piece, old in zip(self.pieces, self._old, strict=True):
            apart = divergence(self.policy, old, laws_of(self.policy, piece))
            yield torch.where(piece.mask, apart, 0).sum() / max(1, self.decisions)

    @torch.no_grad()
    def divergence(self) -> float:
        """Returns the mean of KL(pi_old || pi) at the present parameters."""
        return float(torch.stack(list(self._shares())).sum())

    def law_depends_on(self, parameters: Sequence[nn.Parameter]) -> list[bool]:
        """Returns whether the decisions' laws depend on each parameter, as a critic's are none of them."""
        share = next(self._shares())
        return [g is not None for g in torch.autograd.grad(share, list(parameters), allow_unused=True)]

    def fisher_product(self, parameters: Sequence[nn.Parameter], vector: Tensor) -> Tensor:
        """Returns F v, [P], of a vector over the joined parameters: the product with the second derivative of the mean
        divergence, which is the Fisher information where the present policy is the remembered one."""
        total = torch.zeros_like(vector)
        for share in self._shares():
            slopes = torch.autograd.grad(share, list(parameters), create_graph=True)
            along = joined(slopes) @ vector
            total += joined(torch.autograd.grad(along, list(parameters))).detach()
        return total


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Returns all numbers of some tensors as one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


@torch.no_grad()
def move(parameters: Sequence[nn.Parameter], start: Sequence[Tensor], step: Tensor) -> None:
    """Sets parameters to start + step. step: a vector over the joined parameters."""
    place = 0
    for parameter, value in zip(parameters, start, strict=True):
        size = value.numel()
        parameter.copy_(value + step[place : place + size].view_as(value))
        place += size
