"""Heads: the distributions of a decision that a network's outputs determine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from polopt.policies.densities import log_beta, log_shares, normal_divergence, normal_logp, sample_dirichlet
from polopt.policies.head import Action, Head, HeadError, HeadName, Law
from polopt.support import PLAIN
from polopt.updates import categorical_divergence

# The logarithm of the standard deviation is kept in this range.
LOG_STD = (-20.0, 2.0)
# Actions are kept this far inside of their bounds, as a fraction of the range, where a density has to be computed.
MARGIN = 1e-6


class Categorical(Head):
    """One of n choices, with p proportional to exp(logits) over the legal ones."""

    name = "categorical"
    reparameterised = False
    support = PLAIN

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.outputs = actions

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        if legal is not None:  # not -inf: a probability of 0 times it is not a number
            output = torch.where(legal, output, torch.finfo(output.dtype).min)
        return (output.log_softmax(-1),)

    def sample(self, law: Law, generator: Generator) -> Action:
        (log_p,) = law
        noise = torch.rand(log_p.shape, generator=generator).clamp(min=1e-20).to(log_p)
        choice = (log_p - (-noise.log()).log()).argmax(-1)  # Gumbel's maximum
        return Action(choice, self.logp(law, choice))

    def mode(self, law: Law) -> Tensor:
        return law[0].argmax(-1)

    def logp(self, law: Law, action: Tensor) -> Tensor:
        return law[0].gather(-1, action[..., None])[..., 0]

    def entropy(self, law: Law) -> Tensor:
        (log_p,) = law
        return -(log_p.exp() * log_p).sum(-1)

    def divergence(self, old: Law, new: Law) -> Tensor:
        return categorical_divergence(old[0], new[0])


class ChoiceValues(Head):
    """The values Q(s, .) of n choices, of which the largest legal one is taken. Its logp is 0, without meaning."""

    name = "action_values"
    reparameterised = False
    stochastic = False
    support = PLAIN

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.outputs = actions

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        if legal is not None:
            output = torch.where(legal, output, torch.finfo(output.dtype).min)
        return (output,)

    def sample(self, law: Law, generator: Generator) -> Action:
        choice = self.mode(law)
        return Action(choice, self.logp(law, choice))

    def mode(self, law: Law) -> Tensor:
        return law[0].argmax(-1)

    def logp(self, law: Law, action: Tensor) -> Tensor:
        return law[0].new_zeros(action.shape)


class Gaussian(Head):
    """A mean that depends on the state and a standard deviation that does not; dimensions are independent."""

    name = "gaussian"
    free_std = True

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.outputs = dimensions

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        assert log_std is not None
        return output, log_std.clamp(*LOG_STD)

    def sample(self, law: Law, generator: Generator) -> Action:
        mean, log_std = law
        action = mean + log_std.exp() * torch.randn(mean.shape, generator=generator).to(mean)
        return Action(action, self.logp(law, action))

    def mode(self, law: Law) -> Tensor:
        return law[0]

    def logp(self, law: Law, action: Tensor) -> Tensor:
        return normal_logp(action, *law)

    def entropy(self, law: Law) -> Tensor:
        mean, log_std = law
        return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum().expand(mean.shape[:-1])

    def divergence(self, old: Law, new: Law) -> Tensor:
        return normal_divergence(old, new)


class Bounded(Head):
    """A head over a box: an action is low + (high - low) x of some x in [0, 1]^A.

    low, high: [A], finite.

    Raises:
        HeadError: a bound is not finite.
    """

    low: Tensor
    range: Tensor

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__()
        if not all(map(math.isfinite, (*low, *high))):
            raise HeadError(
                f"policy.head = {self.name!r} needs an action space with finite bounds, found {[*low]!s:.60} to "
                f"{[*high]!s:.60}; set it to gaussian"
            )
        bounds = torch.tensor([[*low], [*high]])
        self.register_buffer("low", bounds[0], persistent=False)
        self.register_buffer("range", bounds[1] - bounds[0], persistent=False)

    def _scaled(self, x: Tensor) -> Tensor:
        return self.low + self.range * x

    def _position(self, action: Tensor) -> Tensor:
        """Returns x in (0, 1), kept off the ends."""
        return ((action - self.low) / self.range).clamp(MARGIN, 1 - MARGIN)


class SquashedGaussian(Bounded):
    """The hyperbolic tangent of a Gaussian u, scaled to the box's bounds; mean and spread depend on the state.

        log p(a) = log N(u) - sum of (log(range / 2) + 2 (log 2 - u - softplus(-2 u)))

    of which the last is log(1 - tanh(u)^2) without cancellation. Source: Haarnoja et al. 2018, appendix C. The
    log-density of a sample is computed from its own u; that of a given action from the inverse, kept `MARGIN` off the
    bounds.
    """

    name = "squashed_gaussian"

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__(low, high)
        self.outputs = 2 * len(low)

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        mean, spread = output.chunk(2, -1)
        return mean, spread.clamp(*LOG_STD)

    def sample(self, law: Law, generator: Generator) -> Action:
        mean, log_std = law
        u = mean + log_std.exp() * torch.randn(mean.shape, generator=generator).to(mean)
        return Action(self._scaled((u.tanh() + 1) / 2), self._density(law, u))

    def mode(self, law: Law) -> Tensor:
        return self._scaled((law[0].tanh() + 1) / 2)

    def logp(self, law: Law, action: Tensor) -> Tensor:
        x = self._position(action)
        return self._density(law, (x.log() - (-x).log1p()) / 2)

    def divergence(self, old: Law, new: Law) -> Tensor:
        return normal_divergence(old, new)  # the hyperbolic tangent changes both alike

    def _density(self, law: Law, u: Tensor) -> Tensor:
        return normal_logp(u, *law) - ((self.range / 2).log() + 2 * (math.log(2) - u - softplus(-2 * u))).sum(-1)


class Beta(Bounded):
    """Beta distributions with parameters 1 + softplus(output), > 1, scaled to the box's bounds.

    Source: Chou, Maturana and Scherer 2017.
    """

    name = "beta"
    noise_apart = False

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__(low, high)
        self.outputs = 2 * len(low)

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        return (1 + softplus(output)).chunk(2, -1)

    def sample(self, law: Law, generator: Generator) -> Action:
        x = sample_dirichlet(torch.stack(law, -1), generator)[..., 0]
        action = self._scaled(x.clamp(MARGIN, 1 - MARGIN))
        return Action(action, self.logp(law, action))

    def mode(self, law: Law) -> Tensor:
        alpha, beta = law
        return self._scaled((alpha - 1) / (alpha + beta - 2))

    def logp(self, law: Law, action: Tensor) -> Tensor:
        alpha, beta = law
        x = self._position(action)
        density = (alpha - 1) * x.log() + (beta - 1) * (-x).log1p() - log_beta(alpha, beta)
        return (density - self.range.log()).sum(-1)

    def entropy(self, law: Law) -> Tensor:
        alpha, beta = law
        total = alpha + beta
        pulls = (alpha - 1) * alpha.digamma() + (beta - 1) * beta.digamma() - (total - 2) * total.digamma()
        return (log_beta(alpha, beta) - pulls + self.range.log()).sum(-1)

    def divergence(self, old: Law, new: Law) -> Tensor:
        (a, b), (c, d) = old, new
        pulls = (a - c) * a.digamma() + (b - d) * b.digamma() + (c - a + d - b) * (a + b).digamma()
        return (log_beta(c, d) - log_beta(a, b) + pulls).sum(-1)


class Dirichlet(Head):
    """A Dirichlet distribution with concentrations 1 + softplus(output), > 1: shares of a whole, >= 0 with sum 1.

    The density is with regard to the first A - 1 shares. A given action is divided by its sum first.

    Raises:
        HeadError: the box is not [0, 1]^A with A >= 2.
    """

    name = "dirichlet"
    noise_apart = False
    whole_box = False

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__()
        if len(low) < 2 or any(low) or any(bound != 1 for bound in high):
            raise HeadError(
                f"policy.head = 'dirichlet' needs two shares or more, each from 0 to 1, found {[*low]!s:.60} to "
                f"{[*high]!s:.60}; set it to beta"
            )
        self.outputs = len(low)

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        return (1 + softplus(output),)

    def sample(self, law: Law, generator: Generator) -> Action:
        action = sample_dirichlet(law[0], generator)
        return Action(action, self.logp(law, action))

    def mode(self, law: Law) -> Tensor:
        return (law[0] - 1) / (law[0] - 1).sum(-1, keepdim=True)

    def logp(self, law: Law, action: Tensor) -> Tensor:
        (alpha,) = law
        x = action.clamp(min=MARGIN)
        x = x / x.sum(-1, keepdim=True)
        return ((alpha - 1) * x.log()).sum(-1) - log_shares(alpha)

    def entropy(self, law: Law) -> Tensor:
        (alpha,) = law
        total = alpha.sum(-1)
        pulls = (total - alpha.shape[-1]) * total.digamma() - ((alpha - 1) * alpha.digamma()).sum(-1)
        return log_shares(alpha) + pulls


class Deterministic(Bounded):
    """One action in each state: tanh of the output, scaled to the bounds of the box, or of an interval in it. Its logp
    is 0, without meaning."""

    name = "deterministic"
    stochastic = False
    takes_interval = True

    def __init__(self, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__(low, high)
        self.outputs = len(low)

    def law(self, output: Tensor, log_std: Tensor | None = None, legal: Tensor | None = None) -> Law:
        return output.chunk(output.shape[-1] // self.outputs, -1)

    def sample(self, law: Law, generator: Generator) -> Action:
        action = self.mode(law)
        return Action(action, self.logp(law, action))

    def limits(self, law: Law) -> tuple[Tensor, Tensor] | None:
        return (law[1], law[2]) if len(law) == 3 else None

    def mode(self, law: Law) -> Tensor:
        x, limits = (law[0].tanh() + 1) / 2, self.limits(law)
        return self._scaled(x) if limits is None else limits[0] + (limits[1] - limits[0]) * x

    def logp(self, law: Law, action: Tensor) -> Tensor:
        return action.new_zeros(action.shape[:-1])


def head_of(name: HeadName, actions: int | None, low: Sequence[float] | None, high: Sequence[float] | None) -> Head:
    """Returns a head. actions: the number of choices, None for a box. low, high: the bounds of a box, [A].

    Raises:
        HeadError: the head is not one for such actions.
    """
    if (name in ("categorical", "action_values")) != (actions is not None):
        found, fix = ("a box", "gaussian") if actions is None else (f"{actions} choices", "categorical")
        raise HeadError(f"policy.head = {name!r} does not fit the environment's actions, {found}; set it to {fix}")
    if actions is not None:
        return ChoiceValues(actions) if name == "action_values" else Categorical(actions)
    assert low is not None
    assert high is not None
    if name == "gaussian":
        return Gaussian(len(low))
    heads: dict[str, Any] = {"squashed_gaussian": SquashedGaussian, "beta": Beta, "deterministic": Deterministic}
    heads["dirichlet"] = Dirichlet
    made: Head = heads[name](low, high)
    return made
