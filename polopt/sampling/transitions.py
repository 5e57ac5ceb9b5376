"""Transitions drawn from a store of what the policy has met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.parts import Sampling
from polopt.sampling.policy_inputs import PolicyInput
from polopt.sampling.source_protocols import LoggedTransitionSource, TransitionSource
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
    logged: share of the rows that are drawn from the source's log instead, 0 to 1; 1 plays nothing.
    policy_input: what the policy reads beside the observation, held for an episode and stored with each transition.
    group: rows of a group, for losses that compare the rows of one; a minibatch holds whole groups.
    """

    rows: int = 256
    steps: int = 1
    start: int = 0
    capacity: int = 1_000_000
    noise: float = 0.0
    logged: float = 0.0
    policy_input: PolicyInput | None = None
    group: int = 1

    def setup(self) -> None:
        for name, least in (("rows", 1), ("steps", 1), ("start", 0), ("capacity", 1), ("noise", 0), ("group", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"sampling.TransitionReplay: {name} must be >= {least}, found {getattr(self, name)}")
        if not 0 <= self.logged <= 1:
            raise ValueError(f"sampling.TransitionReplay: logged must be in [0, 1], found {self.logged}")
        if self.start > self.capacity:
            raise ValueError(
                f"sampling.TransitionReplay: start = {self.start} transitions do not fit into capacity = "
                f"{self.capacity}"
            )

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset() if self.policy_input is None else frozenset({f"extras.{self.policy_input.name}"})

    @property
    def source_capabilities(self) -> frozenset[str]:  # type: ignore[override]
        both = {"logged_transitions"} if self.logged else set[str]()
        return frozenset(both | ({"transitions"} if self.logged < 1 else set()))

    def batch_rows(self, rows: int) -> int:
        return self.rows

    def forward(self, source: Any) -> Experience:
        logged = round(self.logged * self.rows)
        parts: list[Experience] = []
        if logged < self.rows:
            parts.append(self.stored(source, self.rows - logged))
        if logged:
            log: LoggedTransitionSource = source
            parts.append(log.logged_transitions(logged))
        batch = parts[0] if len(parts) == 1 else Experience.join(parts)
        return batch.replace(group=torch.arange(self.rows, device=batch.device) // self.group)

    def stored(self, source: Any, rows: int) -> Experience:
        """Plays further steps, and draws `rows` transitions of those that are stored."""
        store: TransitionSource = source
        return store.transitions(rows, steps=self.steps, start=self.start, capacity=self.capacity, noise=self.noise)


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
