"""REC: REINFORCE with a group's mean, clipped and regularised for data of other policies."""

from typing import Literal

import torch

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.lab import TabularPolicy, TokenTree, expectation, flat_gradient, train
from polopt.lab.problems import lengths
from polopt.method import Finding, Paper, method
from polopt.objectives import (
    Clip,
    ExponentialAdvantageWeight,
    ForwardKL,
    ImportanceWeight,
    PolicyGradient,
    RatioGate,
    Regulariser,
    SamplerKL,
    SequenceMean,
    SequenceRatio,
    SequenceSum,
    Surrogate,
    TokenMean,
    TokenRatio,
    Weight,
)
from polopt.sampling import BalancedGroups, Rollouts

Clipping = Literal["none", "one-side", "two-side", "ring", "gspo-one-side"]
SIDES: dict[Clipping, Literal["one", "two", "ring"]] = {
    "one-side": "one",
    "gspo-one-side": "one",
    "two-side": "two",
    "ring": "ring",
}
Weighting = Literal["none", "importance", "truncated", "gspo", "advantage"]


@method(
    paper=Paper(
        title="Group-Relative REINFORCE Is Secretly an Off-Policy Algorithm: "
        "Demystifying Some Myths About GRPO and Its Friends",
        authors="Yao, Chaorui and others",
        year=2025,
        arxiv="2509.24203",
    ),
    changes="REINFORCE relative to the group's mean; a clip, a weight, a regulariser and a filter, each on its own.",
    room="objectives",
    tier="faithful",
)
def rec(
    *,
    group: int = 8,
    clip: Clipping = "one-side",
    weight: Weighting = "none",
    low: float = 0.2,
    high: float = 0.2,
    outer: tuple[float, float] = (0.6, 2.0),
    opmd: float = 0.0,
    asymre: float = 0.0,
    drop: Literal["none", "balance"] = "none",
) -> Algorithm:
    """A_i = R_i - mean_g R and, with r the ratio to the sampler, without gradient,

        L = (1 / sum_i |y_i|) sum_it [ -1[r_it in range] w_it A_i logp_it + (opmd/2) log^2 r_it - asymre logp_it ]

    clip: the range, see `objectives.RatioGate`; "gspo-one-side" takes the answer's ratio, and the mean over answers.
    weight: w is 1, r, r within [1 - outer[0], 1 + outer[1]], the answer's ratio, or exp(A). drop "balance": a group
    loses its surplus of answers below the mean before credit is given.

    The default is what the paper recommends: the clip, no importance weight. clip "one-side" and weight "importance"
    have PPO's gradient. opmd is Kimi's coefficient, twice that of the published code; asymre is AsymRE with its
    baseline lowered by so much. The code drops answers by giving them advantage 0, so that they still count in the
    mean over tokens; ours are gone. It drops by lot, we drop the later ones, which for rollouts is the same.
    """
    sequence = clip == "gspo-one-side"
    gates: list[Weight] = []
    if clip != "none":
        gates = [
            RatioGate(
                side=SIDES[clip], low=low, high=high, outer=outer, ratio=SequenceRatio() if sequence else TokenRatio()
            )
        ]
    weights: dict[Weighting, list[Weight]] = {
        "none": [],
        "importance": [ImportanceWeight()],
        "truncated": [ImportanceWeight(low=outer[0], high=outer[1])],
        "gspo": [ImportanceWeight(ratio=SequenceRatio())],
        "advantage": [ExponentialAdvantageWeight()],
    }
    pulls: list[Regulariser] = [SamplerKL(coefficient=opmd)] if opmd else []
    pulls += [ForwardKL(coefficient=asymre)] if asymre else []
    return Algorithm(
        sampling=Rollouts(group=group, select=[BalancedGroups()] if drop == "balance" else []),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=None),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=PolicyGradient(),
            weights=[*gates, *weights[weight]],
            aggregate=SequenceMean() if sequence else TokenMean(),
            regularise=pulls,
        ),
    )


@rec.claim("The one-sided clip with the ratio as weight has PPO's gradient.", baseline="the two-sided clip")
def like_ppo() -> Finding:
    tree, policy = lengths()
    old = TabularPolicy(tree, spread=0.3, seed=2)
    plain = {"objective.weights": [], "objective.trust": Clip()}
    ppo = expectation(rec(group=2).but(plain), tree, policy, behaviour=old).mean
    one, two = rec(group=2, weight="importance"), rec(group=2, weight="importance", clip="two-side")
    gap = {}
    for side, sentence in (("one-side", one), ("two-side", two)):
        ours = expectation(sentence, tree, policy, behaviour=old).mean
        gap[side] = ((ours - ppo).norm() / ppo.norm()).item()
    return Finding(
        measured={f"relative distance, {side}": g for side, g in gap.items()},
        criterion="off policy: one-side < 1e-10, two-side > 0.01",
        holds=gap["one-side"] < 1e-10 and gap["two-side"] > 0.01,
    )


@rec.claim(
    "On answers of any origin it is a step on the pairwise consistency of R - tau log(policy / start).",
    baseline="REINFORCE without the group's mean",
)
def consistency() -> Finding:
    tree, policy = lengths()
    chosen = tree.leaves()[[0, 0, 1, 3, 4, 4]]  # picked by hand: nobody's samples
    logp = policy.evaluate(chosen).logp
    chosen = chosen.replace(logp=logp.detach(), group=torch.zeros(6, dtype=torch.long))
    tau, G = 0.3, len(chosen)
    a = chosen.outcome - tau * torch.where(chosen.mask, logp - logp.detach(), 0).sum(1)
    pairs = (a[:, None] - a[None, :]).square().triu().sum() / (2 * tau * G)
    wanted = flat_gradient(pairs, policy) / G
    plain = rec(clip="none").but(**{"objective.aggregate": SequenceSum(length=1)})
    gap = {}
    for name, sentence in (("REC", plain), ("no mean", plain.but(**{"credit.baseline": None}))):
        ours = flat_gradient(sentence.objective(sentence.judge(chosen), policy.evaluate(chosen)).loss, policy)
        gap[name] = ((ours - wanted).norm() / wanted.norm()).item()
    return Finding(
        measured={"relative distance": gap["REC"], "without the mean": gap["no mean"]},
        criterion="< 1e-10; without the mean > 0.1",
        holds=gap["REC"] < 1e-10 and gap["no mean"] > 0.1,
    )


def stale_value(algorithm: Algorithm, prompts: int = 40) -> float:
    """Value after 30 batches, each used 50 times, on bandits with one arm of 1 and 31 of up to 0.6. Prompts are apart
    in the table: as many seeds."""
    worth = 0.6 * torch.rand(prompts, 32, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    worth[:, 0] = 1.0
    tree = TokenTree.bandit(worth.tolist())
    policy = TabularPolicy(tree)
    algorithm = algorithm.but(**{"sampling.group": 32, "credit.scale": GroupStd()})
    train(algorithm, tree, policy, steps=30, epochs=50, rate=3.0 * prompts, rows=prompts)
    return tree.value(policy).item()


@rec.claim(
    "On batches used 50 times the clip is what matters, the importance weight is not.",
    baseline="no clip, with and without the weight",
    cost="slow",
)
def clip_matters() -> Finding:
    both, clip = stale_value(rec(weight="importance")), stale_value(rec())
    neither, weight = stale_value(rec(clip="none")), stale_value(rec(clip="none", weight="importance"))
    return Finding(
        measured={"clip": clip, "clip and weight": both, "neither": neither, "weight": weight},
        criterion="the weight changes the clip's value by <= 0.03; without the clip >= 0.1 less, weight or not",
        holds=abs(clip - both) <= 0.03 and clip - max(neither, weight) >= 0.1,
    )
