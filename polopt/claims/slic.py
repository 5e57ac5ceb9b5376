"""These programs measure what the paper of SLiC-HF claims."""

import math

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.preferences import descended, paired
from polopt.methods.dpo import dpo
from polopt.methods.slic import slic
from polopt.objectives import HingeLink, LogProbReward


@claim(
    "A pair that is right by the margin moves the policy no more, wherever the reference was.",
    kind="headline",
    baseline="dpo",
)
def calibrated() -> Finding:
    found = {}
    for name, algorithm, rate in (("SLiC", slic(delta=1.0, lam=0.0), 0.5), ("DPO", dpo(beta=1.0), 4.0)):
        margins = []
        for start in (-2.0, 0.0, 2.0):
            tree = TokenTree.bandit([0.0, 0.0, 0.0])
            reference, policy = (TabularPolicy(tree) for _ in range(2))
            with torch.no_grad():
                for table in (reference, policy):
                    table.logits[0, 0] = start
            descended(algorithm, paired(tree, reference, [(0, 1)]), policy, rate, steps=30)
            logp = tree.log_probabilities(policy).detach()[0]
            margins.append(float(logp[0] - logp[1]))
        found[name] = margins
    ours, other = found["SLiC"], found["DPO"]
    return Finding(
        measured={
            f"{name}, {when}": m
            for name, ms in found.items()
            for when, m in zip(("behind", "level", "ahead"), ms, strict=True)
        },
        criterion="SLiC ends in [1, 2] from behind and level, and stays at 2 from ahead; DPO ends above 4 from ahead",
        holds=all(1 <= m <= 2 for m in ours[:2]) and abs(ours[2] - 2) < 1e-12 and other[2] > 4,
    )


@claim(
    "Its loss is that of the formula, and its likelihood is of the preferred answers alone.",
    kind="identity",
    baseline="the formula, written out",
)
def formula() -> Finding:
    tree = TokenTree.full(2, 2, lambda prompt, answer: 0.0)
    reference, policy = TabularPolicy(tree, spread=1.0, seed=1), TabularPolicy(tree, spread=1.0, seed=2)
    pairs = [(0, 3), (1, 2), (3, 1)]
    algorithm = slic(delta=1.5, lam=0.3)
    batch = algorithm.compute_advantages(algorithm.sampling.mark(paired(tree, reference, pairs)))
    found = algorithm.objective(batch, policy.evaluate(batch)).loss.item()
    logp = tree.log_probabilities(policy).detach()[0].tolist()
    hinge = [max(0.0, 1.5 - logp[w] + logp[l]) for w, l in pairs]
    expected = math.fsum(hinge) / 3 - 0.3 * math.fsum(logp[w] for w, _ in pairs) / 3
    return Finding(
        measured={"loss": found, "by the formula": expected, "active pairs": float(sum(h > 0 for h in hinge))},
        criterion="equal to 1e-12",
        holds=abs(found - expected) < 1e-12,
    )


@mutation("The hinge has no margin.", kills=calibrated)
def no_margin(replace: Replace) -> None:
    replace(HingeLink, "forward", lambda self, margin, gap: torch.relu(-margin))


@mutation("The log-probability is a mean over tokens.", kills=formula)
def mean_of_tokens(replace: Replace) -> None:
    def forward(self: LogProbReward, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.where(experience.mask, evaluation.logp, 0).sum(1) / experience.lengths

    replace(LogProbReward, "forward", forward)
