"""Played decisions with what followed them, beside logged transitions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.parts import Sampling
from polopt.sampling.source_protocols import FragmentSource, LoggedTransitionSource
from polopt.sampling.transitions import marked, transition_rows
from polopt.support import PLAIN, Support


class FragmentsAndLog(Sampling):
    """Samples the next `steps` decisions of each of the source's environments, and for each decision
    `logged_per_played` transitions of the source's log; a row is one decision.

    A played row spans all decisions to the end of its episode, or to that of the fragment: its reward is the discounted
    sum of theirs, `extras["discount"]` [B, 1] is gamma^k of k decisions, and the state after it that after the last of
    them. A logged row spans one decision. `extras["logged"]` [B, 1] tells which is which.

    steps: decisions of each environment.
    logged_per_played: logged rows for each played one, >= 0; they are drawn uniformly with replacement.
    gamma: discount.
    """

    steps: int = 128
    logged_per_played: float = 1.0
    gamma: float = 0.99

    single_decisions = True
    writes = frozenset({"extras.discount", "extras.logged"})

    def setup(self) -> None:
        if self.steps < 1 or self.logged_per_played < 0 or not 0 <= self.gamma <= 1:
            raise ValueError(
                "sampling.FragmentsAndLog: needs steps >= 1, logged_per_played >= 0 and gamma in [0, 1], "
                f"found {self.steps}, {self.logged_per_played} and {self.gamma}"
            )

    @property
    def source_capabilities(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"fragments"} | ({"logged_transitions"} if self.logged_per_played else set[str]()))

    @property
    def rollout_support(self) -> Support:
        return PLAIN

    def batch_rows(self, rows: int) -> int:
        played = rows * self.steps
        return played + round(self.logged_per_played * played)

    def forward(self, source: Any) -> Experience:
        fragments: FragmentSource = source
        parts = [_marked(to_the_end(fragments.fragments(self.steps), self.gamma), False)]
        if count := round(self.logged_per_played * len(parts[0])):
            log: LoggedTransitionSource = source
            parts.append(_marked(log.logged_transitions(count, gamma=self.gamma), True))
        batch = parts[0] if len(parts) == 1 else Experience.join(parts)
        return batch.replace(group=torch.arange(len(batch), device=batch.device))


def _marked(rows: Experience, logged: bool) -> Experience:
    """Returns rows with the column `logged`, and no other ones than those of both kinds."""
    kept = {name: rows.extras[name] for name in ("observation", "action", "discount")}
    return marked(rows.replace(extras=kept), logged)


def to_the_end(played: Experience, gamma: float) -> Experience:
    """Returns each decision of fragments [B, T] as a row that spans all decisions to the end of its episode, or to that
    of the fragment."""
    mask, observation = played.mask, played.extras["observation"]
    after = played.extras.get("final_observation", observation[:, 1:])
    over = played.terminated | played.truncated | ~mask
    T = mask.shape[1]
    last = torch.full_like(mask[:, 0], T - 1, dtype=torch.int64)
    total = torch.zeros_like(played.reward[:, 0])
    discount = torch.ones_like(total)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for t in reversed(range(T)):
        ends = over[:, t]
        last = torch.where(ends, t, last)
        total = played.reward[:, t] + gamma * torch.where(ends, 0, total)
        discount = gamma * torch.where(ends, 1, discount)
        found.append((total, discount, last))
    reward, weight, place = (torch.stack(column[::-1], 1) for column in zip(*found, strict=True))
    row = torch.arange(len(mask), device=mask.device)[:, None]
    columns = {
        "observation": observation[:, :-1],
        "next_observation": after[row, place],
        "action": played.extras["action"],
        "reward": reward,
        "terminated": played.terminated.gather(1, place),
        "truncated": played.truncated.gather(1, place),
        "discount": weight,
    }
    return transition_rows({name: column[mask] for name, column in columns.items()}, played.support)
