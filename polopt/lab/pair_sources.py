"""Sources of preference pairs under one loss, on problems whose KL and win rates are exact: data set, policy, replay.

Source: the protocol of arXiv:2405.08448.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.lab.policy import TabularPolicy
from polopt.lab.preferences import paired
from polopt.lab.tree import TokenTree

# [n, 2] numbers of the preferred and of the rejected answer.
Pairs = Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """Answers to one prompt with two judges.

    tree: of the answers. reference: the policy that training starts from. golden: [V, V] the true probability that i is
    preferred to j. proxy: [V, V] that of a model that was fitted to labels of the golden one. data: pairs with golden
    labels.
    """

    tree: TokenTree
    reference: TabularPolicy
    golden: Tensor
    proxy: Tensor
    data: Pairs

    @functools.cached_property
    def reference_logp(self) -> Tensor:
        """Log-probability of each answer under the reference, [V]."""
        return self.tree.log_probabilities(self.reference).detach()[0]

    def evaluation(self, policy: TabularPolicy) -> dict[str, float]:
        """Returns, exactly, KL(policy || reference), `kl`; the golden probability that the policy's answer is preferred
        to the reference's, `win_rate`; and the fraction of the data's pairs whose preferred answer has the higher
        log pi / ref, half of a tie, `accuracy`."""
        logp = self.tree.log_probabilities(policy).detach()[0]
        ratio, chance = logp - self.reference_logp, logp.exp()
        margin = ratio[self.data[:, 0]] - ratio[self.data[:, 1]]
        return {
            "kl": max(float(torch.where(chance > 0, chance * ratio, 0).sum()), 0.0),  # rounding may be below 0
            "win_rate": float(chance @ self.golden @ self.reference_logp.exp()),
            "accuracy": float((0.5 + 0.5 * margin.sign()).mean()),
        }


def labelled(answers: Tensor, judge: Tensor, generator: torch.Generator) -> Pairs:
    """Returns pairs of answers [n, 2] in the order that a judge [V, V] prefers by chance."""
    first = torch.rand(len(answers), generator=generator).double() < judge[answers[:, 0], answers[:, 1]]
    return torch.where(first[:, None], answers, answers.flip(1))


class PairSampler(Protocol):
    """Returns the pairs of the next step, [rows, 2], for the present policy."""

    def __call__(self, policy: TabularPolicy, rows: int, generator: torch.Generator) -> Pairs: ...


class FixedPairs:
    """Draws from a data set of pairs with replacement."""

    def __init__(self, data: Pairs) -> None:
        self.data = data

    def __call__(self, policy: TabularPolicy, rows: int, generator: torch.Generator) -> Pairs:
        return self.data[torch.randint(len(self.data), (rows,), generator=generator)]


class OwnPairs:
    """Samples both answers from a policy, with a judge's labels, and keeps all pairs in `stream`.

    refresh: steps after which the sampling policy becomes the present one; 1 is online training, None samples from the
        first policy for ever, as a data set of the reference's answers does.
    """

    def __init__(self, tree: TokenTree, judge: Tensor, refresh: int | None = 1) -> None:
        self.tree, self.judge, self.refresh = tree, judge, refresh
        self.stream: list[Pairs] = []
        self._chance: Tensor | None = None

    def __call__(self, policy: TabularPolicy, rows: int, generator: torch.Generator) -> Pairs:
        step = len(self.stream)
        if self._chance is None or (self.refresh is not None and step % self.refresh == 0):
            self._chance = self.tree.log_probabilities(policy).detach()[0].exp()
        drawn = torch.multinomial(self._chance, 2 * rows, replacement=True, generator=generator)
        self.stream.append(labelled(drawn.view(rows, 2), self.judge, generator))
        return self.stream[-1]


class ReplayedPairs:
    """Returns a stream of pairs once, in random order."""

    def __init__(self, stream: list[Pairs], generator: torch.Generator) -> None:
        pairs = torch.cat(stream)
        self.pairs, self.place = pairs[torch.randperm(len(pairs), generator=generator)], 0

    def __call__(self, policy: TabularPolicy, rows: int, generator: torch.Generator) -> Pairs:
        begin, self.place = self.place, self.place + rows
        if self.place > len(self.pairs):
            raise ValueError(f"ReplayedPairs: {len(self.pairs)} pairs are too few for {self.place}")
        return self.pairs[begin : self.place]


def pair_training(
    algorithm: Algorithm,
    problem: JudgedAnswers,
    policy: TabularPolicy,
    source: PairSampler,
    *,
    steps: int,
    step_size: float,
    rows: int = 32,
    seed: int = 0,
) -> Iterator[dict[str, float]]:
    """Trains by gradient descent on pairs, and yields an evaluation before the first step and after each: `step`, `kl`,
    `win_rate` and `accuracy`, all exact, as `metrics.FrontierCurves` has them.

    algorithm: of pairs, as `ipo`; of an algorithm of demonstrations, as `sft`, the preferred answers are these.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = list(policy.parameters())
    alone = "pairs" not in algorithm.sampling.source_capabilities
    for step in range(steps + 1):
        yield {"step": float(step), **problem.evaluation(policy)}
        if step == steps:
            return
        pairs = source(policy, rows, generator)
        batch = paired(problem.tree, problem.reference, [(int(a), int(b)) for a, b in pairs])
        batch = batch[batch.outcome == 1] if alone else batch
        batch = algorithm.compute_advantages(algorithm.sampling.mark(batch))
        loss = algorithm.objective(batch, policy.evaluate(batch)).loss
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, gradient in zip(parameters, gradients, strict=True):
                p.sub_(step_size * gradient)
