"""Episodes of a world that are played with given answers: demonstrations, imported answers, or recorded ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.sampling.source_protocols import AnswerTurn
from polopt.sections import token_sections
from polopt.training.episode_record import EpisodeRecord, RecordedEpisode
from polopt.training.preflight_models import ContextError, check_room
from polopt.worlds.executors import EpisodeExecutor, EpisodeHandle, ScoringProcessExecutor
from polopt.worlds.protocol import RatedAnswer, Task, Tasks


class EpisodeReplayer:
    """A player of a world's episodes with given answers, all of them turn by turn.

    limit: most tokens of an answer. executor: plays the episodes; `ScoringProcessExecutor` with its defaults if None.
    """

    def __init__(
        self, policy: LanguagePolicy, tasks: Tasks, limit: int, executor: EpisodeExecutor | None = None
    ) -> None:
        self.policy, self.tasks, self.limit = policy, tasks, limit
        self.executor = ScoringProcessExecutor() if executor is None else executor
        self.dialogue = Dialogue(policy.tokenizer, policy.chat_template_kwargs)

    @property
    def horizon(self) -> int:
        """Returns the most decisions that one episode may take."""
        return self.limit * self.tasks.turns

    def _space(self, row: EpisodeRecord) -> int:
        """Returns the number of tokens for which the model's context has room after a row."""
        context = self.policy.context_length
        return sys.maxsize if context is None else context - max(len(row.ids), len(row.context))

    def _but_the_last(self, action: str) -> list[int]:
        """Returns the ids of a demonstrated first answer but the last, which the policy always decides."""
        return self.dialogue.answer(action)[:-1]

    def _demonstrated(self, tasks: Sequence[Task], handles: Sequence[EpisodeHandle]) -> list[str]:
        lost = self.executor.lost
        actions = self.executor.demonstrate(handles)
        for task, action in zip(tasks, actions, strict=True):
            if action is None:
                raise ValueError(
                    f"task {task.id} comes with no solution to imitate; leave out the part or stage that needs "
                    "demonstrations, or give the tasks solutions"
                    if self.executor.lost == lost
                    else f"task {task.id} was not demonstrated within the time limit; raise episodes.timeout"
                )
        return [action for action in actions if action is not None]

    def solution_lengths(self, tasks: Sequence[Task]) -> list[int]:
        """Returns the number of decisions in each task's demonstrated first answer.

        Raises:
            ValueError: as `demonstrate`.
        """
        handles = self.executor.open(self.tasks, tasks)
        self.executor.reset(handles)
        return [len(self._but_the_last(action)) + 1 for action in self._demonstrated(tasks, handles)]

    def resume(self, records: Sequence[tuple[Task, int, RecordedEpisode]]) -> list[EpisodeRecord]:
        """Restores recorded episodes (task, group, record) by replaying the policy's answers; the world must answer as
        it did.

        Raises:
            ValueError: it did not, so that its rewards would not belong to the record; or the sampler's context had a
                hint that the record lacks.
        """
        for task, _, past in records:
            if past.hinted:
                raise ValueError(
                    f"task {task.id} cannot go on from where it stood: its sampler had read a hint that is not on "
                    "record; go on with rows that had no hidden hint"
                )
        lost, handles = self.executor.lost, self.executor.open(self.tasks, [task for task, _, _ in records])
        self.executor.reset(handles)
        rows, pasts = [], [past for _, _, past in records]
        for (task, group, past), handle in zip(records, handles, strict=True):
            begin = next((i for i, turn in enumerate(past.turn) if turn >= 0), len(past.ids))
            rows.append(EpisodeRecord.begin(task, group, handle, past.ids[:begin]))
            rows[-1].add_given(past.ids[begin : begin + past.given])
        going = list(zip(rows, pasts, strict=True))
        while going:
            going = [(row, past) for row, past in going if not row.over and self._repeat(row, past)]
            self._step([row for row, _ in going])
        for row, past in zip(rows, pasts, strict=True):
            if row.over or row.ids != past.ids:
                raise ValueError(
                    f"task {row.task.id} cannot go on from where it stood: "
                    + (
                        "played again, its world answers in another way; take worlds whose answers depend on the task "
                        "and the actions alone"
                        if self.executor.lost == lost
                        else "played again, its world did not answer within the time limit; raise episodes.timeout"
                    )
                )
        return rows

    def _repeat(self, row: EpisodeRecord, past: RecordedEpisode) -> bool:
        """Appends the next recorded answer to the row. Returns whether there was one that is complete."""
        begin = end = len(row.ids)
        while end < len(past.ids) and past.turn[end] == row.turns:
            end += 1
        if begin == end or row.ids != past.ids[:begin]:
            return False
        row.decide(**past.decisions(begin, end))
        row.answer = self.dialogue.text(row.partial_answer)
        return row.ids[-1] in self.policy.stop

    def force_tokens(self, row: EpisodeRecord, ids: Sequence[int]) -> None:
        """Appends ids to a row as forced decisions, which were not sampled.

        Raises:
            ValueError: one of them ends the answer, or they leave no room for more.
        """
        if self.policy.stop & set(ids) or len(ids) >= min(self.limit - row.answer_length, self._space(row)):
            raise ValueError(
                f"extend: a row of {row.answer_length} tokens cannot go on after the forced tokens {list(ids)}: at "
                f"most {self.limit} tokens an answer, none of which stops it, within the model's context"
            )
        row.decide(list(ids), [0.0] * len(ids), [0.0] * len(ids), None)

    def feedback(self, tasks: Sequence[Task], answers: Sequence[Sequence[list[int]]]) -> list[str | None]:
        """Returns, for each task, the world's feedback on the last of these answers that reached it."""
        handles = self.executor.open(self.tasks, tasks)
        self.executor.reset(handles)
        found: list[str | None] = [None] * len(tasks)
        going = dict.fromkeys(range(len(tasks)))
        for turn in range(max(map(len, answers), default=0)):
            here = [i for i in going if turn < len(answers[i]) and answers[i][turn][-1] in self.policy.stop]
            texts = [self.dialogue.text(answers[i][turn]) for i in here]
            for i, step in zip(here, self.executor.step([handles[i] for i in here], texts), strict=True):
                found[i] = step.info.get("feedback")
                if step.over:
                    del going[i]
        return found

    def demonstrate(self, tasks: Sequence[Task]) -> list[EpisodeRecord]:
        """Plays one episode of each task by the task's own demonstration.

        Raises:
            ValueError: the world shows no solution to a task, or not within the time limit.
        """
        lost = self.executor.lost
        rows = going = self._open(tasks, range(len(tasks)))
        while going:
            actions = self._demonstrated([row.task for row in going], [row.episode for row in going])
            for row, action in zip(going, actions, strict=True):
                self._imitate(row, action, "demonstration")
            self._step(going)
            going = [row for row in going if not row.over]
        if self.executor.lost > lost:
            raise ValueError(
                f"{self.executor.lost - lost} of {len(rows)} demonstrations were not answered within the time limit; "
                "raise episodes.timeout"
            )
        return rows

    def _imitate(self, row: EpisodeRecord, answer: str, what: str) -> None:
        """Appends an answer and its stop token to a row, as decisions that were not sampled. what: for the message.

        Raises:
            ContextError: it does not fit in the model's context.
        """
        ids = self.dialogue.answer(answer)
        if len(ids) > self._space(row):
            raise ContextError(
                f"task {row.task.id}: behind {len(row.ids)} tokens its {what} of {len(ids)} does not "
                f"fit in the model's context of {self.policy.context_length}; leave the task out, or "
                "take a model with a longer context"
            )
        row.imitate(ids)
        row.answer = answer

    def rated(
        self, tasks: Sequence[Task], answers: Sequence[Sequence[RatedAnswer]] | None = None
    ) -> list[EpisodeRecord]:
        """Returns an episode of each rated answer of each task, a task's as one group, with the score as its reward. No
        world scores them. As in `demonstrate`, answers are not cut off by the token limit.

        answers: of each task, in place of its own.

        Raises:
            ValueError: a task comes without rated answers; one does not fit in the model's context.
        """
        answers = [task.rated for task in tasks] if answers is None else answers
        if bare := next((task for task, its in zip(tasks, answers, strict=True) if not its), None):
            raise ValueError(
                f"task {bare.id} comes without answers of known quality; leave out the stage that learns from them, or "
                "give every task some"
            )
        counts = [*map(len, answers)]
        rows = self._open(each(tasks, counts), each(range(len(tasks)), counts))
        for row, (text, score) in zip(rows, (answer for its in answers for answer in its), strict=True):
            self._imitate(row, text, f"answer of score {score:g}")
            row.complete()
            row.add_reward(score)
            row.solved, row.terminated = score == row.task.rated[0].score, True
        return rows

    def receive(self, tasks: Sequence[Task], answers: Sequence[Sequence[Sequence[AnswerTurn]]]) -> list[EpisodeRecord]:
        """Plays episodes of these tasks with imported answers, row by row and turn by turn.

        An answer of text ends with the stop token, unless it is cut off by the token limit as the policy's own would
        be. An episode that is not over after its last answer is truncated; answers beyond its end are not played.

        Raises:
            ValueError: an id that no token has.
        """
        vocabulary = self.policy.model.get_input_embeddings().weight.shape[0]
        token_lists = (
            ids for rows_of_task in answers for turns in rows_of_task for ids in turns if not isinstance(ids, str)
        )
        if any(not 0 <= token < vocabulary for ids in token_lists for token in ids):
            raise ValueError(f"receive: an answer has a token that is none of the {vocabulary} of this policy")
        counts = [len(rows_of_task) for rows_of_task in answers]
        rows = self._open(each(tasks, counts), each(range(len(tasks)), counts))
        turns_of_rows = [turns for rows_of_task in answers for turns in rows_of_task]
        for turn in range(max(map(len, turns_of_rows), default=0)):
            here = [(row, turns[turn]) for row, turns in zip(rows, turns_of_rows, strict=True) if turn < len(turns)]
            self._step([row for row, answer in here if self._append_imported(row, answer)])
        for row in rows:
            row.truncated = row.truncated or not row.terminated
        return rows

    def _append_imported(self, row: EpisodeRecord, answer: AnswerTurn) -> bool:
        """Appends an imported answer to a row. Returns whether it is complete, and so passed to the world."""
        tokens = self.dialogue.answer(answer) if isinstance(answer, str) else list(answer)
        space = self._space(row)
        ids = tokens[: min(self.limit, space)]
        if row.over or not ids:
            return False
        row.imitate(ids)
        row.answer = self.dialogue.text(ids)
        if ids[-1] in self.policy.stop:
            return True
        if space < min(self.limit, len(tokens)):
            self._count_full(row)
        row.complete()
        row.truncated = True
        return False

    def _open(self, tasks: Sequence[Task], groups: Sequence[int]) -> list[EpisodeRecord]:
        """Opens an episode of each task."""
        handles = self.executor.open(self.tasks, tasks)
        begun = zip(self.executor.reset(handles), (task.history for task in tasks), strict=True)
        openings = self.dialogue.openings([*begun])
        rows = [EpisodeRecord.begin(*row) for row in zip(tasks, groups, handles, openings, strict=True)]
        for row in rows:
            check_room(row.task, len(row.ids), self.limit, self.policy.context_length)
        return rows

    def write(self, texts: Sequence[Sequence[int]]) -> list[EpisodeRecord]:
        """Returns raw texts, as token ids, each as one long answer without a prompt."""
        rows = []
        for i, ids in enumerate(texts):
            row = EpisodeRecord.begin(Task("text", "text", "", None, {}), i, None, [self.dialogue.beginning])
            row.imitate(list(ids))
            row.complete()
            row.reward, row.solved, row.terminated = 1.0, True, True
            rows.append(row)
        return rows

    def _step(self, rows: Sequence[EpisodeRecord]) -> None:
        """Steps each row's world with its answer, and records reward, signals and feedback."""
        steps = self.executor.step([row.episode for row in rows], [row.answer for row in rows])
        lengths = [row.answer_length for row in rows]
        for row, step, length in zip(rows, steps, lengths, strict=True):
            row.complete()
            row.add_reward(step.reward)
            if spans := step.info.get("sections"):
                row.mark(token_sections(row.ids[len(row.ids) - length :], spans, self.dialogue.text))
            row.signals = step.info.get("signals", {})
            row.feedback = step.info.get("feedback")
            row.read = None if (read := step.info.get("answer")) is None else str(read)
            row.solved = bool(step.info.get("solved", row.reward >= 1))
            row.terminated, row.truncated = step.terminated, step.truncated
            if not row.over:
                self._observe(row, step.observation)

    def _observe(self, row: EpisodeRecord, observation: str) -> None:
        """Appends an observation to a row, if the world's turns and the model's context allow another answer; otherwise
        the episode is truncated, and counted."""
        if row.turns >= self.tasks.turns:
            row.truncated = True
            self.executor.count_cut(row.task, self.tasks.turns)
            return
        ids = self.dialogue.reply(observation, row.ids[-1])
        if len(ids) < self._space(row):
            row.observe(ids)
            return
        row.truncated = True
        self._count_full(row)

    def _count_full(self, row: EpisodeRecord) -> None:
        assert self.policy.context_length is not None  # otherwise there is always room
        self.executor.count_full(row.task, self.policy.context_length)


def each(values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """Returns every value repeated by its count."""
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]
