"""These programs measure what the paper of InK-GRPO claims."""

import torch

import polopt.methods.typhoon_s_ink_grpo as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import LeafGradient, TabularPolicy, TreeSource, flat_gradient, train
from polopt.lab.demonstrations import read_or_guess
from polopt.lab.problems import digits
from polopt.methods.sft import sft
from polopt.methods.typhoon_s_ink_grpo import typhoon_s_ink_grpo
from polopt.sampling import RawTexts, WithTexts


def accuracy(algorithm: Algorithm, rate: float = 75.0) -> float:
    """On the questions, after 100 steps."""
    tree, policy, texts = read_or_guess()
    train(algorithm, tree, policy, steps=100, rate=rate, rows=32, texts=texts)
    return 2 * tree.value(policy).item()  # the other half are texts


@claim(
    "Texts teach the facts, rewards how to answer.", kind="headline", baseline="GRPO alone, texts alone", cost="slow"
)
def both() -> Finding:
    ink = typhoon_s_ink_grpo()
    read = accuracy(sft().but(sampling=RawTexts()), rate=75.0 * 0.1 * 0.6)
    found = {"InK": accuracy(ink), "GRPO": accuracy(ink.but({"sampling.mix": []})), "texts": read}
    every_step = accuracy(typhoon_s_ink_grpo(probability=1.0, weight=0.06))
    return Finding(
        measured={**found, "InK, every step, weight 0.06": every_step},
        criterion="InK >= 0.8, GRPO <= 0.1, texts <= 0.3 (25 facts, guessed 1 time in 400)",
        holds=found["InK"] >= 0.8 and found["GRPO"] <= 0.1 and found["texts"] <= 0.3,
        note="Reading at every step with the same average weight does as well: nothing here needs the coin.",
    )


@claim("On average the texts weigh probability * weight.", kind="identity", baseline="weight alone")
def average() -> Finding:
    tree, _ = digits()
    policy = TabularPolicy(tree, spread=0.7, seed=1)
    written = torch.rand(tree.outcome.shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    written[:, [len(answer) == 1 for answer in tree.answers]] = 0  # of one length, a mean of batches is the mean
    ink = typhoon_s_ink_grpo(texts=8).but({"objective.routes.0.weight": 0.0})
    source, leaf_gradients = TreeSource(tree, policy, rows=8, texts=written), []
    probe = LeafGradient(ink, tree, policy, ink.sampling.support)  # type: ignore[arg-type]
    for _ in range(1000):
        leaf_gradients.append(probe(ink.compute_advantages(ink.sampling(source))))
    found = probe.vjp(torch.stack(leaf_gradients)).mean(0)
    likelihood = tree.log_probabilities(policy) / 2  # two tokens each
    exact = flat_gradient(-(written / written.sum() * likelihood).sum(), policy)
    errors = {share: ((found - share * exact).norm() / (share * exact).norm()).item() for share in (0.06, 0.1)}
    return Finding(
        measured={"relative error": errors[0.06], "against weight alone": errors[0.1]},
        criterion="< 0.1 over 1,000 draws; against weight alone > 0.3",
        holds=errors[0.06] < 0.1 and errors[0.1] > 0.3,
    )


@mutation("Every batch reads texts: the probability is ignored.", kills=average)
def always_reads(replace: Replace) -> None:
    replace(module, "WithTexts", lambda rows, length, probability: WithTexts(rows=rows, length=length))
