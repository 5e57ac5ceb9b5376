"""These programs measure what the paper of LUSPO claims."""

import torch

from polopt.claim import Finding, claim
from polopt.lab import expectation, train
from polopt.lab.problems import longer_is_better
from polopt.methods.luspo import luspo
from polopt.objectives import SequenceMean

GSPO = {"objective.aggregate": SequenceMean()}
CENTRED = {"credit.scale": None}  # a z-score would change the expected gradient of both


@claim(
    "On policy, exactly (1 - 1/G) of the true gradient, whatever the lengths.", kind="identity", baseline="GSPO's mean"
)
def unbiased() -> Finding:
    tree, policy = longer_is_better()
    ours = expectation(luspo(group=2).but(CENTRED), tree, policy, scale=1 - 1 / 2)
    mean = expectation(luspo(group=2).but(CENTRED, **GSPO), tree, policy)
    return Finding(
        measured={"relative bias": ours.relative_bias, "cosine": ours.cosine, "GSPO's mean: cosine": mean.cosine},
        criterion="relative bias < 1e-10 and cosine > 0.9999; GSPO's mean: cosine < 0.9",
        holds=ours.relative_bias < 1e-10 and ours.cosine > 0.9999 and mean.cosine < 0.9,
    )


@claim(
    "Where longer answers are better, answers grow longer and better.",
    kind="headline",
    baseline="GSPO's mean, equal step",
)
def grows() -> Finding:
    found = {}
    for name, change in (("LUSPO", {}), ("GSPO", GSPO)):
        tree, policy = longer_is_better(prompts=10)  # alike, and apart in the table: ten seeds at once
        train(luspo().but(CENTRED, **change), tree, policy, steps=400, rate=10.0, rows=10)
        probs = tree.log_probabilities(policy).detach().exp().mean(0)
        lengths = torch.tensor([float(len(a)) for a in tree.answers], dtype=torch.double)
        found[name] = tree.value(policy).item(), (probs @ lengths).item()
    (value, length), (base, shorter) = found["LUSPO"], found["GSPO"]
    return Finding(
        measured={"value": value, "length": length, "GSPO's mean: value": base, "length of it": shorter},
        criterion="400 steps, 10 prompts: length > 15.5 and value > 0.69; GSPO's mean < 15 and < 0.685",
        holds=length > 15.5 and value > 0.69 and shorter < 15 and base < 0.685,
    )
