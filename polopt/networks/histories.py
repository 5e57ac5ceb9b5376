"""Actors that read what happened before through a latent vector."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from polopt.networks.parts import Space
from polopt.networks.perceptron import Activation, perceptron
from polopt.networks.trunks import Trunk

# What a policy with such an actor can be asked for beside the law of its decisions.
LATENT_OUTPUTS = frozenset(
    f"extras.{name}" for name in ("latent_mean", "latent_log_std", "predicted_features", "privileged_features")
)


class Latent(NamedTuple):
    """The law N(mean, exp(log_std)^2) of a latent vector, [..., Z] each, and the prediction [..., F] from a sample."""

    mean: Tensor
    log_std: Tensor
    predicted: Tensor


class HistoryActor(nn.Module):
    """An actor pi(a | s, z), z = mu(h) + sigma(h) eps, with s, h and eps in this order in what it reads.

    encoder: of h, to mu and log sigma. acting: of s and z. predictor: of z, to features of what h tells.
    observations: numbers in s. latent: numbers in z, and in eps.
    """

    def __init__(
        self, encoder: nn.Module, acting: nn.Module, predictor: nn.Module, observations: int, latent: int
    ) -> None:
        super().__init__()
        self.encoder, self.acting, self.predictor = encoder, acting, predictor
        self.observations, self.latent = observations, latent

    def forward(self, seen: Tensor) -> Tensor:
        """Returns the outputs [..., outputs]."""
        found: Tensor = self.acting(torch.cat([seen[..., : self.observations], self._sample(seen)[0]], -1))
        return found

    def encoded(self, seen: Tensor) -> Latent:
        """Returns the latent vector's law, and what is predicted from the sample that the actor acts by."""
        sample, mean, log_std = self._sample(seen)
        return Latent(mean, log_std, self.predictor(sample))

    def _sample(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        history, noise = seen[..., self.observations : -self.latent], seen[..., -self.latent :]
        mean, log_std = self.encoder(history).chunk(2, -1)
        log_std = log_std.clamp(-10.0, 2.0)
        return mean + log_std.exp() * noise, mean, log_std


class PrivilegedValue(nn.Module):
    """A value V(s, f(p)) of the observation s and of features of the privileged state p, which are behind s in what it
    reads.

    encoder: f. value: of s and f(p). observations, privileged: numbers in s and in p.
    """

    def __init__(self, encoder: nn.Module, value: nn.Module, observations: int, privileged: int) -> None:
        super().__init__()
        self.encoder, self.value = encoder, value
        self.observations, self.privileged = observations, privileged

    def forward(self, seen: Tensor) -> Tensor:
        """Returns the values [..., 1]."""
        features = self.encoder(seen[..., -self.privileged :])
        found: Tensor = self.value(torch.cat([seen[..., : self.observations], features], -1))
        return found


class HistoryEncoder(Trunk):
    """A policy that acts by the observation and a latent vector of what happened before, pi(a | s, z), with

        z = mu(h) + sigma(h) eps,  eps ~ N(0, I)

    and a value V(s, f(p)) of the privileged state p, where the environment tells it, else V(s, h, eps). Without `input`
    among the policy's inputs, an error says so.

    input: name of the policy's input that holds h and eps, a `sampling.EpisodeHistory` with `latent` numbers of noise.
    latent: numbers in z. features: numbers in f(p), and in what is predicted from z.
    encoder: widths of the encoder of h, and of f. hidden: of pi and V. activation: between layers.

    Source: He et al. 2023, arXiv 2305.18464, whose networks are unknown to us; these are ours.
    """

    input: str = "history"
    latent: int = 8
    features: int = 16
    encoder: tuple[int, ...] = (128, 64)
    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "tanh"

    normalised = False

    def setup(self) -> None:
        if self.latent < 1 or self.features < 2:
            raise ValueError(
                f"networks.HistoryEncoder: need latent >= 1 and features >= 2, found {self.latent} and {self.features}"
            )

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        names = tuple(name for name, _ in space.inputs)
        if names != (self.input,) or space.width_of(names) <= self.latent:
            raise ValueError(
                f"networks.HistoryEncoder: it reads what happened before, and the policy's inputs are "
                f"{dict(space.inputs) or 'none'}; set sampling.policy_input to sampling.EpisodeHistory with name = "
                f"{self.input} and noise = {self.latent}"
            )
        D, width = space.observations, space.width_of(names) - self.latent
        encoder = perceptron([width, *self.encoder, 2 * self.latent], self.activation, 1.0, generator)
        acting = perceptron([D + self.latent, *self.hidden, outputs], self.activation, 0.01, generator)
        predictor = perceptron([self.latent, *self.encoder[-1:], self.features], self.activation, 1.0, generator)
        return HistoryActor(encoder, acting, predictor, D, self.latent)

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        D = space.observations
        if not space.privileged:
            return perceptron([D + space.width_of([self.input]), *self.hidden, 1], self.activation, 1.0, generator)
        encoder = perceptron([space.privileged, *self.encoder[-1:], self.features], self.activation, 1.0, generator)
        value = perceptron([D + self.features, *self.hidden, 1], self.activation, 1.0, generator)
        return PrivilegedValue(encoder, value, D, space.privileged)
