"""Rows of the battery: rewards that gate, correct or punish, and what they need a world to say."""

from __future__ import annotations

import torch
from batches import SampleBatch, random_batch
from battery import PartRow

from polopt.features.masks import AnswerMatches, IsCorrect, LongerThan, SignalAbove, SolvedGroups, TaskKindIs, TopGroups
from polopt.features.rows import RowField, TurnCount
from polopt.methods.adacot import MaskThinkDecision, ThinkOrNot
from polopt.methods.fapo import FlawedPositive
from polopt.methods.noisy_verifier import BackwardCorrected, FixedRates, ForwardCorrected, NotedRates, RejudgedRates
from polopt.rewards import ConditionalReward, KLPenalty, LinearLength, OutcomeReward, RelativeLength, SumOfRewards


def signal_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with what a world may say of a row: numbers from 0 to 1, and none from a judge that failed."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(200 + seed)
    names = ("flawed", "true", "false_positive", "false_negative")
    extras = {f"signal_{name}": torch.rand(len(batch.mask), generator=g).double() for name in names}
    extras["signal_true"] = extras["signal_true"].round()
    extras["signal_calls"] = torch.randint(0, 5, (len(batch.mask),), generator=g).double()
    extras["signal_flawed"][3] = torch.nan
    return batch.replace(extras=extras)


def ranked_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose groups differ in their share of right rows: which of two equals comes first is arbitrary."""
    outcome = torch.tensor([1, 1, 0, 1, 1, 0, 0, 1, 1]).double()
    return signal_batch(seed, clean).replace(outcome=outcome)


def token_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of three tokens."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(300 + seed)
    return batch.replace(extras={"tokens": torch.randint(0, 3, batch.mask.shape, generator=g)})


BRIEF = RelativeLength(weight=0.5)

REWARDS = {
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
    "flawed": PartRow(
        SumOfRewards(terms=[OutcomeReward(scale=2, shift=-1), FlawedPositive(weight=0.7)]), batch=signal_batch
    ),
    "think or not": PartRow(
        ThinkOrNot(
            thought=LongerThan(than=4),
            need=TaskKindIs(kinds=("b",)),
            malformed=AnswerMatches(pattern="[01]", invert=True),
        )
    ),
    "think or not, by signals": PartRow(
        ThinkOrNot(thought=SignalAbove(name="flawed"), need=SignalAbove(name="true"), over=0.5), batch=signal_batch
    ),
    "backward": PartRow(BackwardCorrected()),
    "backward, a hopeless verifier": PartRow(
        BackwardCorrected(rates=FixedRates(false_positive=0.5, false_negative=0.45))
    ),
    "backward by kind": PartRow(BackwardCorrected(rates=FixedRates(kinds=[("a", 0.3, 0.4)]))),
    "backward as noted": PartRow(BackwardCorrected(rates=NotedRates(), least=0.2), batch=signal_batch),
    "backward, judged again": PartRow(
        BackwardCorrected(rates=RejudgedRates(negatives=0.5, positives=0.5, kinds=("b",))), batch=signal_batch
    ),
    "forward": PartRow(ForwardCorrected()),
    "forward, judged again": PartRow(ForwardCorrected(rates=RejudgedRates(negatives=1.0)), batch=signal_batch),
}

SELECTS = {
    "without the first": PartRow(MaskThinkDecision(), keeps="decisions"),
    "without what follows a tag": PartRow(
        MaskThinkDecision(after=(1, 2), count=2), keeps="decisions", batch=token_batch
    ),
}
