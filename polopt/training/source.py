"""The source of a language loop's experience: tasks in a fixed order, and episodes played on them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest
from polopt.sampling.source_protocols import AnswerTurn
from polopt.support import Support
from polopt.training.episode_player import EpisodePlayer
from polopt.training.episode_record import EpisodeRecord, pasts, to_experience
from polopt.training.preflight_models import measured
from polopt.worlds.protocol import Task, has_sections, signals_of


class Shuffles:
    """An endless sequence of shuffles of `size` things, each shuffle seeded by its number. `position` is the number of
    things taken so far."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.position = size, seed, 0
        self._order: tuple[int, list[int]] = (-1, [])

    def take(self, count: int) -> list[tuple[int, int]]:
        """Returns the next things: of each, the number of its shuffle and its own."""
        things = []
        for position in range(self.position, self.position + count):
            number, offset = divmod(position, self.size)
            if number != self._order[0]:
                order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed + number))
                self._order = (number, order.tolist())
            things.append((number, self._order[1][offset]))
        self.position += count
        return things


class LanguageSource:
    """A `Source` that takes the tasks, and the raw texts, in shuffled orders that a position alone determines."""

    def __init__(
        self, player: EpisodePlayer, *, rows: int, seed: int, generator: torch.Generator, texts: Sequence[str] = ()
    ) -> None:
        self.player, self.rows, self.generator, self._texts = player, rows, generator, texts
        self._order, self._pages = Shuffles(len(player.tasks), seed), Shuffles(len(texts), seed)

    @property
    def size(self) -> int:
        return len(self.player.tasks)

    def take(self, count: int) -> Tensor:
        return torch.tensor(self._next(count))

    def rollout(self, request: RolloutRequest) -> Experience:
        tasks, limit = self._tasks(request.tasks.tolist()), request.max_decisions
        counts, steered = request.counts.tolist(), (request.lookahead, request.mixture)
        rows = self.player.play(tasks, counts, request.support, self.tokens, limit, request.starts, *steered)
        experience = self._experience(rows, request.support)
        return experience.replace(extras={"index": request.tasks.to(experience.device)[experience.group]})

    def usage(self) -> dict[str, float]:
        """Returns what the player has spent so far: tokens sampled, seconds by kind of work, failed episodes."""
        seconds = {f"seconds/{kind}": value for kind, value in self.player.seconds.items()}
        failed = {f"episodes/{name}": count for name, count in self.player.executor.counts.items()}
        return {"sampled": self.player.sampled, **seconds, **failed}

    @property
    def tokens(self) -> torch.Generator:
        """Returns the random generator that tokens are drawn with."""
        return self.generator

    def _experience(self, rows: Sequence[EpisodeRecord], support: Support) -> Experience:
        player = self.player
        signals, sections = signals_of(player.tasks), has_sections(player.tasks)
        settings: dict[str, Any] = {"horizon": player.horizon, "policy": player.policy}
        return to_experience(rows, support, **settings, signals=signals, sections=sections)

    def extend(
        self,
        experience: Experience,
        copies: int,
        max_decisions: int | None = None,
        at: Tensor | None = None,
        forced_tokens: Sequence[Sequence[int]] | None = None,
    ) -> Experience:
        """Extends rows as `ContinuingSource.extend`. Episodes are replayed up to their present place, so a world must
        answer equal actions equally; answers go on in the middle of a turn.

        Raises:
            ValueError: a row has ended; its sampler's context had a hidden hint; the world answers the replay
                otherwise; or forced tokens end the answer.
        """
        if at is None and (experience.terminated | experience.truncated).any():
            raise ValueError(
                "LanguageSource.extend: some rows have ended; leave them out, or set `at`, the columns to go on from"
            )
        index = experience.extras["index"].tolist()
        records = zip(self._tasks(index), experience.group.tolist(), pasts(experience, at), strict=True)
        rows = self.player.resume([one for one in records for _ in range(copies)])
        if forced_tokens is not None:
            for i, row in enumerate(rows):
                self.player.force_tokens(row, forced_tokens[i // copies])
        self.player.go_on(rows, [copies] * len(index), experience.support, self.tokens, max_decisions)
        found = self._experience(rows, experience.support)
        return found.replace(extras={"index": experience.extras["index"].repeat_interleave(copies)})

    def restore_rows(self, experience: Experience) -> Experience:
        """Restores rows as `RestoringSource.restore_rows`: tasks by their numbers, answers decoded from their tokens,
        feedback by replaying the answers."""
        tasks = self._tasks(experience.extras["index"].tolist())
        turns = [past.answers for past in pasts(experience)]
        answers = [self.player.dialogue.text(texts[-1]) for texts in turns]
        feedback = self.player.feedback(tasks, turns)
        kinds = [task.kind for task in tasks]
        return experience.replace(extras={"answer": answers, "feedback": feedback, "task": tasks, "kind": kinds})

    def task_ids(self, tasks: Tensor) -> list[str]:
        return [task.id for task in self._tasks(tasks.tolist())]

    def answers(self, experience: Experience) -> list[list[str]]:
        return [[self.player.dialogue.text(ids) for ids in past.answers] for past in pasts(experience)]

    def import_answers(
        self, tasks: Tensor, answers: Sequence[Sequence[Sequence[AnswerTurn]]], support: Support
    ) -> Experience:
        rows = self.player.receive(self._tasks(tasks.tolist()), answers)
        experience = self._experience(rows, support)
        index = tasks.to(experience.device)[experience.group]
        evaluation = self.evaluate(experience, frozenset({"entropy"}))
        return experience.replace(rollout_logp=evaluation.logp, entropy=evaluation.entropy, extras={"index": index})

    def encode(self, text: str) -> list[int]:
        return self.player.dialogue.answer(text)[:-1]

    @property
    def kinds(self) -> list[str]:
        return self.player.tasks.kinds

    def kinds_of(self, tasks: Tensor) -> list[str]:
        return [task.kind for task in self._tasks(tasks.tolist())]

    def prompts(self, tasks: Tensor) -> list[str]:
        return [task.prompt for task in self._tasks(tasks.tolist())]

    def solution_lengths(self, tasks: Tensor) -> Tensor:
        return torch.tensor(self.player.solution_lengths(self._tasks(tasks.tolist())))

    @torch.no_grad()
    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        policy = self.player.policy
        return Evaluation.cat([policy.evaluate(micro, needs) for micro in experience.split(self.rows)])

    def gradient_norms(self, experience: Experience, block: str | None = "") -> Tensor:
        """Computes norms as `GradientNormSource.gradient_norms`, one backward pass a row.

        Raises:
            ValueError: no parameter has such a name.
        """
        policy = self.player.policy
        parameters = list(policy.named_block(block).values())
        norms = []
        for row in experience.split(1):
            logp = torch.where(row.mask, policy.evaluate(row).logp, 0).sum()
            slopes = torch.autograd.grad(logp, parameters, allow_unused=True)
            norms.append(torch.stack([s.norm() for s in slopes if s is not None]).norm())
        return torch.stack(norms).to(experience.device)

    def weights(self) -> Tensor:
        """Returns a copy of the learner's parameters, as one vector [P]."""
        return torch.cat([p.detach().flatten() for p in self.player.policy.own_parameters().values()])

    @contextlib.contextmanager
    def using(self, weights: Tensor) -> Iterator[None]:
        """Gives the learner these parameters [P] inside of a `with` statement."""
        own = self.weights()
        self._set_weights(weights)
        try:
            yield
        finally:
            self._set_weights(own)

    @torch.no_grad()
    def _set_weights(self, weights: Tensor) -> None:
        parameters = list(self.player.policy.own_parameters().values())
        for p, values in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
            p.copy_(values.view_as(p))

    def greedy(self, tasks: Sequence[Task]) -> list[float]:
        """Returns the reward of the policy's greedy answer to each task."""
        rows = self.player.play(tasks, 1, Support(top_k=1), torch.Generator().manual_seed(0))
        return [row.reward for row in rows]

    def demonstrate(self, rows: int) -> Experience:
        numbers = self._next(rows)
        shown = self._shown(self.player.demonstrate(self._tasks(numbers)))
        return shown.replace(extras={"index": torch.tensor(numbers, device=shown.device)})

    def demonstrate_groups(self, experience: Experience) -> Experience:
        chosen = ops.group_first(experience.group)
        tasks = [experience.extras["task"][row] for row in chosen.tolist()]
        return self._shown(self.player.demonstrate(tasks)).replace(group=experience.group[chosen])

    def texts(self, rows: int, length: int) -> Experience:
        """Returns raw texts as `TextSource.texts`. Of a text that is longer, or longer than the model's context, each
        shuffle takes the next piece, so that all of it comes in time.

        Raises:
            ValueError: there are no texts.
        """
        if not self._texts:
            raise ValueError("the sampling part needs raw texts, and there are none; set tasks.texts to a file")
        context = self.player.policy.context_length
        length = length if context is None else min(length, context - 1)  # one position is the beginning token's
        return self._shown(self.player.write([self._piece(*page, length) for page in self._pages.take(rows)]))

    def _piece(self, shuffle: int, text: int, length: int) -> list[int]:
        ids = self.player.dialogue.answer(self._texts[text])
        start = shuffle % -(-len(ids) // length) * length
        return ids[start : start + length]

    def pairs(self, rows: int, tasks: Tensor | None = None) -> Experience:
        if tasks is not None:
            return self._unsampled(self.player.rated(self._tasks(tasks.tolist())))
        return self.rated(rows)

    def rated(self, rows: int, *, mismatched: bool = False) -> Experience:
        """Returns answers as `RatedSource.rated`. As many tasks are taken as fit if all had the most answers of any."""
        tasks = self._tasks(self._next(max(1, rows // self._most_rated)))
        found = self.player.rated(tasks)
        if not mismatched:
            return self._unsampled(found)
        if len(tasks) < 2:
            raise ValueError("answers of other tasks need two tasks a batch, found one; raise the stage's rows")
        others = [tasks[i - 1].rated for i in range(len(tasks))]
        strange = self.player.rated(tasks, [[answer._replace(score=0.0) for answer in its] for its in others])
        flags = torch.arange(len(found) + len(strange)) >= len(found)
        return self._unsampled([*found, *strange]).replace(extras={"mismatched": flags})

    @functools.cached_property
    def _most_rated(self) -> int:
        tasks = self.player.tasks
        return max(1, *(len(tasks[i].rated) for i in range(measured(tasks))))

    def _shown(self, rows: Sequence[EpisodeRecord]) -> Experience:
        experience = self._unsampled(rows)
        return experience.replace(outcome=torch.ones_like(experience.outcome))

    def _unsampled(self, rows: Sequence[EpisodeRecord]) -> Experience:
        # These decisions were not sampled, so no behaviour log-probabilities exist.
        return self._experience(rows, Support()).replace(horizon=None, rollout_logp=None, entropy=None)

    def _tasks(self, index: Sequence[int]) -> list[Task]:
        return [self.player.tasks[i] for i in index]

    def _next(self, count: int) -> list[int]:
        """Returns the numbers of the next tasks."""
        return [task for _, task in self._order.take(count)]

    @property
    def position(self) -> int:
        """Returns the number of tasks taken so far."""
        return self._order.position

    def state(self) -> dict[str, int]:
        """Returns the source's position in its orders."""
        return {"position": self._order.position, "texts": self._pages.position}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._order.position, self._pages.position = state["position"], state["texts"]
