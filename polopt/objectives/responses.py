"""Several responses to each choice: their critics, a policy for each, and a policy between these."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.network_losses import NOW, NetworkObjective
from polopt.objectives.parts import Aggregate, Weight
from polopt.objectives.targets import evaluated
from polopt.outputs import NetworkOutput


def of_choice(values: Tensor, action: Tensor, mask: Tensor) -> Tensor:
    """Returns the chosen ones of values [B, T, H, n]: [B, T, H]."""
    place = torch.where(mask, action, 0).long()[..., None, None].expand(*values.shape[:-1], 1)
    return values.gather(-1, place)[..., 0]


class ResponseRegression(NetworkObjective):
    """aggregate( sum_i (r_i + gamma_i E Q_slow_i(s_next, .) - Q_i(s, a))^2 ), over m responses, each of which has a
    critic of its own.

    critic: network of [B, T, m, n] values of the choices, with a target copy.
    policies: network of [B, T, m - 1, n] logits of the policies of the others, whose expectation theirs is.
    gamma, response_gamma: discount of the first response and of the others.

    The first response is the reward; its expectation is at one choice of the policy itself. The others are
    `extras.responses` [B, T, m - 1]. Where the episode terminated nothing follows.
    """

    critic: str = "critic"
    policies: str = "response_policies"
    gamma: float = 0.99
    response_gamma: float = 0.99
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"reward", "terminated", "extras.responses", "extras.action"})

    def setup(self) -> None:
        if not (0 <= self.gamma <= 1 and 0 <= self.response_gamma <= 1):
            raise ValueError(
                "objectives.ResponseRegression: gamma and response_gamma must be in [0, 1], found "
                f"{self.gamma} and {self.response_gamma}"
            )
        self._after = NetworkOutput(self.critic, target=True, next=True)
        self._policies = NetworkOutput(self.policies, next=True)
        self._choice = NetworkOutput("action", next=True, proposal=NOW)

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        outputs = (NetworkOutput(self.critic), self._after, self._policies, self._choice)
        return frozenset(output.name for output in outputs)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        mask, responses = experience.mask, experience.extras["responses"]
        predicted = of_choice(evaluated(evaluation, NetworkOutput(self.critic)), experience.extras["action"], mask)
        if responses.shape[-1] + 1 != predicted.shape[-1]:
            raise ExperienceError(
                f"objectives.ResponseRegression: the critic has {predicted.shape[-1]} responses, and the batch "
                f"{responses.shape[-1]} beside the reward"
            )
        with torch.no_grad():
            after = evaluated(evaluation, self._after)
            first = of_choice(after[:, :, :1], evaluated(evaluation, self._choice), mask)
            others = (evaluated(evaluation, self._policies).softmax(-1) * after[:, :, 1:]).sum(-1)
            over = ops.per_decision_end(experience.terminated, mask)[..., None]
            gamma = torch.full_like(predicted, self.response_gamma)
            gamma[..., 0] = self.gamma
            reward = ops.per_decision_reward(experience.reward, mask)[..., None].to(responses)
            follows = torch.where(over, 0, torch.cat([first, others], -1))
            target = torch.cat([reward, responses], -1) + gamma * follows
        terms = (target - predicted).square().sum(-1)
        with torch.no_grad():
            values = {f"value/{i}": self.aggregate(experience, one) for i, one in enumerate(predicted.unbind(-1))}
        return Loss(self.aggregate(experience, terms), values)


class ResponseAscent(NetworkObjective):
    """aggregate( -sum_i sum_a p_i(a | s) (Q_i(s, a) - temperature log p_i(a | s)) ), of one policy p_i for each
    response but the first.

    critic, policies: as in `ResponseRegression`.
    temperature: the price of entropy, in units of the responses; 0 leaves the entropy out.
    """

    critic: str = "critic"
    policies: str = "response_policies"
    temperature: float = 0.0
    aggregate: Aggregate = TokenMean()

    def setup(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"objectives.ResponseAscent: temperature must be >= 0, found {self.temperature}")

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.critic).name, NetworkOutput(self.policies).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation = evaluation.zero_masked(experience.mask)
        logp = evaluated(evaluation, NetworkOutput(self.policies)).log_softmax(-1)
        values = evaluated(evaluation, NetworkOutput(self.critic))[:, :, 1:].detach()
        p = logp.exp()
        terms = -(p * (values - self.temperature * logp)).sum((-2, -1))
        with torch.no_grad():
            entropy = self.aggregate(experience, -(p * logp).sum(-1).mean(-1))
        return Loss(self.aggregate(experience, terms), {"entropy": entropy})


class LoggedChoiceLikelihood(NetworkObjective):
    """aggregate( -sum_h log b_h(a | s) ), of a network's softmax over choices at the logged ones.

    network: of [B, T, H, n] logits.
    """

    network: str = "behaviour"
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"extras.action"})

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.network).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation = evaluation.zero_masked(experience.mask)
        logp = evaluated(evaluation, NetworkOutput(self.network)).log_softmax(-1)
        chosen = of_choice(logp, experience.extras["action"], experience.mask).sum(-1)
        return Loss(self.aggregate(experience, -chosen), {})


def constrained_logp(value: Tensor, logits: Tensor, multipliers: Sequence[float]) -> Tensor:
    """Returns log p*(a | s) [..., n] of the policy

        p*(a | s) in proportion to prod_i p_i(a | s)^(lam_i / L) exp(Q(s, a) / L), L = sum_i lam_i

    which maximises sum_a p(a) Q(s, a) - sum_i lam_i KL(p || p_i). value: Q, [..., n]. logits: of the p_i, [..., k, n].
    multipliers: lam_i, [k].
    """
    shares = torch.tensor(multipliers, dtype=value.dtype, device=value.device) / sum(multipliers)
    prior = (shares[:, None] * logits.log_softmax(-1)).sum(-2)
    return (prior + value / sum(multipliers)).log_softmax(-1)


class ConstrainedChoiceWeight(Weight):
    """min(p*(a | s) / b(a | s), cap) of a logged choice, with p* of `constrained_logp`, of the first response's values,
    and b a model of the policy that logged: the likelihood so weighted is largest at p*.

    critic, policies: as in `ResponseRegression`.
    behaviour: network of [B, T, 1, n] logits of b.
    multipliers: lam_i of the other responses, the price of a nat of distance from each one's policy, in units of the
        first response.
    cap: largest weight.
    """

    critic: str = "critic"
    policies: str = "response_policies"
    behaviour: str = "behaviour"
    multipliers: tuple[float, ...] = (1.0,)
    cap: float = 20.0

    reads = frozenset({"extras.action"})

    def setup(self) -> None:
        if not self.multipliers or min(self.multipliers) < 0 or not sum(self.multipliers) > 0 or not self.cap > 0:
            raise ValueError(
                "objectives.ConstrainedChoiceWeight: multipliers must be >= 0 with a sum > 0, and cap > 0, found "
                f"{list(self.multipliers)} and {self.cap}"
            )

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(NetworkOutput(name).name for name in (self.critic, self.policies, self.behaviour))

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        values, logits, behaviour = (
            evaluated(evaluation.zero_masked(experience.mask), NetworkOutput(name)).detach()
            for name in (self.critic, self.policies, self.behaviour)
        )
        best = constrained_logp(values[:, :, 0], logits, self.multipliers)
        ratio = (best - behaviour[:, :, 0].log_softmax(-1))[:, :, None]
        return of_choice(ratio, experience.extras["action"], experience.mask)[..., 0].exp().clamp(max=self.cap)
