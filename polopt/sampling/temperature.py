"""Temperatures that change from decision to decision."""

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
    """Hotter where the policy is undecided, cooler where it is sure: T (1 + strength h), 0 <= strength < 1.

    h in [-1, 1] is where a decision's log-entropy stands between the lowest, the pivot (a quantile) and the highest of
    the batch before (`ops.entropy_level`); the first batch has one temperature. Learns in training mode only.
    compat "released" takes |h|, as the program of HAPO does, which heats both ends. Source: HAPO, arXiv:2509.16591.
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
        """What the next batch is sampled over."""
        lowest, pivot, highest = self.get_buffer("scale").tolist()
        if math.isnan(pivot):
            return support
        rule = ByEntropy(self.strength, lowest, pivot, highest, released=self.compat == "released")
        return dataclasses.replace(support, by_entropy=rule)

    def observe(self, experience: Experience) -> None:
        """Remember the entropies of a batch, at its one temperature."""
        experience.require(self.reads, by=self)
        plain = experience.extras["plain_entropy"] if experience.support.by_entropy else experience.entropy
        if self.training and experience.mask.any():
            scale = ops.entropy_scale(plain[experience.mask], self.quantile)
            self.get_buffer("scale").copy_(torch.tensor(scale, dtype=torch.float64))
