"""AdaCoT: penalties for unnecessary and missing chains of thought, with the learned trigger masked from the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.features.masks import AnswerMatches, SignalAbove
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.methods.sft import sft
from polopt.rewards import SumOfRewards
from polopt.rewards.parts import Reward
from polopt.sampling.parts import Select


@method(
    paper=Paper(
        title="AdaCoT: Pareto-Optimal Adaptive Chain-of-Thought Triggering via Reinforcement Learning",
        authors="Lou, Chenwei and others",
        year=2025,
        arxiv="2505.11896",
    ),
    changes="PPO that is punished for thinking where it was not needed, and for not thinking where it was.",
    room="rewards",
    tier="reading",
)
def adacot(
    *,
    stage: Literal[1, 2, 3] = 3,
    miss: float = 0.2,
    over: float = 0.2,
    form: float = 1.0,
    thought: RowMask | None = None,
    need: RowMask | None = None,
    malformed: RowMask | None = None,
    after: Sequence[int] = (),
    deciding: int = 1,
    kl: float = 0.0,
) -> Algorithm:
    """Answers begin with a think block, empty or filled. Stage 1 is a supervised warm-up on answers of both sorts;
    stage 2 PPO on tasks that always need thought (mathematics), R = outcome, without the policy loss of the token that
    decides to think (selective loss masking): when to think, learned in stage 1, is kept; stage 3 PPO on all tasks,

        R = outcome - miss 1[needed, absent] - over 1[not needed, present] - form 1[malformed]

    Varying miss and over traces the Pareto front of accuracy and thinking rate. thought, need, malformed: predicates
    on rows; by default a filled `<think>` block, the environment's signal "needed" (in the paper another model labels
    it by written principles), and an answer that does not begin with a block. Where kinds of tasks differ,
    `need=features.TaskKindIs(kinds=(...))` is a rule without labels. after: the ids of the tokens that open a thought;
    () takes the row's first token as the decision to think; deciding: the number of its tokens.

    Terms, stages and masking are the paper's; its coefficients, reward model and PPO settings are not published, so
    ours are PPO's as published here with the token mean, under which one such token among thousands has little weight.
    The critic's loss of the masked token is left out, too.
    """
    if stage == 1:
        return sft()
    plain = ppo(kl=kl)
    if stage == 2:
        return plain.but(select=[MaskThinkDecision(after=after, count=deciding)])
    penalty = ThinkOrNot(
        thought=thought or AnswerMatches(pattern=r"<think>\s*[^\s<]"),
        need=need or SignalAbove(name="needed"),
        malformed=malformed or AnswerMatches(pattern=r"^\s*<think>.*</think>", invert=True),
        miss=miss,
        over=over,
        form=form,
    )
    return plain.but(reward=SumOfRewards(terms=[plain.reward, penalty]))


class ThinkOrNot(Reward):
    """Reward -miss for omitting needed thinking, -over for unneeded thinking, and -form for a malformed answer; 0
    otherwise.

    With miss = over = a the first two terms are -a [thought != need]. Source: AdaCoT, arXiv:2505.11896.

    thought: the answers that began with thinking.
    need: the tasks that need thinking, by the environment, a labeller or a rule.
    malformed: the malformed answers, None for no such penalty.
    """

    thought: RowMask = SignalAbove(name="working")
    need: RowMask = SignalAbove(name="needed")
    malformed: RowMask | None = None
    miss: float = 0.2
    over: float = 0.2
    form: float = 1.0

    reads = frozenset({"outcome"})

    def setup(self) -> None:
        if min(self.miss, self.over, self.form) < 0:
            raise ValueError(
                f"methods.adacot.ThinkOrNot: miss, over and form must be >= 0, found {self.miss}, {self.over} "
                f"and {self.form}"
            )

    def forward(self, experience: Experience) -> Tensor:
        thought, need = self.thought(experience), self.need(experience)
        dtype = experience.outcome.dtype
        cost = self.miss * (need & ~thought).to(dtype) + self.over * (thought & ~need).to(dtype)
        if self.malformed is not None:
            cost = cost + self.form * self.malformed(experience).to(dtype)
        return -cost


class MaskThinkDecision(Select):
    """Drops the decisions that decide whether to reason: the row's first `count`, or, with `after`, the first `count`
    decisions after the first occurrence of these tokens.

    after: ids of the tokens that open the reasoning. Tokens that the policy did not decide are skipped. A row without
        these tokens keeps all decisions.
    count: decisions that are dropped.

    What the policy learned about that decision is preserved, since neither its policy loss nor its critic's loss
    counts. Source: selective loss masking in AdaCoT, arXiv:2505.11896.
    """

    after: Sequence[int] = ()
    count: int = 1

    def setup(self) -> None:
        if self.count < 1:
            raise ValueError(f"methods.adacot.MaskThinkDecision: count must be >= 1, found {self.count}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras.tokens"} if self.after else ())

    def forward(self, experience: Experience) -> Experience:
        mask = experience.mask
        number = mask.cumsum(1) - 1  # of each decision in its row, from 0
        if not self.after:
            return experience.restrict(~(mask & (number < self.count)))
        # Decisions alone, shifted to the left.
        tokens = experience.extras["tokens"].gather(1, (~mask).int().argsort(dim=1, stable=True))
        opened = torch.arange(mask.shape[1], device=mask.device) + len(self.after) <= experience.lengths[:, None]
        for i, token in enumerate(self.after):
            opened &= tokens.roll(-i, 1) == token
        behind = opened.int().argmax(1, keepdim=True) + len(self.after)
        deciding = (number >= behind) & (number < behind + self.count) & opened.any(1, keepdim=True)
        return experience.restrict(~(mask & deciding))
