"""Episodes as token ids, and as a batch of experience."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import Sampled
from polopt.support import Support, SupportError
from polopt.tokens import observed_states
from polopt.worlds.executors import EpisodeHandle
from polopt.worlds.protocol import Task

# The sampler's values at each token where temperatures follow the entropy.
NOTED = ("temperature", "plain_entropy")


@dataclasses.dataclass
class EpisodeRecord:
    """One episode as token ids, growing to the right; `decided` marks the ids that the policy chose.

    episode: the executor's handle, None for a raw text, which no world plays.
    entropy: None if some answer came without.
    noted: further values of the sampler at its decisions, 0 elsewhere.
    rewards: the world's reward at each id; that of an answer is at its last id.
    turns: number of complete answers.
    partial_length: number of tokens of the incomplete answer.
    remaining: how many more tokens the policy may decide for now, None for no such limit.
    given: number of leading ids of the first answer that were not sampled.
    signals: the world's further numbers on the last answer.
    section: of each id as in `polopt.sections`, -1 for none.
    read: the answer that the world extracted from its text.
    hidden_prompt: ids of the opening in the sampler's context, None where they are the recorded ones.
    opened: number of ids of the recorded opening.
    """

    task: Task
    group: int
    episode: EpisodeHandle | None
    ids: list[int]
    decided: list[bool]
    logp: list[float]
    entropy: list[float] | None
    turn: list[int]
    kept: list[Tensor | None]
    rewards: list[float]
    answer: str = ""
    read: str | None = None
    feedback: str | None = None
    reward: float = 0.0
    solved: bool = False
    terminated: bool = False
    truncated: bool = False
    turns: int = 0
    partial_length: int = 0
    remaining: int | None = None
    noted: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    given: int = 0
    signals: dict[str, float] = dataclasses.field(default_factory=dict)
    hidden_prompt: list[int] | None = None
    opened: int = 0
    section: list[int] = dataclasses.field(default_factory=list)

    @classmethod
    def begin(
        cls,
        task: Task,
        group: int,
        episode: EpisodeHandle | None,
        opening: list[int],
        hidden_prompt: list[int] | None = None,
    ) -> EpisodeRecord:
        n, blank = len(opening), [0.0] * len(opening)
        row = cls(task, group, episode, list(opening), [False] * n, blank, [*blank], [-1] * n, [None] * n, [*blank])
        row.hidden_prompt, row.opened = hidden_prompt, n
        return row

    @property
    def context(self) -> list[int]:
        """Returns the sampler's context."""
        return self.ids if self.hidden_prompt is None else self.hidden_prompt + self.ids[self.opened :]

    @property
    def answer_length(self) -> int:
        """Returns the number of tokens of the current answer, the given ones included."""
        return self.partial_length + (self.given if self.turns == 0 else 0)

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
        kept: Sequence[Tensor | None] | None,
        noted: Mapping[str, list[float]] = MappingProxyType({}),
    ) -> None:
        """Appends sampled ids to the incomplete answer."""
        for name, values in noted.items():
            known = self.noted.setdefault(name, [])
            known += [0.0] * (len(self.ids) - len(known)) + values
        self._extend(ids, True, logp, entropy, self.turns, kept)
        self.partial_length += len(ids)
        self.remaining = None if self.remaining is None else self.remaining - len(ids)

    def add_given(self, ids: list[int]) -> None:
        """Appends ids to the first answer's given prefix, which are no decisions."""
        self._extend(ids, False, [0.0] * len(ids), [0.0] * len(ids), self.turns, None)
        self.given += len(ids)

    def add_reward(self, reward: float) -> None:
        """Adds the reward of the answer that was just completed, at its last id."""
        self.reward += reward
        self.rewards[-1] += reward

    def imitate(self, ids: list[int]) -> None:
        """Appends a demonstration's ids as decisions, with log-probabilities and entropies of 0."""
        self.decide(ids, [0.0] * len(ids), [0.0] * len(ids), None)

    def mark(self, sections: list[int]) -> None:
        """Notes the sections of the answer that was just completed, which ends with the last id."""
        self.section += [-1] * (len(self.ids) - len(sections) - len(self.section)) + sections

    @property
    def partial_answer(self) -> list[int]:
        """Returns the ids of the incomplete answer, the given ones included."""
        return self.ids[len(self.ids) - self.answer_length :]

    def complete(self) -> None:
        """Marks the current answer as complete."""
        self.turns, self.partial_length = self.turns + 1, 0

    def _extend(
        self, ids: list[int], decided: bool, logp: list[float], entropy: list[float] | None, turn: int, kept: Any
    ) -> None:
        self.ids += ids
        self.decided += [decided] * len(ids)
        self.logp += logp
        self.entropy = None if self.entropy is None or entropy is None else self.entropy + entropy
        self.turn += [turn] * len(ids)
        self.rewards += [0.0] * len(ids)
        self.kept += kept if kept is not None else [None] * len(ids)


@dataclasses.dataclass(frozen=True)
class RecordedEpisode:
    """An episode as a batch recorded it. ids: up to its present end. turn: of each id of an answer, else -1. given:
    number of leading ids of the first answer that were not sampled. hinted: whether the sampler's context had more than
    the recorded ids. logp, entropy, kept, noted: as in `EpisodeRecord`."""

    ids: list[int]
    turn: list[int]
    given: int
    hinted: bool
    logp: list[float]
    entropy: list[float] | None
    kept: list[Tensor | None]
    noted: dict[str, list[float]]

    @property
    def answers(self) -> list[list[int]]:
        """Returns the ids of each answer, turn by turn."""
        by_turn: dict[int, list[int]] = {}
        for number, turn in zip(self.ids, self.turn, strict=True):
            if turn >= 0:
                by_turn.setdefault(turn, []).append(number)
        return [by_turn[turn] for turn in sorted(by_turn)]

    def decisions(self, begin: int, end: int) -> dict[str, Any]:
        """Returns the arguments of `EpisodeRecord.decide` for the ids from `begin` to before `end`."""
        span = slice(begin, end)
        return {
            "ids": self.ids[span],
            "logp": self.logp[span],
            "entropy": None if self.entropy is None else self.entropy[span],
            "kept": self.kept[span],
            "noted": {name: values[span] for name, values in self.noted.items()},
        }


def first(answer: Sampled, tokens: int) -> Sampled:
    """Returns the answer's first tokens; a shortened answer counts as not stopped."""
    if len(answer.tokens) <= tokens:
        return answer
    return Sampled(
        tokens=answer.tokens[:tokens],
        logp=answer.logp[:tokens],
        entropy=None if answer.entropy is None else answer.entropy[:tokens],
        stopped=False,
        kept=None if answer.kept is None else answer.kept[:tokens],
        noted={name: values[:tokens] for name, values in answer.noted.items()},
    )


def pasts(experience: Experience, at: Tensor | None = None) -> list[RecordedEpisode]:
    """Returns the recorded episode of each row, all of it or the columns before `at` [B]."""
    tokens, kept = experience.extras["tokens"], experience.extras.get("kept")
    end = (tokens >= 0).sum(1) if at is None else at
    given, hinted = experience.extras["given"].tolist(), experience.extras["hinted"].tolist()
    noted = {name: experience.extras[name] for name in NOTED if name in experience.extras}
    records = []
    for b, n in enumerate(end.tolist()):
        chosen: list[Tensor | None] = [None] * n
        if kept is not None:
            chosen = [ids[ids >= 0].cpu() for ids in kept[b, :n]]
        records.append(
            RecordedEpisode(
                ids=tokens[b, :n].tolist(),
                turn=experience.turn[b, :n].tolist(),
                given=given[b],
                hinted=hinted[b],
                logp=experience.rollout_logp[b, :n].tolist(),
                entropy=None if experience.entropy is None else experience.entropy[b, :n].tolist(),
                kept=chosen,
                noted={name: values[b, :n].tolist() for name, values in noted.items()},
            )
        )
    return records


def to_experience(
    rows: Sequence[EpisodeRecord],
    support: Support,
    *,
    horizon: int | None,
    policy: LanguagePolicy,
    signals: Sequence[str] = (),
    sections: bool = False,
) -> Experience:
    """Converts episodes to one batch, padded on the right; `horizon` counts decisions. Log-probabilities are float64 if
    the policy is, else float32. Without a row's entropy, the batch has none. signals: names of the world's further
    numbers; 0 in rows without them. sections: whether the world tells those of answers.

    Raises:
        SupportError: a truncated support, and an answer without the ids of its support; temperatures that follow the
            entropy, and an answer without them.
    """
    table, precision = _Table(rows, policy.device), policy.precision
    extras = _extras(rows, support, table, signals, precision)
    if sections:
        extras["section"] = table.padded([row.section for row in rows], -1, torch.long)
    known = [row.entropy for row in rows if row.entropy is not None]
    entropy: Any = table.padded(known, 0.0, precision) if len(known) == len(rows) else None
    outcome = table.column([row.reward for row in rows], torch.float32)
    return Experience(
        mask=table.padded([row.decided for row in rows], False, torch.bool),
        rollout_logp=table.padded([row.logp for row in rows], 0.0, precision),
        support=support,
        horizon=horizon,
        entropy=entropy,
        turn=table.padded([row.turn for row in rows], -1, torch.long),
        group=table.column([row.group for row in rows], torch.long),
        terminated=table.column([row.terminated for row in rows], torch.bool),
        truncated=table.column([row.truncated for row in rows], torch.bool),
        reward=outcome,
        outcome=outcome,
        extras=extras,
    )


class _Table:
    """Converts lists of the rows' values to tensors on a device. length: of the longest row."""

    def __init__(self, rows: Sequence[EpisodeRecord], device: torch.device) -> None:
        self.length, self.device = max(len(row.ids) for row in rows), device

    def padded(self, values: list[list[Any]], blank: Any, dtype: torch.dtype) -> Tensor:
        """Returns [B, T], one list a row, padded with `blank` on the right."""
        filled = [v + [blank] * (self.length - len(v)) for v in values]
        return torch.tensor(filled, dtype=dtype).reshape(len(values), self.length).to(self.device)

    def column(self, values: list[Any], dtype: torch.dtype) -> Tensor:
        """Returns [B], one value a row."""
        return torch.tensor(values, dtype=dtype).to(self.device)


def _extras(
    rows: Sequence[EpisodeRecord], support: Support, table: _Table, signals: Sequence[str], precision: torch.dtype
) -> dict[str, Any]:
    tokens = table.padded([row.ids for row in rows], -1, torch.long)
    extras: dict[str, Any] = {
        "tokens": tokens,
        "turn_state": observed_states(tokens, table.padded([row.turn for row in rows], -1, torch.long)),
        "answer": [row.answer for row in rows],
        "feedback": [row.feedback for row in rows],
        "task": [row.task for row in rows],
        "kind": [row.task.kind for row in rows],
        "solved": table.column([row.solved for row in rows], torch.bool),
        "answer_reward": table.padded([row.rewards for row in rows], 0.0, torch.float32),
        "given": table.column([row.given for row in rows], torch.long),
        "hinted": table.column([row.hidden_prompt is not None for row in rows], torch.bool),
    }
    extras |= {
        f"signal_{name}": table.column([row.signals.get(name, 0.0) for row in rows], torch.float32) for name in signals
    }
    if support.truncated:
        extras["kept"] = _kept(rows, table.length).to(table.device)
    if support.by_entropy is not None:
        if any(name not in row.noted for row in rows for name in NOTED):
            raise SupportError(
                "the sampler did not report each token's temperature, and the learner cannot apply it again without; "
                "sample at one temperature, or with rollout.engine: native"
            )
        extras |= {name: table.padded([row.noted[name] for row in rows], 0.0, precision) for name in NOTED}
    return extras


def prompts_of(experience: Experience) -> tuple[Experience, Tensor]:
    """Returns every group's prompt as a row of decisions, and [B] the index of each row's prompt.

    A prompt is what precedes a row's first decision; its first token, with nothing before it, is given. The rows
    of a group share it, so that of its first row is used for all. The support is the whole vocabulary at temperature 1,
    as a prompt is not sampled.
    """
    index, _ = ops.group_index(experience.group)
    chosen = ops.group_first(experience.group)
    mask, tokens = experience.mask[chosen], experience.extras["tokens"][chosen]
    real = (tokens >= 0) & (mask.cumsum(1) == 0) & mask.any(1, keepdim=True)
    return Experience(mask=real & (real.cumsum(1) > 1), extras={"tokens": tokens}), index


def _kept(rows: Sequence[EpisodeRecord], T: int) -> Tensor:
    """Returns [B, T, K] the ids of each decision's support, -1 beyond."""
    if any(decided and ids is None for row in rows for decided, ids in zip(row.decided, row.kept, strict=True)):
        raise SupportError(
            "the sampler did not report which ids top-k and top-p left, and the learner cannot renormalise without; "
            "sample with top_k: 0 and top_p: 1, or with rollout.engine: native"
        )
    width = max((len(k) for row in rows for k in row.kept if k is not None), default=1)
    kept = torch.full((len(rows), T, width), -1, dtype=torch.int32)
    for b, row in enumerate(rows):
        for t, ids in enumerate(row.kept):
            if ids is not None:
                kept[b, t, : len(ids)] = ids.int()
    return kept
