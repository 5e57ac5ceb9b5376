"""Penalties on the values of actions that a log does not hold, and their price."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.network_losses import NetworkObjective
from polopt.objectives.parts import Aggregate, Regulariser
from polopt.objectives.targets import evaluated
from polopt.outputs import NetworkOutput, Proposal
from polopt.schedules import Schedule, now


class ConservativePenalty(Regulariser):
    """price * sum_h (log integral exp Q_h(s, a) da - Q_h(s, a_logged)), over the heads of a critic. The integral over
    actions is estimated by importance sampling,

        logsumexp over i of  Q_h(s, a_i) - log q_i(a_i)

    with `samples` actions each of the uniform law, of the policy at s and of the policy at s_next; the log of their
    number is left out, as it moves no gradient. Actions are scaled from their bounds to [-1, 1], and have no gradient.

    critic: the network Q.
    samples: of each law.
    price: a network of a positive number, without gradient here; None is 1.

    Source: Kumar et al. 2020, arXiv 2006.04779, equation 4 and appendix F.
    """

    coefficient: float | Schedule = 5.0
    critic: str = "critic"
    samples: int = 10
    price: str | None = None

    def setup(self) -> None:
        if self.samples < 1:
            raise ValueError(f"objectives.ConservativePenalty: samples must be >= 1, found {self.samples}")

    @property
    def _laws(self) -> tuple[Proposal, ...]:
        n = self.samples
        return Proposal(draws=n, of="uniform"), Proposal(draws=n), Proposal(draws=n, after=True)

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        names = (self.critic, "logp")
        drawn = {NetworkOutput(name, proposal=law).name for law in self._laws for name in names}
        price = set[str]() if self.price is None else {NetworkOutput(self.price).name}
        return frozenset(drawn | price | {NetworkOutput(self.critic).name})

    def gaps(self, evaluation: Evaluation) -> Tensor:
        """Returns [B, T, H]: the log of the integral less the logged action's value."""
        terms = []
        for law in self._laws:
            logp = evaluated(evaluation, NetworkOutput("logp", proposal=law)).detach()
            terms.append(evaluated(evaluation, NetworkOutput(self.critic, proposal=law)) - logp[..., None])
        return torch.cat(terms, 2).logsumexp(2) - evaluated(evaluation, NetworkOutput(self.critic))

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        gap = self.gaps(evaluation).sum(-1)
        return gap if self.price is None else evaluated(evaluation, NetworkOutput(self.price)).detach() * gap


class ConservativeChoicePenalty(Regulariser):
    """sum_h (log sum_a exp Q_h(s, a) - Q_h(s, a_logged)), over all choices a.

    critic: the network Q; "policy" is a policy whose outputs are the choices' values.

    Source: Kumar et al. 2020, arXiv 2006.04779, equation 4.
    """

    critic: str = "policy"

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.critic).name, self._every.name})

    @property
    def _every(self) -> NetworkOutput:
        return NetworkOutput(self.critic, proposal=Proposal(of="every"))

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        logged = evaluated(evaluation, NetworkOutput(self.critic))
        return (evaluated(evaluation, self._every).logsumexp(2) - logged).sum(-1)


class ConservativePrice(NetworkObjective):
    """aggregate( -price coefficient (mean_h gap_h - threshold) ): the price of a penalty rises where the gap between
    the integral and the logged action's value is above the threshold, and falls below it.

    penalty: whose gap and coefficient they are.
    price: the network of the price.
    threshold: tau, in units of Q. The gap is that of the penalty, log (3 samples) above that of the integral.

    Source: Kumar et al. 2020, arXiv 2006.04779, appendix F.
    """

    penalty: ConservativePenalty = ConservativePenalty()
    price: str = "price"
    threshold: float = 10.0
    aggregate: Aggregate = TokenMean()

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.price).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        price = evaluated(evaluation, NetworkOutput(self.price))
        gap = self.penalty.gaps(evaluation).detach().mean(-1)
        terms = -price * now(self.penalty.coefficient) * (gap - self.threshold)
        with torch.no_grad():
            metrics = {"value": self.aggregate(experience, price), "gap": self.aggregate(experience, gap)}
        return Loss(self.aggregate(experience, terms), metrics)


class ActionRegression(NetworkObjective):
    """aggregate( |a - pi(s)|^2 / A ): the squared distance of the policy's action from the logged one, scaled from
    their bounds to [-1, 1], a mean over the dimensions."""

    aggregate: Aggregate = TokenMean()

    tags = frozenset({"update_rule=sft"})
    policy_outputs = frozenset({NetworkOutput("action").name, NetworkOutput("action", proposal=Proposal()).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation = evaluation.zero_masked(experience.mask)
        logged, own = (evaluated(evaluation, NetworkOutput("action", proposal=p)) for p in (None, Proposal()))
        return Loss(self.aggregate(experience, (own - logged.detach()).square().mean(-1)), {})
