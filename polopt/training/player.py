"""Episodes of a world, played with a policy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import torch

from polopt.experience import Support
from polopt.policies.dialogue import Dialogue
from polopt.policies.engine import Engine, NativeEngine
from polopt.policies.language import LanguagePolicy
from polopt.policies.sampler import Sampled
from polopt.sampling import Start
from polopt.sampling.lookahead import Look
from polopt.sampling.parts import Said
from polopt.training.transcript import Past, Transcript, first
from polopt.worlds.protocol import Episode, Task, Tasks


class Player:
    """Plays episodes of a world with a policy, a batch of them at a time, turn by turn.

    engine: what draws the policy's answers; polopt's own sampler if None. seconds: spent so far, by kind of work.
    sampled: tokens that were drawn so far.
    """

    def __init__(self, policy: LanguagePolicy, tasks: Tasks, limit: int, engine: Engine | None = None) -> None:
        self.policy, self.tasks, self.limit = policy, tasks, limit
        self.engine = NativeEngine(policy) if engine is None else engine
        self.dialogue = Dialogue(policy.tokenizer)
        self.seconds = {"rollout": 0.0, "reward": 0.0}
        self.sampled = 0

    @property
    def horizon(self) -> int:
        """The most decisions that one episode may take."""
        return self.limit * self.tasks.turns

    def play(
        self,
        tasks: Sequence[Task],
        copies: int | Sequence[int],
        support: Support,
        generator: torch.Generator,
        window: int | None = None,
        starts: Sequence[Start] | None = None,
        look: Look | None = None,
    ) -> list[Transcript]:
        """`copies` episodes of each task (one number, or one each), task by task; as `go_on` from their openings.

        Raises:
            ValueError: as `demonstrate`, where a start gives a part of the solution.
        """
        counts = [copies] * len(tasks) if isinstance(copies, int) else copies
        starts = [Start()] * len(tasks) if starts is None else starts
        rows: list[Transcript] = []
        for i, (task, count, start) in enumerate(zip(tasks, counts, starts, strict=True)):
            rows += self._begin(i, task, count, start)
        self.go_on(rows, [count for count in counts if count], support, generator, window, look)
        return rows

    def _begin(self, group: int, task: Task, count: int, start: Start) -> list[Transcript]:
        """So many episodes of a task, up to where the policy goes on."""
        if not count:
            return []
        plays = [self.tasks.episode(task) for _ in range(count)]
        given = self._solution(task, plays[0])[: min(start.given, self.limit - 1)] if start.given else []
        plain, read = self._open(plays, "" if start.hidden else start.hint), None
        if start.hidden and start.hint:
            read = self._open(plays[:1], start.hint)
        rows = [Transcript.begin(task, group, play, plain, read) for play in plays]
        for row in rows:
            row.give(given)
        return rows

    def _solution(self, task: Task, episode: Episode) -> list[int]:
        """Ids of a task's demonstrated first answer but the last, which the policy always decides."""
        episode.reset()
        return self.dialogue.answer(_demonstrated(task, episode))[:-1]

    def solution_length(self, task: Task) -> int:
        """How many decisions a task's demonstrated first answer has.

        Raises:
            ValueError: as `demonstrate`.
        """
        return len(self._solution(task, self.tasks.episode(task))) + 1

    def go_on(
        self,
        rows: Sequence[Transcript],
        copies: Sequence[int],
        support: Support,
        generator: torch.Generator,
        window: int | None = None,
        look: Look | None = None,
    ) -> None:
        """Play on. The first copies[0] rows stand at the same place, and so do the next copies[1].

        An answer that is cut off by the token limit never reaches the world: its episode is truncated. window: how many
        more tokens the policy may decide in each row; an episode that is not over then is left as it stands. look: how
        the first answers are drawn, by an engine that can; later ones are drawn independently.
        """
        for row in rows:
            row.left = window
        going, shares = list(rows), list(copies)
        while going:
            rooms = [min(self.limit - row.room, row.left or self.limit) for row in going]
            places = itertools.accumulate(shares[:-1], initial=0)
            contexts = [going[i].context for i in places]
            answers = self._sample(contexts, shares, max(rooms), support, generator, look)
            self._advance(going, [first(answer, room) for answer, room in zip(answers, rooms, strict=True)])
            going = [row for row in going if not row.over and row.left != 0]
            shares, look = [1] * len(going), None

    def resume(self, task: Task, group: int, past: Past) -> Transcript:
        """An episode as it stood: what the policy said is played again, and the world must answer as it did.

        Raises:
            ValueError: it did not, so that its rewards would not belong to what is on record.
        """
        if past.hinted:
            raise ValueError(
                f"task {task.id} cannot go on from where it stood: its sampler had read a hint that is not on record; "
                "go on with rows that had no hidden hint"
            )
        episode = self.tasks.episode(task)
        episode.reset()
        begin = next((i for i, turn in enumerate(past.turn) if turn >= 0), len(past.ids))
        row = Transcript.begin(task, group, episode, past.ids[:begin])
        row.give(past.ids[begin : begin + past.given])
        while not row.over and row.ids != past.ids:
            begin = end = len(row.ids)
            while end < len(past.ids) and past.turn[end] == row.turns:
                end += 1
            if begin == end or row.ids != past.ids[:begin]:
                break
            row.decide(**past.decisions(begin, end))
            row.answer = self.dialogue.text(row.saying)
            if row.ids[-1] in self.policy.stop:
                self._step(row, row.answer)
        if row.over or row.ids != past.ids:
            raise ValueError(
                f"task {task.id} cannot go on from where it stood: played again, its world answers in another way; "
                "take worlds whose answers depend on the task and the actions alone"
            )
        return row

    def say(self, row: Transcript, ids: Sequence[int]) -> None:
        """Let the row say these ids next, as decisions that nobody sampled.

        Raises:
            ValueError: one of them ends the answer, or they leave no room for more.
        """
        if self.policy.stop & set(ids) or row.room + len(ids) >= self.limit:
            raise ValueError(
                f"extend: a row of {row.room} tokens cannot say {list(ids)} and go on: at most {self.limit} tokens an "
                "answer, none of which stops it"
            )
        row.decide(list(ids), [0.0] * len(ids), [0.0] * len(ids), None)

    def feedback(self, task: Task, answers: Sequence[list[int]]) -> str | None:
        """What the world says of the last of these answers that reached it."""
        episode, feedback = self.tasks.episode(task), None
        episode.reset()
        for ids in answers:
            if ids[-1] in self.policy.stop:
                step = episode.step(self.dialogue.text(ids))
                feedback = step.info.get("feedback")
                if step.over:
                    break
        return feedback

    def demonstrate(self, tasks: Sequence[Task]) -> list[Transcript]:
        """One episode of each task, played by the task's own demonstration.

        Raises:
            ValueError: the world shows no solution to a task.
        """
        rows = []
        for i, task in enumerate(tasks):
            episode = self.tasks.episode(task)
            row = Transcript.begin(task, i, episode, self._open([episode]))
            while not row.over:
                action = _demonstrated(task, episode)
                row.imitate(self.dialogue.answer(action))
                row.answer = action
                self._step(row, action)
            rows.append(row)
        return rows

    def receive(self, tasks: Sequence[Task], answers: Sequence[Sequence[Sequence[Said]]]) -> list[Transcript]:
        """Episodes of these tasks that are played by what somebody else answered, row by row and turn by turn.

        An answer of text ends with the stop token, unless it is cut off by the token limit as the policy's own would
        be. An episode that is not over after its last answer is truncated; answers beyond its end are not played.
        """
        rows = []
        for i, (task, given) in enumerate(zip(tasks, answers, strict=True)):
            for turns in given:
                episode = self.tasks.episode(task)
                row = Transcript.begin(task, i, episode, self._open([episode]))
                for answer in turns:
                    self._hear(row, answer)
                row.truncated = row.truncated or not row.terminated
                rows.append(row)
        return rows

    def _hear(self, row: Transcript, answer: Said) -> None:
        ids = (self.dialogue.answer(answer) if isinstance(answer, str) else list(answer))[: self.limit]
        if row.over or not ids:
            return
        row.imitate(ids)
        row.answer = self.dialogue.text(ids)
        if ids[-1] in self.policy.stop:
            self._step(row, row.answer)
        else:
            row.complete()
            row.truncated = True

    def write(self, texts: Sequence[Sequence[int]]) -> list[Transcript]:
        """Raw texts, as token ids, each as one long answer to nothing."""
        rows = []
        for i, ids in enumerate(texts):
            row = Transcript.begin(Task("text", "text", "", None, {}), i, None, [self.dialogue.beginning])
            row.imitate(list(ids))
            row.complete()
            row.reward, row.solved, row.terminated = 1.0, True, True
            rows.append(row)
        return rows

    def _open(self, plays: Sequence[Episode], hint: str = "") -> list[int]:
        observations = {play.reset() for play in plays}
        if len(observations) != 1:
            raise ValueError(f"one task must open with one observation, found {len(observations)}")
        return self.dialogue.opening(observations.pop() + hint)

    def _sample(
        self,
        contexts: Sequence[Sequence[int]],
        group: Sequence[int],
        limit: int,
        support: Support,
        generator: torch.Generator,
        look: Look | None,
    ) -> list[Sampled]:
        start = time.perf_counter()
        asked: dict[str, Any] = {"group": group, "support": support, "limit": limit, "stop": self.policy.stop}
        if look is None or look.share == 0:
            answers = self.engine.sample(contexts, generator=generator, **asked)
        else:
            answers = self.engine.explore(contexts, look=look, generator=generator, **asked)  # type: ignore[attr-defined]
        self.seconds["rollout"] += time.perf_counter() - start
        self.sampled += sum(len(answer.tokens) for answer in answers)
        return answers

    def _advance(self, rows: Sequence[Transcript], answers: Sequence[Sampled]) -> None:
        """Give each row its answer, or, where its window ends, as much of it as there is."""
        start = time.perf_counter()
        for row, answer in zip(rows, answers, strict=True):
            row.decide(answer.tokens, answer.logp, answer.entropy, answer.kept, answer.noted)
            row.answer = self.dialogue.text(row.saying)
            if answer.stopped:
                self._step(row, row.answer)
            elif row.left != 0 or row.room == self.limit:
                row.complete()
                row.truncated = True
        self.seconds["reward"] += time.perf_counter() - start

    def _step(self, row: Transcript, action: str) -> None:
        row.complete()
        assert row.episode is not None
        step = row.episode.step(action)
        row.pay(step.reward)
        row.signals = step.info.get("signals", {})
        row.feedback = step.info.get("feedback")
        row.solved = bool(step.info.get("solved", row.reward >= 1))
        row.terminated, row.truncated = step.terminated, step.truncated
        if not row.over:
            row.observe(self.dialogue.reply(step.observation, row.ids[-1]))


def _demonstrated(task: Task, episode: Episode) -> str:
    action = episode.demonstrate()
    if action is None:
        raise ValueError(
            f"task {task.id} comes with no solution to imitate; leave out the part or stage that needs "
            "demonstrations, or give the tasks solutions"
        )
    return action
