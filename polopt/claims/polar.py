"""These programs measure what the paper of POLAR claims."""

from __future__ import annotations

import torch

from polopt.backends import Pairs, TextScorer, fit_scorer, same_policy_pairs
from polopt.backends.scorer import ScorerShape
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.bigrams import Bigrams, BigramSource, spelled
from polopt.lab import learning
from polopt.methods.polar import polar
from polopt.rewards import Judge, LearnedJudge

LENGTH = 64


def texts(policies: list[Bigrams], each: int, generator: torch.Generator) -> list[list[list[str]]]:
    """Returns what each wrote to the one prompt there is."""
    return [[spelled(policy.write(each, LENGTH, generator)[:, 1:])] for policy in policies]


def discriminator(policies: int = 40, steps: int = 150) -> TextScorer:
    """Trained on texts of so many random policies."""
    generator = torch.Generator().manual_seed(0)
    written = texts([Bigrams.any(seed) for seed in range(policies)], 16, generator)
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


@claim(
    "Trained on 40 policies, it tells policies apart that it has never met.",
    kind="headline",
    baseline="references of other pairs",
)
def recognises_authors() -> Finding:
    scorer = discriminator(steps=60)
    generator = torch.Generator().manual_seed(1)
    pairs = same_policy_pairs([""], texts([Bigrams.any(1000 + i) for i in range(40)], 8, generator), 500, generator)
    right, chance = pairwise_accuracy(scorer, pairs), pairwise_accuracy(scorer, pairs, shuffled=True)
    return Finding(
        measured={"same author scores higher": right, "references shuffled": chance},
        criterion=">= 0.8, with references of 64 letters; between 0.4 and 0.6 with shuffled ones",
        holds=right >= 0.8 and 0.4 <= chance <= 0.6,
    )


def approached(judge: Judge, seed: int, steps: int = 60) -> list[float]:
    """By how much of KL(target || policy) a uniform policy has come nearer to a hidden target, after each batch."""
    target, policy = Bigrams.any(2000 + seed), Bigrams(torch.zeros(6, 6, dtype=torch.double))
    source, first = BigramSource(policy, target, rows=64, length=LENGTH, seed=seed), target.kl(policy)
    loop = learning(polar(judge=judge), source, policy, rate=20.0)
    return [1 - target.kl(policy) / first for _, _ in zip(range(steps), loop, strict=False)]


@claim(
    "With a hidden target's texts for references, the policy goes 70% of the way to the target.",
    kind="headline",
    baseline="a Bradley-Terry scorer of another target's texts",
    cost="slow",
    refuted=True,
)
def finds_the_target() -> Finding:
    generator = torch.Generator().manual_seed(2)
    few, many = (LearnedJudge(compares=True).judges_with(discriminator(*size)) for size in ((40, 150), (1000, 600)))
    preferred, *others = texts([Bigrams.any(3000 + i) for i in range(21)], 64, generator)
    plain = TextScorer(ScorerShape(width=32, layers=0, window=2))
    fit_scorer(
        plain, Pairs([""] * 64, preferred[0], [other[0][0] for other in others[:16]] * 4), steps=150, rows=32, rate=1e-2
    )
    measured: dict[str, float] = {}
    for name, judge in (
        ("40 policies", few),
        ("1000 policies", many),
        ("Bradley-Terry", LearnedJudge().judges_with(plain)),
    ):
        runs = [approached(judge, seed) for seed in range(3)]
        measured[name] = sum(run[-1] for run in runs) / 3
        measured[f"{name}, at its best"] = sum(max(run) for run in runs) / 3
    return Finding(
        measured=measured,
        criterion="40 policies >= 0.7 after 60 batches; Bradley-Terry <= 0.2",
        holds=measured["40 policies"] >= 0.7 and measured["Bradley-Terry"] <= 0.2,
        note="No KL, as in the paper's scripts: the policy comes nearer, by a third and more, and then goes past the "
        "target, towards whatever tells its author from all others. The more policies the discriminator has met, the "
        "nearer and the less so. Bradley and Terry's scorer leads to the target that it knows, away from this one.",
    )


@mutation("The answer is compared with itself, not with the reference.", kills=recognises_authors)
def reference_unread(replace: Replace) -> None:
    def compare(self: TextScorer, _: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([answer, answer, answer * answer], 1))[:, 0]

    replace(TextScorer, "compare", compare)
