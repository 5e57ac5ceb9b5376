"""A source of rollouts whose requests are split among the workers of a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest
from polopt.sampling.source_protocols import AnswerTurn
from polopt.support import Support
from polopt.training.cluster.rollout_actor import WorkerResult, WorkerTask, deserialise, serialise
from polopt.training.cluster.worker_pool import WorkerPool
from polopt.training.episode_player import EpisodePlayer
from polopt.training.partition import joined, shares
from polopt.training.source import LanguageSource


class ClusterSource(LanguageSource):
    """A `LanguageSource` whose rollouts and evaluations come from workers with weights of `version`.

    A request is split into as many shares as the pool's settings give, whole groups each. The split depends on nothing
    else: which worker plays a share, and how often it had to be played, has no effect on the result. With one share the
    workers' random numbers are this source's own generator's, so that the result is the one without workers; with more,
    each share has a seed that the generator draws.

    `extras["version"]` [B] of the rollouts is the version of the weights that sampled the row's last decisions.
    """

    def __init__(
        self,
        player: EpisodePlayer,
        worker_pool: WorkerPool,
        stage: str,
        *,
        rows: int,
        seed: int,
        generator: torch.Generator,
        texts: Sequence[str] = (),
    ) -> None:
        super().__init__(player, rows=rows, seed=seed, generator=generator, texts=texts)
        self.worker_pool, self.stage = worker_pool, stage
        self._settings = {"rows": rows, "seed": seed, "texts": texts}
        self.version = self.batch = self._request_number = 0
        self.stopped: Callable[[], bool] = lambda: False

    def clone(self) -> ClusterSource:
        """Returns an independent copy, at the same position and with the same random numbers."""
        generator = torch.Generator()
        generator.set_state(self.generator.get_state())
        player = EpisodePlayer(self.player.policy, self.player.tasks, self.player.limit, self.player.engine)
        clone = ClusterSource(player, self.worker_pool, self.stage, generator=generator, **self._settings)  # type: ignore[arg-type]
        clone.load(self.state())
        return clone

    def begin(self, batch: int, version: int) -> None:
        """Sets the batch of the stage that the next requests belong to, and the version of their weights."""
        self.batch, self.version, self._request_number = batch, version, 0

    def rollout(self, request: RolloutRequest) -> Experience:
        request = dataclasses.replace(request, tasks=request.tasks.cpu(), copies=request.counts.cpu())
        pieces = self._pieces(request.counts)
        arguments = [{"request": request.of(piece)} for piece in pieces]
        rows = [int(request.counts[piece].sum()) for piece in pieces]
        return self._placed(self._request("rollout", arguments, rows), pieces)

    def extend(
        self,
        experience: Experience,
        copies: int,
        max_decisions: int | None = None,
        at: Tensor | None = None,
        forced_tokens: Sequence[Sequence[int]] | None = None,
    ) -> Experience:
        pieces = self._pieces(torch.ones_like(experience.group))
        arguments = [
            {
                "experience": self._serialised(experience, piece),
                "copies": copies,
                "max_decisions": max_decisions,
                "at": None if at is None else at.cpu()[piece],
                "forced_tokens": None if forced_tokens is None else [list(forced_tokens[i]) for i in piece.tolist()],
            }
            for piece in pieces
        ]
        found = self._request("extend", arguments, [copies * len(piece) for piece in pieces])
        return self._with_tasks(joined(found, [piece.repeat_interleave(copies) for piece in pieces]))

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates rows as `Source.evaluate`, by the workers' policy, which is the one that samples."""
        pieces, found = self._each(experience, "evaluate", needs=needs)
        order = torch.cat(pieces).argsort().to(experience.device)
        return Evaluation.cat(found)[order]

    def gradient_norms(self, experience: Experience, block: str | None = "") -> Tensor:
        pieces, found = self._each(experience, "gradient_norms", block=block)
        return torch.cat(found)[torch.cat(pieces).argsort().to(experience.device)]

    def import_answers(
        self, tasks: Tensor, answers: Sequence[Sequence[Sequence[AnswerTurn]]], support: Support
    ) -> Experience:
        pieces = self._pieces(torch.tensor([len(rows) for rows in answers]))
        arguments = [
            {"tasks": tasks.cpu()[piece], "answers": [answers[i] for i in piece.tolist()], "support": support}
            for piece in pieces
        ]
        return self._placed(self._request("import_answers", arguments, [0] * len(pieces)), pieces)

    def _placed(self, found: Sequence[Experience], pieces: Sequence[Tensor]) -> Experience:
        """Joins rows whose groups are numbered within their shares into one batch, in the order of the groups."""
        groups = [piece.to(part.device)[part.group] for part, piece in zip(found, pieces, strict=True)]
        placed = [part.replace(group=group) for part, group in zip(found, groups, strict=True)]
        return self._with_tasks(joined(placed, groups))

    def _pieces(self, weights: Tensor) -> list[Tensor]:
        """Returns the indices [n] of each share's items; no share is empty."""
        return [piece for piece in shares(weights.tolist(), self.worker_pool.spec.pieces) if len(piece)]

    def _each(self, experience: Experience, what: str, **arguments: Any) -> tuple[list[Tensor], list[Any]]:
        """Splits the rows into shares and calls a method of the workers' sources on each. Returns the shares and the
        results."""
        pieces = self._pieces(experience.lengths + 1)
        calls = [{"experience": self._serialised(experience, piece), **arguments} for piece in pieces]
        return pieces, self._request(what, calls, [0] * len(pieces))

    def _request(self, what: str, arguments: Sequence[dict[str, Any]], rows: Sequence[int]) -> list[Any]:
        """Calls a method of the workers' sources on each share, and returns the results."""
        states = self._states(len(arguments))
        worker_tasks = [
            WorkerTask((self.batch, self._request_number, i), self.stage, what, one, self.version, states[i], rows[i])
            for i, one in enumerate(arguments)
        ]
        self._request_number += 1
        answers = self.worker_pool.run(worker_tasks, self.stopped)
        if len(answers) == 1:
            self.generator.set_state(answers[0].generator)
        self._count([answer.spent for answer in answers])
        return [self._received(answer) for answer in answers]

    def _count(self, spent: Sequence[Mapping[str, float]]) -> None:
        """Adds the workers' usage to this source's; seconds are those of the slowest, as the workers run at the same
        time."""
        for kind in self.player.seconds:
            self.player.seconds[kind] += max(one[f"seconds/{kind}"] for one in spent)
        self.player.sampled += int(sum(one["sampled"] for one in spent))
        for one in spent:
            self.player.executor.count({name.removeprefix("episodes/"): value for name, value in one.items()})

    def _states(self, count: int) -> list[Tensor]:
        if count == 1:
            return [self.generator.get_state()]
        seeds = torch.randint(2**62, (count,), generator=self.generator).tolist()
        return [torch.Generator().manual_seed(seed).get_state() for seed in seeds]

    def _received(self, answer: WorkerResult) -> Any:
        value = deserialise(answer.value, self.player.policy.device)
        return self._stamped(value, answer.version) if isinstance(value, Experience) else value

    @staticmethod
    def _serialised(experience: Experience, piece: Tensor) -> Experience:
        return serialise(experience[piece])

    @staticmethod
    def _stamped(experience: Experience, version: int) -> Experience:
        versions = torch.full((len(experience),), version, dtype=torch.long, device=experience.device)
        return experience.replace(extras={"version": versions})

    def _with_tasks(self, experience: Experience) -> Experience:
        """Restores the tasks, which are not sent between processes."""
        return experience.replace(extras={"task": self._tasks(experience.extras["index"].tolist())})
