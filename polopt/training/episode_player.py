"""Rollouts of a world's episodes with a policy: observation in, answer out, turn by turn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from polopt.fields import policy_field
from polopt.policies.engine import Engine, NativeEngine
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import Sampled
from polopt.sampling import PolicyMixture, Start
from polopt.sampling.lookahead import LookaheadConfig
from polopt.support import Support
from polopt.training.episode_record import EpisodeRecord, first
from polopt.training.preflight_models import check_room
from polopt.training.replayer import EpisodeReplayer, each
from polopt.worlds.executors import EpisodeExecutor
from polopt.worlds.protocol import Task, Tasks


class EpisodePlayer(EpisodeReplayer):
    """A player that samples the policy's answers in a batch of episodes, turn by turn.

    engine: the sampler of the policy's answers; polopt's own if None. executor: runs the episodes; this process if
    None. seconds: spent so far, by kind of work. sampled: tokens that were sampled so far. policies: the policies
    beside the learner that answers can be sampled from, by the field of the batch that each fills in.
    """

    def __init__(
        self,
        policy: LanguagePolicy,
        tasks: Tasks,
        limit: int,
        engine: Engine | None = None,
        executor: EpisodeExecutor | None = None,
    ) -> None:
        super().__init__(policy, tasks, limit, executor)
        self.engine = NativeEngine(policy) if engine is None else engine
        self.seconds = {"rollout": 0.0, "reward": 0.0}
        self.sampled = 0
        self.policies: Mapping[str, LanguagePolicy] = {}

    def play(
        self,
        tasks: Sequence[Task],
        copies: int | Sequence[int],
        support: Support,
        generator: torch.Generator,
        window: int | None = None,
        starts: Sequence[Start] | None = None,
        lookahead: LookaheadConfig | None = None,
        mixture: PolicyMixture | None = None,
    ) -> list[EpisodeRecord]:
        """Plays `copies` episodes of each task (one number, or one each), task by task; as `go_on` from their openings.

        Raises:
            ValueError: as `demonstrate`, where a start gives a part of the solution.
        """
        counts = [copies] * len(tasks) if isinstance(copies, int) else copies
        starts = [Start()] * len(tasks) if starts is None else starts
        rows = self._begin(tasks, counts, starts)
        self.go_on(rows, [count for count in counts if count], support, generator, window, lookahead, mixture)
        return rows

    def _begin(self, tasks: Sequence[Task], counts: Sequence[int], starts: Sequence[Start]) -> list[EpisodeRecord]:
        """Opens counts[i] episodes of task i, up to the policy's first decision."""
        handles = self.executor.open(self.tasks, each(tasks, counts))
        observations = self.executor.reset(handles)
        places = list(itertools.accumulate(counts, initial=0))
        groups = [i for i, count in enumerate(counts) if count]
        shown = [i for i in groups if starts[i].given]
        solved = self._demonstrated([tasks[i] for i in shown], [handles[places[i]] for i in shown])
        solutions = dict(zip(shown, map(self._but_the_last, solved), strict=True))
        begun = {i: _one(observations[places[i] : places[i + 1]]) for i in groups}
        visible_prompts = {i: text + ("" if starts[i].hidden else starts[i].hint) for i, text in begun.items()}
        hidden_prompts = {i: text + starts[i].hint for i, text in begun.items() if starts[i].hidden and starts[i].hint}
        openings, sampler_openings = self._openings(tasks, visible_prompts), self._openings(tasks, hidden_prompts)
        rows: list[EpisodeRecord] = []
        for i in groups:
            start = starts[i]
            for handle in handles[places[i] : places[i + 1]]:
                rows.append(EpisodeRecord.begin(tasks[i], i, handle, openings[i], sampler_openings.get(i)))
                rows[-1].add_given(solutions.get(i, [])[: min(start.given, self.limit - 1)])
                # After a hint an answer may be shorter than the limit, but has at least one token.
                least = 1 if start.hint else self.limit - rows[-1].answer_length
                longest = max(len(rows[-1].ids), len(rows[-1].context))
                check_room(tasks[i], longest, least, self.policy.context_length)
        return rows

    def _openings(self, tasks: Sequence[Task], texts: Mapping[int, str]) -> dict[int, list[int]]:
        """Returns the ids of the tasks' openings, by the task's number. texts: of the openings, by the same number."""
        begun = [(text, tasks[i].history) for i, text in texts.items()]
        return dict(zip(texts, self.dialogue.openings(begun), strict=True))

    def go_on(
        self,
        rows: Sequence[EpisodeRecord],
        copies: Sequence[int],
        support: Support,
        generator: torch.Generator,
        window: int | None = None,
        lookahead: LookaheadConfig | None = None,
        mixture: PolicyMixture | None = None,
    ) -> None:
        """Samples the rest of the episodes. The first copies[0] rows have the same context, and so do the next
        copies[1].

        An answer that is cut off by the token limit, or by the end of the model's context, is not passed to the world:
        its episode is truncated. window: how many more tokens the policy may decide in each row; an episode that is not
        over then stays incomplete. lookahead: how the first answers are sampled, by an engine that supports it; later
        ones are sampled independently. mixture: samples from that mixture of policies, by such an engine.
        """
        for row in rows:
            row.remaining = window
        going, shares = list(rows), list(copies)
        while going:
            rooms = [min(self.limit - row.answer_length, row.remaining or self.limit) for row in going]
            answers = self._answers(going, shares, rooms, support, generator, lookahead, mixture)
            self._advance(going, [first(answer, room) for answer, room in zip(answers, rooms, strict=True)])
            going = [row for row in going if not row.over and row.remaining != 0]
            shares, lookahead = [1] * len(going), None

    def _answers(
        self,
        rows: Sequence[EpisodeRecord],
        shares: Sequence[int],
        rooms: Sequence[int],
        support: Support,
        generator: torch.Generator,
        lookahead: LookaheadConfig | None,
        mixture: PolicyMixture | None,
    ) -> list[Sampled]:
        """Samples an answer for each row, of at least rooms[i] tokens unless it stops or its context ends before. All
        are sampled in one call, but for those whose context has no room for the longest of them."""
        ends = list(itertools.accumulate(shares))
        groups = [slice(end - share, end) for end, share in zip(ends, shares, strict=True)]
        longest, calls = max(rooms), dict[int, list[slice]]()
        for group in groups:
            space = self._space(rows[group.start])
            calls.setdefault(longest if space >= longest else min(space, max(rooms[group])), []).append(group)
        found: dict[int, Sampled] = {}
        for limit, several in calls.items():
            contexts = [rows[group.start].context for group in several]
            copies = [group.stop - group.start for group in several]
            places = [i for group in several for i in range(group.start, group.stop)]
            answers = self._sample(contexts, copies, limit, support, generator, lookahead, mixture)
            found |= zip(places, answers, strict=True)
        return [found[i] for i in range(len(rows))]

    def _sample(
        self,
        contexts: Sequence[Sequence[int]],
        group: Sequence[int],
        limit: int,
        support: Support,
        generator: torch.Generator,
        lookahead: LookaheadConfig | None,
        mixture: PolicyMixture | None,
    ) -> list[Sampled]:
        start = time.perf_counter()
        settings: dict[str, Any] = {"group": group, "support": support, "limit": limit, "stop": self.policy.stop}
        if mixture is not None:
            settings |= {"other": self.policies[policy_field(mixture.policy)], "share": mixture.share}
            answers = self.engine.mix(contexts, generator=generator, **settings)  # type: ignore[attr-defined]
        elif lookahead is None or lookahead.share == 0:
            answers = self.engine.sample(contexts, generator=generator, **settings)
        else:
            answers = self.engine.explore(contexts, look=lookahead, generator=generator, **settings)  # type: ignore[attr-defined]
        self.seconds["rollout"] += time.perf_counter() - start
        self.sampled += sum(len(answer.tokens) for answer in answers)
        return answers

    def _advance(self, rows: Sequence[EpisodeRecord], answers: Sequence[Sampled]) -> None:
        """Adds each row's answer, or the part of it that its window allows, and steps the worlds of the complete
        ones."""
        start = time.perf_counter()
        complete = []
        for row, answer in zip(rows, answers, strict=True):
            row.decide(answer.tokens, answer.logp, answer.entropy, answer.kept, answer.noted)
            row.answer = self.dialogue.text(row.partial_answer)
            if answer.stopped:
                complete.append(row)
            elif row.remaining != 0 or row.answer_length == self.limit or self._space(row) < 1:
                if row.answer_length < self.limit and self._space(row) < 1:
                    self._count_full(row)
                row.complete()
                row.truncated = True
        self._step(complete)
        self.seconds["reward"] += time.perf_counter() - start


def _one(observations: Sequence[str]) -> str:
    found = set(observations)
    if len(found) != 1:
        raise ValueError(f"one task must open with one observation, found {len(found)}")
    return found.pop()
