"""Programs: policies that are written down, which others act near."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.part import Part


class Program(Part):
    """`program(observation)` returns the actions [..., A], in the environment's units, for observations [..., D].

    A program of one's own is a subclass in a module or a file, `path/to/file.py:Name` in a recipe. One that a language
    model wrote is read by a person first: it is imported, and no sandbox holds it.
    """

    def forward(self, observation: Tensor) -> Tensor:
        raise NotImplementedError


class LinearProgram(Program):
    """a = K s + b, of which the environment takes what is within its bounds: proportional and derivative control, or,
    with a large number in K, the sign of one of the observation's.

    gains: K, a row for each number of an action. offset: b; None is 0.
    """

    gains: tuple[tuple[float, ...], ...]
    offset: tuple[float, ...] | None = None

    def setup(self) -> None:
        widths, offset = {len(row) for row in self.gains}, self.offset or (0.0,) * len(self.gains)
        if len(widths) != 1 or len(offset) != len(self.gains):
            raise ValueError(
                "networks.LinearProgram: gains needs rows of one length, and offset a number for each row, found "
                f"{self.gains!r:.80} and {self.offset!r:.40}"
            )
        self.register_buffer("_gains", torch.tensor(self.gains), persistent=False)
        self.register_buffer("_offset", torch.tensor(offset), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        gains = self.get_buffer("_gains")
        if observation.shape[-1] != gains.shape[1]:
            raise ValueError(
                f"networks.LinearProgram: gains has rows of {gains.shape[1]} numbers, and an observation has "
                f"{observation.shape[-1]}; give a number for each"
            )
        return observation @ gains.to(observation).T + self.get_buffer("_offset").to(observation)
