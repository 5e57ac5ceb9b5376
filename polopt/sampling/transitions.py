"""Transitions drawn from a store of what the policy has met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.log_weights import LogWeights
from polopt.sampling.parts import Sampling
from polopt.sampling.policy_inputs import PolicyInput
from polopt.sampling.source_protocols import LoggedTransitionSource, TransitionSource
from polopt.schedules import Schedule, now
from polopt.support import Support


class TransitionReplay(Sampling):
    """Plays further steps of the source's environments, stores the transitions, and draws a batch of stored ones, or of
    logged ones.

    A row is one decision, drawn uniformly with replacement, with the observations before and after it. A stage divides
    the batch among its minibatches.

    rows: transitions in a batch.
    steps: steps of each environment before each batch.
    start: transitions that are stored before the first batch, of uniformly random actions.
    capacity: transitions that are stored; the oldest ones go first.
    noise: standard deviation of Gaussian noise on the actions that are played, in half widths of their bounds.
    epsilon: chance of a uniformly random action in the place of the most likely one, a number or a schedule; 0 plays
        the policy's own actions.
    n_steps: decisions that a transition spans at most, fewer where the episode ends or is cut: its reward is the
        discounted sum of theirs, and the state after it that after the last of them.
    gamma: discount of those rewards; not None, the batch has `extras["discount"]` [B, 1], gamma^k of a transition of k
        decisions.
    logged: share of the rows that are drawn from the source's log instead, 0 to 1; 1 plays nothing. Rows of both kinds
        are spread evenly over the batch, and `extras["logged"]` [B, 1] tells which is which.
    weights: of the log's transitions, in proportion to which they are drawn; None is uniform.
    policy_input: what the policy reads beside the observation, held for an episode and stored with each transition.
    group: rows of a group, for losses that compare the rows of one; a minibatch holds whole groups.
    sequence: actions that are played in turn after one look at the state, open loop.
    """

    rows: int = 256
    steps: int = 1
    start: int = 0
    capacity: int = 1_000_000
    noise: float = 0.0
    epsilon: float | Schedule = 0.0
    n_steps: int = 1
    gamma: float | None = None
    logged: float = 0.0
    weights: LogWeights | None = None
    policy_input: PolicyInput | None = None
    group: int = 1
    sequence: int = 1

    single_decisions = True

    def setup(self) -> None:
        least_values = {"rows": 1, "steps": 1, "start": 0, "capacity": 1, "noise": 0, "n_steps": 1}
        least_values |= {"group": 1, "sequence": 1}
        for name, least in least_values.items():
            if getattr(self, name) < least:
                raise ValueError(f"sampling.TransitionReplay: {name} must be >= {least}, found {getattr(self, name)}")
        if not 0 <= self.logged <= 1:
            raise ValueError(f"sampling.TransitionReplay: logged must be in [0, 1], found {self.logged}")
        values = [v for _, v in self.epsilon.knots] if isinstance(self.epsilon, Schedule) else [self.epsilon]
        if not all(0 <= value <= 1 for value in (*values, 1 if self.gamma is None else self.gamma)):
            raise ValueError(
                f"sampling.TransitionReplay: epsilon and gamma must be in [0, 1], found {values} and {self.gamma}"
            )
        if self.n_steps > 1 and self.gamma is None:
            raise ValueError(f"sampling.TransitionReplay: n_steps = {self.n_steps} needs gamma, found none")
        if self.noise and any(values):
            raise ValueError("sampling.TransitionReplay: noise is for vectors and epsilon for choices; set one to 0")
        if self.weights is not None and not self.logged:
            raise ValueError("sampling.TransitionReplay: weights are of the log, and logged = 0 draws none of it")
        if self.sequence > 1 and (self.noise or any(values)):
            raise ValueError(
                f"sampling.TransitionReplay: sequence = {self.sequence} actions in turn are samples of the policy; set "
                "noise and epsilon to 0"
            )
        if self.start > self.capacity:
            raise ValueError(
                f"sampling.TransitionReplay: start = {self.start} transitions do not fit into capacity = "
                f"{self.capacity}"
            )

    @property
    def source_capabilities(self) -> frozenset[str]:  # type: ignore[override]
        both = {"logged_transitions"} if self.logged else set[str]()
        return frozenset(both | ({"transitions"} if self.logged < 1 else set()))

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        discount = set[str]() if self.gamma is None else {"extras.discount"}
        given = set[str]() if self.policy_input is None else {f"extras.{self.policy_input.name}"}
        both = {"extras.logged"} if 0 < self.logged < 1 else set[str]()
        return frozenset(discount | given | both)

    def batch_rows(self, rows: int) -> int:
        return self.rows

    def forward(self, source: Any) -> Experience:
        logged = round(self.logged * self.rows)
        parts: list[Experience] = []
        if logged < self.rows:
            parts.append(self.stored(source, self.rows - logged))
        if logged:
            log: LoggedTransitionSource = source
            parts.append(log.logged_transitions(logged, n_steps=self.n_steps, gamma=self.gamma, weights=self.weights))
        batch = parts[0] if len(parts) == 1 else _interleaved(parts[0], parts[1])
        return batch.replace(group=torch.arange(self.rows, device=batch.device) // self.group)

    def stored(self, source: Any, rows: int) -> Experience:
        """Plays further steps, and draws `rows` transitions of those that are stored."""
        store: TransitionSource = source
        return store.transitions(
            rows,
            steps=self.steps,
            start=self.start,
            capacity=self.capacity,
            noise=self.noise,
            epsilon=now(self.epsilon),
            n_steps=self.n_steps,
            gamma=self.gamma,
            sequence=self.sequence,
        )


def _interleaved(played: Experience, logged: Experience) -> Experience:
    """Joins played and logged rows, spread evenly, with a column that tells which is which."""
    joined = Experience.join([marked(played, False), marked(logged, True)])
    place = torch.cat([(torch.arange(len(rows)) + 0.5) / len(rows) for rows in (played, logged)])
    return joined[place.argsort(stable=True).to(joined.device)]


def marked(rows: Experience, logged: bool) -> Experience:
    """Returns rows with the column `extras["logged"]` [B, T]."""
    return rows.replace(extras={**rows.extras, "logged": torch.full_like(rows.mask, logged)})


# Columns of a transition that are not extras of the same name.
_OWN = frozenset({"observation", "next_observation", "reward", "terminated", "truncated"})


def transition_rows(columns: Mapping[str, Tensor], support: Support) -> Experience:
    """Returns transitions as rows of one decision.

    columns: observation and next_observation [N, D], action [N] or [N, A], reward, terminated, truncated [N]; any
        others become extras.
    support: of the policy's decisions.
    """
    reward, terminated, truncated = (columns[name][:, None] for name in ("reward", "terminated", "truncated"))
    return Experience(
        mask=torch.ones_like(terminated),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        support=support,
        group=torch.arange(len(reward)),
        extras={
            "observation": torch.stack([columns["observation"], columns["next_observation"]], 1),
            **{name: column[:, None] for name, column in columns.items() if name not in _OWN},
        },
    )


def successors(columns: Mapping[str, Tensor]) -> Tensor:
    """Returns how many rows after each transition its episode's next one stands, [N] int64: 1, or 0 where the episode
    is over or the next row begins in another state than this one leads to."""
    over = columns["terminated"] | columns["truncated"]
    found = torch.zeros(len(over), dtype=torch.int64)
    found[:-1] = ((columns["next_observation"][:-1] == columns["observation"][1:]).all(1) & ~over[:-1]).long()
    return found


def spanning(columns: Mapping[str, Tensor], place: Tensor, n_steps: int, gamma: float | None) -> dict[str, Tensor]:
    """Returns transitions at rows `place` [M] of columns [N, ...] that span up to `n_steps` decisions.

    columns: as of `transition_rows`; for more than one step also `following` [N] int64, the rows from a transition to
        its episode's next one, 0 where there is none; the last row is followed by the first one.
    gamma: discount; not None, the result has `discount` [M], gamma^k of k decisions.

    With k <= n_steps decisions the reward is sum_(i < k) gamma^i r_i, and next_observation, terminated, truncated and
    columns `final_NAME` are those of the last one.
    """
    found = {name: column[place] for name, column in columns.items() if name != "following"}
    if gamma is None:
        return found
    reward, discount = found["reward"].clone(), torch.full_like(found["reward"], gamma)
    last, going = place, torch.ones_like(place, dtype=torch.bool)
    for _ in range(n_steps - 1):
        step = columns["following"][last]
        going = going & (step > 0)
        last = torch.where(going, (last + step) % len(columns["reward"]), last)
        reward += torch.where(going, discount * columns["reward"][last], 0)
        discount = torch.where(going, discount * gamma, discount)
    after = ("next_observation", "terminated", "truncated", *(name for name in columns if name.startswith("final_")))
    ends = {name: columns[name][last] for name in after}
    return found | ends | {"reward": reward, "discount": discount}
