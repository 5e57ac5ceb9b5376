"""Losses of networks beside the policy, and of policies that climb a network's value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import check_shape
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.parts import Aggregate, Objective, Regulariser, Weight, full_batch_of
from polopt.objectives.surrogate import regularised
from polopt.objectives.targets import Backup, Over, Target, entropy_cost, entropy_outputs, evaluated, over_heads
from polopt.outputs import NetworkOutput, Proposal
from polopt.part import Part

# What learns by the value of a proposed action.
Learns = Literal["policy", "balance"]
NOW = Proposal()
NEXT_OBSERVATION = NetworkOutput("observation", next=True)


class NetworkObjective(Objective):
    """An objective that reads outputs of networks, and not the policy's log-probability of the logged decisions."""

    reads_logp: ClassVar[bool] = False


class Error(Part):
    """`error(difference) -> terms` of the same shape: of a target less a prediction."""

    def forward(self, difference: Tensor) -> Tensor:
        raise NotImplementedError


class SquaredError(Error):
    """coefficient * u^2."""

    coefficient: float = 1.0

    def forward(self, difference: Tensor) -> Tensor:
        return self.coefficient * difference.square()


class HuberError(Error):
    """u^2 / 2 up to delta, and delta (|u| - delta / 2) beyond it."""

    delta: float = 1.0

    def setup(self) -> None:
        if not self.delta > 0:
            raise ValueError(f"objectives.HuberError: delta must be > 0, found {self.delta}")

    def forward(self, difference: Tensor) -> Tensor:
        return torch.nn.functional.huber_loss(
            difference, torch.zeros_like(difference), reduction="none", delta=self.delta
        )


class ExpectileError(Error):
    """|expectile - 1[u < 0]| u^2: with an expectile above 1/2, predictions that are too low cost more.

    Source: Kostrikov, Nair and Levine 2021, arXiv 2110.06169.
    """

    expectile: float = 0.7

    def setup(self) -> None:
        if not 0 < self.expectile < 1:
            raise ValueError(f"objectives.ExpectileError: expectile must be in (0, 1), found {self.expectile}")

    def forward(self, difference: Tensor) -> Tensor:
        return torch.where(difference < 0, 1 - self.expectile, self.expectile) * difference.square()


class NetworkRegression(NetworkObjective):
    """aggregate( prod weights sum_h error(target - Q_h(s, a)) ) + sum coefficient * aggregate(regulariser), over the
    heads of a network at the logged decisions.

    network: which one; of values of a state it is V(s).
    target: without gradient.
    error: of the difference.
    weights: factors without gradient.
    """

    tags = frozenset({"update_rule=regression"})

    network: str = "critic"
    target: Target = Backup()
    error: Error = SquaredError()
    weights: Sequence[Weight] = ()
    regularise: Sequence[Regulariser] = ()
    aggregate: Aggregate = TokenMean()

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.network).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        predicted = evaluated(evaluation, NetworkOutput(self.network))
        heads = predicted if predicted.ndim == 3 else predicted[..., None]
        target = check_shape(self.target(experience, evaluation), experience.mask, self.target).detach()
        terms = self.error(target[..., None].to(heads) - heads).sum(-1)
        for weight in self.weights:
            terms = terms * weight(experience, evaluation).detach().to(terms)
        with torch.no_grad():
            metrics = {
                "value": self.aggregate(experience, heads.mean(-1)),
                "target": self.aggregate(experience, target),
            }
        added, found = regularised(self.regularise, self.aggregate, experience, evaluation)
        return Loss(self.aggregate(experience, terms) + added, metrics | found)


class ModelRegression(NetworkObjective):
    """aggregate( |m(s, a) - s_next|^2 / D ), the squared error of a model of the state after a decision, of the numbers
    that networks read.

    network: the model, of as many outputs as an observation has numbers.
    """

    tags = frozenset({"update_rule=regression"})

    network: str = "model"
    aggregate: Aggregate = TokenMean()

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.network).name, NEXT_OBSERVATION.name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation = evaluation.zero_masked(experience.mask)
        predicted, found = (evaluated(evaluation, output) for output in (NetworkOutput(self.network), NEXT_OBSERVATION))
        return Loss(self.aggregate(experience, (predicted - found.detach()).square().mean(-1)), {})


class TemperatureLoss(NetworkObjective):
    """aggregate( -log alpha (log pi(a | s) + target) ) with a an action of the policy: alpha rises where the entropy is
    below the target.

    temperature: the network alpha.
    target: entropy in nats; None takes minus the number of an action's dimensions.
    sequence: actions of the policy in turn, whose mean of log pi counts; 0 is one action. model, of: as in
        `ValueAscent`.

    Source: Haarnoja et al. 2018, arXiv 1812.05905, with log alpha in the place of alpha, as in the authors' program.
    """

    temperature: str = "temperature"
    target: float | None = None
    sequence: int = 0
    model: str = ""
    of: Learns = "policy"
    aggregate: Aggregate = TokenMean()

    @property
    def _logp(self) -> NetworkOutput:
        return NetworkOutput("logp", proposal=Proposal(sequence=self.sequence, model=self.model, of=self.of))

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(o.name for o in (NetworkOutput(self.temperature), self._logp, NetworkOutput("action")))

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        mask, logp = experience.mask, evaluated(evaluation, self._logp).detach()
        logp = torch.where(mask, logp.mean(-1) if self.sequence else logp, 0)
        alpha = torch.where(mask, evaluated(evaluation, NetworkOutput(self.temperature)), 1)
        dimensions = evaluated(evaluation, NetworkOutput("action")).shape[-1]
        target = -float(dimensions) if self.target is None else self.target
        terms = -alpha.log() * (logp + target)
        with torch.no_grad():
            metrics = {"value": self.aggregate(experience, alpha), "entropy": self.aggregate(experience, -logp)}
        return Loss(self.aggregate(experience, terms), metrics)


class ValueAscent(NetworkObjective):
    """aggregate( alpha log pi(a | s) - c min_h Q_h(s, a) ) + sum coefficient * aggregate(regulariser), with a an action
    of the policy, through which the gradient flows.

    critic: the network Q.
    over: what is taken of its heads.
    temperature: the network alpha, or a number; 0 leaves the entropy out.
    scale: c = scale / mean |Q| over the whole batch, without gradient; None is c = 1.
    sequence: J actions of the policy in turn after one look at the state, each at the state that a model says the ones
        before it lead to; the terms are summed. 0 is one action.
    model: the network of the state after a decision, whose target copy is read, without gradient.
    of: "balance" for an action at a balance beta that the policy chooses, log pi_b(beta | s) in the place of
        log pi(a | s), and a gradient in the choice alone.
    """

    critic: str = "critic"
    over: Over = "min"
    temperature: str | float = 0.0
    scale: float | None = None
    sequence: int = 0
    model: str = ""
    of: Learns = "policy"
    regularise: Sequence[Regulariser] = ()
    aggregate: Aggregate = TokenMean()

    def setup(self) -> None:
        if self.scale is not None and not self.scale > 0:
            raise ValueError(f"objectives.ValueAscent: scale must be > 0, found {self.scale}")
        if self.sequence < 0 or bool(self.sequence) != bool(self.model):
            raise ValueError(
                f"objectives.ValueAscent: a sequence needs the name of a model, and a model a sequence >= 1, found "
                f"sequence = {self.sequence} and model = {self.model!r}"
            )
        proposal = Proposal(sequence=self.sequence, model=self.model, of=self.of)
        self._value = NetworkOutput(self.critic, proposal=proposal)
        self._logp = NetworkOutput("logp", proposal=proposal)

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self._value.name}) | entropy_outputs(self.temperature, self._logp)

    @property
    def full_batch_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self._value.name} if self.scale is not None else set[str]())

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        value = over_heads(evaluated(evaluation, self._value), self.over)
        cost = entropy_cost(self.temperature, self._logp, evaluation, value)
        factor: Tensor | float = 1.0
        if self.scale is not None:
            whole, known = full_batch_of(experience)
            size = over_heads(evaluated(known, self._value), self.over).abs()
            factor = self.scale / ops.masked_mean(size, whole.mask).clamp(min=1e-8).to(value)
        terms = cost - factor * value
        if self.sequence:
            terms, value = terms.sum(-1), value.mean(-1)
        loss = self.aggregate(experience, terms)
        with torch.no_grad():
            metrics = {"value": self.aggregate(experience, value)}
        added, found = regularised(self.regularise, self.aggregate, experience, evaluation)
        return Loss(loss + added, metrics | found)


class ProposedActionError(Regulariser):
    """|a - pi(s)|^2 / A: the squared distance of the policy's action from the logged one, scaled from their bounds to
    [-1, 1], a mean over the dimensions.

    Source: Fujimoto and Gu 2021, arXiv 2106.06860.
    """

    policy_outputs = frozenset({NetworkOutput("action").name, NetworkOutput("action", proposal=NOW).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        logged, proposed = (evaluated(evaluation, NetworkOutput("action", proposal=p)) for p in (None, NOW))
        return (proposed - logged.detach()).square().mean(-1)


class NetworkAdvantageWeight(Weight):
    """min(exp(beta (Q(s, a) - V(s))), cap), with Q of a critic's target copy.

    critic: the network Q.
    value: the network V; None takes Q at an action of the policy.
    beta: inverse temperature, or the name of the column `extras.NAME` [B, T, 1] that has it.
    cap: largest weight.
    over: what is taken of the critic's heads.

    Source: Kostrikov, Nair and Levine 2021, arXiv 2110.06169; Nair et al. 2020, arXiv 2006.09359.
    """

    critic: str = "critic"
    value: str | None = "value"
    beta: float | str = 3.0
    cap: float = 100.0
    over: Over = "min"

    def setup(self) -> None:
        if (not isinstance(self.beta, str) and self.beta < 0) or not self.cap > 0:
            raise ValueError(
                f"objectives.NetworkAdvantageWeight: need beta >= 0 and cap > 0, found {self.beta}, {self.cap}"
            )

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.beta}"} if isinstance(self.beta, str) else set[str]())

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.critic, target=True).name, self._baseline.name})

    @property
    def _baseline(self) -> NetworkOutput:
        return (
            NetworkOutput(self.critic, target=True, proposal=NOW) if self.value is None else NetworkOutput(self.value)
        )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        q = over_heads(evaluated(evaluation, NetworkOutput(self.critic, target=True)), self.over)
        value = evaluated(evaluation, self._baseline)
        advantage = q - (over_heads(value, self.over) if self.value is None else value)
        beta = experience.extras[self.beta][..., 0] if isinstance(self.beta, str) else self.beta
        return (beta * advantage).exp().clamp(max=self.cap)
