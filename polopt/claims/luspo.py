"""These programs measure what the paper of LUSPO claims."""

from typing import Any

import torch
from torch import Tensor

import polopt.methods.luspo as method_file
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, expectation, train
from polopt.lab.effects import More, effect
from polopt.lab.problems import longer_is_better
from polopt.methods.gspo import gspo
from polopt.methods.luspo import luspo
from polopt.objectives import SequenceMean, SequenceSum

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


def shared_decision() -> tuple[TokenTree, TabularPolicy]:
    """Two questions whose answers begin with the same decision, A or B, and go on for 1 or 15 tokens. The first
    question wants 2 tokens, the second 16, which the policy knows. B costs the first 0.1 and brings the second 0.4."""
    answers = [(a, 2) for a in (0, 1)] + [(a, *[3] * 15) for a in (0, 1)]
    worth = [[0.8, 0.7, 0.0, 0.0], [0.0, 0.0, 0.6, 1.0]]
    tree = TokenTree(4, answers, torch.tensor(worth, dtype=torch.double), 2)
    node = torch.arange(len(tree.choices))
    first = tree.nodes[:: len(answers), tree.start]
    policy = TabularPolicy(tree, tied=node.index_fill(0, first, int(first[0])))
    with torch.no_grad():
        for question, token in enumerate((2, 3)):
            rows = tree.nodes[question * 4 : question * 4 + 4, tree.start + 1]
            policy.logits[rows.unique(), token] = 5.0
    return tree, policy


@effect(
    "Where short and long answers share a decision, it is made for the sum of rewards, not for the short ones.",
    kind="headline",
    method=lambda: luspo().but(CENTRED),
    controls={"GSPO's mean": lambda: luspo().but(CENTRED, **GSPO)},
    step_sizes=(0.0625, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0),
    criteria=[More("value", by=0.05)],
    seeds=5,
    trials=1,
    cost="slow",
    note="GSPO's mean weighs each token of an answer by 1 / length. The better decision is worth 0.85, the other one "
    "0.70; the policy begins at 0.775. Longer steps add nothing to the one, and with the mean the shortest, which "
    "leave it where it is, are the best.",
)
def length_bias(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = shared_decision()
    train(algorithm, tree, policy, steps=60, rate=step_size, rows=2, seed=seed)
    return {"value": tree.value(policy).item()}


@effect(
    "Where longer answers are better, answers grow longer and better sooner.",
    kind="part",
    method=lambda: luspo().but(CENTRED),
    controls={"GSPO's mean": lambda: luspo().but(CENTRED, **GSPO)},
    step_sizes=(320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0),
    criteria=[More("mean value", by=0.01), More("mean length", by=0.5)],
    cost="slow",
    refuted=True,
    note="Means over 40 batches. At equal steps it is ahead; a longer step makes up for that.",
)
def grows(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = longer_is_better(prompts=4)
    lengths = torch.tensor([float(len(a)) for a in tree.answers], dtype=torch.double)
    values = list[float]()

    def watch() -> float:
        values.append(tree.value(policy).item())
        return (tree.log_probabilities(policy).exp().mean(0) @ lengths).item()

    grown = train(algorithm, tree, policy, steps=40, rate=step_size / 2.5, rows=4, seed=seed, watch=watch)
    return {"mean value": sum(values) / 40, "mean length": sum(grown) / 40, "value": values[-1]}


@claim(
    "An answer is stopped as a whole where its mean ratio leaves (1 - low, 1 + high), and pulls by its length inside.",
    kind="identity",
    baseline="GSPO's mean, where every answer pulls alike",
)
def clipped() -> Finding:
    ratios = torch.tensor([1.0024, 1.0026, 0.9979, 0.9981], dtype=torch.double)
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.double)
    mask = torch.arange(6) < torch.tensor([2, 6, 4, 3])[:, None]

    def pulls(algorithm: Algorithm) -> Tensor:
        """The gradient of the loss by the log-probabilities, summed over each answer, by ratio and advantage."""
        old = torch.full((4, 6), -1.0, dtype=torch.double)
        logp = (old + ratios.log()[:, None]).requires_grad_()
        batch = Experience(mask=mask, rollout_logp=old, advantage=advantage[:, None].expand(4, 6) * mask)
        loss = algorithm.objective(batch, Evaluation(logp=logp)).loss
        return -4 * torch.autograd.grad(loss, logp)[0].sum(1) / (ratios * advantage)

    ours, mean = pulls(luspo()), pulls(luspo().but(**GSPO))
    off = (ours - torch.tensor([2.0, 0, 0, 3], dtype=torch.double)).abs().max().item()
    return Finding(
        measured={"largest error": off, "longest over shortest, GSPO's mean": (mean[3] / mean[0]).item()},
        criterion="lengths 2 and 3 within the bounds of 2e-3 and 2.5e-3, 0 beyond, to 1e-12; GSPO's mean: 1",
        holds=off < 1e-12 and abs(mean[3] / mean[0] - 1).item() < 1e-12,
    )


@mutation("The clip is GSPO's: the settings `low` and `high` are not passed on.", kills=clipped)
def bounds_of_gspo(replace: Replace) -> None:
    def base(*, group: int, **_: Any) -> Algorithm:
        return gspo(group=group)

    replace(method_file, "gspo", base)


@mutation("An answer's loss is the mean over its tokens.", kills=unbiased)
def divided(replace: Replace) -> None:
    replace(SequenceSum, "forward", lambda self, *given: SequenceMean()(*given))
