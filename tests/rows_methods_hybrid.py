"""Rows of the battery: a critic of choices and a policy that climbs it, over played and logged decisions."""

from __future__ import annotations

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow

from polopt.methods.hnpg import ExpectedAdvantage
from polopt.objectives import Backup, ExpectedActionValue, NetworkRegression, Surrogate, Unclipped
from polopt.objectives.targets import EVERY_LOGP, NEXT_EVERY_LOGP
from polopt.outputs import NetworkOutput, Proposal


def choices_batch(seed: int = 0, clean: bool = False, n: int = 4) -> SampleBatch:
    """A batch with the advantages of every choice, and with outputs of a critic at each of them."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(300 + seed)
    B, T = batch.mask.shape
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    outputs = {
        EVERY_LOGP: normal(B, T, n).log_softmax(-1),
        NEXT_EVERY_LOGP: normal(B, T, n).log_softmax(-1),
        NetworkOutput("critic"): normal(B, T, 2),
        NetworkOutput("critic", target=True, next=True, proposal=Proposal(of="every")): normal(B, T, n, 2),
    }
    extras = {"choice_advantage": normal(B, T, n)}
    if not clean:
        outputs = {k: poisoned(v, batch.mask) for k, v in outputs.items()}
        extras = {k: poisoned(v, batch.mask) for k, v in extras.items()}
    leaves = batch.leaves | {output.name: value.requires_grad_() for output, value in outputs.items()}
    return SampleBatch(batch.experience.replace(extras=extras), leaves)


OBJECTIVES = {
    "expected advantage of choices": PartRow(
        Surrogate(trust=Unclipped(), regularise=[ExpectedAdvantage()]), honest=None, batch=choices_batch
    ),
    "expected value of choices": PartRow(
        NetworkRegression(target=Backup(gamma=0.9, next=ExpectedActionValue())), honest=None, batch=choices_batch
    ),
}
