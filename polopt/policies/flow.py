"""A flow policy: a velocity field that carries noise to points, trained without a likelihood."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.support import Density

Solver = Literal["euler", "midpoint"]
# Frequencies of the noise level that the network reads, in cycles.
FREQUENCIES = 8


class FlowPolicy(nn.Module):
    """A rectified flow of points x in D dimensions, given a context: a network v(x_t, t, c) of the velocity.

    With noise e ~ N(0, I) and t in [0, 1], x_t = (1 - t) x + t e and the velocity of a pair is u = e - x. Samples are
    the solutions at t = 0 of dx/dt = v(x, t, c) from noise at t = 1.

    As a policy it decides on the velocity of a given point, noise and level, under N(v, I): the log-density
    -(|u - v|^2 + D log 2 pi) / 2 is the negative error of denoising, so that maximum likelihood is flow matching, and a
    log-ratio to another policy a difference of errors. A row is one point, its columns are draws of noise and level.

    dimensions: D. contexts: number of contexts, 1 for none. hidden: widths of the network's hidden layers. steps:
    intervals of the solver. solver: "euler" evaluates the network once an interval, "midpoint" twice, with an error of
    the second order.
    """

    tags = frozenset({"head=flow"})

    def __init__(
        self,
        *,
        dimensions: int,
        contexts: int = 1,
        hidden: Iterable[int] = (64, 64),
        steps: int = 10,
        solver: Solver = "midpoint",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(dimensions, contexts, steps) < 1:
            raise ValueError(
                f"FlowPolicy: dimensions, contexts and steps must be >= 1, found {dimensions}, {contexts} and {steps}"
            )
        self.settings: dict[str, Any] = {
            "dimensions": dimensions,
            "contexts": contexts,
            "hidden": list(hidden),
            "steps": steps,
            "solver": solver,
        }
        self.dimensions, self.contexts, self.steps, self.solver = dimensions, contexts, steps, solver
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            widths = [dimensions + 2 * FREQUENCIES + contexts, *self.settings["hidden"]]
            layers: list[nn.Module] = []
            for inner, outer in itertools.pairwise(widths):
                layers += [nn.Linear(inner, outer), nn.SiLU()]
            self.network = nn.Sequential(*layers, nn.Linear(widths[-1], dimensions))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def velocity(self, x: Tensor, level: Tensor, context: Tensor) -> Tensor:
        """Returns the velocity [..., D] at points x [..., D], noise levels [...] and contexts [...] int64."""
        cycles = 2 * math.pi * level[..., None] * torch.arange(1, FREQUENCIES + 1, device=x.device) / 2
        which = nn.functional.one_hot(context, self.contexts).to(x)
        return self.network(torch.cat([x, cycles.sin(), cycles.cos(), which.expand(*x.shape[:-1], -1)], -1))

    def denoised(self, x: Tensor, sigma: Tensor, context: Tensor) -> Tensor:
        """Returns E[point | x], where x is a point plus N(0, sigma^2 I): the denoiser that the velocity implies.

        With t = sigma / (1 + sigma) the flow's x_t is (1 - t) x, and the point x_t - t v.
        """
        level = sigma / (1 + sigma)
        scaled = (1 - level)[..., None] * x
        return scaled - level[..., None] * self.velocity(scaled, level, context)

    @torch.no_grad()
    def sample(self, context: Tensor, generator: Generator) -> Tensor:
        """Samples a point [B, D] for each context [B]; the noise is drawn on the generator's device."""
        x = torch.randn(len(context), self.dimensions, generator=generator, device=generator.device).to(self.device)
        context, size = context.to(self.device), 1 / self.steps
        for step in range(self.steps):
            level = torch.full((len(x),), 1 - step * size, device=x.device)
            slope = self.velocity(x, level, context)
            if self.solver == "midpoint":
                slope = self.velocity(x - slope * size / 2, level - size / 2, context)
            x = x - slope * size
        return x

    def evaluate(self, experience: Experience, needs: Iterable[str] = (), *, top: int = 0) -> Evaluation:
        """Evaluates the policy on a batch of points.

        Reads `extras["point"]` [B, D], `extras["context"]` [B] and the draws `extras["noise"]` [B, T, D] and
        `extras["noise_level"]` [B, T]. Returns logp [B, T] and, if it is among `needs`, `extras["velocity"]` [B, T, D].
        """
        extras = experience.extras
        velocity = self.velocity(
            noised(extras), extras["noise_level"], extras["context"][:, None].expand_as(experience.mask)
        )
        error = (extras["noise"] - extras["point"][:, None] - velocity).square().sum(-1)
        logp = -(error + self.dimensions * math.log(2 * math.pi)) / 2
        found = {"velocity": velocity} if "extras.velocity" in needs else {}
        return Evaluation(logp=logp, support=Density(), extras=found)

    def weights(self) -> Tensor:
        """Returns a copy of the parameters, as one vector [P]."""
        return torch.cat([p.detach().flatten() for p in self.parameters()])

    @contextlib.contextmanager
    def using(self, weights: Tensor) -> Iterator[Self]:
        """Has other parameters [P], as `weights` returns them, inside of a `with` statement."""
        own = self.weights()
        try:
            self._set(weights)
            yield self
        finally:
            self._set(own)

    @torch.no_grad()
    def _set(self, weights: Tensor) -> None:
        parameters = list(self.parameters())
        for parameter, piece in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(piece.view_as(parameter))

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Returns the parameters that can change, by name."""
        return dict(self.named_parameters())

    def frozen(self) -> Self:
        """Returns a copy without gradient."""
        return copy.deepcopy(self).requires_grad_(False)

    def save(self, folder: Path) -> None:
        """Writes weights and settings into a folder; `load` reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.settings, indent=1) + "\n", encoding="utf-8")
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, folder / "model.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Loads a policy from a folder written by `save`."""
        made = cls(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
        made.load_state_dict(load_file(folder / "model.safetensors"))
        return made


def noised(extras: dict[str, Any]) -> Tensor:
    """Returns x_t = (1 - t) x + t e of each draw of a batch of points, [B, T, D]."""
    level = extras["noise_level"][..., None]
    return (1 - level) * extras["point"][:, None] + level * extras["noise"]
