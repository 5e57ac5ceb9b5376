"""These programs measure what the paper of POLAR claims."""

from __future__ import annotations

import copy
import functools
import itertools

import torch

from polopt.algorithm import Algorithm
from polopt.backends import Pairs, TextScorer, fit_scorer, same_policy_pairs
from polopt.backends.scorer import ScorerShape
from polopt.claim import Replace, mutation
from polopt.claims.problems.bigrams import Bigrams, BigramSource, spelled
from polopt.lab import learning
from polopt.lab.effects import Less, More, effect
from polopt.methods.polar import polar
from polopt.rewards import Judge, LearnedJudge

LENGTH = 64


def texts(policies: list[Bigrams], each: int, generator: torch.Generator) -> list[list[list[str]]]:
    """Returns what each wrote to the one prompt there is."""
    return [[spelled(policy.write(each, LENGTH, generator)[:, 1:])] for policy in policies]


def discriminator(policies: int = 40, steps: int = 150, seed: int = 0) -> TextScorer:
    """Trained on texts of so many random policies, which seed numbers in steps of 80."""
    generator = torch.Generator().manual_seed(seed)
    written = texts([Bigrams.any(80 * seed + i) for i in range(policies)], 16, generator)
    scorer = TextScorer(ScorerShape(width=32, layers=0, window=2, compares=True))
    fit_scorer(scorer, same_policy_pairs([""], written, 4096, generator), steps=steps, rows=32, rate=1e-2)
    return scorer


@torch.no_grad()
def pairwise_accuracy(scorer: TextScorer, pairs: Pairs, shuffled: bool = False) -> float:
    """Returns how often the text of the reference's author scores higher; with references of other pairs if
    shuffled."""
    references = list(pairs.references or ())
    references = references[1:] + references[:1] if shuffled else references
    higher = scorer(pairs.prompts, pairs.better, references) > scorer(pairs.prompts, pairs.worse, references)
    return higher.double().mean().item()


@effect(
    "Trained on 40 policies, it tells policies apart that it has never met.",
    kind="headline",
    method=lambda: False,
    controls={"references of other authors": lambda: True},
    criteria=[More("accuracy", by=0.3)],
    seeds=5,
    note="Texts of 64 letters: the share of 500 pairs of which the reference's author wrote the higher one. Each seed "
    "has 80 policies of its own. Chance is 0.5, and the paper's accuracy 0.8.",
)
def recognises_authors(shuffled: bool, *, seed: int) -> dict[str, float]:
    scorer = discriminator(steps=60, seed=seed)
    generator = torch.Generator().manual_seed(1_000_000 + seed)
    unseen = texts([Bigrams.any(80 * seed + 40 + i) for i in range(40)], 8, generator)
    pairs = same_policy_pairs([""], unseen, 500, generator)
    return {"accuracy": pairwise_accuracy(scorer, pairs, shuffled=shuffled)}


@functools.cache
def _met_many() -> Judge:
    """A discriminator that was trained on 1,000 policies."""
    return LearnedJudge(compares=True).judges_with(discriminator(1000, 600))


@functools.cache
def _knows_one() -> Judge:
    """A scorer that was trained to prefer one policy's texts to those of 16 others."""
    generator = torch.Generator().manual_seed(2)
    preferred, *others = texts([Bigrams.any(3000 + i) for i in range(21)], 64, generator)
    scorer = TextScorer(ScorerShape(width=32, layers=0, window=2))
    pairs = Pairs([""] * 64, preferred[0], [other[0][0] for other in others[:16]] * 4)
    fit_scorer(scorer, pairs, steps=150, rows=32, rate=1e-2)
    return LearnedJudge().judges_with(scorer)


@effect(
    "With a hidden target's texts for references, the policy goes 70 % of the way to the target.",
    kind="headline",
    method=lambda: polar(judge=_met_many(), kl=0.03),
    controls={
        "no training": lambda: None,
        "a Bradley-Terry scorer of another target's texts": lambda: polar(judge=_knows_one(), kl=0.03),
    },
    step_sizes=(2.5, 5.0, 10.0, 20.0),
    criteria=[Less("distance", times=0.3)],
    trials=2,
    cost="slow",
    refuted=True,
    note="It goes two thirds of the way, and stays there. Without a KL it comes as near and then goes past the target, "
    "towards whatever tells its author from all others. After meeting 40 policies instead of 1,000 it goes 0.4 of it.",
)
def finds_the_target(algorithm: Algorithm | None, *, seed: int, step_size: float) -> dict[str, float]:
    """KL(target || policy) that is left after 90 batches, as a share of a uniform policy's."""
    if algorithm is None:
        return {"distance": 1.0}
    target, policy = Bigrams.any(2000 + seed), Bigrams(torch.zeros(6, 6, dtype=torch.double))
    start = copy.deepcopy(policy)
    source = BigramSource(policy, target, rows=64, length=LENGTH, seed=seed, reference=start)
    for _ in itertools.islice(learning(algorithm, source, policy, rate=step_size), 90):
        pass
    return {"distance": target.kl(policy) / target.kl(start)}


@mutation("The answer is compared with itself, not with the reference.", kills=recognises_authors)
def reference_unread(replace: Replace) -> None:
    def compare(self: TextScorer, _: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([answer, answer, answer * answer], 1))[:, 0]

    replace(TextScorer, "compare", compare)
