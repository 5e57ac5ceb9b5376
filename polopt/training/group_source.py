"""A source whose rollouts are split among the processes of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest
from polopt.training.episode_player import EpisodePlayer
from polopt.training.partition import joined, shares
from polopt.training.process_group import ProcessGroup
from polopt.training.source import LanguageSource
from polopt.worlds.protocol import Task


class GroupSource(LanguageSource):
    """A `LanguageSource` in every process of a group: each plays its share of the tasks, and all of them return all the
    rows, so that sampling, filters and credit act alike in every process.

    `generator` is in the same state in every process. Tokens are drawn with numbers of each process's own, which follow
    from it: the same number of processes samples the same rollouts again, another number samples others of the same
    tasks.
    """

    def __init__(self, player: EpisodePlayer, team: ProcessGroup, **settings: Any) -> None:
        super().__init__(player, **settings)
        self.team, self._tokens = team, torch.Generator()

    @property
    def tokens(self) -> torch.Generator:
        return self._tokens

    def rollout(self, request: RolloutRequest) -> Experience:
        local, play = shares(request.counts.tolist(), self.team.size)[self.team.rank], super().rollout

        def share() -> tuple[Experience, Tensor]:
            part = play(request.of(local))
            place = local[part.group.cpu()]
            return part.replace(group=place.to(part.device)), place

        return self._together(share if len(local) else None)

    def extend(
        self,
        experience: Experience,
        copies: int,
        max_decisions: int | None = None,
        at: Tensor | None = None,
        forced_tokens: Sequence[Sequence[int]] | None = None,
    ) -> Experience:
        local, go_on = shares([1] * len(experience), self.team.size)[self.team.rank], super().extend

        def share() -> tuple[Experience, Tensor]:
            local_tokens = None if forced_tokens is None else [forced_tokens[i] for i in local.tolist()]
            where = None if at is None else at[local.to(at.device)]
            return go_on(experience[local], copies, max_decisions, where, local_tokens), local.repeat_interleave(copies)

        return self._together(share if len(local) else None)

    def _together(self, share: Callable[[], tuple[Experience, Tensor]] | None) -> Experience:
        """Gathers the rows of all processes, in the order of the places that `share` returns with this process's
        rows."""
        # Drawn in every process, also without a share, so that the generators stay in step.
        self._tokens.manual_seed(int(torch.randint(2**62, (), generator=self.generator)) + self.team.rank)
        before = self.player.sampled
        part, place = (None, None) if share is None else share()
        own = self.player.sampled - before
        gathered = self.team.gather((None if part is None else part.to("cpu"), place, own))
        self.player.sampled = before + sum(sampled for _, _, sampled in gathered)
        parts = [(rows, places) for rows, places, _ in gathered if rows is not None and places is not None]
        return joined([rows for rows, _ in parts], [places for _, places in parts]).to(self.player.policy.device)

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        return self.team.evaluate_sharded(self.player.policy, experience, self.rows, needs)

    def gradient_norms(self, experience: Experience, block: str | None = "") -> Tensor:
        local = shares([1] * len(experience), self.team.size)[self.team.rank]
        own = super().gradient_norms(experience[local], block).cpu() if len(local) else torch.zeros(0)
        norms = own.new_zeros(len(experience), dtype=torch.float64)
        for places, values in self.team.gather((local, own)):
            norms[places] = values.double()
        return norms.to(experience.device, self.player.policy.precision)

    def greedy(self, tasks: Sequence[Task]) -> list[float]:
        local = shares([1] * len(tasks), self.team.size)[self.team.rank].tolist()
        before = self.player.sampled
        own = super().greedy([tasks[i] for i in local]) if local else []
        gathered = self.team.gather((dict(zip(local, own, strict=True)), self.player.sampled - before))
        self.player.sampled = before + sum(sampled for _, sampled in gathered)
        found = {place: reward for rewards, _ in gathered for place, reward in rewards.items()}
        return [found[i] for i in range(len(tasks))]
