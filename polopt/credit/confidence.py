"""Measures of the policy's confidence in a whole row, and of the diversity of a prompt's answers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import RowFeature

# Longer texts are compared as texts, not parsed as numbers.
MOST_DIGITS = 50
DECIMAL = re.compile(r"[-+]?(?=\.?[0-9])([0-9]+|[0-9]{1,3}(,[0-9]{3})+)?(\.[0-9]+)?")


class SemanticEntropy(RowFeature):
    """Normalised semantic entropy SE / log G of a prompt's G answers; 0 where all mean the same and for one answer:

        SE = -(1/K) sum_k log p(C_k),    p(C_k) = sum_{i in C_k} w_i / sum_{i in group} w_i

    over the K clusters of answers with one canonical form. The mean over clusters of -log p is not Shannon's entropy:
    a rare cluster weighs as much as a common one, and where the w_i differ SE / log G may exceed 1.

    weigh: w_i is the answer's probability ("sequence"), its |o_i|-th root ("length"), or 1 ("count"). Probabilities of
    long answers differ by so many orders of magnitude that under "sequence" one of them dominates the group.

    The canonical form of `extras["answer"]`: white space runs are one space, none at the ends; case is folded; one full
    stop at the end is left out; a decimal number, or a fraction of two, is its value (7.50 = +7.5 = 15/2,
    1,000 = 1000). pattern: a regular expression that finds the final answer in a longer text; its last match counts,
    and of that its first group if it has one; a text without a match is its own answer.
    """

    weigh: Literal["length", "sequence", "count"] = "length"
    pattern: str = ""

    reads_batch = True

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"group", "extras.answer"} | (set() if self.weigh == "count" else {"rollout_logp"}))

    def setup(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(
                f"credit.SemanticEntropy: pattern {self.pattern!r} is no regular expression: {error}"
            ) from None

    def forward(self, experience: Experience) -> Tensor:
        group, weight = experience.group, self._log_weight(experience)
        cluster = ops.crossed(group, self._meaning(experience))
        surprise = ops.group_logsumexp(weight, group) - ops.group_logsumexp(weight, cluster)
        # Each cluster counts once: its weight is divided evenly among its rows.
        once = 1 / ops.group_size(cluster).double()
        entropy = ops.group_sum(surprise * once, group) / ops.group_sum(once, group)
        size = ops.group_size(group)
        return torch.where(size > 1, entropy / size.clamp(min=2).double().log(), 0)

    def _log_weight(self, experience: Experience) -> Tensor:
        """Returns log w_i, [B], float64."""
        if self.weigh == "count":
            return torch.zeros(len(experience), dtype=torch.float64, device=experience.device)
        logp = torch.where(experience.mask, experience.rollout_logp, 0).double().sum(1)
        return logp if self.weigh == "sequence" else logp / experience.lengths.clamp(min=1)

    def _meaning(self, experience: Experience) -> Tensor:
        """Numbers the answers [B] by their canonical form."""
        numbers: dict[str, int] = {}
        forms = (canonical(text, self.pattern) for text in experience.extras["answer"])
        return torch.tensor([numbers.setdefault(f, len(numbers)) for f in forms], device=experience.device).long()


def canonical(text: str, pattern: str = "") -> str:
    """Returns the canonical form of an answer, equal for equal meanings; see `SemanticEntropy`."""
    if pattern and (found := list(re.finditer(pattern, text, re.DOTALL))):
        match = found[-1]
        text = match.group(1) or "" if match.re.groups else match.group()
    text = " ".join(text.split()).casefold().removesuffix(".").rstrip()
    parts = [part.strip() for part in text.split("/")]
    if len(text) > MOST_DIGITS or len(parts) > 2 or not all(map(DECIMAL.fullmatch, parts)):
        return text
    above, below = (*(Fraction(part.replace(",", "")) for part in parts), Fraction(1))[:2]
    return str(above / below) if below else text
