"""OTR: each demonstrated token as a one-step episode, with tokens sampled from the policy."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import Surrogate, TokenMean
from polopt.objectives.parts import SurrogateTerm
from polopt.sampling import Demonstrations


@method(
    paper=Paper(
        title="One-Token Rollout: Guiding Supervised Fine-Tuning of LLMs with Policy Gradient",
        authors="Ming, Rui and others",
        year=2025,
        arxiv="2509.26313",
    ),
    changes="SFT by policy gradient: tokens drawn from the policy at each position, with reward 1 if demonstrated.",
    room="objectives",
    tier="reading",
)
def otr(*, draws: int | None = 256, temperature: float = 1.3, miss: float = -0.1, floor: float = -20.0) -> Algorithm:
    """At each demonstrated token x, a_1 .. a_K drawn from softmax(logits / temperature) without gradient, and

        L = -(1 / sum_i |y_i|) sum_it (1 / K) sum_j R(a_j) logp_it(a_j),    R = 1 if a_j = x, else miss

    draws None takes the expectation over the draws, which costs less and has no noise: K only adds some. With miss 0
    and temperature 1 that is the likelihood weighted with p (dynamic fine-tuning, CHORD's importance weight).

    Temperature, draws and miss are our best reading of the paper; no reference code was found. logp is taken at
    temperature 1, and the drawing temperature is not corrected for. floor bounds the negative reward's effect: a missed
    token below e^-20 is lowered no further. Where x is never drawn only the misses have a gradient.
    """
    return Algorithm(
        sampling=Demonstrations(),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(
            ratio=None,
            trust=OneToken(draws=draws, temperature=temperature, miss=miss, floor=floor),
            aggregate=TokenMean(),
        ),
    )


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
            raise ValueError(
                f"methods.otr.OneToken: draws must be >= 1 or None for the expectation, found {self.draws}"
            )
        if self.temperature <= 0:
            raise ValueError(f"methods.otr.OneToken: temperature must be > 0, found {self.temperature}")
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def on_step(self) -> None:
        self.get_buffer("batches").add_(1)

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        tokens = experience.extras["tokens"]
        sampled = torch.where(experience.mask, tokens, 0)[..., None]
        probs = (evaluation.logits.detach() / self.temperature).softmax(-1)
        if self.draws is not None:
            probs = self._frequencies(probs, tokens)
        hits, missed = probs.gather(-1, sampled).squeeze(-1), probs.scatter(-1, sampled, 0.0)
        bounded = evaluation.logits.log_softmax(-1).clamp(min=self.floor)
        worth = hits * evaluation.logp + self.miss * (missed * bounded).sum(-1)
        return -experience.advantage * worth, torch.zeros_like(experience.advantage)

    def _frequencies(self, probs: Tensor, tokens: Tensor) -> Tensor:
        """Draws tokens, and returns the frequency of each, [B, T, V]."""
        assert self.draws is not None
        seed = ops.scrambled(self.get_buffer("batches") + ops.scrambled(torch.tensor(self.seed, device=tokens.device)))
        keys = _keys(tokens)[..., None] + ops.scrambled(seed + torch.arange(self.draws, device=tokens.device))
        below = probs.double().cumsum(-1)
        drawn = torch.searchsorted(below, ops.uniform(keys) * below[..., -1:]).clamp(max=probs.shape[-1] - 1)
        return torch.zeros_like(probs).scatter_add(-1, drawn, torch.full_like(drawn, 1 / self.draws, dtype=probs.dtype))


def _keys(tokens: Tensor) -> Tensor:
    """Returns an int64 key for each token, [B, T], a function of its row's tokens and its position among them, but not
    of padding (tokens below 0)."""
    real = tokens >= 0
    place = ops.scrambled(torch.where(real, real.cumsum(1), 0))
    row = torch.where(real, ops.scrambled(tokens + place), 0).sum(1, keepdim=True)
    return ops.scrambled(row + place)
