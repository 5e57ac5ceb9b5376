"""Temperatures that vary from decision to decision."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import torch

from polopt import ops
from polopt.experience import Experience
from polopt.part import Part
from polopt.support import ByEntropy, Support


class EntropyTemperature(Part):
    """Sets each decision's temperature by its entropy: T (1 + strength h), 0 <= strength < 1, higher for uncertain
    decisions.

    h in [-1, 1] is the position of a decision's log-entropy between the lowest, the pivot (a quantile) and the highest
    of the batch before (`ops.entropy_level`); the first batch has one temperature. The scale is updated in training
    mode only.

    strength: the largest relative change of the temperature.
    quantile: the quantile of the pivot.
    compat: "released" takes |h|, as the program of HAPO does, which raises the temperature at both ends.

    Source: HAPO, arXiv:2509.16591.
    """

    strength: float = 0.05
    quantile: float = 0.8
    compat: Literal["text", "released"] = "text"

    reads = frozenset({"entropy"})

    def setup(self) -> None:
        if not 0 <= self.strength < 1 or not 0 <= self.quantile <= 1:
            raise ValueError(
                "sampling.EntropyTemperature: need 0 <= strength < 1 and quantile in [0, 1], found "
                f"{self.strength} and {self.quantile}"
            )
        # Lowest, pivot and highest log-entropy of the batch before; NaN before there is one.
        self.register_buffer("scale", torch.full((3,), torch.nan, dtype=torch.float64))

    def forward(self, support: Support) -> Support:
        """Returns the support over which the next batch is sampled."""
        lowest, pivot, highest = self.get_buffer("scale").tolist()
        if math.isnan(pivot):
            return support
        rule = ByEntropy(self.strength, lowest, pivot, highest, released=self.compat == "released")
        return dataclasses.replace(support, by_entropy=rule)

    def observe(self, experience: Experience) -> None:
        """Updates the entropy scale from a batch, with the entropies at its one temperature."""
        experience.require(self.reads, by=self)
        plain = experience.extras["plain_entropy"] if experience.support.by_entropy else experience.entropy
        if self.training and experience.mask.any():
            scale = ops.entropy_scale(plain[experience.mask], self.quantile)
            self.get_buffer("scale").copy_(torch.tensor(scale, dtype=torch.float64))
