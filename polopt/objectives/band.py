"""A regulariser that keeps the entropy of each kind of task within a band."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Regulariser


class EntropyBand(Regulariser):
    """coefficient * sum_k [ max(0, H_k - high) + max(0, low - H_k) ], H_k the mean entropy, in nats, over the decisions
    of the rows of kind k, `extras["kind"]`.

    The formula holds under `TokenMean`: the terms have a factor N / N_k for a kind with N_k of the batch's N decisions;
    under another reducer the kinds have other weights. Which side of the band a kind is on is a property of the whole
    optimiser batch under the current policy.

    of: "exact" takes the policy's entropy at each decision. "sampled" takes -logp of the decision, an estimate of
    it whose gradient is zero on average on the policy's own samples. kinds: the kinds it applies to; None for all.
    Source: task-level entropy shaping, arXiv:2604.08539, which takes "sampled".
    """

    low: float = 0.2
    high: float = 0.6
    coefficient: float = 0.02
    of: Literal["exact", "sampled"] = "sampled"
    kinds: tuple[str, ...] | None = None

    reads = frozenset({"extras.kind"})

    def setup(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"objectives.EntropyBand: need 0 <= low <= high, found {self.low} and {self.high}")

    @property
    def full_batch_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"entropy" if self.of == "exact" else "logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        slope, bound = (experience.local_rows(x)[:, None] for x in self._sides(experience.full_batch))
        return slope * (self._entropy(evaluation) - bound)

    def _entropy(self, evaluation: Evaluation) -> Tensor:
        return evaluation.entropy if self.of == "exact" else -evaluation.logp

    def _sides(self, whole: Experience) -> tuple[Tensor, Tensor]:
        """Returns, for each row's kind, +1, 0 or -1 times N / N_k, [B], and the bound that its entropy exceeds, [B]."""
        seen = torch.where(whole.mask, self._entropy(whole.full_batch_evaluation), 0)
        kind = torch.tensor(ops.numbered(whole.extras["kind"]), dtype=torch.long, device=seen.device)
        decisions = ops.group_sum(whole.lengths.to(seen), kind)
        entropy = ops.group_sum(seen.sum(1), kind) / decisions.clamp(min=1)
        side = (entropy > self.high).to(seen) - (entropy < self.low).to(seen)
        if self.kinds is not None:
            side = side * torch.tensor([k in self.kinds for k in whole.extras["kind"]], device=seen.device)
        bound = self.low + (self.high - self.low) * (side > 0).to(seen)
        return side * whole.mask.sum() / decisions.clamp(min=1), bound
