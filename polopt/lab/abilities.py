"""Simulated policies of different abilities on prompts that require several skills, for claims about success
predictors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.lab.problems import modular_sums
from polopt.lab.source import TreeSource
from polopt.metrics import router_regret
from polopt.sampling import History, Predictor

WORDS = (
    *("carry", "prime", "matrix", "shoe", "triangle", "fraction", "monday", "rope", "vowel", "stack", "queue", "graph"),
    *("modulo", "angle", "coin", "train", "parity", "digit", "reverse", "median", "clock", "apple", "ladder", "tunnel"),
)


class Abilities(NamedTuple):
    """Success rates and trial scores of simulated policies on a set of prompts.

    prompts: texts.
    rates: [policies, prompts] true success rates.
    scores: [policies, prompts] the score of one trial each, 0 or 1, or a mean of several.
    """

    prompts: list[str]
    rates: Tensor
    scores: Tensor

    def histories(self, policies: range) -> list[History]:
        """Returns the prompts and scores of these policies."""
        return [History(self.prompts, self.scores[m]) for m in policies]


def abilities(policies: int, prompts: int, *, skills: int = 4, seed: int = 0) -> Abilities:
    """Samples policies whose success rates follow a bilinear model: sigmoid(a_m . f(x) + b_m) for policy m at prompt x.

    A prompt names four of 24 words, and f(x) is half the sum of their hidden vectors, of length `skills`; a_m is N(0,
    1.5^2) and b_m N(0, 1). Which words have similar vectors shows in the policies' scores alone.
    """
    g = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    meaning = normal(len(WORDS), skills)
    named = torch.stack([torch.randperm(len(WORDS), generator=g)[:4] for _ in range(prompts)])
    features = meaning[named].sum(1) / 2
    rates = (1.5 * normal(policies, skills) @ features.T + normal(policies, 1)).sigmoid()
    texts = ["Question: " + " ".join(WORDS[i] for i in row) + "?" for row in named.tolist()]
    return Abilities(texts, rates, torch.bernoulli(rates, generator=g))


class Foreseen(NamedTuple):
    """Predictions for policies at prompts outside of their context, with the true values, each [policies, queries].

    predicted: predicted success rates.
    scores: the policies' scores there.
    rates: true success rates.
    places: [queries] the numbers of these prompts.
    base: the mean score of each policy's context.
    """

    predicted: Tensor
    scores: Tensor
    rates: Tensor
    places: Tensor
    base: Tensor

    def brier(self, guess: Tensor) -> float:
        """Mean squared error of a guess against the scores."""
        return float((guess - self.scores).square().mean())

    def auc(self) -> float:
        """Area under the ROC curve of the predictions over all policies and prompts; ties count half."""
        won, lost = self.predicted[self.scores == 1], self.predicted[self.scores == 0]
        lost = lost.sort().values
        below, reached = (torch.searchsorted(lost, won, right=right) for right in (False, True))
        return float((below + reached).double().mean() / (2 * len(lost)))

    def regret(self) -> float:
        """Loss of success by routing each prompt to the policy of the highest prediction (`metrics.router_regret`)."""
        return float(router_regret(self.rates, self.predicted.argmax(0)))


def foresee(
    predictor: Predictor, known: Abilities, policies: range, *, context: int, shuffled: bool = False
) -> Foreseen:
    """Predicts the success rates of each policy at the same prompts, given `context` other prompts and their scores.

    shuffled: permutes the scores of the context over its prompts, so that they show the policy's mean score, but not at
        which prompts it succeeds.
    """
    order = torch.randperm(len(known.prompts), generator=torch.Generator().manual_seed(1))
    given, queried = order[:context], order[context:]
    texts, questions = ([known.prompts[i] for i in rows.tolist()] for rows in (given, queried))
    found, base = [], []
    for m in policies:
        scores = known.scores[m][given]
        if shuffled:
            scores = scores[torch.randperm(context, generator=torch.Generator().manual_seed(m))]
        found.append(predictor(texts, scores, questions))
        base.append(scores.mean().expand(len(queried)))
    rows = torch.tensor(list(policies))[:, None]
    return Foreseen(
        torch.stack(found), known.scores[rows, queried], known.rates[rows, queried], queried, torch.stack(base)
    )


def checkpoints(algorithm: Algorithm, seeds: int, *, steps: int = 100, every: int = 10) -> list[list[Abilities]]:
    """Trains small transformers to add digits modulo 5, one for each seed, and returns their abilities every `every`
    steps.

    Each entry holds the exact success rate at each of the 25 sums, and the mean score of 4 trials.
    """
    g, runs = torch.Generator().manual_seed(0), []
    for seed in range(seeds):
        tree, policy = modular_sums(seed)
        source = TreeSource(tree, policy, rows=tree.prompts * algorithm.sampling.group_size, seed=seed)
        texts = source.prompts(torch.arange(tree.prompts))
        part, optimiser = algorithm.but(), torch.optim.Adam(policy.parameters(), lr=0.01)
        run = []
        for step in range(steps):
            source.refresh()
            batch = part.compute_advantages(part.sampling(source))
            optimiser.zero_grad()
            part.objective(batch, policy.evaluate(batch)).loss.backward()
            optimiser.step()
            if (step + 1) % every == 0:
                with torch.no_grad():
                    rates = (tree.log_probabilities(policy).exp() * tree.outcome).sum(1).clamp(0, 1)
                tries = torch.bernoulli(rates.expand(4, -1), generator=g).mean(0)
                run.append(Abilities(texts, rates[None], tries[None]))
        runs.append(run)
    return runs


class OraclePredictor(Predictor):
    """Predicts a fixed rate for each prompt of a tree, whatever the context."""

    rates: Sequence[float]
    vocabulary: int

    def forward(self, context_prompts: Sequence[str], context_scores: Tensor, prompts: Sequence[str]) -> Tensor:
        numbers = [sum(int(d) * self.vocabulary**i for i, d in enumerate(reversed(p.split()))) for p in prompts]
        return torch.tensor([self.rates[n] for n in numbers], dtype=torch.float64)
