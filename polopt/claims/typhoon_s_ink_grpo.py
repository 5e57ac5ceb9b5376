"""These programs measure what the paper of InK-GRPO claims."""

import torch

import polopt.methods.typhoon_s_ink_grpo as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import LeafGradient, TabularPolicy, TreeSource, flat_gradient, train
from polopt.lab.demonstrations import read_or_guess
from polopt.lab.effects import More, effect
from polopt.lab.problems import digits
from polopt.methods.sft import sft
from polopt.methods.typhoon_s_ink_grpo import typhoon_s_ink_grpo
from polopt.objectives import with_imitation
from polopt.sampling import RawTexts, WithTexts


def _texts_alone() -> Algorithm:
    return sft().but(sampling=RawTexts())


@effect(
    "Texts teach the facts, rewards how to answer.",
    kind="headline",
    method=typhoon_s_ink_grpo,
    controls={
        "grpo": lambda: typhoon_s_ink_grpo().but({"sampling.mix": []}),
        "texts alone": _texts_alone,
    },
    step_sizes=(4.5, 18.0, 75.0, 300.0),
    criteria=[More("accuracy", by=0.5)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="25 facts, guessed 1 time in 400. It leads both, but not by as much as with small steps: with large ones GRPO "
    "finds half of the facts by chance.",
)
def both(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _accuracy(algorithm, seed, step_size)


@effect(
    "Reading in a random share of the steps teaches more than reading at every step with the same average weight.",
    kind="limit",
    method=typhoon_s_ink_grpo,
    controls={"every step": lambda: typhoon_s_ink_grpo(probability=1.0, weight=0.06)},
    step_sizes=(18.0, 75.0, 300.0),
    criteria=[More("accuracy", by=0.0)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="Nothing here needs the coin.",
)
def the_coin(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _accuracy(algorithm, seed, step_size)


def _accuracy(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """On the questions, after 100 steps."""
    tree, policy, texts = read_or_guess()
    train(algorithm, tree, policy, steps=100, rate=step_size, rows=32, seed=seed, texts=texts)
    return {"accuracy": 2 * tree.value(policy).item()}  # the other half are texts


def _pull_of_texts(draws: int) -> dict[float, float]:
    """Relative distance of the average gradient, without the rewards' part, to `share` times that of the texts."""
    tree, _ = digits()
    policy = TabularPolicy(tree, spread=0.7, seed=1)
    written = torch.rand(tree.outcome.shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    written[:, [len(answer) == 1 for answer in tree.answers]] = 0  # of one length, a mean of batches is the mean
    ink = typhoon_s_ink_grpo().but({"objective.routes.0.weight": 0.0})
    source = TreeSource(tree, policy, rows=8, texts=written)
    probe = LeafGradient(ink, tree, policy, ink.sampling.support)  # type: ignore[arg-type]
    total = torch.zeros(probe.size, dtype=torch.double)
    for _ in range(draws):
        batch = ink.sampling(source)
        if len(batch) > 8:  # without texts there is no gradient
            total += probe(ink.compute_advantages(batch)) / draws
    found = probe.vjp(total[None])[0]
    likelihood = tree.log_probabilities(policy) / 2  # two tokens each
    exact = flat_gradient(-(written / written.sum() * likelihood).sum(), policy)
    return {share: ((found - share * exact).norm() / (share * exact).norm()).item() for share in (0.06, 0.1)}


@claim("On average the texts weigh probability * weight.", kind="identity", baseline="weight alone", cost="slow")
def average() -> Finding:
    errors = _pull_of_texts(draws=5000)
    return Finding(
        measured={"relative error": errors[0.06], "against weight alone": errors[0.1]},
        criterion="< 0.03 over 5,000 draws; against weight alone > 0.3",
        holds=errors[0.06] < 0.03 and errors[0.1] > 0.3,
    )


@claim("On average of few batches they do so roughly.", kind="identity", baseline="weight alone")
def roughly() -> Finding:
    errors = _pull_of_texts(draws=250)
    return Finding(
        measured={"relative error": errors[0.06], "against weight alone": errors[0.1]},
        criterion="< 0.15 over 250 draws (the coin's own standard error is 0.05); against weight alone > 0.25",
        holds=errors[0.06] < 0.15 and errors[0.1] > 0.25,
    )


@mutation("Every batch reads texts: the probability is ignored.", kills=roughly)
def always_reads(replace: Replace) -> None:
    replace(module, "WithTexts", lambda rows, length, probability: WithTexts(rows=rows, length=length))


@mutation("The texts' loss has no weight of its own.", kills=roughly)
def unweighted(replace: Replace) -> None:
    replace(module, "with_imitation", lambda surrogate, weight: with_imitation(surrogate, 1.0))
