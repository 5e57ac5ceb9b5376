"""Rewards of a task from the preferences of another one, and the imitation of its best trajectories."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems.preference_transfer import PreferenceTransfer
from polopt.solvers.solver import Solver, State
from polopt.solvers.transport import GromovWasserstein


def transferred_labels(log_coupling: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Returns labels [..., M, M] of the target's pairs from the source's [N, N] through couplings T [..., N, M]:

        z_jl = sum_ik T_ij T_kl labels_ik / sum_ik T_ij T_kl    over the labelled pairs i != k,

    0.5 where no labelled pair has weight. Source: CPA of PEARL, arXiv:2306.03615.
    """
    T = log_coupling.exp()
    weight = T.mT @ known.to(T.dtype) @ T
    found = T.mT @ torch.where(known, labels, 0) @ T
    return torch.where(weight > 0, found / weight.clamp(min=torch.finfo(T.dtype).tiny), 0.5)


class TransferReward(Part):
    """A reward of steps with parameters theta that is fitted to soft labels of pairs of trajectories.

    The reward's mean is linear in a step's features, mu(s) = features(s) @ theta. The loss is the cross-entropy of the
    labels z with Bradley-Terry probabilities of the sums over steps, over all pairs:

        - mean_{j<l} [ z_jl log sigmoid(R_j - R_l) + (1 - z_jl) log sigmoid(R_l - R_j) ]
    """

    def start(self, steps: Tensor) -> Tensor:
        """Returns the parameters before the first step, for steps [M, T, D]."""
        return steps.new_zeros(steps.shape[-1])

    def returns(self, steps: Tensor, theta: Tensor) -> Tensor:
        """Returns the mean return of each trajectory, [M]."""
        return (steps @ theta[: steps.shape[-1]]).sum(1)

    def loss(self, steps: Tensor, labels: Tensor, theta: Tensor) -> Tensor:
        """Returns the loss of labels [M, M]; the lower triangle is not read."""
        value = self.returns(steps, theta)
        j, k = torch.triu_indices(len(value), len(value), 1)
        return self.cross_entropy(value[j] - value[k], labels[j, k], torch.zeros_like(value[j])).mean()

    def cross_entropy(self, margin: Tensor, label: Tensor, std: Tensor) -> Tensor:
        """Returns the cross-entropy of labels [P] at margins of mean `margin` and standard deviation `std`, [P]."""
        return torch.nn.functional.softplus(margin) - label * margin


class GaussianTransferReward(TransferReward):
    """A reward r(s) ~ N(mu(s), sigma(s)^2) with log sigma linear in a step's features and a constant. The loss is the
    mean of the cross-entropy over the rewards, r = mu + sigma xi, and

        lam max(0, eta - mean entropy of r(s) in nats)

    which keeps the reward as uncertain as eta says. The margin of a pair is Gaussian too, so that the mean over xi is
    an integral over one variable, computed with Gauss-Hermite nodes, xi = sqrt(2) node.

    lam, eta: of the regulariser. nodes: of the integral; 1 takes the mean reward for the reward.
    """

    lam: float = 0.01
    eta: float = 0.0
    nodes: int = 16

    def setup(self) -> None:
        if self.lam < 0 or self.nodes < 1:
            raise ValueError(
                f"solvers.GaussianTransferReward: need lam >= 0 and nodes >= 1, found {self.lam} and {self.nodes}"
            )

    def start(self, steps: Tensor) -> Tensor:
        theta = steps.new_zeros(2 * steps.shape[-1] + 1)
        theta[-1] = -1.0
        return theta

    def std(self, steps: Tensor, theta: Tensor) -> Tensor:
        """Returns sigma of each step, [M, T]."""
        return (steps @ theta[steps.shape[-1] : -1] + theta[-1]).clamp(-20, 20).exp()

    def loss(self, steps: Tensor, labels: Tensor, theta: Tensor) -> Tensor:
        value, std = self.returns(steps, theta), self.std(steps, theta)
        variance = std.square().sum(1)
        j, k = torch.triu_indices(len(value), len(value), 1)
        fit = self.cross_entropy(value[j] - value[k], labels[j, k], (variance[j] + variance[k]).sqrt()).mean()
        entropy = (0.5 * math.log(2 * math.pi * math.e) + std.log()).mean()
        return fit + self.lam * (self.eta - entropy).clamp(min=0)

    def cross_entropy(self, margin: Tensor, label: Tensor, std: Tensor) -> Tensor:
        at, weight = (torch.from_numpy(x).to(margin) for x in np.polynomial.hermite.hermgauss(self.nodes))
        drawn = margin[:, None] + math.sqrt(2) * std[:, None] * at
        softplus = torch.nn.functional.softplus(drawn) @ weight / math.sqrt(math.pi)
        return softplus - label * margin


class WeightedImitation(Part):
    """`learner(returns [M]) -> [M]`: imitates trajectories in proportion to exp(return / temperature), a policy
    that needs no simulator and no values of states: reward-weighted regression on whole trajectories."""

    temperature: float = 0.5

    def setup(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"solvers.WeightedImitation: temperature must be > 0, found {self.temperature}")

    def forward(self, returns: Tensor) -> Tensor:
        return (returns / self.temperature).softmax(0)


@dataclasses.dataclass(frozen=True)
class TransferFindings:
    """The result of a transfer.

    cost: [R] of each coupling, in squares of the largest distance. share: [R] its share in the labels. labels: [M, M]
    the transferred probability that j is preferred to l. returns: [M] the reward's mean return. confidence: the mean of
    |2 label - 1| over pairs: 0 where the two tasks' distances tell nothing.
    """

    cost: Tensor
    share: Tensor
    labels: Tensor
    returns: Tensor
    confidence: float

    def record(self) -> dict[str, Any]:
        """Returns the findings as plain data."""
        return {
            "best cost": float(self.cost.min()),
            "couplings": len(self.cost),
            "effective couplings": float(1 / self.share.square().sum()),
            "confidence": self.confidence,
            "labels": self.labels.tolist(),
            "returns": self.returns.tolist(),
        }


class PreferenceTransferSolver(Solver):
    """Learns the target's reward from the source's preferences, and imitates accordingly. An iteration is one step of
    the couplings, and one of gradient descent of the reward on the labels that they transfer.

    coupling: of the two tasks' trajectories. reward: fitted to the labels. learner: of the policy.
    temperature: a coupling of cost c, c* the least, has the share exp((c* - c) / temperature) in the labels.
    lr: the step size of the reward. Features are divided by the root mean square of their sums over a trajectory.

    The state holds the couplings' logarithms [R, N, M], the reward's parameters and the number of iterations.
    """

    solves: ClassVar[type] = PreferenceTransfer

    coupling: GromovWasserstein = GromovWasserstein()
    reward: TransferReward = GaussianTransferReward()
    learner: WeightedImitation = WeightedImitation()
    temperature: float = 1e-4
    lr: float = 0.5

    def setup(self) -> None:
        if self.temperature <= 0 or self.lr <= 0:
            raise ValueError(
                "solvers.PreferenceTransferSolver: need temperature > 0 and lr > 0, found "
                f"{self.temperature} and {self.lr}"
            )

    @staticmethod
    def steps(problem: PreferenceTransfer) -> Tensor:
        """Returns the target's steps, in units in which the sums over a trajectory have root mean square 1, [M, T,
        D]."""
        target = problem.target.double()
        size = target.sum(1).square().mean().sqrt()
        return target / torch.where(size > 0, size, 1.0)

    def start(self, problem: Any) -> dict[str, Tensor]:
        return {
            "log_coupling": self.coupling.start(problem.source_distances, problem.target_distances),
            "theta": self.reward.start(self.steps(problem)),
            "iteration": torch.zeros((), dtype=torch.long),
        }

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        log_coupling = self.coupling(problem.source_distances, problem.target_distances, state["log_coupling"])
        labels = self._labels(problem, log_coupling)[0]
        theta = state["theta"].detach().requires_grad_()
        loss = self.reward.loss(self.steps(problem), labels, theta)
        (slope,) = torch.autograd.grad(loss, theta)
        return {
            "log_coupling": log_coupling,
            "theta": theta.detach() - self.lr * slope,
            "iteration": state["iteration"] + 1,
        }

    def _labels(self, problem: PreferenceTransfer, log_coupling: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the labels [M, M] over all couplings, their costs and their shares [R]."""
        cost = self.coupling.cost(problem.source_distances, problem.target_distances, log_coupling)
        share = (-cost / self.temperature).softmax(0)
        each = transferred_labels(log_coupling, problem.labels, problem.known)
        return (share[:, None, None] * each).sum(0), cost, share

    def findings(self, problem: PreferenceTransfer, state: State) -> TransferFindings:
        """Returns all that is known from a state."""
        labels, cost, share = self._labels(problem, state["log_coupling"])
        j, k = torch.triu_indices(len(labels), len(labels), 1)
        confidence = float((2 * labels[j, k] - 1).abs().mean())
        return TransferFindings(
            cost, share, labels, self.reward.returns(self.steps(problem), state["theta"]), confidence
        )

    def solution(self, problem: Any, state: State) -> Tensor:
        return self.learner(self.reward.returns(self.steps(problem), state["theta"]))
