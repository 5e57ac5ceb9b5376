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
        mine, play = shares(request.counts.tolist(), self.team.size)[self.team.rank], super().rollout

        def share() -> tuple[Experience, Tensor]:
            part = play(request.of(mine))
            place = mine[part.group.cpu()]
            return part.replace(group=place.to(part.device)), place

        return self._together(share if len(mine) else None)

    def extend(
        self,
        experience: Experience,
        copies: int,
        max_decisions: int | None = None,
        at: Tensor | None = None,
        forced_tokens: Sequence[Sequence[int]] | None = None,
    ) -> Experience:
        mine, go_on = shares([1] * len(experience), self.team.size)[self.team.rank], super().extend

        def share() -> tuple[Experience, Tensor]:
            said = None if forced_tokens is None else [forced_tokens[i] for i in mine.tolist()]
            where = None if at is None else at[mine.to(at.device)]
            return go_on(experience[mine], copies, max_decisions, where, said), mine.repeat_interleave(copies)

        return self._together(share if len(mine) else None)

    def _together(self, share: Callable[[], tuple[Experience, Tensor]] | None) -> Experience:
        """Gathers the rows of all processes, in the order of the places that `share` returns with this process's
        rows."""
        # Drawn in every process, also without a share, so that the generators stay in step.
        self._tokens.manual_seed(int(torch.randint(2**62, (), generator=self.generator)) + self.team.rank)
        before = self.player.sampled
        part, place = (None, None) if share is None else share()
        own = self.player.sampled - before
        found = self.team.gather((None if part is None else part.to("cpu"), place, own))
        self.player.sampled = before + sum(drawn for _, _, drawn in found)
        parts = [(rows, places) for rows, places, _ in found if rows is not None and places is not None]
        return joined([rows for rows, _ in parts], [places for _, places in parts]).to(self.player.policy.device)

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        return self.team.evaluate_sharded(self.player.policy, experience, self.rows, needs)

    def gradient_norms(self, experience: Experience, block: str | None = "") -> Tensor:
        mine = shares([1] * len(experience), self.team.size)[self.team.rank]
        own = super().gradient_norms(experience[mine], block).cpu() if len(mine) else torch.zeros(0)
        norms = own.new_zeros(len(experience), dtype=torch.float64)
        for places, values in self.team.gather((mine, own)):
            norms[places] = values.double()
        return norms.to(experience.device, self.player.policy.precision)

    def greedy(self, tasks: Sequence[Task]) -> list[float]:
        mine = shares([1] * len(tasks), self.team.size)[self.team.rank].tolist()
        before = self.player.sampled
        own = super().greedy([tasks[i] for i in mine]) if mine else []
        told = self.team.gather((dict(zip(mine, own, strict=True)), self.player.sampled - before))
        self.player.sampled = before + sum(drawn for _, drawn in told)
        found = {place: reward for rewards, _ in told for place, reward in rewards.items()}
        return [found[i] for i in range(len(tasks))]
