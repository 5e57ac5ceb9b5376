"""Two rewards on one problem, and canonical forms of a reward, which remove what changes no policy's rank.

Potential shaping adds gamma Phi(s') - Phi(s), and S'-redistribution moves reward between the successors of a state and
an action without changing its expectation. Both shift the returns of all policies by one constant.
Source: STARC, arXiv:2309.15257; EPIC, arXiv:2006.13900; DARD, arXiv:2201.10081.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from polopt.metrics.row_format import MetricDataError

# Rows of probabilities may be float32; they are divided by their sums.
ROUNDING = 1e-5


@dataclasses.dataclass(frozen=True, eq=False)
class TabularRewardPair:
    """Two rewards R1 and R2 on one problem of S states and A actions; float64 tensors, or what makes them.

    transitions: [S, A, S], each row sums to 1. reward, other: [S, A, S], or [S, A] for rewards that do not depend on
    the successor. start: [S] probabilities of the first state, None: uniform over the states that are not terminal.
    terminal: [S] states in which an episode ends; no action is taken there, their rows of transitions and rewards are
    never read, and a potential is 0 there. policy: [S, A] the fixed policy of `val` and `val_potential`, None: uniform.

    Raises:
        MetricDataError: shapes that do not fit, numbers that are not finite, or probabilities that are negative or do
            not sum to 1.
    """

    transitions: Tensor
    reward: Tensor
    other: Tensor
    start: Tensor | None = None
    terminal: Tensor | None = None
    policy: Tensor | None = None

    def __post_init__(self) -> None:
        p = torch.as_tensor(self.transitions).double()
        if p.ndim != 3 or p.shape[0] != p.shape[2] or not p.numel():
            raise MetricDataError(f"TabularRewardPair: transitions must be [S, A, S], found {list(p.shape)}")
        S, A, _ = p.shape
        ends = torch.zeros(S, dtype=torch.bool) if self.terminal is None else torch.as_tensor(self.terminal).bool()
        _has_shape("terminal", ends, (S,))
        if ends.all():
            raise MetricDataError("TabularRewardPair: every state is terminal; no action is ever taken")
        stay = torch.eye(S, dtype=p.dtype)[:, None].expand(S, A, S)
        p = _distribution("transitions", torch.where(ends[:, None, None], stay, p))
        object.__setattr__(self, "transitions", p)
        object.__setattr__(self, "terminal", ends)
        for name in ("reward", "other"):
            r = torch.as_tensor(getattr(self, name)).double()
            r = r[..., None].expand(*r.shape, S) if r.shape == (S, A) else r
            _has_shape(name, r, (S, A, S))
            r = torch.where(ends[:, None, None], 0.0, r)
            if not r.isfinite().all():
                raise MetricDataError(f"TabularRewardPair: {name} must be finite numbers")
            object.__setattr__(self, name, r)
        uniform = (~ends).double() / (~ends).sum()
        start = uniform if self.start is None else torch.as_tensor(self.start).double()
        policy = (
            torch.full((S, A), 1 / A, dtype=p.dtype) if self.policy is None else torch.as_tensor(self.policy).double()
        )
        for name, x, shape in (("start", start, (S,)), ("policy", policy, (S, A))):
            _has_shape(name, x, shape)
            object.__setattr__(self, name, _distribution(name, x))

    def __len__(self) -> int:
        """Returns the number of states."""
        return len(self.transitions)

    def __getitem__(self, order: Sequence[int]) -> TabularRewardPair:
        """Returns the same problem with its states in another order [S]."""
        i = torch.as_tensor(order)
        if sorted(i.tolist()) != list(range(len(self))):
            raise MetricDataError("TabularRewardPair: the states must be reordered, each once")
        both = {name: getattr(self, name)[i][:, :, i] for name in ("transitions", "reward", "other")}
        return TabularRewardPair(**both, **{name: getattr(self, name)[i] for name in ("start", "terminal", "policy")})

    def replace(self, **changes: Any) -> TabularRewardPair:
        return dataclasses.replace(self, **changes)


def _has_shape(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    if x.shape != shape:
        raise MetricDataError(f"TabularRewardPair: {name} must be {list(shape)}, found {list(x.shape)}")


def _distribution(name: str, p: Tensor) -> Tensor:
    if not p.isfinite().all() or (p < 0).any() or (p.sum(-1) - 1).abs().max() > ROUNDING:
        wrong = p.sum(-1).flatten()
        found = wrong[(wrong - 1).abs().argmax()].item()
        least = p.min().item()
        raise MetricDataError(
            f"TabularRewardPair: the probabilities of {name} must be >= 0 and sum to 1 in each row, found a row with "
            f"the sum {found:.6g} and a least entry {least:.6g}"
        )
    return p / p.sum(-1, keepdim=True)


@dataclasses.dataclass(frozen=True, eq=False)
class SampledRewardPair:
    """Two rewards on N sampled decisions, for problems too large for a table; float64 tensors, or what makes them.

    reward, other: [N, K] the rewards R(s, a, s') of K successors drawn for each decision. value, other_value: [N]
    estimates of the two rewards' values V(s) under one policy, the same for both. next_value, other_next_value: [N, K]
    those of the successors, 0 where an episode ended. Decisions (s, a) are drawn from the coverage distribution.

    Raises:
        MetricDataError: shapes that do not fit, or numbers that are not finite.
    """

    reward: Tensor
    value: Tensor
    next_value: Tensor
    other: Tensor
    other_value: Tensor
    other_next_value: Tensor

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, torch.as_tensor(getattr(self, field.name)).double())
        N, K = (*self.reward.shape, 0, 0)[:2]
        for field in dataclasses.fields(self):
            x, shape = getattr(self, field.name), (N,) if field.name in ("value", "other_value") else (N, K)
            if x.shape != shape or not N or not K:
                raise MetricDataError(
                    "SampledRewardPair: reward, next_value, other and other_next_value must be [N, K], value and "
                    f"other_value [N], with N and K >= 1, found {field.name} {list(x.shape)}"
                )
            if not x.isfinite().all():
                raise MetricDataError(f"SampledRewardPair: {field.name} must be finite numbers")

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, rows: Sequence[int]) -> SampledRewardPair:
        i = torch.as_tensor(rows)
        return SampledRewardPair(**{f.name: getattr(self, f.name)[i] for f in dataclasses.fields(self)})


RewardFn = Callable[[Tensor, Tensor, Tensor], Tensor]
ValueFn = Callable[[Tensor], Tensor]


def sampled_rewards(
    rewards: tuple[RewardFn, RewardFn],
    values: tuple[ValueFn, ValueFn],
    states: Tensor,
    actions: Tensor,
    next_states: Tensor,
    ended: Tensor | None = None,
) -> SampledRewardPair:
    """Evaluates two reward functions and their value estimates on sampled decisions.

    rewards: R(states, actions, next_states) -> [M] of M transitions. values: V(states) -> [M], the value of one fixed
    policy under each of the rewards. states: [N, ...], actions: [N, ...], from the coverage distribution. next_states:
    [N, K, ...] K draws from the dynamics; one is enough where they are deterministic. ended: [N, K] of draws that end
    the episode.

    Raises:
        MetricDataError: lengths that differ, or as `SampledRewardPair`.
    """
    N = len(states)
    if len(actions) != N or len(next_states) != N or next_states.ndim < 2 or next_states.shape[1] < 1:
        raise MetricDataError(
            "sampled_rewards: states [N, ...], actions [N, ...] and next_states [N, K, ...] must have one N and K >= "
            f"1, found {list(states.shape)}, {list(actions.shape)} and {list(next_states.shape)}"
        )
    K = next_states.shape[1]
    after = next_states.flatten(0, 1)
    going = 1.0 if ended is None else 1 - ended.double()
    both = []
    for reward, value in zip(rewards, values, strict=True):
        r = reward(states.repeat_interleave(K, 0), actions.repeat_interleave(K, 0), after).double().reshape(N, K)
        both += [r, value(states).double().reshape(N), value(after).double().reshape(N, K) * going]
    return SampledRewardPair(*both)


def policy_value(problem: TabularRewardPair, reward: Float[Tensor, "S A S"], gamma: float) -> Float[Tensor, "S"]:
    """Solves V = E_policy[R + gamma V(s')], 0 in terminal states."""
    assert problem.policy is not None
    expected = (problem.transitions * reward).sum(-1)
    moves = torch.einsum("sa,sat->st", problem.policy, problem.transitions)
    system = torch.eye(len(problem), dtype=moves.dtype) - gamma * moves
    return torch.linalg.solve(system, (problem.policy * expected).sum(-1))


def val(problem: TabularRewardPair, reward: Float[Tensor, "S A S"], gamma: float) -> Float[Tensor, "S A S"]:
    """Returns c(s, a, s') = E_{S' ~ P(s, a)}[R(s, a, S') + gamma V(S') - V(s)], V the value of the fixed policy: its
    advantage, the same for all successors. Value-adjusted levelling removes shaping and redistribution."""
    shaped = (problem.transitions * val_potential(problem, reward, gamma)).sum(-1)
    return shaped[..., None].expand_as(reward)


def val_potential(problem: TabularRewardPair, reward: Float[Tensor, "S A S"], gamma: float) -> Float[Tensor, "S A S"]:
    """Returns c(s, a, s') = R(s, a, s') + gamma V(s') - V(s): it removes shaping, not redistribution."""
    v = policy_value(problem, reward, gamma)
    return _without_terminal(problem, reward + gamma * v - v[:, None, None])


def minimal_l2(problem: TabularRewardPair, reward: Float[Tensor, "S A S"], gamma: float) -> Float[Tensor, "S A S"]:
    """Returns the reward of least L2 norm among those that differ by shaping and redistribution.

    Orthogonal to all redistributions are c(s, a, s') = P(s' | s, a) u(s, a) / |P(s, a)|^2, whose expectation u is that
    of R + gamma Phi(s') - Phi(s); Phi, 0 in terminal states, solves a least-squares problem in u / |P(s, a)|.
    """
    p = problem.transitions
    going = ~_ends(problem)
    expected, size = (p * reward).sum(-1)[going], p.square().sum(-1)[going].sqrt()
    shift = gamma * p[going] - torch.eye(len(problem), dtype=p.dtype)[going][:, None]
    design = (shift / size[..., None])[..., going].flatten(0, 1)
    # Of full rank: with gamma < 1 the potentials that shape nothing are 0. `lstsq` does not repeat its last bits.
    q, r = torch.linalg.qr(design)
    potential = torch.linalg.solve_triangular(r, -(q.T @ (expected / size).flatten())[:, None], upper=True)[:, 0]
    u = expected + shift[..., going] @ potential
    found = torch.zeros_like(reward)
    found[going] = p[going] * (u / size.square())[..., None]
    return found


def epic(problem: TabularRewardPair, reward: Float[Tensor, "S A S"], gamma: float) -> Float[Tensor, "S A S"]:
    """Returns c(s, a, s') = R(s, a, s') + E[gamma R(s', A, S') - R(s, A, S') - gamma R(S, A, S')] with S, A and S'
    uniform and independent: it removes shaping, not redistribution, and reads transitions that never happen."""
    mean = reward.mean((1, 2))
    return reward + gamma * mean - mean[:, None, None] - gamma * mean.mean()


def dard(problem: TabularRewardPair, reward: Float[Tensor, "S A S"], gamma: float) -> Float[Tensor, "S A S"]:
    """Returns c(s, a, s') = R(s, a, s') + E[gamma R(s', A, S'') - R(s, A, S') - gamma R(S', A, S'')] with A uniform,
    S' ~ P(s, A) and S'' ~ P(s', A): as `epic`, with successors that can happen. It removes shaping, not
    redistribution."""
    p, A = problem.transitions, problem.transitions.shape[1]
    mean = (p * reward).sum(-1).mean(-1)
    crossed = torch.einsum("sax,tay,xay->st", p, p, reward) / A
    return reward + gamma * mean - mean[:, None, None] - gamma * crossed[:, None]


def _ends(problem: TabularRewardPair) -> Tensor:
    assert problem.terminal is not None
    return problem.terminal


def _without_terminal(problem: TabularRewardPair, reward: Tensor) -> Tensor:
    return torch.where(_ends(problem)[:, None, None], 0.0, reward)
