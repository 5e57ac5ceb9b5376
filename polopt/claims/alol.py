"""These programs measure what the paper of A-LoL claims."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import ConstantBaseline, GroupMean
from polopt.experience import Experience
from polopt.features import WholeBatch
from polopt.lab import TabularPolicy, TokenTree, flat_gradient
from polopt.lab.effects import Less, More, effect
from polopt.methods.alol import PositiveAdvantage, alol
from polopt.methods.sft import sft
from polopt.objectives import ProductRatio, SequenceRatio

PROMPTS, ANSWERS, STEPS = 50, 20, 200
VALUE = frozenset({"value"})


def scored(seed: int) -> tuple[TokenTree, Tensor, Tensor]:
    """Returns 50 prompts with 20 answers whose scores in [0, 1] are half the prompt's and half the answer's, both
    uniform; the reference's law [prompts, answers], half of it on the worse ten answers; and that part of it alone."""
    generator = torch.Generator().manual_seed(seed)
    level, own, often = torch.rand(3, PROMPTS, ANSWERS, generator=generator, dtype=torch.double)
    score = (level[:, :1] + own) / 2
    worse = own.argsort(1).argsort(1) < ANSWERS // 2
    shares = [often * part / (often * part).sum(1, keepdim=True) for part in (worse, ~worse)]
    return TokenTree.bandit(score.tolist()), (shares[0] + shares[1]) / 2, shares[0]


def answers_of(law: Tensor, each: int, generator: torch.Generator) -> Tensor:
    """Returns the leaves of `each` answers to every prompt, drawn by this law."""
    drawn = torch.multinomial(law, each, replacement=True, generator=generator)
    return (drawn + ANSWERS * torch.arange(PROMPTS)[:, None]).flatten()


def given(tree: TokenTree, rows: Tensor, reference: TabularPolicy) -> Experience:
    """Returns the batch of these leaves, in the form of `sampling.RatedAnswers`."""
    batch = tree.leaves()[rows]
    return batch.replace(group=torch.arange(len(rows)), ref_logp=reference.evaluate(batch).logp.detach())


def descended(algorithm: Algorithm, batch: Experience, policy: TabularPolicy, rate: float, steps: int) -> None:
    """Takes gradient steps on the whole batch; advantages are those of the present critic. A policy that diverges is
    left as it is."""
    for _ in range(steps):
        if not all(parameter.isfinite().all() for parameter in policy.parameters()):
            return
        before = policy.evaluate(batch, VALUE)
        ready = batch.replace(old_logp=before.logp.detach(), value=before.value.detach())
        ready = algorithm.compute_advantages(algorithm.sampling.mark(ready))
        loss = algorithm.objective(ready, policy.evaluate(ready, VALUE)).loss
        gradients = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
        with torch.no_grad():
            for parameter, slope in zip(policy.parameters(), gradients, strict=True):
                if slope is not None:
                    parameter.sub_(rate * slope)


def gained(algorithm: Algorithm, seed: int, step_size: float, bad: int = 0) -> float:
    """Returns by how much the exact mean score of the policy exceeds the reference's, with which it begins, after
    learning from eight answers of the reference to each prompt, and `bad` of the worse half; NaN if it diverges."""
    tree, law, worse = scored(seed)
    generator = torch.Generator().manual_seed(seed)
    rows = answers_of(law, 8, generator)
    if bad:
        rows = torch.cat([rows, answers_of(worse, bad, generator)])
    reference = TabularPolicy(tree).set_probabilities(law)
    policy = TabularPolicy(tree, critic=True).set_probabilities(law)
    descended(algorithm, given(tree, rows, reference), policy, step_size, STEPS)
    if not all(parameter.isfinite().all() for parameter in policy.parameters()):
        return math.nan
    return (tree.value(policy) - tree.value(reference)).item()


STEP_SIZES = (3.0, 10.0, 30.0, 60.0, 100.0, 300.0)


@effect(
    "Of scored answers it makes a better policy than their scores as weights, with or without a ratio, and than their "
    "imitation.",
    kind="headline",
    method=alol,
    controls={
        "weighted behaviour cloning": lambda: alol(variant="none", value=ConstantBaseline()),
        "R-LoL": lambda: alol(value=ConstantBaseline()),
        "sft": sft,
    },
    step_sizes=STEP_SIZES,
    criteria=[More("gain", by=0.05)],
    seeds=10,
    cost="slow",
    note="Each has the same 400 answers and 200 steps. The best policy would gain 0.23.",
)
def better_answers(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"gain": gained(algorithm, seed, step_size)}


@effect(
    "A value of each prompt makes a better policy than the mean of all scores in its place.",
    kind="part",
    method=lambda: alol(variant="none"),
    controls={"mean of all scores": lambda: alol(variant="none", value=GroupMean(within=WholeBatch()))},
    step_sizes=(*STEP_SIZES, 1000.0, 3000.0),
    criteria=[More("gain", by=0.02)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="With long steps the mean of all scores does nearly as well: 0.119 of 0.132 on own seeds, 0.124 of 0.132 on "
    "ten fresh ones.",
)
def value_of_the_prompt(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"gain": gained(algorithm, seed, step_size)}


@effect(
    "Half as many answers more, of the worse ones, harm it less than imitation.",
    kind="part",
    method=alol,
    controls={"sft": sft},
    step_sizes=STEP_SIZES,
    criteria=[Less("lost", by=-0.01)],
    best=More("gain", by=0.0),
    seeds=10,
    cost="slow",
)
def bad_answers(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    clean = gained(algorithm, seed, step_size)
    return {"gain": clean, "lost": clean - gained(algorithm, seed, step_size, bad=4)}


def two_tokens() -> tuple[TabularPolicy, TabularPolicy, Experience]:
    """Returns a reference, another policy, and each of nine answers of two tokens to two prompts once."""
    generator = torch.Generator().manual_seed(6)
    tree = TokenTree.full(3, 2, torch.rand(2, 9, generator=generator, dtype=torch.double), prompts=2)
    reference = TabularPolicy(tree, spread=1.0, seed=1)
    return reference, TabularPolicy(tree, spread=1.0, seed=2), given(tree, torch.arange(18), reference)


def slope(algorithm: Algorithm, batch: Experience, policy: TabularPolicy) -> Tensor:
    """Returns the gradient of the batch."""
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    return flat_gradient(algorithm.objective(ready, policy.evaluate(ready)).loss, policy)


@claim(
    "Each variant has the gradient of its formula, and all but the one with the distance have that of no ratio at the "
    "reference.",
    kind="identity",
    baseline="the same away from the reference",
)
def variants() -> Finding:
    reference, policy, batch = two_tokens()
    level = ConstantBaseline(value=0.4)
    advantage, errors, apart = batch.outcome - 0.4, list[float](), list[float]()
    kept = advantage > 0
    for at in (policy, reference):
        ratio = (at.evaluate(batch).logp - batch.ref_logp).detach()
        whole = torch.where(batch.mask, ratio, 0).sum(1, keepdim=True)
        weights = {"sequence": whole.exp().clamp(0.5, 1.5), "tokens": ratio.exp().clamp(0.5, 1.5)}
        weights |= {"none": torch.ones(18, 1), "kl": 1 - 0.2 / advantage[:, None]}
        plain = slope(alol(variant="none", value=level), batch, at)
        for variant, weight in weights.items():
            found = slope(alol(variant=variant, clip=0.5, kl=0.2, value=level), batch, at)  # type: ignore[arg-type]
            terms = torch.where(batch.mask, weight * at.evaluate(batch).logp, 0).sum(1)
            expected = flat_gradient(-(advantage * terms)[kept].mean(), at)
            errors.append((found - expected).abs().max().item())
            if at is reference and variant != "kl":
                errors.append((found - plain).abs().max().item())
            elif variant != "none":
                apart.append((found - plain).abs().max().item())
    return Finding(
        measured={"error": max(errors), "least difference from no ratio": min(apart)},
        criterion="largest error of a gradient < 1e-12, each other's distance from no ratio > 1e-3",
        holds=max(errors) < 1e-12 and min(apart) > 1e-3,
    )


@claim(
    "What it imitates is the reference's law times max(0, R - V), up to a factor: nothing worse than the reference is "
    "left.",
    kind="theory",
    baseline="weighted behaviour cloning",
)
def leftover() -> Finding:
    counts = torch.tensor([[1, 2, 3, 4], [4, 1, 4, 1]])
    tree = TokenTree.bandit([[0.9, 0.2, 0.6, 0.1], [0.3, 0.8, 0.4, 0.5]])
    reference = TabularPolicy(tree).set_probabilities(counts.double() / 10)
    batch = given(tree, torch.arange(8).repeat_interleave(counts.flatten()), reference)
    batch = batch.replace(group=batch.extras["leaf"] // 4)
    mean = (counts * tree.outcome).sum(1, keepdim=True) / 10
    target = counts * (tree.outcome - mean).clamp(min=0)
    policy = TabularPolicy(tree).set_probabilities(target / target.sum(1, keepdim=True))
    ours = slope(alol(variant="none", value=GroupMean()), batch, policy).norm().item()
    other = slope(alol(variant="none", value=ConstantBaseline()), batch, policy).norm().item()
    return Finding(
        measured={"gradient there": ours, "of weighted behaviour cloning": other},
        criterion="norm of the gradient at that law < 1e-12, of weighted behaviour cloning's > 0.05",
        holds=ours < 1e-12 and other > 0.05,
    )


@mutation("Worse answers are pushed away.", kills=leftover)
def all_rows(replace: Replace) -> None:
    replace(PositiveAdvantage, "forward", lambda self, experience: experience.mask.any(1))


@mutation("The ratio of an answer is that of a token on average.", kills=variants)
def mean_ratio(replace: Replace) -> None:
    replace(ProductRatio, "forward", lambda self, *given: SequenceRatio(token=self.token)(*given))
