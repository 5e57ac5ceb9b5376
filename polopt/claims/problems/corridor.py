"""A walk of many turns of which few matter: where the credit of single turns shows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest


class Corridor(nn.Module):
    """`steps` turns with one decision each, of `actions`; it ends well where action 0 was taken at every one of the
    `decisive` steps. Elsewhere nothing depends on the action. The outcome is turned round with probability `flipped`.

    It is the policy too, a softmax over free logits at each step, uniform at first, and the source of its own episodes,
    `rows` in a batch.
    """

    size = 1

    def __init__(
        self,
        *,
        steps: int = 8,
        actions: int = 4,
        decisive: Sequence[int] = (2, 5),
        rows: int = 16,
        seed: int = 0,
        flipped: float = 0.0,
    ) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(steps, actions, dtype=torch.double))
        self.decisive, self.rows, self.flipped = list(decisive), rows, flipped
        self.generator = torch.Generator().manual_seed(seed)

    def success(self) -> Tensor:
        """The exact probability of ending well."""
        return self.logits.softmax(-1)[self.decisive, 0].prod()

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        table = self.logits.log_softmax(-1)
        logp = table.expand(len(experience), -1, -1).gather(2, experience.extras["tokens"][..., None]).squeeze(2)
        entropy = ops.entropy_of(table).expand_as(logp)
        return Evaluation(logp=logp, entropy=entropy)

    def take(self, count: int) -> Tensor:
        """There is one corridor, number 0."""
        return torch.zeros(count, dtype=torch.long)

    @torch.no_grad()
    def rollout(self, request: RolloutRequest) -> Experience:
        tasks, group = request.tasks, request.group
        rows, steps = len(group), len(self.logits)
        taken = torch.multinomial(self.logits.softmax(-1), rows, replacement=True, generator=self.generator).T
        outcome = (taken[:, self.decisive] == 0).all(1).double()
        if self.flipped:
            turned = torch.rand(rows, generator=self.generator) < self.flipped
            outcome = torch.where(turned, 1 - outcome, outcome)
        batch = Experience(mask=torch.ones(rows, steps, dtype=torch.bool), extras={"tokens": taken}, horizon=steps)
        evaluation = self.evaluate(batch)
        return batch.replace(
            rollout_logp=evaluation.logp,
            entropy=evaluation.entropy,
            outcome=outcome,
            reward=outcome,
            terminated=torch.ones(rows, dtype=torch.bool),
            truncated=torch.zeros(rows, dtype=torch.bool),
            group=group,
            turn=torch.arange(steps).expand(rows, -1),
            extras={"answer": [str(a) for a in taken.tolist()], "index": tasks[group]},
        )

    def demonstrate(self, rows: int) -> Experience:
        raise NotImplementedError("the corridor has no demonstrations")


def walk(
    algorithm: Algorithm, rate: float, seed: int, goal: float = 0.9, most: int = 400, flipped: float = 0.0
) -> tuple[int, float]:
    """Updates, one on each batch of one group, until the corridor is passed with probability `goal`; and the largest
    norm of one of their steps."""
    corridor, algorithm, longest = (
        Corridor(rows=algorithm.sampling.group_size, seed=seed, flipped=flipped),
        algorithm.but(),
        0.0,
    )
    for update in range(most):
        if corridor.success() >= goal:
            return update, longest
        batch = algorithm.compute_advantages(algorithm.sampling(corridor))
        evaluation = corridor.evaluate(batch, algorithm.objective.required_outputs)
        (gradient,) = torch.autograd.grad(algorithm.objective(batch, evaluation).loss, [corridor.logits])
        longest = max(longest, rate * gradient.norm().item())
        with torch.no_grad():
            corridor.logits.sub_(rate * gradient)
        algorithm.step()
    return most, longest
