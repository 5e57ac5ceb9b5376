"""Rewards from choices: maximum likelihood of logits, Bellman regression, and pessimistic value iteration."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems import OfflineChoices
from polopt.problems.choices import state_value
from polopt.solvers.solver import Solver, State


@dataclasses.dataclass(frozen=True)
class ChoiceEstimates:
    """The result of learning from choices. Q and reward are the human's, [H, S, A]; bonus is the width that pessimism
    takes off, and policy the greedy one, [H, S, A]."""

    q: Tensor
    reward: Tensor
    bonus: Tensor
    policy: Tensor


class ChoiceLikelihood(Part):
    """`likelihood(problem, theta [H, d]) -> theta`: one Newton step, halved where it goes too far, of the maximum of

        sum counts log softmax_a(features theta)(choice) - penalty / 2 |theta|^2.

    penalty: keeps the estimate of a choice that never occurred finite.
    """

    penalty: float = 0.1

    def setup(self) -> None:
        if self.penalty <= 0:
            raise ValueError(f"solvers.ChoiceLikelihood: penalty must be positive, found {self.penalty}")

    def value(self, problem: OfflineChoices, theta: Tensor) -> Tensor:
        """Computes the objective of each step, [H]."""
        log = torch.einsum("sad,hd->hsa", problem.features, theta).log_softmax(-1)
        return (problem.counts.sum(-1) * log).sum((-1, -2)) - 0.5 * self.penalty * theta.square().sum(-1)

    def forward(self, problem: OfflineChoices, theta: Tensor) -> Tensor:
        phi, counts = problem.features, problem.counts.sum(-1)
        probs = torch.einsum("sad,hd->hsa", phi, theta).softmax(-1)
        visits = counts.sum(-1)
        mean = torch.einsum("hsa,sad->hsd", probs, phi)
        slope = torch.einsum("hsa,sad->hd", counts, phi) - torch.einsum("hs,hsd->hd", visits, mean)
        second = torch.einsum("hs,hsa,sad,sae->hde", visits, probs, phi, phi)
        curvature = second - torch.einsum("hs,hsd,hse->hde", visits, mean, mean)
        curvature = curvature + self.penalty * torch.eye(phi.shape[-1], dtype=phi.dtype)
        direction = torch.linalg.solve(curvature, (slope - self.penalty * theta)[..., None])[..., 0]
        before, size = self.value(problem, theta), torch.ones(len(theta), 1, dtype=theta.dtype)
        for _ in range(30):
            worse = self.value(problem, theta + size * direction) < before
            if not worse.any():
                break
            size = torch.where(worse[:, None], size / 2, size)
        return theta + size * direction


class BellmanRegression(Part):
    """`regression(problem, theta) -> (q, reward)`, [H, S, A]: the human's Q from its differences, and the reward, by
    ridge regressions on features, backwards from the last step:

        Q_h(s, a) = (features theta_h)(s, a) - (features theta_h)(s, anchor) + discount (P V_{h+1})(s, anchor)
        reward_h  = argmin_w sum (features w - Q_h(s, a) + discount V_{h+1}(s'))^2 + ridge |w|^2

    ridge: of both regressions.
    """

    ridge: float = 1.0

    def setup(self) -> None:
        if self.ridge <= 0:
            raise ValueError(f"solvers.{type(self).__name__}: ridge must be positive, found {self.ridge}")

    def forward(self, problem: OfflineChoices, theta: Tensor) -> tuple[Tensor, Tensor]:
        values = torch.zeros(len(problem.start), dtype=torch.double)
        found_q, found_reward = [], []
        for h in reversed(range(problem.horizon)):
            logits = problem.features @ theta[h]
            after = problem.discount * regress(problem, h, values[None, None], self.ridge)
            q = logits - logits[:, [problem.anchor]] + after[:, [problem.anchor]]
            reward = regress(problem, h, q[..., None] - problem.discount * values, self.ridge)
            values = state_value(q, problem.human_value)
            found_q.append(q)
            found_reward.append(reward)
        return torch.stack(found_q[::-1]), torch.stack(found_reward[::-1])


class PessimisticValueIteration(Part):
    """`plan(problem, reward) -> (policy, bonus)`, [H, S, A]: the greedy policy, without discount, of

        Q_h = clip(reward_h + P V_{h+1} - bonus_h),    bonus_h = beta sqrt(features' Lambda_h^-1 features),

    with Lambda_h = sum features features' + ridge and P V by ridge regression.

    beta: the width; 0 is plain value iteration. ridge: of the regression.
    bound: of the reward of one step: |Q_h| is at most bound times the steps that are left.
    """

    beta: float = 0.5
    ridge: float = 1.0
    bound: float = 10.0

    def setup(self) -> None:
        if self.beta < 0 or self.ridge <= 0 or self.bound <= 0:
            raise ValueError(
                "solvers.PessimisticValueIteration: need beta >= 0, ridge > 0 and bound > 0, found "
                f"{self.beta}, {self.ridge} and {self.bound}"
            )

    def forward(self, problem: OfflineChoices, reward: Tensor) -> tuple[Tensor, Tensor]:
        values, policy, widths = torch.zeros(len(problem.start), dtype=torch.double), [], []
        for h in reversed(range(problem.horizon)):
            phi = problem.features
            inverse = torch.linalg.inv(_gram(problem, h, self.ridge))
            width = self.beta * torch.einsum("sad,de,sae->sa", phi, inverse, phi).clamp(min=0).sqrt()
            limit = self.bound * (problem.horizon - h)
            q = reward[h] + regress(problem, h, values[None, None], self.ridge) - width
            q = q.clamp(-limit, limit)
            values = q.amax(-1)
            # Actions that are equally good are taken alike.
            best = (q >= values[:, None] - 1e-12).double()
            policy.append(best / best.sum(-1, keepdim=True))
            widths.append(width)
        return torch.stack(policy[::-1]), torch.stack(widths[::-1])


def _gram(problem: OfflineChoices, h: int, ridge: float) -> Tensor:
    """Returns sum features features' + ridge of the data of a step, [d, d]."""
    phi, counts = problem.features, problem.counts[h].sum(-1)
    return torch.einsum("sa,sad,sae->de", counts, phi, phi) + ridge * torch.eye(phi.shape[-1], dtype=phi.dtype)


def regress(problem: OfflineChoices, h: int, target: Tensor, ridge: float) -> Tensor:
    """Returns the ridge regression of a target [S, A, S], of state, action and next state, on the features, [S, A]."""
    phi = problem.features
    moment = torch.einsum("sad,sat,sat->d", phi, problem.counts[h], target.expand(problem.counts[h].shape))
    return phi @ torch.linalg.solve(_gram(problem, h, ridge), moment)


class ChoicePlanner(Solver):
    """Learns a reward from choices and plans with it, pessimistically. An iteration is a step of the likelihood; the
    solution is the policy of the estimate so far.

    likelihood: the fit of the human's logits. regression: the reward from them. planner: the policy.

    The state holds theta [H, d] and the number of iterations.
    """

    solves: ClassVar[type] = OfflineChoices

    likelihood: ChoiceLikelihood = ChoiceLikelihood()
    regression: BellmanRegression = BellmanRegression()
    planner: PessimisticValueIteration = PessimisticValueIteration()

    def start(self, problem: Any) -> dict[str, Tensor]:
        theta = torch.zeros(problem.horizon, problem.features.shape[-1], dtype=torch.double)
        return {"theta": theta, "iteration": torch.zeros((), dtype=torch.long)}

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        return {"theta": self.likelihood(problem, state["theta"]), "iteration": state["iteration"] + 1}

    def estimates(self, problem: OfflineChoices, state: State) -> ChoiceEstimates:
        """Returns all that is known from a state."""
        q, reward = self.regression(problem, state["theta"])
        policy, bonus = self.planner(problem, reward)
        return ChoiceEstimates(q, reward, bonus, policy)

    def solution(self, problem: Any, state: State) -> Tensor:
        return self.estimates(problem, state).policy
