"""ARPO, agentic reinforced policy optimisation: rollouts branch where the policy is uncertain after a tool's result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import (
    GroupMean,
    GroupStd,
    RelativeAdvantage,
    SharedPrefixAdvantage,
    WeightedAdvantage,
    WeightedSum,
)
from polopt.experience import Experience
from polopt.features import RowField
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling.parts import RolloutRequest, Start
from polopt.sampling.rollouts import Rollouts
from polopt.support import Support


@method(
    paper=Paper(
        title="Agentic Reinforced Policy Optimization",
        authors="Dong, Guanting and Mao, Hangyu and Ma, Kai and others",
        year=2025,
        arxiv="2507.19849",
    ),
    changes="GRPO on groups of which half branch off other rollouts, where a tool has raised the entropy.",
    room="sampling",
    tier="faithful",
)
def arpo_agentic(
    *,
    group: int = 16,
    first: int | None = None,
    base: float = 0.5,
    slope: float = 0.34,
    tokens: int = 20,
    each: int = 1,
    shared: Literal["soft", "hard"] = "soft",
    leaf: Literal["uniform", "inverse"] = "uniform",
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """`first` rollouts of a prompt, and branches off them before a turn t > 0 with probability

        P_t = base + slope (H_t - H_0)

    H_t the mean entropy of the turn's first decisions, until a group has `group` rows; then GRPO's z-score over them.

    first: None for half of the group, 8 of 16 in the paper.
    shared: "soft" gives every row its own advantage, so that a token of d rows has the sum of theirs; "hard" gives it
        their mean in each of them. Where rows weigh alike the gradients of both are equal.
    leaf: "uniform" as in the paper: uncertain beginnings have more rows, and count more in mean and gradient; "inverse"
        shares the weight of a rollout among its branches.

    In the paper a row branches if P_t exceeds a threshold; in the authors' code P_t is a probability, as here, and the
    entropy is a sum over 20 tokens of the likeliest 10, over log |V|, of the answer that called the tool. Ours is that
    of the answer that reads its result, as in the text, in nats: 0.34 is their 0.2 with 20 tokens and the vocabulary of
    Qwen. Their reward, token F1 with a tenth more for using both tools and -1 for a wrong form, is the world's. Of one
    turn it is GRPO. Another paper with the same short name is `arpo-replay`.
    """
    initial = max(1, group // 2) if first is None else first
    sampling = TurnBranches(group=group, first=initial, base=base, slope=slope, tokens=tokens, each=each)
    unit: Literal["leaf", "row"] = "leaf" if leaf == "inverse" else "row"
    credit = RelativeAdvantage(baseline=GroupMean(unit=unit), scale=GroupStd(unit=unit))
    weighted = WeightedSum(shares=[WeightedAdvantage(credit=credit, weight=RowField(name="leaf_weight"))])
    found = credit if leaf == "uniform" else weighted
    changes = {"sampling": sampling, "credit": found if shared == "soft" else SharedPrefixAdvantage(credit=found)}
    return grpo(group=group, clip=clip, kl=kl).but(changes)


class TurnBranches(Rollouts):
    """Groups of rollouts of which `first` are sampled from the prompt, and others branch off them before a turn.

    With H_t the mean entropy of the first `tokens` decisions of turn t, in nats, a row branches before a turn t > 0
    with probability

        base + slope (H_t - H_0),

    clipped to [0, 1], into itself and `each` rows that go on by themselves from there, until the group is full. Turns
    are visited in their order, over all rows; a branch may branch after the turn that it began with. Places that are
    left are filled with further rollouts from the prompt. Worlds that answer equal actions equally can be branched.

    `extras["leaf_weight"]` [B] shares a weight of 1 of each rollout from the prompt evenly among the rows at each of
    its branchings, so that the weighted mean of a group is not biased towards uncertain beginnings;
    `extras["branch_turn"]` [B] is the turn that a row branched before, -1 for none.

    Source: the entropy-based adaptive rollout of ARPO, arXiv:2507.19849.
    """

    first: int = 4
    base: float = 0.5
    slope: float = 0.34
    tokens: int = 20
    each: int = 1

    reads = frozenset({"entropy", "turn"})
    writes = frozenset({"extras.leaf_weight", "extras.branch_turn"})
    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        super().setup()
        if not 1 <= self.first <= self.group or self.tokens < 1 or self.each < 1:
            raise ValueError(
                "methods.arpo_agentic.TurnBranches: need 1 <= first <= group, tokens >= 1 and each >= 1, found "
                f"{self.first} of {self.group}, {self.tokens} and {self.each}"
            )
        if self.guide is not None or self.adapt is not None:
            raise ValueError(
                "methods.arpo_agentic.TurnBranches: rows that branch have no hints and one temperature; set guide and "
                f"adapt to null, found {self.guide!r} and {self.adapt!r}"
            )

    def sample_tasks(
        self, source: Any, tasks: Tensor, copies: Tensor, support: Support, starts: Sequence[Start] | None
    ) -> Experience:
        initial = copies.clamp(max=self.first)
        rows = _plain(source.rollout(RolloutRequest(tasks, initial, support)))
        room = copies - initial
        turn = 0
        while (room > 0).any():
            turn += 1
            at = self._columns(rows, turn)
            if (at < 0).all():
                break
            rows, room = self._branched(source, rows, at, turn, room)
        if (room > 0).any():
            rest = _plain(source.rollout(RolloutRequest(tasks, room, support)))
            rows = Experience.join([rows, rest])
        return rows

    def _columns(self, rows: Experience, turn: int) -> Tensor:
        """Returns the column of the first decision of this turn, [B]; -1 where a row has none, or began with it."""
        there = rows.mask & (_number(rows) == turn)
        first = there.int().argmax(1)
        able = there.any(1) & (rows.extras["branch_turn"] < turn)
        return torch.where(able, first, -1)

    def _branched(
        self, source: Any, rows: Experience, at: Tensor, turn: int, room: Tensor
    ) -> tuple[Experience, Tensor]:
        """Returns the rows with those that branch off before this turn, and the places that are left of each task."""
        chance = (self.base + self.slope * (self._entropy(rows, turn) - self._entropy(rows, 0))).clamp(0, 1)
        drawn = torch.rand(len(rows), generator=source.generator).to(chance) < chance
        chosen, copies, room = list[int](), list[int](), room.clone()
        for row in (drawn & (at >= 0)).nonzero().flatten().tolist():
            count = min(self.each, int(room[rows.group[row]]))
            if count:
                chosen.append(row)
                copies.append(count)
                room[rows.group[row]] -= count
        if not chosen:
            return rows, room
        # One request with the rows repeated, since their numbers of branches may differ.
        index = torch.tensor(chosen, device=rows.device).repeat_interleave(torch.tensor(copies, device=rows.device))
        branches = source.extend(rows[index], 1, at=at[index])
        weight = rows.extras["leaf_weight"].clone()
        for row, count in zip(chosen, copies, strict=True):
            weight[row] /= 1 + count
        begun = torch.full((len(branches),), turn, device=rows.device)
        branches = branches.replace(extras={"leaf_weight": weight[index], "branch_turn": begun})
        return Experience.join([rows.replace(extras={"leaf_weight": weight}), branches]), room

    def _entropy(self, rows: Experience, turn: int) -> Tensor:
        """Returns the mean entropy of the first decisions of a turn, [B]."""
        there = rows.mask & (_number(rows) == turn)
        there = there & (there.cumsum(1) <= self.tokens)
        return ops.row_mean(torch.where(there, rows.entropy, 0), there)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the share of rows that branched off another one."""
        return {"branches/share": float((experience.extras["branch_turn"] >= 0).double().mean())}


def _plain(rows: Experience) -> Experience:
    ones = torch.ones(len(rows), dtype=rows.precision, device=rows.device)
    return rows.replace(extras={"leaf_weight": ones, "branch_turn": torch.full_like(rows.group, -1)})


def _number(rows: Experience) -> Tensor:
    """Returns the number of each decision's turn in its row, [B, T]."""
    first = torch.where(rows.mask, rows.turn, rows.turn.max() if rows.turn.numel() else 0).amin(1, keepdim=True)
    return rows.turn - first
