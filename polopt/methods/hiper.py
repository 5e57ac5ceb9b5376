"""HiPER: subgoals, and actions for them, are credited on time scales of their own."""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import Credit
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.objectives import ReferenceKL, ValueLoss
from polopt.rewards import FieldReward, Reward, SumOfRewards
from polopt.sections import ACTION, KEEP, SUBGOAL, SWITCH


@method(
    paper=Paper(
        title="HiPER: Hierarchical Reinforcement Learning with Explicit Credit Assignment for Large Language Model "
        "Agents",
        authors="Peng, Jiangweizhi and others",
        year=2026,
        arxiv="2602.16165",
    ),
    changes="PPO whose advantages are those of subgoals, over the turns that they last, and of actions within them.",
    room="credit",
    tier="reading",
)
def hiper(
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    segment_lam: float = 0.95,
    normalise: bool = True,
    keep: float = 0.03,
    rewritten: float = 0.03,
    clip: float = 0.2,
    value: float = 0.5,
    kl: float = 0.01,
) -> Algorithm:
    """Turn h decides, in this order, whether the subgoal is kept, a subgoal, and an action. Segment k is the turns of
    one subgoal, d_k of them from h_k on, and V^high, V^low are the critic's values before a subgoal and before an
    action. With V' = V^low of the next turn, or V^high of the next segment at a segment's last turn, and R_k =
    sum_{j < d_k} gamma^j r_{h_k + j},

        A^low_h = r_h + gamma V' - V^low_h + gamma lam A^low_{h+1},    the recursion ending with the segment,
        A^high_k = R_k + gamma^d_k V^high_{k+1} - V^high_k + gamma^d_k segment_lam A^high_{k+1}
        A^switch_h = sum_{j >= h in k} gamma^(j - h) r_j + gamma^(h_{k+1} - h) V^high_{k+1} - V^switch_h

    on the action's tokens, on a new subgoal's, and on those of the decision to keep or switch, for PPO's clipped loss.

    keep: taken off a turn's reward if it goes on with its subgoal. rewritten: the same if it then writes another one.
        Outcomes are 1 here and 10 in the paper's ALFWorld, where both are 0.3.
    normalise: whether the advantages of each kind are divided by their deviation, after their mean is taken off.

    Worlds are `tasks: {kind: with-subgoals, of: ...}`. V^switch is the value before the decision to switch; A^switch is
    the authors' code's, whose mean is the paper's (q - P(switch)) (V^high - V^low). There a critic has a head for each
    of the three; here one critic is read, and learned, at the three places, V^high behind the decision to switch. The
    time limit of a task counts as its end, which the authors' code leaves to the task: `credit.cut` is `bootstrap` for
    the other. gamma and lam are those of the trainer that it builds on, and could not be confirmed.
    """
    base = ppo(clip=clip, kl=0.0)
    reward = SumOfRewards(terms=[FieldReward(name="answer_reward"), SubgoalPenalty(keep=keep, rewritten=rewritten)])
    losses = [SectionValueLoss(coefficient=value), *([ReferenceKL(coefficient=kl)] if kl else [])]
    credit = HierarchicalAdvantage(gamma=gamma, lam=lam, segment_lam=segment_lam, normalise=normalise)
    return base.but({"reward": reward, "credit": credit, "objective.regularise": losses})


class HierarchicalAdvantage(Credit):
    """Advantages of subgoals, of actions and of the decisions to keep a subgoal; see `hiper`. Their critic's targets
    are A + V at the first decision of an action and of a new subgoal, and A^switch + V^switch at that of a turn, where
    `extras["valued"]` is True.

    A turn without an action counts as one as a whole, which goes on with its subgoal. The first turn begins a segment,
    whatever it says. Decisions outside of these sections, and a subgoal that is written again, have advantage 0.

    cut: what comes after the last turn of a row that did not terminate: "zero" nothing, "bootstrap" the value of that
        turn, and of its segment.
    """

    tags = frozenset({"update_rule=ppo"})

    gamma: float = 1.0
    lam: float = 0.95
    segment_lam: float = 0.95
    normalise: bool = True
    cut: Literal["bootstrap", "zero"] = "zero"

    reads = frozenset({"reward", "value", "terminated", "turn", "extras.section"})
    writes = frozenset({"value_target", "extras.valued"})

    def setup(self) -> None:
        if not all(0 <= x <= 1 for x in (self.gamma, self.lam, self.segment_lam)):
            raise ValueError(
                "methods.hiper.HierarchicalAdvantage: gamma, lam and segment_lam must be in [0, 1], found "
                f"{self.gamma}, {self.lam} and {self.segment_lam}"
            )

    def forward(self, experience: Experience) -> Tensor:
        turns = _Turns(experience)
        found = torch.zeros_like(turns.value)
        for advantage, where in zip(self._advantages(turns), turns.credited, strict=True):
            if self.normalise and where.any():
                told = turns.number[where].unique()
                # Measured from the first, so that rounding gives equal advantages exactly 0.
                advantage = advantage - advantage[told[0]]
                centred = advantage - advantage[told].mean()
                advantage = centred / (centred[told].square().mean().sqrt() + 1e-8)
            found = torch.where(where, advantage[turns.number], found) if len(advantage) else found
        return found

    def credited(self, experience: Experience) -> Experience:
        return super().credited(experience).replace(extras={"valued": _Turns(experience).read_mask})

    def value_target(self, experience: Experience) -> Tensor:
        """Returns A + V where the critic is read, and V elsewhere."""
        turns = _Turns(experience)
        target = turns.value.clone()
        for advantage, places in zip(self._advantages(turns), turns.places, strict=True):
            row, column = turns.row[places >= 0], places[places >= 0]
            target[row, column] = turns.value[row, column] + advantage[places >= 0]
        return target

    def _advantages(self, turns: _Turns) -> tuple[Tensor, Tensor, Tensor]:
        """Returns A^low, A^high and A^switch of each turn, [turns]; A^high where a segment begins."""
        values = [turns.read(places) for places in turns.places]
        values[1] = torch.where(turns.places[1] >= 0, values[1], values[0])  # a segment whose subgoal is not written
        v_low, v_high, v_switch = (value.tolist() for value in values)
        reward, begins, last = turns.reward.tolist(), turns.begins.tolist(), turns.last.tolist()
        begin, ended = turns.begin.tolist(), turns.terminated.tolist()
        gamma, n = self.gamma, len(reward)
        # Of each turn: both advantages, the segment's rewards from here on, and gamma^d A^high of the next segment.
        low, high, to_go, carried = ([0.0] * n for _ in range(4))
        for h in reversed(range(n)):
            if last[h]:
                tail = float(self.cut == "bootstrap" and not ended[h])
                after, after_segment, after_high, passed = tail * v_low[h], tail * v_high[begin[h]], 0.0, 0.0
            elif begins[h + 1]:
                after, after_segment, after_high, passed = v_high[h + 1], v_high[h + 1], high[h + 1], 0.0
            else:
                after, after_segment, after_high, passed = v_low[h + 1], to_go[h + 1], carried[h + 1], low[h + 1]
            to_go[h], carried[h] = reward[h] + gamma * after_segment, gamma * after_high
            low[h] = reward[h] + gamma * after - v_low[h] + gamma * self.lam * passed
            high[h] = to_go[h] - v_high[h] + self.segment_lam * carried[h]
        switch = [whole - value for whole, value in zip(to_go, v_switch, strict=True)]
        found = torch.tensor([low, high, switch], dtype=turns.value.dtype, device=turns.value.device)
        return found[0], found[1], found[2]


class _Turns:
    """The turns of a batch, numbered as in `ops.turns`.

    number [B, T], row, reward, last, begins, begin, terminated [turns]: the turn of each decision; of a turn its row,
    the sum of its rewards, whether it is its row's last, whether a segment begins with it, the turn with which its
    segment began, and whether its row terminated.
    places: three of [turns], the columns before which values are read: of actions, of new subgoals and of decisions to
    switch; -1 for none.
    credited: three of [B, T], the decisions that have the advantages of these.
    """

    def __init__(self, experience: Experience) -> None:
        mask, ended = experience.mask, experience.terminated
        self.value = torch.where(mask, experience.value.detach(), 0)
        self.number, self.row, size = ops.turns(experience.turn, mask)
        self.terminated = (ended.any(1) if ended.ndim == 2 else ended)[self.row]
        rewards = ops.per_decision_reward(experience.reward.detach(), mask).to(self.value.dtype)
        self.reward = rewards.new_zeros(len(size)).index_add(0, self.number[mask], rewards[mask])
        first = ops.turn_place(self.row) == 0
        self.last = torch.cat([first[1:], first.new_ones(min(1, len(size)))])
        section = torch.where(mask, experience.extras["section"], -1)
        formed = self._first(section == ACTION) >= 0
        if len(size):
            section = torch.where(mask & ~formed[self.number], ACTION, section)
        self.begins = first | (self._first(section == SWITCH) >= 0)
        order = torch.arange(len(size), device=mask.device)
        self.begin = torch.where(self.begins, order, 0).cummax(0).values if len(size) else order
        subgoal, switch = section == SUBGOAL, (section == KEEP) | (section == SWITCH)
        new = subgoal & self.begins[self.number] if len(size) else subgoal
        self.credited = (section == ACTION, new, switch)
        self.places = tuple(self._first(where) for where in self.credited)

    @property
    def read_mask(self) -> Tensor:
        """The decisions before which a value is read, [B, T]."""
        found = torch.zeros_like(self.value, dtype=torch.bool)
        for places in self.places:
            found[self.row[places >= 0], places[places >= 0]] = True
        return found

    def read(self, places: Tensor) -> Tensor:
        """Returns the values before these columns, [turns]; 0 where there is none."""
        return torch.where(places >= 0, self.value[self.row, places.clamp(min=0)], 0)

    def _first(self, where: Tensor) -> Tensor:
        """Returns the first column of each turn that is selected, [turns], -1 for none."""
        columns = torch.arange(where.shape[1], device=where.device).expand_as(where)
        none = where.shape[1]
        found = torch.full_like(self.row, none).scatter_reduce(0, self.number[where], columns[where], "amin")
        return torch.where(found < none, found, -1)


class SectionValueLoss(ValueLoss):
    """The critic's loss at the decisions that `extras["valued"]` marks, 0 elsewhere; see `objectives.ValueLoss`."""

    reads = frozenset({"value", "value_target", "extras.valued"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.where(experience.extras["valued"], super().forward(experience, evaluation), 0)


class SubgoalPenalty(Reward):
    """-keep on a turn that goes on with its subgoal, and -rewritten more if the subgoal that it writes is not, token by
    token, that of the turn before, [B, T], on the turn's last decision. A row's first turn is not penalised."""

    keep: float = 0.03
    rewritten: float = 0.03

    reads = frozenset({"turn", "extras.section", "extras.tokens"})

    def forward(self, experience: Experience) -> Tensor:
        mask, section, tokens = experience.mask, experience.extras["section"], experience.extras["tokens"]
        penalty = torch.zeros_like(mask, dtype=experience.precision)
        row, column = mask.nonzero(as_tuple=True)
        fields = (row, column, experience.turn[mask], section[mask], tokens[mask])
        decisions = zip(*(field.tolist() for field in fields), strict=True)
        before: tuple[int, list[int]] = (-1, [])  # row and subgoal of the turn before
        for (at, _), its in itertools.groupby(decisions, key=lambda decision: (decision[0], decision[2])):
            turn = [*its]
            subgoal = [token for *_, part, token in turn if part == SUBGOAL]
            if before[0] == at and all(part != SWITCH for *_, part, _ in turn):
                changed = bool(subgoal) and bool(before[1]) and subgoal != before[1]
                penalty[at, turn[-1][1]] = -self.keep - self.rewritten * changed
            before = at, subgoal
        return penalty
