"""Rollouts of one's own beside those that other learners have shared."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from polopt import ops
from polopt.backends.pool import LocalPool, Pool, PublishedGroup
from polopt.experience import Experience
from polopt.part_names import name_of
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.select import MixedGroups
from polopt.sampling.source_protocols import ImportingSource
from polopt.schedules import Schedule, now


class Swarm(Rollouts):
    """Groups that this node samples, and groups that others have published, learned from as if they were its own.

    Nodes are learners that share nothing but a pool: text, tasks, what they were paid. Of a batch's groups the share
    `share` (a number or a schedule), one group at least not, is drawn evenly, at most once each, among what the other
    nodes have published in their last `newest` batches, with own=True also among this node's own. Their answers are
    encoded and played again in this node's own world, which pays them, and a group whose outcomes are all alike is
    passed over for another. Where too few are left, the node samples more itself. What it has sampled it publishes, and
    it keeps its last `keep` batches in the pool.

    correct=False takes `rollout_logp` of the shared decisions to be this node's own at that moment: the ratio begins at
    1, and the update is biased towards whoever published. True publishes tokens and log-probabilities too, takes a
    group over token by token and with the `rollout_logp` of who drew it, so that a ratio corrects for it. It needs
    nodes of one tokenizer and one temperature: groups of another temperature, whose tokens say something else here than
    their text, or with a decision that this node finds more than exp(max_log_ratio) times as likely as its publisher
    says, are passed over, so that no ratio is larger. A task is known by its number and name; unknown ones are passed
    over too, so nodes share where they share tasks.

    Publications that nobody can learn from, and groups that this source cannot play or whose tokens or
    log-probabilities do not belong to their text, are passed over and counted: `extras["skipped"]` [B] is how many were
    met for this batch, the same in every row.

    `extras["external"]` [B] bool marks shared rows. `extras["age"]` [B] counts the batches that its node has published
    since, 0 for what was sampled now. The draw is the source's generator's. With share 0 this is `Rollouts`, number for
    number, which publishes.

    A run that is resumed draws and numbers its batches as it would have; own publications of batches it has yet to play
    again do not count, so that a node alone resumes exactly, if it goes on within keep - newest batches. What others
    have published in the meantime is theirs to decide, and not repeated.

    Source: SAPO, arXiv:2509.08721.
    """

    node: str = "node"
    pool: Pool = LocalPool()
    share: float | Schedule = 0.5
    newest: int = 4
    own: bool = False
    correct: bool = False
    keep: int = 256
    max_log_ratio: float = 10.0

    writes = frozenset({"extras.age", "extras.external", "extras.skipped"})
    source_capabilities = frozenset({"imported_answers"})

    def setup(self) -> None:
        super().setup()
        if self.support.truncated or self.support.by_entropy is not None or self.adapt is not None:
            raise ValueError(
                "sampling.Swarm: what others decided may have no probability under top-k and top-p, and has no "
                f"temperature of its own; sample with top_k 0, top_p 1 and one temperature, found {self.support} and "
                f"adapt={self.adapt!r}"
            )
        if self.guide is not None:
            raise ValueError(
                f"sampling.Swarm: {self.guide!r} lets rollouts begin with what others cannot see; leave guide None"
            )
        if self.newest < 1 or self.keep < self.newest:
            raise ValueError(f"{name_of(type(self))}: need 1 <= newest <= keep, found {self.newest} and {self.keep}")
        if self.max_log_ratio <= 0:
            raise ValueError(f"sampling.Swarm: max_log_ratio must be > 0, found {self.max_log_ratio}")
        if isinstance(self.share, float) and not 0 <= self.share <= 1:
            raise ValueError(f"sampling.Swarm: share must be in [0, 1], found {self.share}")
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @property
    def compared(self) -> int | None:
        return super().compared if self.share == 0 else None  # others' groups have their own size

    def gather(self, source: ImportingSource) -> Experience:
        groups, before = max(1, source.rows // self.group), self.pool.skipped
        external = self._external(source, min(round(now(self.share) * groups), groups - 1))
        taken = sum(map(len, external))
        fresh = self.draw(source, max(self.group, source.rows - taken))
        if self.training:
            self._publish(source, fresh)
        batch = Experience.cat([_told(fresh, 0, external=False), *external])
        skipped = torch.full_like(batch.extras["age"], self.pool.skipped - before)
        return batch.replace(extras={"skipped": skipped})

    def _publish(self, source: ImportingSource, fresh: Experience) -> None:
        batches = self.get_buffer("batches")
        number = int(batches)
        self.pool.publish(self.node, number, shared(source, fresh, exactly=self.correct))
        self.pool.discard(self.node, number + 1 - self.keep)
        batches.add_(1)

    def _external(self, source: ImportingSource, wanted: int) -> list[Experience]:
        """Up to so many groups, each a batch of its own."""
        if wanted < 1:
            return []
        offered = self._offered(source)
        order = torch.randperm(len(offered), generator=source.generator).tolist()
        found: list[Experience] = []
        while order and len(found) < wanted:
            some, order = order[: wanted - len(found)], order[wanted - len(found) :]
            found += self._received(source, [offered[i] for i in some])
        return found

    def _offered(self, source: ImportingSource) -> list[tuple[int, PublishedGroup]]:
        """Groups that may be drawn, and their ages."""
        number, found = int(self.get_buffer("batches")), []
        for node in self.pool.nodes():
            mine = node == self.node
            if mine and not self.own:
                continue
            batches = self.pool.read(node, self.newest, before=number if mine else None)
            last = number if mine else max(batches, default=0)
            found += [(last - n, group) for n in sorted(batches) for group in batches[n] if self._fits(group)]
        found = [(age, group) for age, group in found if 0 <= group.task < source.size]
        names = source.task_ids(torch.tensor([group.task for _, group in found], dtype=torch.long))
        return [one for one, name in zip(found, names, strict=True) if one[1].name == name]

    def _fits(self, group: PublishedGroup) -> bool:
        return not self.correct or (group.ids is not None and group.temperature == self.support.temperature)

    def _received(self, source: ImportingSource, chosen: Sequence[tuple[int, PublishedGroup]]) -> list[Experience]:
        """Those of the groups that this node's own world does not pay all alike."""
        tasks = torch.tensor([group.task for _, group in chosen])
        said = [group.ids if self.correct else group.answers for _, group in chosen]
        try:
            batch = source.import_answers(tasks, said, self.support)  # type: ignore[arg-type]
        except ValueError:  # an answer that cannot be played here: which one?
            if len(chosen) == 1:
                self.pool.skipped += 1
                return []
            return [found for one in chosen for found in self._received(source, [one])]
        if self.correct:
            own, batch = batch.rollout_logp, as_drawn(batch, [logp for _, group in chosen for logp in group.logp or []])
            # Tokens that say something else here are another tokenizer's.
            meant = [turns for _, group in chosen for turns in group.answers]
            wrong = [told != turns for told, turns in zip(source.answers(batch), meant, strict=True)]
            far = ((own - batch.rollout_logp > self.max_log_ratio) & batch.mask).any(1)
            foreign = (far | torch.tensor(wrong, device=batch.device)).to(batch.outcome.dtype)
            kept = ops.group_sum(foreign, batch.group) == 0
            self.pool.skipped += len(set(batch.group[~kept].tolist()))
            batch = batch[kept]
        varied = MixedGroups()(batch)
        return [
            _told(varied[varied.group == place], chosen[place][0], external=True)
            for place in sorted(set(varied.group.tolist()))
        ]


def shared(source: ImportingSource, experience: Experience, *, exactly: bool) -> list[PublishedGroup]:
    """What a node publishes of its rows, group by group. exactly: with tokens and log-probabilities."""
    answers, index = source.answers(experience), experience.extras["index"]
    first = ops.group_first(experience.group)
    names = source.task_ids(index[first])
    kinds = experience.extras.get("kind")
    found = []
    for row, name in zip(first.tolist(), names, strict=True):
        rows = (experience.group == experience.group[row]).nonzero().flatten().tolist()
        found.append(
            PublishedGroup(
                task=int(index[row]),
                name=name,
                answers=[answers[r] for r in rows],
                outcomes=[float(experience.outcome[r]) for r in rows],
                about={} if kinds is None else {"kind": kinds[row]},
                ids=[_ids(experience, r) for r in rows] if exactly else None,
                logp=[_logp(experience, r) for r in rows] if exactly else None,
                temperature=experience.support.temperature,
            )
        )
    return found


def _ids(experience: Experience, row: int) -> list[list[int]]:
    """Tokens that were decided, turn by turn."""
    said: dict[int, list[int]] = {}
    mask = experience.mask[row]
    for token, turn in zip(
        experience.extras["tokens"][row][mask].tolist(), experience.turn[row][mask].tolist(), strict=True
    ):
        said.setdefault(turn, []).append(token)
    return [said[turn] for turn in sorted(said)]


def _logp(experience: Experience, row: int) -> list[float]:
    return experience.rollout_logp[row][experience.mask[row]].clamp(max=0.0).tolist()  # above 0 it is rounding


def as_drawn(batch: Experience, drawn: Sequence[Sequence[float]]) -> Experience:
    """With the log-probabilities that the decisions were drawn with; one list a row, as long as the row."""
    flat = [x for row, said in zip(batch.lengths.tolist(), drawn, strict=True) for x in said[:row]]
    return batch.replace(
        rollout_logp=torch.zeros_like(batch.rollout_logp).masked_scatter(
            batch.mask, batch.rollout_logp.new_tensor(flat)
        )
    )


def _told(experience: Experience, age: int, *, external: bool) -> Experience:
    ages = torch.full((len(experience),), age, dtype=torch.long, device=experience.device)
    return experience.replace(extras={"age": ages, "external": torch.full_like(ages, external, dtype=torch.bool)})
