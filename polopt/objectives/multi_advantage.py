"""A trust region for each of several advantages of the same decision."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import SurrogateTerm
from polopt.objectives.trust import Clip


class PerAdvantageSurrogate(SurrogateTerm):
    """sum_k trust(ratio, A_k) over the advantages of `extras["voices"]` [B, T, K], which `credit.MultiAdvantage`
    writes.

    For terms that scale with a positive advantage's size, as those of every clip do, weights inside the A_k are
    weights of the terms: w trust(A) = trust(w A). The clip indicator is the mean over the advantages. `trust` must
    treat each decision independently.
    """

    trust: SurrogateTerm = Clip()

    reads = frozenset({"extras.voices"})

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        voices = torch.where(experience.mask[..., None], experience.extras["voices"], 0).unbind(-1)
        found = [self.trust(log_ratio, experience.replace(advantage=voice), evaluation) for voice in voices]
        terms, held = (torch.stack(values) for values in zip(*found, strict=True))
        return terms.sum(0), held.mean(0)
