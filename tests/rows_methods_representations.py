"""Rows of the battery: losses of networks whose outputs are vectors."""

from __future__ import annotations

import torch
from batches import SampleBatch, networks_batch, poisoned, random_batch
from battery import PartRow

from polopt.methods.a2pr import AdvantageAutoencoderLoss, AdvantageGuidedError, LowerNextValue
from polopt.methods.famo2o import BalanceAscent
from polopt.methods.h2o import RealTransitionWeight, SimulatedOddsLoss, SimulatedValuePenalty
from polopt.methods.metra import MetricEncoderLoss, MultiplierLoss
from polopt.methods.serl import SuccessLoss
from polopt.methods.zero_shot_rl import (
    ForwardBackwardLoss,
    MeasureConservative,
    TaskValueAscent,
    ValueConservative,
)
from polopt.objectives import Backup, NetworkRegression, ValueAscent
from polopt.outputs import NetworkOutput, Proposal


def vectors_batch(seed: int = 0, clean: bool = False, D: int = 3) -> SampleBatch:
    """A batch with a skill and a task, and with the outputs of encoders, of representations and of a multiplier."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(200 + seed)
    B, T = batch.mask.shape
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    noisy = Proposal(False, 0.2, 0.3)
    outputs = {
        NetworkOutput("encoder"): normal(B, T, D),
        NetworkOutput("encoder", next=True): normal(B, T, D),
        NetworkOutput("multiplier"): 0.1 + normal(B, T).abs(),
        NetworkOutput("forward"): normal(B, T, 2, D),
        NetworkOutput("forward", proposal=noisy): normal(B, T, 2, D),
        NetworkOutput("forward", target=True, next=True, proposal=noisy): normal(B, T, 2, D),
        NetworkOutput("forward", column="candidate_actions"): normal(B, T, 4, 2, D),
        NetworkOutput("backward", next=True): normal(B, T, D),
        NetworkOutput("backward", target=True, next=True): normal(B, T, D),
        NetworkOutput("value"): normal(B, T),
        NetworkOutput("success"): normal(B, T, 1),
        NetworkOutput("action_odds"): normal(B, T, 1),
        NetworkOutput("transition_odds"): normal(B, T, 1),
        NetworkOutput("autoencoder"): normal(B, T, 5 * D),
        NetworkOutput("action"): normal(B, T, D),
        NetworkOutput("action", proposal=Proposal()): normal(B, T, D),
        NetworkOutput("critic"): normal(B, T, 2),
        NetworkOutput("critic", proposal=Proposal()): normal(B, T, 2),
        NetworkOutput("critic", next=True, proposal=Proposal()): normal(B, T, 2),
        NetworkOutput("critic", target=True, next=True, proposal=Proposal()): normal(B, T, 2),
        NetworkOutput("critic", column="candidate_actions"): normal(B, T, 1, 2),
    }
    extras = {"candidate_actions": normal(B, T, 1, D), "skill": normal(B, T, D), "task_vector": normal(B, T, D)}
    extras |= {"dynamics_gap": normal(B, T)}
    if not clean:
        outputs = {k: poisoned(v, batch.mask) for k, v in outputs.items()}
        extras = {k: poisoned(v, batch.mask) for k, v in extras.items()}
    extras["logged"] = torch.rand(B, T, generator=g) < 0.5
    extras["succeeded"] = extras["logged"] & (torch.rand(B, T, generator=g) < 0.5)
    leaves = batch.leaves | {output.name: value.requires_grad_() for output, value in outputs.items()}
    return SampleBatch(batch.experience.replace(extras=extras), leaves)


OBJECTIVES = {
    "classifier of success": PartRow(SuccessLoss(), honest=None, batch=vectors_batch),
    "odds of the simulator": PartRow(SimulatedOddsLoss(), honest=None, batch=vectors_batch),
    "simulated values": PartRow(
        NetworkRegression(
            target=Backup(next=LowerNextValue()),
            weights=[RealTransitionWeight()],
            regularise=[SimulatedValuePenalty()],
        ),
        honest=None,
        batch=vectors_batch,
    ),
    "autoencoder of good actions": PartRow(AdvantageAutoencoderLoss(), honest=None, batch=vectors_batch),
    "the better of two actions": PartRow(
        ValueAscent(regularise=[AdvantageGuidedError(threshold=-0.5)]), honest=None, batch=vectors_batch
    ),
    "the lower of both copies": PartRow(
        NetworkRegression(network="value", target=Backup(next=LowerNextValue())), honest=None, batch=vectors_batch
    ),
    "metric encoder": PartRow(MetricEncoderLoss(slack=0.1), honest=None, batch=vectors_batch),
    "metric encoder of discrete skills": PartRow(MetricEncoderLoss(centred=True), honest=None, batch=vectors_batch),
    "multiplier": PartRow(MultiplierLoss(), honest=None, batch=vectors_batch),
    "forward and backward": PartRow(ForwardBackwardLoss(), honest=None, batch=vectors_batch),
    "conservative values": PartRow(
        ForwardBackwardLoss(conservative=[ValueConservative(weight=0.5)]), honest=None, batch=vectors_batch
    ),
    "conservative measures": PartRow(
        ForwardBackwardLoss(conservative=[MeasureConservative(weight=0.5)], gamma=0.5), honest=None, batch=vectors_batch
    ),
    "value at a chosen balance": PartRow(BalanceAscent(), honest=None, batch=networks_batch),
    "value of a task": PartRow(TaskValueAscent(), honest=None, batch=vectors_batch),
}
