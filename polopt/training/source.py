"""Where a language loop's experience comes from: tasks in a fixed order, episodes played on them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience, Support, SupportError
from polopt.policies.dialogue import Dialogue
from polopt.policies.engine import Engine, NativeEngine
from polopt.policies.language import LanguagePolicy
from polopt.policies.sampler import Sampled
from polopt.worlds.protocol import Episode, Task, Tasks

# What a sampler notes of each token where temperatures follow the entropy.
NOTED = ("temperature", "plain_entropy")


@dataclasses.dataclass
class Transcript:
    """One episode as token ids, growing to the right; `decided` marks the ids that the policy chose.

    entropy: None if some answer came without. noted: what else the sampler said of its decisions, 0 elsewhere.
    """

    task: Task
    group: int
    episode: Episode
    ids: list[int]
    decided: list[bool]
    logp: list[float]
    entropy: list[float] | None
    turn: list[int]
    kept: list[Tensor | None]
    answer: str = ""
    feedback: str | None = None
    reward: float = 0.0
    solved: bool = False
    terminated: bool = False
    truncated: bool = False
    turns: int = 0
    noted: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @classmethod
    def begin(cls, task: Task, group: int, episode: Episode, opening: list[int]) -> Transcript:
        n = len(opening)
        return cls(task, group, episode, list(opening), [False] * n, [0.0] * n, [0.0] * n, [-1] * n, [None] * n)

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def observe(self, ids: list[int]) -> None:
        self._extend(ids, False, [0.0] * len(ids), [0.0] * len(ids), -1, None)

    def decide(
        self,
        ids: list[int],
        logp: list[float],
        entropy: list[float] | None,
        kept: list[Tensor] | None,
        noted: Mapping[str, list[float]] = MappingProxyType({}),
    ) -> None:
        for name, values in noted.items():
            known = self.noted.setdefault(name, [])
            known += [0.0] * (len(self.ids) - len(known)) + values
        self._extend(ids, True, logp, entropy, self.turns, kept)
        self.turns += 1

    def _extend(
        self, ids: list[int], decided: bool, logp: list[float], entropy: list[float] | None, turn: int, kept: Any
    ) -> None:
        self.ids += ids
        self.decided += [decided] * len(ids)
        self.logp += logp
        self.entropy = None if self.entropy is None or entropy is None else self.entropy + entropy
        self.turn += [turn] * len(ids)
        self.kept += kept if kept is not None else [None] * len(ids)


class Player:
    """Plays episodes of a world with a policy, a batch of them at a time, turn by turn.

    engine: what draws the policy's answers; polopt's own sampler if None.
    """

    def __init__(self, policy: LanguagePolicy, tasks: Tasks, limit: int, engine: Engine | None = None) -> None:
        self.policy, self.tasks, self.limit = policy, tasks, limit
        self.engine = NativeEngine(policy) if engine is None else engine
        self.dialogue = Dialogue(policy.tokenizer)
        self.seconds = {"rollout": 0.0, "reward": 0.0}

    @property
    def horizon(self) -> int:
        """The most decisions that one episode may take."""
        return self.limit * self.tasks.turns

    def play(self, tasks: Sequence[Task], group: int, support: Support, generator: torch.Generator) -> list[Transcript]:
        """`group` episodes of each task, row i * group onwards for task i.

        An answer that is cut off by the token limit never reaches the world: its episode is truncated.
        """
        episodes = [[self.tasks.episode(task) for _ in range(group)] for task in tasks]
        openings = [self._open(plays) for plays in episodes]
        rows = [
            Transcript.begin(task, i, play, opening)
            for i, (task, plays, opening) in enumerate(zip(tasks, episodes, openings, strict=True))
            for play in plays
        ]
        answers = self._sample(openings, group, support, generator)
        going = self._advance(rows, answers)
        while going:
            answers = self._sample([row.ids for row in going], 1, support, generator)
            going = self._advance(going, answers)
        return rows

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
                action = episode.demonstrate()
                if action is None:
                    raise ValueError(
                        f"task {task.id} comes with no solution to imitate; leave out the stage that needs "
                        "demonstrations, or give the tasks solutions"
                    )
                ids = self.dialogue.answer(action)
                row.decide(ids, [0.0] * len(ids), [0.0] * len(ids), None)
                self._step(row, action)
            rows.append(row)
        return rows

    def _open(self, plays: Sequence[Episode]) -> list[int]:
        observations = {play.reset() for play in plays}
        if len(observations) != 1:
            raise ValueError(f"one task must open with one observation, found {len(observations)}")
        return self.dialogue.opening(observations.pop())

    def _sample(
        self, contexts: Sequence[Sequence[int]], group: int, support: Support, generator: torch.Generator
    ) -> list[Sampled]:
        start = time.perf_counter()
        answers = self.engine.sample(
            contexts,
            group=group,
            support=support,
            limit=self.limit,
            stop=self.policy.stop,
            generator=generator,
        )
        self.seconds["rollout"] += time.perf_counter() - start
        return answers

    def _advance(self, rows: Sequence[Transcript], answers: Sequence[Sampled]) -> list[Transcript]:
        """Give each row its answer; the rows whose episode goes on."""
        start = time.perf_counter()
        for row, answer in zip(rows, answers, strict=True):
            row.decide(answer.tokens, answer.logp, answer.entropy, answer.kept, answer.noted)
            row.answer = self.dialogue.text(answer.tokens)
            if answer.stopped:
                self._step(row, row.answer)
            else:
                row.truncated = True
        self.seconds["reward"] += time.perf_counter() - start
        return [row for row in rows if not row.over]

    def _step(self, row: Transcript, action: str) -> None:
        step = row.episode.step(action)
        row.reward += step.reward
        row.feedback = step.info.get("feedback")
        row.solved = bool(step.info.get("solved", row.reward >= 1))
        row.terminated, row.truncated = step.terminated, step.truncated
        if not row.over:
            row.observe(self.dialogue.reply(step.observation, row.ids[-1]))


def to_experience(
    rows: Sequence[Transcript], support: Support, *, horizon: int | None, policy: LanguagePolicy
) -> Experience:
    """Transcripts as one batch, padded on the right; `horizon` counts decisions. Log-probabilities are float64
    if the policy is, else float32. Without a row's entropy, the batch has none.

    Raises:
        SupportError: a truncated support, and an answer without the ids that it left to choose from; temperatures
            that follow the entropy, and an answer without them.
    """
    B, T = len(rows), max(len(row.ids) for row in rows)
    device, precision = policy.device, policy.precision

    def pad(values: list[list[Any]], blank: Any, dtype: torch.dtype) -> Tensor:
        return torch.tensor([v + [blank] * (T - len(v)) for v in values], dtype=dtype).reshape(B, T).to(device)

    def column(values: list[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(device)

    known = [row.entropy for row in rows if row.entropy is not None]
    entropy: Any = pad(known, 0.0, precision) if len(known) == B else None
    outcome = column([row.reward for row in rows], torch.float32)
    extras: dict[str, Any] = {
        "tokens": pad([row.ids for row in rows], -1, torch.long),
        "answer": [row.answer for row in rows],
        "feedback": [row.feedback for row in rows],
        "task": [row.task for row in rows],
        "kind": [row.task.kind for row in rows],
    }
    if support.truncated:
        extras["kept"] = _kept(rows, T).to(device)
    if support.by_entropy is not None:
        if any(name not in row.noted for row in rows for name in NOTED):
            raise SupportError(
                "the sampler did not tell each token's temperature, and the learner cannot apply it again without; "
                "sample at one temperature, or with rollout.engine: native"
            )
        extras |= {name: pad([row.noted[name] for row in rows], 0.0, precision) for name in NOTED}
    return Experience(
        mask=pad([row.decided for row in rows], False, torch.bool),
        logp=pad([row.logp for row in rows], 0.0, precision),
        support=support,
        horizon=horizon,
        entropy=entropy,
        turn=pad([row.turn for row in rows], -1, torch.long),
        group=column([row.group for row in rows], torch.long),
        terminated=column([row.terminated for row in rows], torch.bool),
        truncated=column([row.truncated for row in rows], torch.bool),
        reward=outcome,
        outcome=outcome,
        extras=extras,
    )


def prompts_of(experience: Experience) -> tuple[Experience, Tensor]:
    """Every group's prompt as if the policy had decided it, and [B] which of them is each row's.

    A prompt is what stands before a row's first decision; its first token, with nothing before it, is given. The rows
    of a group share it, so that of its first row stands for all. Over the whole vocabulary at temperature 1: nobody
    sampled it.
    """
    index, size = ops.group_index(experience.group)
    every = torch.arange(len(experience), device=experience.device)
    first = every.new_full((len(size),), len(experience)).scatter_reduce(0, index, every, "amin")
    mask, tokens = experience.mask[first], experience.extras["tokens"][first]
    real = (tokens >= 0) & (mask.cumsum(1) == 0) & mask.any(1, keepdim=True)
    return Experience(mask=real & (real.cumsum(1) > 1), extras={"tokens": tokens}), index


def _kept(rows: Sequence[Transcript], T: int) -> Tensor:
    """[B, T, K] the ids that each decision chose from, -1 beyond."""
    if any(decided and ids is None for row in rows for decided, ids in zip(row.decided, row.kept, strict=True)):
        raise SupportError(
            "the sampler did not tell which ids top-k and top-p left, and the learner cannot renormalise without; "
            "sample with top_k: 0 and top_p: 1, or with rollout.engine: native"
        )
    width = max((len(k) for row in rows for k in row.kept if k is not None), default=1)
    kept = torch.full((len(rows), T, width), -1, dtype=torch.int32)
    for b, row in enumerate(rows):
        for t, ids in enumerate(row.kept):
            if ids is not None:
                kept[b, t, : len(ids)] = ids.int()
    return kept


class LanguageSource:
    """The loop's `Source`: takes the tasks in a shuffled order that a position alone determines."""

    def __init__(self, player: Player, *, rows: int, seed: int, generator: torch.Generator) -> None:
        self.player, self.rows, self.seed, self.generator = player, rows, seed, generator
        self.position = 0
        self._epoch: tuple[int, list[int]] = (-1, [])

    def rollout(self, prompts: int, group: int, support: Support) -> Experience:
        """As `Source.rollout`; `extras["index"]` [B] is the number of each row's task."""
        index = self._next(prompts)
        rows = self.player.play(self._tasks(index), group, support, self.generator)
        experience = to_experience(rows, support, horizon=self.player.horizon, policy=self.player.policy)
        return experience.replace(extras={"index": torch.tensor(index, device=experience.device)[experience.group]})

    def recall(self, experience: Experience) -> Experience:
        """As `Source.recall`: tasks by their numbers, answers read from their tokens."""
        index, tokens = experience.extras["index"].tolist(), experience.extras["tokens"]
        last = torch.where(experience.mask, experience.turn, -1).amax(1, keepdim=True)
        said = experience.mask & (experience.turn == last)
        answers = [self.player.dialogue.text(ids[mine].tolist()) for ids, mine in zip(tokens, said, strict=True)]
        tasks = self._tasks(index)
        # What the world said of them in words was not kept.
        silence = [None] * len(tasks)
        kinds = [task.kind for task in tasks]
        return experience.replace(extras={"answer": answers, "task": tasks, "kind": kinds, "feedback": silence})

    def greedy(self, tasks: Sequence[Task]) -> list[float]:
        """The outcome of the likeliest answer to each task."""
        rows = self.player.play(tasks, 1, Support(top_k=1), torch.Generator().manual_seed(0))
        return [row.reward for row in rows]

    def demonstrate(self, rows: int) -> Experience:
        shown = self.player.demonstrate(self._tasks(self._next(rows)))
        experience = to_experience(shown, Support(), horizon=None, policy=self.player.policy)
        # Nobody sampled these decisions, so no behaviour log-probabilities exist.
        return experience.replace(logp=None, entropy=None)

    def _tasks(self, index: Sequence[int]) -> list[Task]:
        return [self.player.tasks[i] for i in index]

    def _next(self, count: int) -> list[int]:
        """Numbers of the next tasks of an endless sequence of shuffles, each shuffle seeded by its number."""
        found, size = [], len(self.player.tasks)
        for position in range(self.position, self.position + count):
            epoch, offset = divmod(position, size)
            if epoch != self._epoch[0]:
                order = torch.randperm(size, generator=torch.Generator().manual_seed(self.seed + epoch))
                self._epoch = (epoch, order.tolist())
            found.append(self._epoch[1][offset])
        self.position += count
        return found
