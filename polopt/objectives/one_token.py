"""One-token rollouts: tokens sampled from the policy at each position, rewarded if they equal the demonstration's."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import SurrogateTerm


class OneToken(SurrogateTerm):
    """Policy gradient over single tokens a at each token x of a demonstration: reward 1 for a = x, `miss` otherwise.

        L_t = -A_t sum_a q(a) R(a) logp_t(a),    R(x) = 1, R(a) = miss otherwise

    draws None: q is softmax(logits / temperature), without gradient: the expectation. draws K: the frequencies of K
    tokens drawn from that. Their random numbers are a function of the row's tokens, `seed` and the number of batches
    learned from: the same in any micro-batch, at any padding, and in every epoch on a batch.
    floor: a missed token's log-probability counts as at least this, so that a negative `miss` cannot lower it
    without bound.

    With temperature 1 and miss 0 the expectation is -sg(p) logp, the likelihood weighted with p: see
    `ProbabilityWeight`.
    Source: one-token rollout, arXiv:2509.26313.
    """

    draws: int | None = None
    temperature: float = 1.0
    miss: float = 0.0
    floor: float = -20.0
    seed: int = 0

    reads = frozenset({"extras.tokens"})
    policy_outputs = frozenset({"logits"})
    zero_at_zero_advantage = True

    def setup(self) -> None:
        if self.draws is not None and self.draws < 1:
            raise ValueError(f"objectives.OneToken: draws must be >= 1 or None for the expectation, found {self.draws}")
        if self.temperature <= 0:
            raise ValueError(f"objectives.OneToken: temperature must be > 0, found {self.temperature}")
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def on_step(self) -> None:
        self.get_buffer("batches").add_(1)

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        tokens = experience.extras["tokens"]
        said = torch.where(experience.mask, tokens, 0)[..., None]
        odds = (evaluation.logits.detach() / self.temperature).softmax(-1)
        if self.draws is not None:
            odds = self._frequencies(odds, tokens)
        hits, missed = odds.gather(-1, said).squeeze(-1), odds.scatter(-1, said, 0.0)
        bounded = evaluation.logits.log_softmax(-1).clamp(min=self.floor)
        worth = hits * evaluation.logp + self.miss * (missed * bounded).sum(-1)
        return -experience.advantage * worth, torch.zeros_like(experience.advantage)

    def _frequencies(self, odds: Tensor, tokens: Tensor) -> Tensor:
        """Draws tokens, and returns the frequency of each, [B, T, V]."""
        assert self.draws is not None
        seed = ops.scrambled(self.get_buffer("batches") + ops.scrambled(torch.tensor(self.seed, device=tokens.device)))
        keys = _keys(tokens)[..., None] + ops.scrambled(seed + torch.arange(self.draws, device=tokens.device))
        below = odds.double().cumsum(-1)
        drawn = torch.searchsorted(below, ops.uniform(keys) * below[..., -1:]).clamp(max=odds.shape[-1] - 1)
        return torch.zeros_like(odds).scatter_add(-1, drawn, torch.full_like(drawn, 1 / self.draws, dtype=odds.dtype))


def _keys(tokens: Tensor) -> Tensor:
    """Returns an int64 key for each token, [B, T], a function of its row's tokens and its position among them, but not
    of padding (tokens below 0)."""
    real = tokens >= 0
    place = ops.scrambled(torch.where(real, real.cumsum(1), 0))
    row = torch.where(real, ops.scrambled(tokens + place), 0).sum(1, keepdim=True)
    return ops.scrambled(row + place)
