"""These programs measure what the paper of V0 claims."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import polopt.methods.v0 as module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.abilities import Abilities, Foreseen, OraclePredictor, abilities, checkpoints, foresee
from polopt.lab.effects import Less, More, effect
from polopt.lab.policy import TabularPolicy
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree
from polopt.methods.grpo import grpo
from polopt.methods.v0 import PredictedAllocator, v0
from polopt.sampling import InContext, Predictor, fit
from polopt.sampling.allocation import allocate, allocate_exactly, knapsack_value


@functools.cache
def known(seed: int) -> Abilities:
    """200 policies; those from 150 on are the unseen ones."""
    return abilities(200, 400, seed=seed)


@functools.cache
def trained(seed: int, rate: float) -> InContext:
    """A predictor that has seen one try of 150 policies at each of 400 prompts."""
    sizes = InContext(buckets=1024, longest=3, seed=seed)
    return fit(sizes, known(seed).histories(range(150)), steps=100, rate=rate, seed=seed)


@functools.cache
def in_context(seed: int, rate: float, shuffled: bool = False) -> Foreseen:
    """Returns the predictions for the 50 other policies, given 256 of the prompts, at the rest."""
    return foresee(trained(seed, rate), known(seed), range(150, 200), context=256, shuffled=shuffled)


class MeanScore(Predictor):
    """Predicts the mean score of the context at every prompt."""

    def forward(self, context_prompts: Sequence[str], context_scores: Tensor, prompts: Sequence[str]) -> Tensor:
        return context_scores.mean().expand(len(prompts))


def by_policy(seed: int, rate: float) -> Foreseen:
    return foresee(MeanScore(), known(seed), range(150, 200), context=256)


def by_prompt(seed: int, rate: float) -> Foreseen:
    """Predicts how often the training policies are right at the prompt."""
    found = by_policy(seed, rate)
    return found._replace(predicted=known(seed).scores[:150].mean(0)[found.places].expand_as(found.scores))


Guess = Callable[[int, float], Foreseen]
SHUFFLED = functools.partial(in_context, shuffled=True)
RATES = (0.01, 0.03, 0.1, 0.3)


@effect(
    "For policies that it has never seen it tells success from failure, by their context.",
    kind="headline",
    method=lambda: in_context,
    controls={
        "context shuffled": lambda: SHUFFLED,
        "policy's mean": lambda: by_policy,
        "prompt's mean": lambda: by_prompt,
    },
    step_sizes=RATES,
    criteria=[Less("Brier", by=-0.02), More("AUC", by=0.0)],
    seeds=5,
    trials=1,
    cost="slow",
    note="200 synthetic policies and 400 prompts that name four words each; a try is a coin of the true rate.",
)
def generalises(guess: Guess, *, seed: int, step_size: float) -> dict[str, float]:
    found = guess(seed, step_size)
    return {"Brier": found.brier(found.predicted), "AUC": found.auc()}


@effect(
    "It routes prompts among unseen policies better than always asking the best.",
    kind="part",
    method=lambda: in_context,
    controls={"policy's mean": lambda: by_policy, "context shuffled": lambda: SHUFFLED},
    step_sizes=RATES,
    criteria=[Less("regret", times=1.0)],
    seeds=5,
    trials=1,
    cost="slow",
    note="12 teams of 4 policies. By the policies' means it is the one that is best in its context that is asked.",
)
def routes(guess: Guess, *, seed: int, step_size: float) -> dict[str, float]:
    found = guess(seed, step_size)
    teams = [
        found._replace(predicted=found.predicted[i : i + 4], rates=found.rates[i : i + 4]) for i in range(0, 48, 4)
    ]
    return {"regret": sum(team.regret() for team in teams) / len(teams)}


@effect(
    "A budget by predicted success is worth more than an even one: half of what one by true rates gains, or more.",
    kind="part",
    method=lambda: in_context,
    controls={"policy's mean": lambda: by_policy, "prompt's mean": lambda: by_prompt},
    step_sizes=RATES,
    criteria=[More("share of what can be gained", by=0.5)],
    seeds=10,
    trials=1,
    cost="slow",
    note="8 rollouts for every prompt on average, 2 to 128; the share is 0 for even budgets, which those by a policy's "
    "mean are, and 1 for true rates.",
)
def budgets(guess: Guess, *, seed: int, step_size: float) -> dict[str, float]:
    found = guess(seed, step_size)
    worth = {"guess": 0.0, "even": 0.0, "truth": 0.0}
    for predicted, rate in zip(found.predicted, found.rates, strict=True):
        total = 8 * len(rate)
        counts = {
            "guess": allocate(predicted, total, 2, 128),
            "even": torch.full((len(rate),), 8),
            "truth": allocate(rate, total, 2, 128),
        }
        for name, count in counts.items():
            worth[name] += float(knapsack_value(count.double(), rate).sum())
    return {"share of what can be gained": (worth["guess"] - worth["even"]) / (worth["truth"] - worth["even"])}


@claim(
    "Of a run that it has never seen, it predicts what the next checkpoint will solve.",
    kind="part",
    baseline="the checkpoint's mean score",
    cost="slow",
    refuted=True,
)
def next_checkpoint() -> Finding:
    runs = checkpoints(grpo(group=8, kl=0.0), seeds=6)
    off: dict[str, list[float]] = {"trained": [], "untrained": [], "mean score": []}
    g = torch.Generator().manual_seed(1)
    for held_out, run in enumerate(runs):
        histories = [
            h for i, other in enumerate(runs) if i != held_out for point in other for h in point.histories(range(1))
        ]
        sizes = InContext(width=16, buckets=512)
        trained = fit(sizes.but(), histories, steps=150, context=16, queries=12)
        for now, later in itertools.pairwise(run):
            order = torch.randperm(len(now.prompts), generator=g)
            given, queried = order[:13], order[13:]
            scores, truth = now.scores[0, given], later.rates[0, queried]
            texts, questions = ([now.prompts[i] for i in rows.tolist()] for rows in (given, queried))
            guesses = {name: p(texts, scores, questions) for name, p in (("trained", trained), ("untrained", sizes))}
            for name, guess in {**guesses, "mean score": scores.mean()}.items():
                off[name].append(float((guess - truth).square().mean()))
    found = {f"squared error, {name}": sum(values) / len(values) for name, values in off.items()}
    return Finding(
        measured=found,
        criterion="squared error against the true rates at 12 of 25 sums, given scores at 13: trained < mean score's",
        holds=found["squared error, trained"] < found["squared error, mean score"],
        note="Transformers of four layers that learn sums modulo 5 fail at sums of their own, which no text tells. On "
        "reasoning tasks of several kinds, with small language policies, it holds: benchmarks/results/predictor.md.",
    )


@claim(
    "Counts are worth as much as any of their sum: more where success is neither sure nor out of reach.",
    kind="identity",
    baseline="8 rollouts for every task; and counts of the opposite rates",
)
def bought() -> Finding:
    rates = torch.tensor([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98], dtype=torch.float64)
    tree = TokenTree.bandit([[1.0, 0.0]] * len(rates))
    policy = TabularPolicy(tree).set_probabilities(torch.stack([rates, 1 - rates], 1))
    predictor = OraclePredictor(rates=rates.tolist(), vocabulary=tree.vocabulary)
    algorithm = v0(most=16).but(**{"sampling.budget.predictor": predictor})
    batch = algorithm.sampling(TreeSource(tree, policy, rows=8 * len(rates)))
    counts = torch.bincount(batch.extras["index"], minlength=len(rates))
    exact = allocate_exactly(rates, 8 * len(rates), 2, 16)
    worth = {name: float(knapsack_value(n.double(), rates).sum()) for name, n in (
        ("found", counts), ("best", exact), ("even", torch.full_like(counts, 8)),
        ("of opposite rates", exact.flip(0)),
    )}  # fmt: skip
    return Finding(
        measured=worth | {f"rollouts at {p:g}": float(n) for p, n in zip(rates.tolist(), counts, strict=True)},
        criterion="as many rollouts as even; worth the best of all, to 1e-12; even and of opposite rates at least 2 % "
        "less",
        holds=int(counts.sum()) == 8 * len(rates)
        and abs(worth["found"] - worth["best"]) < 1e-12
        and max(worth["even"], worth["of opposite rates"]) < 0.98 * worth["best"],
        note="The best of all by dynamic programming over tasks and budgets.",
    )


@mutation("Rollouts go by the rate of failure.", kills=bought)
def by_failure(replace: Replace) -> None:
    predict = PredictedAllocator.predict
    replace(PredictedAllocator, "predict", lambda self, source, tasks: 1 - predict(self, source, tasks))


@mutation("The most that a task may get is ignored.", kills=bought)
def without_most(replace: Replace) -> None:
    replace(module, "allocate", lambda rate, total, least, most: allocate(rate, total, least, 128))
