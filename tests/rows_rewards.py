"""Rows of the battery: rewards."""

from __future__ import annotations

import tempfile

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow
from chat_server import ChatServer, judge_reply
from row_batches import answer_reward_batch, opponent_batch, signal_batch, task_batch, text_batch

from polopt.backends import Chat, PreferenceFit, TextScorer, save_scorer
from polopt.backends.scorer import ScorerShape
from polopt.features.masks import AnswerMatches, IsCorrect, LongerThan, SignalAbove, SolvedGroups, TaskKindIs, TopGroups
from polopt.features.rows import RowField, TurnCount
from polopt.rewards import (
    Blocks,
    Brevity,
    ClippedReward,
    ConditionalReward,
    EnsembleJudge,
    EnvironmentReward,
    FieldReward,
    GaussianPreference,
    GeometricMean,
    HasBlock,
    HTTPGrader,
    HTTPJudge,
    HTTPMeta,
    Item,
    JudgedPreference,
    JudgedReward,
    KLPenalty,
    LeadingBlocks,
    LearnedJudge,
    LengthWindow,
    LinearLength,
    MinimumReward,
    OutcomePreference,
    OutcomeReward,
    OverlongPenalty,
    PolicyLogRatio,
    PositiveReward,
    PricedCosts,
    RelativeLength,
    RewardPreference,
    RubricReward,
    ScaledReward,
    SumOfRewards,
    WinRate,
)


def ranked_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose groups differ in their success rates: the order of equal groups is arbitrary."""
    outcome = torch.tensor([1, 1, 0, 1, 1, 0, 0, 1, 1]).double()
    return signal_batch(seed, clean).replace(outcome=outcome)


def cost_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with a reward and two costs of each decision."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(300 + seed)
    reward, cost = (torch.rand(*batch.mask.shape, *size, generator=g).double() for size in ((), (2,)))
    if not clean:
        reward, cost = poisoned(reward, batch.mask), poisoned(cost, batch.mask)
    return batch.replace(reward=reward, extras={"cost": cost})


NAMES = ("thinking", "payoff")

BRIEF = RelativeLength(weight=0.5)

SERVER = ChatServer(judge_reply)

# A scorer that returns mean and standard deviation, which a judge reads from its folder.
GAUSSIAN = save_scorer(TextScorer(ScorerShape(width=8, outputs=2)), tempfile.mkdtemp(), PreferenceFit("gaussian"))

CHAT = Chat(url=SERVER.url, model="tiny")

REWARDS = {
    "environment": PartRow(EnvironmentReward()),
    "outcome": PartRow(OutcomeReward(scale=2.0, shift=-1.0)),
    "overlong": PartRow(OverlongPenalty(limit=6, buffer=3)),
    "overlong by horizon": PartRow(OverlongPenalty()),
    "kl": PartRow(KLPenalty()),
    "kl from old": PartRow(KLPenalty(anchor="old")),
    "kl by k3": PartRow(KLPenalty(estimator="k3")),
    "dpo's reward": PartRow(PolicyLogRatio(coefficient=0.5, limit=0.4, policy="guide")),
    "win rate": PartRow(WinRate()),
    "win rate of Bradley-Terry": PartRow(WinRate(preference=OutcomePreference(temperature=0.5), own=True)),
    "win rate against opponents": PartRow(WinRate(against="opponents"), batch=opponent_batch),
    "win rate beside opponents": PartRow(WinRate(), batch=opponent_batch),
    "win rate by a judge": PartRow(
        WinRate(preference=JudgedPreference(judge=LearnedJudge(link="sigmoid", compares=True))), batch=task_batch
    ),
    "win rate by a reward model": PartRow(
        WinRate(preference=RewardPreference(judge=LearnedJudge(), temperature=0.5)), batch=task_batch
    ),
    "win rate by a Gaussian reward": PartRow(
        WinRate(preference=GaussianPreference(judge=LearnedJudge(weights=str(GAUSSIAN)))), batch=task_batch
    ),
    "sum of outcomes": PartRow(SumOfRewards(terms=[OutcomeReward(), OverlongPenalty(limit=4)], weights=[1.0, 0.5])),
    "sum with kl": PartRow(SumOfRewards(terms=[OutcomeReward(), KLPenalty()])),
    "scaled": PartRow(ScaledReward()),
    "centred": PartRow(
        ScaledReward(reward=SumOfRewards(terms=[OutcomeReward(), OverlongPenalty(limit=4)]), centred=True)
    ),
    "priced costs": PartRow(PricedCosts(limits=(0.2, 0.9), initial=0.5), batch=cost_batch),
    "clipped": PartRow(ClippedReward(reward=OutcomeReward(scale=3.0, shift=-1.0), limit=0.5)),
    "relative length": PartRow(BRIEF),
    "relative length in turns": PartRow(RelativeLength(of=TurnCount(), right=IsCorrect(threshold=0.5))),
    "relative length in calls": PartRow(RelativeLength(of=RowField(name="signal_calls")), batch=signal_batch),
    "length of all": PartRow(LinearLength(rows="all")),
    "length that is left": PartRow(SumOfRewards(terms=[OutcomeReward(), LinearLength(free=1.0, limit=20)])),
    "gated by solved groups": PartRow(ConditionalReward(reward=BRIEF, when=SolvedGroups(least=0.5))),
    "gated by the best groups": PartRow(ConditionalReward(reward=BRIEF, when=TopGroups(share=0.5)), batch=ranked_batch),
    "gated kl": PartRow(ConditionalReward(reward=KLPenalty(), when=TaskKindIs(kinds=("a",)))),
    "gated by answers": PartRow(ConditionalReward(reward=OutcomeReward(), when=AnswerMatches(pattern="[12]$"))),
    "gated by length": PartRow(ConditionalReward(reward=OutcomeReward(), when=LongerThan(than=3))),
    "gated by a signal": PartRow(
        ConditionalReward(reward=OutcomeReward(shift=1.0), when=SignalAbove(name="flawed")), batch=signal_batch
    ),
    "geometric mean": PartRow(
        GeometricMean(terms=[OutcomeReward(), LengthWindow(low=1, high=4, steepness=1.0)], weights=[1.0, 2.0])
    ),
    "least": PartRow(MinimumReward(terms=[OutcomeReward(), OverlongPenalty(limit=4)])),
    "blocks": PartRow(Blocks(names=NAMES), batch=text_batch),
    "leading blocks": PartRow(LeadingBlocks(names=NAMES), batch=text_batch),
    "has a block": PartRow(HasBlock(name="answer"), batch=text_batch),
    "brevity before a block": PartRow(Brevity(scale=9.0, of="characters", before="answer"), batch=text_batch),
    "window of words": PartRow(LengthWindow(low=1, high=4, steepness=1.0, of="words"), batch=text_batch),
    "brevity of a block": PartRow(Brevity(scale=2.0, of="characters", block="thinking"), batch=text_batch),
    "brevity": PartRow(Brevity(scale=2.0)),
    "gated": PartRow(
        ConditionalReward(reward=OutcomeReward(), when=PositiveReward(reward=Blocks(names=NAMES)), otherwise=-1.0),
        batch=text_batch,
    ),
    "kl of a turn": PartRow(KLPenalty(turn=1), batch=answer_reward_batch),
    "learned judge": PartRow(JudgedReward(judge=LearnedJudge(seed=3)), batch=task_batch),
    "ensemble of judges": PartRow(
        JudgedReward(judge=EnsembleJudge(judges=[LearnedJudge(seed=1), LearnedJudge(seed=2)], caution=0.5)),
        batch=task_batch,
    ),
    "learned judge that compares": PartRow(JudgedReward(judge=LearnedJudge(compares=True)), batch=task_batch),
    "judge of chances": PartRow(JudgedReward(judge=LearnedJudge(link="sigmoid", rows=2)), batch=task_batch),
    "judge behind a server": PartRow(
        JudgedReward(judge=HTTPJudge(chat=CHAT, template="{prompt} {answer} {reference}")), batch=task_batch
    ),
    "noted": PartRow(FieldReward(name="greedy_reward")),
    "noted numbers": PartRow(FieldReward(name="row")),
    "rubric in words": PartRow(
        RubricReward(
            items=[Item(name="right", text="one point a step", most=3), Item(name="kind", most=2)],
            grader=HTTPGrader(chat=CHAT),
            meta=HTTPMeta(chat=CHAT),
            every=1,
            samples=2,
        ),
        batch=task_batch,
    ),
}
