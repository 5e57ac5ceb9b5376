"""REFUEL: REBEL on one turn of a conversation, with the return from that turn on."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.rebel import rebel
from polopt.rewards import Reward
from polopt.sampling import RolloutRequest, Sampling, Select, TaskSampler, UniformTasks
from polopt.sampling.source_protocols import ContinuingSource
from polopt.support import Support


@method(
    paper=Paper(
        title="Regressing the Relative Future: Efficient Policy Optimization for Multi-turn RLHF",
        authors="Gao, Zhaolin and Zhan, Wenhao and Chang, Jonathan D. and Swamy, Gokul and Brantley, Kianté "
        "and Lee, Jason D. and Sun, Wen",
        year=2024,
        arxiv="2410.04612",
    ),
    changes="REBEL on single turns of the policy's own conversations: two continuations from one state, of which the "
    "first turn is fitted to the difference of the returns.",
    room="sampling",
    tier="proven",
)
def refuel(*, eta: float = 1.0, group: int = 2, reward: Reward | None = None) -> Algorithm:
    """L = mean_{a, a'} ([log pi(a | s)/pi_t(a | s) - log pi(a' | s)/pi_t(a' | s)] / eta - [R - R'])^2

    over pairs, with s the state before a random turn of a conversation of the present policy pi_t, a and a' the turns
    with which two continuations from s begin, each played to its end by pi_t, and R, R' their returns. Later turns are
    there to measure R and are not learned from. The minimiser over enough pairs is pi_t exp(eta Q) / Z in every state
    that pi_t reaches, with Q the value of a turn under pi_t: a step of the natural policy gradient, of one model
    without a critic. In conversations of one turn it is `rebel`.

    A batch is a round: its rows are sampled from pi_t, and `epochs` of the stage is how long each is fitted.

    eta (> 0): the step size; 1000 in the authors' code, which has this loss times eta^2, for a reward model of that
        unit.
    group: continuations of a state, two in the paper; more are all their pairs.
    reward: None takes the outcome.

    The turn is uniform over the turns of a conversation, as in the paper; the authors' code first draws a length, then
    a turn below it, and rewards the conversation up to that length. Pairs of one text twice, which the code drops, have
    margin 0 here and move nothing. The environment must be deterministic, or its simulator be set back: the
    conversation is replayed up to s.
    """
    return rebel(group=group, eta=eta, reward=reward).but(sampling=TurnRestarts(group=group), select=[RestartedTurn()])


class TurnRestarts(Sampling):
    """Samples `group` continuations of a conversation from before one of its turns, to the end.

    Rows are whole conversations, of one group if they share a beginning; `extras["restarted"]` [B, T] bool marks the
    decisions of the turn with which a row departs from that beginning.

    group: rows of each conversation.
    turn: "random" draws it uniformly from the conversation's turns, "last" takes the last one.
    reuse: whether the conversation itself is the first row of its group. Its turn follows the same law as the others'
        if all conversations have as many turns; False samples all rows anew, at the cost of one row more.
    choice: selects the tasks.
    support: the sampler's temperature, top-k and top-p.

    Source: REFUEL, arXiv:2410.04612.

    Raises:
        ExperienceError: the source does not number the turns of a row, `turn`.
    """

    group: int = 2
    turn: Literal["random", "last"] = "random"
    reuse: bool = True
    choice: TaskSampler = UniformTasks()
    support: Support = Support()

    writes = frozenset({"extras.restarted"})
    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        if self.group < 2:
            raise ValueError(f"methods.refuel.TurnRestarts: group must be >= 2, found {self.group}")

    @property
    def group_size(self) -> int:
        return self.group

    @property
    def rollout_support(self) -> Support:
        return self.support

    @property
    def compared(self) -> int:
        return self.group

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        """Estimates the overhead with continuations of half a conversation on average."""
        continued = self.group - self.reuse
        return (1 + continued / 2) / self.group

    def forward(self, source: ContinuingSource) -> Experience:
        tasks = self.choice(source, max(1, source.rows // self.group))
        first = source.rollout(RolloutRequest(tasks, 1, self.support))
        self.choice.observe(first)
        first = first[first.mask.any(1)]
        first.require({"turn"}, by=self)
        first = first.replace(group=torch.arange(len(first), device=first.device))
        at = self._beginnings(first, source.generator)
        turn = first.turn.gather(1, at[:, None])[:, 0]
        batch = source.extend(first, self.group - self.reuse, at=at)
        if self.reuse:
            batch = Experience.join([first, batch])
            batch = batch[batch.group.argsort(stable=True)]
        return batch.replace(extras={"restarted": batch.mask & (batch.turn == turn[batch.group][:, None])})

    def _beginnings(self, experience: Experience, generator: torch.Generator) -> Tensor:
        """Returns the column at which one turn of each row begins, [B]."""
        number = torch.where(experience.mask, experience.turn, -1)
        before = number.cummax(1).values.roll(1, dims=1)
        before[:, 0] = -1
        begins = number > before
        count = begins.sum(1)
        place = count - 1
        if self.turn == "random":
            share = torch.rand(len(experience), generator=generator, device=generator.device).to(count.device)
            place = (share * count).long()
        return (begins & (begins.cumsum(1) == place[:, None] + 1)).to(torch.uint8).argmax(1)


class RestartedTurn(Select):
    """Keeps the decisions that `extras["restarted"]` marks; the turns before and after remain as context. Source:
    REFUEL, arXiv:2410.04612."""

    reads = frozenset({"extras.restarted"})

    def forward(self, experience: Experience) -> Experience:
        return experience.restrict(experience.extras["restarted"])
