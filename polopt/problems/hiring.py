"""Hiring of agents who gather information at a cost: recommendations, payments, and what agents gain by deviating."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polopt.errors import UserError
from polopt.problems.hiring_program import Sizes, optimal_mechanism


class HiringError(UserError, ValueError):
    """Sizes or numbers of a hiring problem contradict each other."""


@dataclasses.dataclass(frozen=True, eq=False)
class Mechanism:
    """The principal's announcement.

    efforts: [B] the probability of each joint recommendation.
    payments: [n, B, S, Th] what each agent gets, by recommendation, joint report and state.
    decisions: [B, S] the principal's action after a recommendation and a report.
    """

    efforts: np.ndarray
    payments: np.ndarray
    decisions: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HiringProblem:
    """A principal hires n agents to learn about a state. Agent i is told an effort b_i alone, takes one at a cost, sees
    a signal s_i and reports one; then the principal decides, the state is seen, and agents are paid at least 0.

    prior: [Th] of the states. utility: [A, Th] the principal's, of an action in a state.
    signals: [B, S, Th] the probability of joint signals given joint efforts and the state; B and S are products over
        the agents, the last agent's index the fastest.
    costs: for each agent, [B_i] of its efforts.
    signal_counts: S_i of each agent.
    cap: the largest payment to an agent in a round.
    agents, efforts, signal_names, states, actions: names; those of efforts and signals for each agent.

    A solution is a vector: the probabilities of recommendations [B], payments times these probabilities
    [n, B, S, Th], and decisions [B, S].

    Source: Cacciamani, Castiglioni and Gatti (2023), arXiv 2307.06210.

    Raises:
        HiringError: sizes that do not fit, probabilities that are none, negative costs, or a cap that is not positive.
    """

    prior: Tensor
    utility: Tensor
    signals: Tensor
    costs: tuple[Tensor, ...]
    signal_counts: tuple[int, ...]
    cap: float
    agents: tuple[str, ...] = ()
    efforts: tuple[tuple[str, ...], ...] = ()
    signal_names: tuple[tuple[str, ...], ...] = ()
    states: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    name: str = "hiring"
    unit: str = "utility"

    def __post_init__(self) -> None:
        sizes, found = self.sizes, tuple(self.signals.shape)
        if found != (sizes.B, sizes.S, len(self.prior)) or self.utility.shape[1:] != self.prior.shape:
            raise HiringError(
                f"{self.name}: {len(self.costs)} agents with efforts {list(sizes.efforts)}, signals "
                f"{list(sizes.signals)} and {len(self.prior)} states need signals [B, S, Th] = "
                f"{[sizes.B, sizes.S, len(self.prior)]} and utility [A, {len(self.prior)}], found {list(found)} and "
                f"{list(self.utility.shape)}"
            )
        for what, probs in (("prior", self.prior), ("signals, for each effort and state,", self.signals.sum(1))):
            total = probs.sum() if what == "prior" else probs
            if bool((total - 1).abs().max() > 1e-9) or bool((self.signals < 0).any()) or bool((self.prior < 0).any()):
                raise HiringError(
                    f"{self.name}: {what} must be probabilities that sum to 1, found sums {total.tolist()}"
                )
        if min(float(c.min()) for c in self.costs) < 0 or not self.cap > 0:
            raise HiringError(f"{self.name}: costs must be at least 0 and cap positive, found cap = {self.cap:g}")
        defaults: dict[str, Any] = {
            "agents": tuple(f"agent {i}" for i in range(sizes.n)),
            "efforts": tuple(tuple(str(k) for k in range(size)) for size in sizes.efforts),
            "signal_names": tuple(tuple(str(k) for k in range(size)) for size in sizes.signals),
            "states": tuple(str(k) for k in range(len(self.prior))),
            "actions": tuple(str(k) for k in range(len(self.utility))),
        }
        for name, value in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"HiringProblem({self.name}: {', '.join(self.agents)}; {self.sizes.B} joint efforts)"

    @property
    def sizes(self) -> Sizes:
        return Sizes(tuple(len(c) for c in self.costs), tuple(self.signal_counts), len(self.prior))

    @functools.cached_property
    def optimum(self) -> float:
        """Computes the largest utility, less payments, of any mechanism that no agent gains by deviating from."""
        return self.outcome(self.optimal(self.signals.numpy())).value

    def optimal(self, signals: np.ndarray, margin: float = 0.0, fixed: int | None = None) -> Mechanism:
        """Computes an optimal mechanism for a belief about the signals, [B, S, Th].

        margin: what an agent must lose by deviating, in units of payments; 0 makes agents indifferent.
        fixed: the one joint effort that is recommended; None leaves the choice to the program.

        Raises:
            HiringError: there is no mechanism with such a margin.
        """
        found = optimal_mechanism(
            self.sizes, self.prior.numpy(), self.utility.numpy(), signals, self._costs(), self.cap, margin, fixed
        )
        if found is None:
            raise HiringError(
                f"{self.name}: no mechanism with payments up to {self.cap:g} makes deviations lose {margin:g}; raise "
                "cap, or take a smaller margin or other efforts"
            )
        efforts, paid = found
        payments = np.divide(
            paid, efforts[:, None, None], out=np.zeros_like(paid), where=efforts[:, None, None] > 1e-12
        )
        posterior = np.einsum("bst,t,at->bsa", signals, self.prior.numpy(), self.utility.numpy())
        return Mechanism(efforts, payments, posterior.argmax(-1))

    def _costs(self) -> list[np.ndarray]:
        return [c.numpy() for c in self.costs]

    def idle(self) -> Mechanism:
        """Returns the mechanism that recommends the cheapest efforts, pays nothing and decides by the prior."""
        sizes = self.sizes
        joint = [int(c.argmin()) for c in self.costs]
        efforts = np.zeros(sizes.B)
        efforts[np.ravel_multi_index(joint, sizes.efforts)] = 1.0
        best = int((self.utility @ self.prior).argmax())
        payments = np.zeros((sizes.n, sizes.B, sizes.S, len(self.prior)))
        return Mechanism(efforts, payments, np.full((sizes.B, sizes.S), best))

    def outcome(self, mechanism: Mechanism) -> Outcome:
        """Computes what happens: each agent takes, for each recommendation, the effort and the report of each signal
        that pay the most while the others obey; an agent that gains less than 1e-9 by deviating obeys."""
        sizes = self.sizes
        plans = [self._response(mechanism, i) for i in range(sizes.n)]
        table, prior = self.signals.numpy(), self.prior.numpy()
        value = paid = 0.0
        signals = sizes.signal_table
        for b, chance in enumerate(mechanism.efforts):
            told = sizes.effort_table[b]
            taken = [plans[i].efforts[told[i]] for i in range(sizes.n)]
            reports = [plans[i].reports[told[i]][signals[:, i]] for i in range(sizes.n)]
            report = np.ravel_multi_index(reports, sizes.signals)
            weight = chance * table[np.ravel_multi_index(taken, sizes.efforts)] * prior
            value += float((weight * self.utility.numpy()[mechanism.decisions[b, report]]).sum())
            paid += float((weight * mechanism.payments[:, b, report]).sum())
        return Outcome(value - paid, paid, max(plan.gain for plan in plans), tuple(plans))

    def _response(self, mechanism: Mechanism, i: int) -> Response:
        """Computes the best response of agent i to a mechanism."""
        sizes, cost = self.sizes, self.costs[i].numpy()
        earned = deviation_payments(self, mechanism, i)  # [told, taken, signal, report]
        told = np.array([mechanism.efforts[sizes.effort_table[:, i] == k].sum() for k in range(len(cost))])
        gains = earned.max(-1).sum(-1) - told[:, None] * cost
        obeyed = np.einsum("kkss->k", earned) - told * cost
        efforts, reports = np.arange(len(cost)), np.tile(np.arange(sizes.signals[i]), (len(cost), 1))
        for k in range(len(cost)):
            if gains[k].max() > obeyed[k] + 1e-9:
                efforts[k] = gains[k].argmax()
                reports[k] = earned[k, efforts[k]].argmax(-1)
        return Response(efforts, reports, float((gains.max(-1) - obeyed).max()))

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures a mechanism: what is lost against the optimum when agents respond to it, first; the largest gain of
        a deviation; the principal's utility less payments, and the payments."""
        found = self.outcome(self.mechanism(solution))
        return {
            "loss": self.optimum - found.value,
            "gain": found.gain,
            "value": found.value,
            "payments": found.payments,
        }

    def vector(self, mechanism: Mechanism) -> Tensor:
        """Converts a mechanism to a solution."""
        paid = mechanism.payments * mechanism.efforts[:, None, None]
        return torch.from_numpy(np.concatenate([mechanism.efforts, paid.ravel(), mechanism.decisions.ravel()]))

    def mechanism(self, solution: Tensor) -> Mechanism:
        """Converts a solution to a mechanism.

        Raises:
            HiringError: it has another shape or type, or its recommendations are no distribution.
        """
        sizes, states = self.sizes, len(self.prior)
        shape = (sizes.n, sizes.B, sizes.S, states)
        count = sizes.B + int(np.prod(shape)) + sizes.B * sizes.S
        if solution.shape != (count,) or solution.dtype != torch.double:
            raise HiringError(f"a solution of {self.name} is a float64 tensor [{count}], found {list(solution.shape)}")
        efforts, paid, decisions = np.split(solution.numpy(), [sizes.B, count - sizes.B * sizes.S])
        if efforts.min() < -1e-9 or abs(efforts.sum() - 1) > 1e-9:
            raise HiringError(f"a solution of {self.name} begins with probabilities, found {efforts.tolist()}")
        paid, chance = paid.reshape(shape), efforts[:, None, None]
        payments = np.divide(paid, chance, out=np.zeros_like(paid), where=chance > 1e-12)
        return Mechanism(efforts, payments, decisions.reshape(sizes.B, sizes.S).astype(int))

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts a mechanism to plain data: the probability of each recommendation with a positive one, each agent's
        mean payment, and for each of those recommendations the decision, 1, and what is paid, by reports and state."""
        found, sizes = self.mechanism(solution), self.sizes
        weight = (self.signals * self.prior).numpy() * found.efforts[:, None, None]
        used = [b for b in range(sizes.B) if found.efforts[b] > 1e-9]
        names = {b: self._joined(self.efforts, sizes.effort_table[b]) for b in used}
        reports = [self._joined(self.signal_names, row) for row in sizes.signal_table]
        return {
            "recommendations": {names[b]: float(found.efforts[b]) for b in used},
            "mean payments": {a: float((weight * found.payments[i]).sum()) for i, a in enumerate(self.agents)},
            "decisions": {
                f"{names[b]}; {reports[s]}; {self.actions[found.decisions[b, s]]}": 1.0
                for b, s in itertools.product(used, range(sizes.S))
            },
            "payments": {
                f"{self.agents[i]}; {names[b]}; {reports[s]}; {self.states[t]}": float(found.payments[i, b, s, t])
                for i, b, s, t in itertools.product(range(sizes.n), used, range(sizes.S), range(len(self.states)))
            },
        }

    def _joined(self, names: tuple[tuple[str, ...], ...], row: np.ndarray) -> str:
        return ", ".join(sorted(f"{a} {names[i][row[i]]}" for i, a in enumerate(self.agents)))


def random_hiring(*, seed: int = 0, agents: int = 2, cap: float = 2.0) -> HiringProblem:
    """Builds a random problem of agents with two efforts and two signals each, two states and two actions. Evidence of
    two values for each agent is correlated between agents, given the state; an agent that works, at a cost, sees its
    own, and one that does not sees a coin."""
    draw, joint = np.random.default_rng(seed), 2**agents
    evidence = draw.dirichlet(np.full(joint, 0.5), 2).T  # [joint evidence, Th]
    sizes = Sizes((2,) * agents, (2,) * agents, 2)
    works, seen = sizes.effort_table[:, None, None] == 1, sizes.signal_table
    copies = seen[None, :, None] == seen[None, None]  # [1, S, evidence, n]
    chances = np.where(works, copies, 0.5).prod(-1)  # [B, S, evidence]
    return HiringProblem(
        prior=torch.from_numpy(draw.dirichlet([5.0, 5.0])),
        utility=torch.from_numpy(2 * np.eye(2) + draw.uniform(-0.5, 0.5, (2, 2))),
        signals=torch.from_numpy(chances @ evidence),
        costs=tuple(torch.tensor([0.0, c], dtype=torch.double) for c in draw.uniform(0, 0.1, agents)),
        signal_counts=(2,) * agents,
        cap=cap,
        name=f"random hiring {seed}",
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Response:
    """An agent's best response: the effort taken [B_i] and the report of each signal [B_i, S_i], by the effort told;
    gain: what it earns more than by obeying, at most over the efforts told."""

    efforts: np.ndarray
    reports: np.ndarray
    gain: float


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """value: the principal's utility less payments. payments: of all agents. gain: the largest of a deviation."""

    value: float
    payments: float
    gain: float
    responses: tuple[Response, ...]


def deviation_payments(problem: HiringProblem, mechanism: Mechanism, i: int) -> np.ndarray:
    """Computes what agent i is paid, [told, taken, signal, report]: the mean over the others' efforts and signals and
    the state, times the probability of being told that effort and seeing that signal."""
    sizes = problem.sizes
    weight = (problem.signals * problem.prior).numpy()
    paid = mechanism.payments[i] * mechanism.efforts[:, None, None]
    efforts, signals = sizes.efforts[i], sizes.signals[i]
    found = np.zeros((efforts, efforts, signals, signals))
    for taken, seen in itertools.product(range(efforts), range(signals)):
        b, s = sizes.effort_swap(i)[:, taken], sizes.signal_swap(i)[:, seen]
        each = (weight[b][:, s] * paid).sum(-1)  # [B, S]: by what is told and reported
        for told, report in itertools.product(range(efforts), range(signals)):
            here = each[sizes.effort_table[:, i] == told][:, sizes.signal_table[:, i] == report]
            found[told, taken, seen, report] = here.sum()
    return found
