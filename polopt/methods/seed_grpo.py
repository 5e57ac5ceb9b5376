"""SEED-GRPO: advantages reduced on prompts whose answers disagree."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import ModulatedAdvantage
from polopt.experience import Experience
from polopt.features.base import RowFeature, TokenFeature
from polopt.method import Paper, method
from polopt.methods.dr_grpo import dr_grpo


@method(
    paper=Paper(
        title="SEED-GRPO: Semantic Entropy Enhanced GRPO for Uncertainty-Aware Policy Optimization",
        authors="Chen, Minghan and Chen, Guikun and Wang, Wenguan and Yang, Yi",
        year=2025,
        arxiv="2505.12346",
    ),
    changes="Dr. GRPO whose advantages shrink with the semantic entropy of the prompt's answers.",
    room="credit",
    tier="reading",
)
def seed_grpo(
    *,
    group: int = 8,
    alpha: float = 0.1,
    shape: Literal["linear", "exponential", "focal"] = "linear",
    weigh: Literal["length", "sequence", "count"] = "length",
    pattern: str = "",
    length: int | None = None,
) -> Algorithm:
    """A_i = (R_i - mean_g R) f(alpha SE / log G), with SE = -(1/K) sum_k log p(C_k) over the K clusters of the group's
    answers of one canonical form, and p(C_k) the share of the group's probability that its answers have.

    f(0) = 1: "linear" 1 - x, "exponential" exp(-x), "focal" (1 - x)^2. The paper sums whole answers' probabilities
    (weigh="sequence"); those of long answers differ by so much that a group then has one answer or none, so ours are
    their |o_i|-th roots. Which f, which alpha, and log G for the largest entropy are our reading. `pattern` finds the
    final answer in a longer text; without it the whole text is the answer, and no two chains of thought agree.
    """
    base = dr_grpo(group=group, length=length)
    faded = UncertaintyDecay(by=SemanticEntropy(weigh=weigh, pattern=pattern), strength=alpha, shape=shape)
    return base.but(credit=ModulatedAdvantage(credit=base.credit, times=faded))


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
                f"methods.seed_grpo.SemanticEntropy: pattern {self.pattern!r} is no regular expression: {error}"
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


class UncertaintyDecay(TokenFeature):
    """f(strength x_i) on every decision of row i, for a measure x >= 0: 1 at 0, and falling.

    shape "linear" is max(0, 1 - z), "exponential" exp(-z), "focal" max(0, 1 - z)^power. Beyond z = 1 "linear" and
    "focal" are 0 instead of changing the sign.
    """

    by: RowFeature
    strength: float = 1.0
    shape: Literal["linear", "exponential", "focal"] = "linear"
    power: float = 2.0

    reads_batch = True

    def setup(self) -> None:
        if self.strength < 0 or self.power <= 0:
            raise ValueError(
                f"methods.seed_grpo.UncertaintyDecay: need strength >= 0 and power > 0, found {self.strength} "
                f"and {self.power}"
            )

    def forward(self, experience: Experience) -> Tensor:
        z = self.strength * self.by(experience)
        left = (-z).exp() if self.shape == "exponential" else (1 - z).clamp(min=0)
        return (left**self.power if self.shape == "focal" else left)[:, None].expand_as(experience.mask)
