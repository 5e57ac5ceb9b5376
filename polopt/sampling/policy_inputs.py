"""Inputs of a policy beside the observation: a skill, a task, the last action."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.part import Part


class PolicyInput(Part):
    """A vector that the policy reads after the observation, `extras.NAME` [B, T, K].

    A source draws it when an episode begins and holds it until the episode ends, unless `after` changes it.

    name: the column, and the name that networks read it by.
    """

    name: str = "skill"

    def setup(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(
                f"sampling.{type(self).__name__}: name must be letters, digits and _, found {self.name!r:.40}"
            )

    def width(self, dimensions: int | None) -> int:
        """Returns K. dimensions: numbers in an action, None for choices."""
        raise NotImplementedError

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        """Draws the vectors, [count, K], of so many episodes that begin."""
        raise NotImplementedError

    def after(self, value: Tensor, action: Tensor) -> Tensor:
        """Returns the vectors [..., K] after decisions [..., A], in the environment's units."""
        return value


class SphereSkill(PolicyInput):
    """A direction, uniform on the sphere of a radius in so many dimensions.

    dimensions: K. radius: None is sqrt(K).
    """

    dimensions: int = 2
    radius: float | None = 1.0

    def setup(self) -> None:
        super().setup()
        if self.dimensions < 1 or not (self.radius is None or self.radius > 0):
            raise ValueError(
                f"sampling.SphereSkill: need dimensions >= 1 and radius > 0, found {self.dimensions} and {self.radius}"
            )

    def width(self, dimensions: int | None) -> int:
        return self.dimensions

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return on_sphere(torch.randn(count, width, generator=generator), self.radius)


class OneHotSkill(PolicyInput):
    """One of `count` skills, each as likely, as a vector of zeros and a one."""

    count: int = 16

    def setup(self) -> None:
        super().setup()
        if self.count < 2:
            raise ValueError(f"sampling.OneHotSkill: count must be >= 2, found {self.count}")

    def width(self, dimensions: int | None) -> int:
        return self.count

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return torch.nn.functional.one_hot(torch.randint(width, (count,), generator=generator), width).float()


class LastAction(PolicyInput):
    """The action before, in the environment's units; 0 at the beginning of an episode."""

    name: str = "last_action"

    def width(self, dimensions: int | None) -> int:
        if dimensions is None:
            raise ValueError("sampling.LastAction: the environment's actions are choices; it needs those of a Box")
        return dimensions

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return torch.zeros(count, width)

    def after(self, value: Tensor, action: Tensor) -> Tensor:
        return action.to(value)


class FixedInput(PolicyInput):
    """The same vector in every episode.

    value: its numbers.
    """

    value: tuple[float, ...] = (0.0,)

    def width(self, dimensions: int | None) -> int:
        return len(self.value)

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return torch.tensor(self.value).expand(count, width)


def policy_input_of(sampling: Part) -> PolicyInput | None:
    """Returns what the policy reads beside the observation; None for a sampling part that has no such setting."""
    found: PolicyInput | None = getattr(sampling, "policy_input", None)
    return found


def on_sphere(vectors: Tensor, radius: float | None = None) -> Tensor:
    """Scales vectors [..., K] to a length; None is sqrt(K)."""
    size = vectors.shape[-1] ** 0.5 if radius is None else radius
    return size * torch.nn.functional.normalize(vectors, dim=-1)
