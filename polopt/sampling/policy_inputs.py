"""Inputs of a policy beside the observation: a skill, a task, the last action, what happened before."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from polopt.part import Part
from polopt.schedules import Schedule, now


class PolicySizes(Protocol):
    """The numbers in a policy's observations, D, and its choices, n, or the numbers in its actions, A."""

    @property
    def observations(self) -> int: ...
    @property
    def actions(self) -> int | None: ...
    @property
    def dimensions(self) -> int | None: ...


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

    @property
    def changes(self) -> bool:
        """Tests whether decisions change the vector."""
        return type(self).after is not PolicyInput.after

    def width(self, sizes: PolicySizes) -> int:
        """Returns K. sizes: of the policy, as `networks.Space`."""
        raise NotImplementedError

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        """Draws the vectors, [count, K], of so many episodes that begin."""
        raise NotImplementedError

    def after(self, value: Tensor, observation: Tensor, action: Tensor, generator: Generator, policy: Any) -> Tensor:
        """Returns the vectors [..., K] after decisions, [..., A] in the environment's units or choices [...], of a
        policy at observations [..., D]."""
        return value

    def most_likely(self, value: Tensor) -> Tensor:
        """Returns the vectors [..., K] that a policy reads while it takes its most likely actions."""
        return value

    def metrics(self, value: Tensor) -> dict[str, float]:
        """Returns what the log of a run shows of vectors [N, K] that are read."""
        return {}


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

    def width(self, sizes: PolicySizes) -> int:
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

    def width(self, sizes: PolicySizes) -> int:
        return self.count

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return torch.nn.functional.one_hot(torch.randint(width, (count,), generator=generator), width).float()


class LastAction(PolicyInput):
    """The action before, in the environment's units; 0 at the beginning of an episode."""

    name: str = "last_action"

    def width(self, sizes: PolicySizes) -> int:
        if sizes.dimensions is None:
            raise ValueError("sampling.LastAction: the environment's actions are choices; it needs those of a Box")
        return sizes.dimensions

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return torch.zeros(count, width)

    def after(self, value: Tensor, observation: Tensor, action: Tensor, generator: Generator, policy: Any) -> Tensor:
        return action.to(value)


class EpisodeHistory(PolicyInput):
    """The last `length` observations and actions of the episode, the latest at the end, zeros where it had not begun.

    An action is as the policy took it, a choice a one-hot vector. After them come `noise` standard normal numbers,
    drawn anew for each decision, so that a policy that samples from what it read is a function of what it reads; they
    are 0 for its most likely actions.

    length: decisions. noise: numbers.
    """

    name: str = "history"
    length: int = 8
    noise: int = 0

    def setup(self) -> None:
        super().setup()
        if self.length < 1 or self.noise < 0:
            raise ValueError(
                f"sampling.EpisodeHistory: need length >= 1 and noise >= 0, found {self.length} and {self.noise}"
            )

    def width(self, sizes: PolicySizes) -> int:
        return self.length * (sizes.observations + (sizes.dimensions or sizes.actions or 0)) + self.noise

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        drawn = torch.randn(count, self.noise, generator=generator)
        return torch.cat([torch.zeros(count, width - self.noise), drawn], 1)

    def after(self, value: Tensor, observation: Tensor, action: Tensor, generator: Generator, policy: Any) -> Tensor:
        window = value[..., : value.shape[-1] - self.noise]
        each = window.shape[-1] // self.length
        if not action.is_floating_point():
            action = torch.nn.functional.one_hot(action, each - observation.shape[-1])
        drawn = torch.randn(*value.shape[:-1], self.noise, generator=generator).to(value)
        return torch.cat([window[..., each:], observation.to(value), action.to(value), drawn], -1)

    def most_likely(self, value: Tensor) -> Tensor:
        window, drawn = value.tensor_split([value.shape[-1] - self.noise], -1)
        return torch.cat([window, torch.zeros_like(drawn)], -1)


class Memory(PolicyInput):
    """The memories of a policy and of its value, as `networks.Recurrent` has them: 0 when an episode begins.

    units: numbers in each of the two.
    """

    name: str = "memory"
    units: int = 64

    def setup(self) -> None:
        super().setup()
        if self.units < 1:
            raise ValueError(f"sampling.Memory: units must be >= 1, found {self.units}")

    def width(self, sizes: PolicySizes) -> int:
        return 2 * self.units

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return torch.zeros(count, width)

    def after(self, value: Tensor, observation: Tensor, action: Tensor, generator: Generator, policy: Any) -> Tensor:
        with torch.no_grad():
            found: Tensor = policy.remember(value, observation, action)
            return found


class BernoulliInput(PolicyInput):
    """1 with probability `chance`, else 0, drawn anew for each decision; 0 for the policy's most likely actions.

    chance: a number or a schedule, from 0 to 1.
    """

    name: str = "masked"
    chance: float | Schedule = 0.5

    def setup(self) -> None:
        super().setup()
        values = [v for _, v in self.chance.knots] if isinstance(self.chance, Schedule) else [self.chance]
        if not all(0 <= value <= 1 for value in values):
            raise ValueError(f"sampling.BernoulliInput: chance must be in [0, 1], found {values}")

    def width(self, sizes: PolicySizes) -> int:
        return 1

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return (torch.rand(count, 1, generator=generator) < now(self.chance)).float()

    def after(self, value: Tensor, observation: Tensor, action: Tensor, generator: Generator, policy: Any) -> Tensor:
        return (torch.rand(value.shape, generator=generator) < now(self.chance)).to(value)

    def most_likely(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value)

    def metrics(self, value: Tensor) -> dict[str, float]:
        return {self.name: float(value.mean())}


class FixedInput(PolicyInput):
    """The same vector in every episode.

    value: its numbers.
    """

    value: tuple[float, ...] = (0.0,)

    def width(self, sizes: PolicySizes) -> int:
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
