"""Objectives of several responses to each choice."""

from __future__ import annotations

import torch
from batches import SampleBatch, random_batch
from battery import PartRow

from polopt.checks.sample_batches import poisoned
from polopt.objectives import (
    ConstrainedChoiceWeight,
    LoggedChoiceLikelihood,
    PolicyGradient,
    ResponseAscent,
    ResponseRegression,
    Surrogate,
)
from polopt.outputs import NetworkOutput, Proposal


def responses_batch(seed: int = 0, clean: bool = False, n: int = 4, m: int = 3) -> SampleBatch:
    """A batch of choices among n, with m - 1 responses beside the reward, and outputs of networks."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(200 + seed)
    B, T = batch.mask.shape
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    outputs = {
        NetworkOutput("critic"): normal(B, T, m, n),
        NetworkOutput("critic", target=True, next=True): normal(B, T, m, n),
        NetworkOutput("response_policies"): normal(B, T, m - 1, n),
        NetworkOutput("response_policies", next=True): normal(B, T, m - 1, n),
        NetworkOutput("behaviour"): normal(B, T, 1, n),
    }
    responses, action = normal(B, T, m - 1), torch.randint(n, (B, T), generator=g)
    choice = torch.randint(n, (B, T), generator=g).double()  # leaves are floating point
    if not clean:
        outputs = {k: poisoned(v.flatten(2), batch.mask).reshape(v.shape) for k, v in outputs.items()}
        responses, action = poisoned(responses, batch.mask), action.masked_fill(~batch.mask, -1)
        choice = poisoned(choice, batch.mask)
    leaves = batch.leaves | {output.name: value.requires_grad_() for output, value in outputs.items()}
    leaves[NetworkOutput("action", next=True, proposal=Proposal()).name] = choice.requires_grad_()
    return SampleBatch(batch.experience.replace(extras={"action": action, "responses": responses}), leaves)


def row(part: ResponseRegression | ResponseAscent | LoggedChoiceLikelihood | Surrogate) -> PartRow:
    return PartRow(part, honest=None, batch=responses_batch)


OBJECTIVES = {
    "critics of responses": row(ResponseRegression(gamma=0.9, response_gamma=0.5)),
    "policies of responses": row(ResponseAscent(temperature=0.1)),
    "likelihood of choices": row(LoggedChoiceLikelihood()),
    "weights between policies of responses": row(
        Surrogate(
            ratio=None, trust=PolicyGradient(), weights=[ConstrainedChoiceWeight(multipliers=(0.5, 1.0), cap=3.0)]
        )
    ),
}
