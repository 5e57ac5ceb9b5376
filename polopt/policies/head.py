"""The kind of part that determines the distribution of a decision from a network's outputs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Generator, Tensor, nn

from polopt.errors import UserError
from polopt.support import Density, Support

HeadName = Literal[
    "categorical", "gaussian", "squashed_gaussian", "beta", "dirichlet", "deterministic", "action_values"
]
Law = tuple[Tensor, ...]


class HeadError(UserError, ValueError):
    """A head cannot compute what is needed of it. The message names the head and another one."""


class Action(NamedTuple):
    """A decision for each of N environments.

    action: [N] int64, or [N, A].
    logp: [N], its log-probability or log-density.
    """

    action: Tensor
    logp: Tensor


class Head(nn.Module):
    """A family of distributions over decisions. A law is the tuple of its parameters, each [..., A] or [..., n].

    outputs: numbers that the network gives.
    free_std: whether the logarithm of the standard deviation, [A], is a parameter of the policy that no state changes.
    reparameterised: whether a sample is a differentiable function of the law.
    stochastic: whether decisions have log-probabilities; those of a head without are 0, without meaning.
    support: of its log-probabilities; log-densities may be above 0.
    noise_apart: whether a sample is a function of the law and of noise that is drawn without it.
    whole_box: whether any action of the space is one of the head's.
    takes_interval: whether it acts within an interval of the box that an actor determines by the state.
    """

    name: HeadName
    outputs: int
    free_std = False
    reparameterised = True
    stochastic = True
    noise_apart = True
    support: Support = Density()
    whole_box = True
    takes_interval = False

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        """Returns the law for network outputs [..., outputs], behind which an actor with an interval gives its ends.
        legal: [..., n] bool, the choices that may be taken."""
        raise NotImplementedError

    def sample(self, law: Law, generator: Generator) -> Action:
        """Samples a decision of each law."""
        raise NotImplementedError

    def limits(self, law: Law) -> tuple[Tensor, Tensor] | None:
        """Returns the ends [..., A] of the interval of actions that a state determines, if there is one."""
        return None

    def mode(self, law: Law) -> Tensor:
        """Returns the decision of the largest probability or density; of a squashed Gaussian, the squashed mean."""
        raise NotImplementedError

    def logp(self, law: Law, action: Tensor) -> Tensor:
        """Returns the log-probability or log-density [...] of decisions."""
        raise NotImplementedError

    def entropy(self, law: Law) -> Tensor:
        """Returns the entropy [...] in nats.

        Raises:
            HeadError: the head has none in closed form.
        """
        raise HeadError(
            f"the entropy of a {self.name} head has no closed form; set the objective's entropy to 0, or policy.head "
            "to beta"
        )

    def divergence(self, old: Law, new: Law) -> Tensor:
        """Returns KL(old || new) [...] in nats.

        Raises:
            HeadError: the head's decisions have no density.
        """
        raise HeadError(f"a {self.name} head has no densities, and so no divergence; set policy.head to another one")
