"""SAPO: decentralised learners that share rollouts, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.backends import FolderPool, LocalPool
from polopt.backends.pool import Pool, PublishedGroup
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.part_names import name_of
from polopt.sampling.filters import MixedGroups
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.source_protocols import ImportingSource
from polopt.schedules import Schedule, now


@method(
    paper=Paper(
        title="Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing",
        authors="Amico, Jeffrey and Andrade, Gabriel Passamani and Donaghy, John and Fielding, Ben and Forbus, Tristin "
        "and others",
        year=2025,
        arxiv="2509.08721",
    ),
    changes="GRPO on a learner's own groups and groups that others published, re-encoded and rewarded by its own "
    "environment.",
    room="sampling",
    tier="faithful",
)
def sapo_swarm(
    *,
    group: int = 8,
    external: float = 0.5,
    node: str = "node",
    pool: str = "",
    newest: int = 4,
    correct: bool = False,
    low: float = 0.2,
    high: float = 0.28,
) -> Algorithm:
    """Loss of a node that samples groups of answers, publishes text, task and reward, and learns from I groups of its
    own and J that it draws uniformly from the latest ones of others; `external` is J / (I + J), 4 / 8 in the paper's
    best run. The node tokenises their text itself, computes the reward in its own environment, and skips groups of
    equal rewards. Then

        L = mean_i (1/|y_i|) sum_t max(-A_i r_it, -A_i clip(r_it, 1 - low, 1 + high)),    r = pi / pi_old,

    with A GRPO's z-score in the group and pi_old the node's own policy before the update, for others' text too: the
    paper learns from it as if it were the node's own. That is biased towards the policy that sampled it; correct=True
    publishes tokens and log-probabilities and takes r to that policy instead, for nodes of one tokenizer.

    pool: a folder that all nodes see, or "" for one inside this process; node: this one's name in it. A node alone is
    GRPO. Nodes share where they have common tasks: a task is identified by its number and name. How often a node skips
    groups without contrast, and from how far back it draws, the paper leaves to the node; `newest` batches of each are
    ours. It has no KL term. Another method is also called SAPO: soft adaptive policy optimisation.
    """
    place = FolderPool(path=pool) if pool else LocalPool()
    sampling = Swarm(group=group, share=external, node=node, pool=place, newest=newest, correct=correct)
    return grpo(group=group, clip=low, kl=0).but({"sampling": sampling, "objective.trust.high": high})


class Swarm(Rollouts):
    """Groups that this node samples, mixed with groups that other nodes have published.

    Nodes are learners that share only a pool of texts, tasks and outcomes. A fraction `share` of a batch's groups, but
    not all of them, is drawn uniformly, at most once each, from the last `newest` batches that the other nodes have
    published. The answers are encoded and played again in this node's own environment, which computes their outcomes,
    and a group of equal outcomes is passed over for another. If too few are left, the node samples more itself. The
    node publishes the groups that it has sampled, and its last `keep` batches stay in the pool.

    node: this node's name.
    pool: the pool that the nodes share.
    share: fraction of external groups, a number or a schedule.
    newest: batches of each node from which groups are drawn.
    own: whether to draw among this node's own published batches too.
    correct: False takes this node's current log-probabilities as `rollout_logp` of the shared decisions: the ratio
        begins at 1, and the update is biased towards the publisher. True publishes tokens and log-probabilities too,
        and imports a group token by token with its publisher's `rollout_logp`, so that a ratio corrects for it.
    keep: published batches of this node that stay in the pool.
    max_log_ratio: with `correct`, a group with a decision that this node finds more than exp(max_log_ratio) times as
        likely as its publisher did is passed over, so that no ratio is larger.

    `correct` needs nodes of one tokenizer and one temperature: groups of another temperature, or whose tokens decode to
    another text here, are passed over. A task is identified by its number and name; unknown ones are passed over too,
    so nodes share where they share tasks.

    Invalid publications, and groups that this source cannot play or whose tokens or log-probabilities do not belong to
    their text, are passed over and counted: `extras["skipped"]` [B] is their number for this batch, the same in every
    row.

    `extras["external"]` [B] bool marks shared rows. `extras["age"]` [B] counts the batches that the row's node has
    published since, 0 for new rows. Draws use the source's generator. With share 0 the result equals that of
    `Rollouts`, number for number, and the node still publishes.

    A resumed run repeats the draws and numbers of its batches; its own publications of batches that it has yet to
    repeat do not count, so that a single node resumes exactly, if it continues within keep - newest batches.
    Publications of other nodes in the meantime are not repeated.

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
                "methods.sapo_swarm.Swarm: what others decided may have no probability under top-k and top-p, "
                "and has no "
                f"temperature of its own; sample with top_k 0, top_p 1 and one temperature, found {self.support} and "
                f"adapt={self.adapt!r}"
            )
        if self.guide is not None:
            raise ValueError(
                f"methods.sapo_swarm.Swarm: {self.guide!r} lets rollouts begin with what others cannot see; "
                "leave guide None"
            )
        if self.newest < 1 or self.keep < self.newest:
            raise ValueError(f"{name_of(type(self))}: need 1 <= newest <= keep, found {self.newest} and {self.keep}")
        if self.max_log_ratio <= 0:
            raise ValueError(f"methods.sapo_swarm.Swarm: max_log_ratio must be > 0, found {self.max_log_ratio}")
        if isinstance(self.share, float) and not 0 <= self.share <= 1:
            raise ValueError(f"methods.sapo_swarm.Swarm: share must be in [0, 1], found {self.share}")
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @property
    def compared(self) -> int | None:
        return super().compared if self.share == 0 else None  # others' groups have their own size

    def gather(self, source: ImportingSource) -> Experience:
        groups, before = max(1, source.rows // self.group), self.pool.skipped
        external = self._external(source, min(round(now(self.share) * groups), groups - 1))
        taken = sum(map(len, external))
        rollouts = self.draw(source, max(self.group, source.rows - taken))
        if self.training:
            self._publish(source, rollouts)
        batch = Experience.cat([_with_age(rollouts, 0, external=False), *external])
        skipped = torch.full_like(batch.extras["age"], self.pool.skipped - before)
        return batch.replace(extras={"skipped": skipped})

    def _publish(self, source: ImportingSource, rollouts: Experience) -> None:
        batches = self.get_buffer("batches")
        number = int(batches)
        self.pool.publish(self.node, number, shared(source, rollouts, exactly=self.correct))
        self.pool.discard(self.node, number + 1 - self.keep)
        batches.add_(1)

    def _external(self, source: ImportingSource, count: int) -> list[Experience]:
        """Returns up to `count` external groups, each a batch of its own."""
        if count < 1:
            return []
        offered = self._offered(source)
        order = torch.randperm(len(offered), generator=source.generator).tolist()
        found: list[Experience] = []
        while order and len(found) < count:
            some, order = order[: count - len(found)], order[count - len(found) :]
            found += self._received(source, [offered[i] for i in some])
        return found

    def _offered(self, source: ImportingSource) -> list[tuple[int, PublishedGroup]]:
        """Returns the published groups that may be drawn, with their ages."""
        number, found = int(self.get_buffer("batches")), []
        for node in self.pool.nodes():
            is_own = node == self.node
            if is_own and not self.own:
                continue
            batches = self.pool.read(node, self.newest, before=number if is_own else None)
            last = number if is_own else max(batches, default=0)
            found += [(last - n, group) for n in sorted(batches) for group in batches[n] if self._fits(group)]
        found = [(age, group) for age, group in found if 0 <= group.task < source.size]
        names = source.task_ids(torch.tensor([group.task for _, group in found], dtype=torch.long))
        return [one for one, name in zip(found, names, strict=True) if one[1].name == name]

    def _fits(self, group: PublishedGroup) -> bool:
        return not self.correct or (group.ids is not None and group.temperature == self.support.temperature)

    def _received(self, source: ImportingSource, chosen: Sequence[tuple[int, PublishedGroup]]) -> list[Experience]:
        """Returns the groups whose outcomes differ in this node's own environment."""
        tasks = torch.tensor([group.task for _, group in chosen])
        answers = [group.ids if self.correct else group.answers for _, group in chosen]
        try:
            batch = source.import_answers(tasks, answers, self.support)  # type: ignore[arg-type]
        except ValueError:  # an answer cannot be played here: each group is tried alone
            if len(chosen) == 1:
                self.pool.skipped += 1
                return []
            return [found for one in chosen for found in self._received(source, [one])]
        if self.correct:
            own, batch = batch.rollout_logp, as_drawn(batch, [logp for _, group in chosen for logp in group.logp or []])
            # Tokens that decode to another text here belong to another tokenizer.
            meant = [turns for _, group in chosen for turns in group.answers]
            wrong = [decoded != turns for decoded, turns in zip(source.answers(batch), meant, strict=True)]
            mismatched = ((own - batch.rollout_logp > self.max_log_ratio) & batch.mask).any(1)
            foreign = (mismatched | torch.tensor(wrong, device=batch.device)).to(batch.outcome.dtype)
            kept = ops.group_sum(foreign, batch.group) == 0
            self.pool.skipped += len(set(batch.group[~kept].tolist()))
            batch = batch[kept]
        varied = MixedGroups()(batch)
        return [
            _with_age(varied[varied.group == place], chosen[place][0], external=True)
            for place in sorted(set(varied.group.tolist()))
        ]


def shared(source: ImportingSource, experience: Experience, *, exactly: bool) -> list[PublishedGroup]:
    """Returns the publication of a node's rows, group by group.

    exactly: whether to include tokens and log-probabilities.
    """
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
    """Returns the tokens that a row decided, turn by turn."""
    by_turn: dict[int, list[int]] = {}
    mask = experience.mask[row]
    for token, turn in zip(
        experience.extras["tokens"][row][mask].tolist(), experience.turn[row][mask].tolist(), strict=True
    ):
        by_turn.setdefault(turn, []).append(token)
    return [by_turn[turn] for turn in sorted(by_turn)]


def _logp(experience: Experience, row: int) -> list[float]:
    return experience.rollout_logp[row][experience.mask[row]].clamp(max=0.0).tolist()  # above 0 it is rounding


def as_drawn(batch: Experience, drawn: Sequence[Sequence[float]]) -> Experience:
    """Returns the batch with these sampling log-probabilities as `rollout_logp`; one list a row, as long as the row or
    longer."""
    flat = [x for row, values in zip(batch.lengths.tolist(), drawn, strict=True) for x in values[:row]]
    return batch.replace(
        rollout_logp=torch.zeros_like(batch.rollout_logp).masked_scatter(
            batch.mask, batch.rollout_logp.new_tensor(flat)
        )
    )


def _with_age(experience: Experience, age: int, *, external: bool) -> Experience:
    ages = torch.full((len(experience),), age, dtype=torch.long, device=experience.device)
    return experience.replace(extras={"age": ages, "external": torch.full_like(ages, external, dtype=torch.bool)})
