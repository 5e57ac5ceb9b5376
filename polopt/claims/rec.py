"""These programs measure what the paper of REC claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupStd
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, expectation, flat_gradient, train
from polopt.lab.effects import More, effect
from polopt.lab.problems import lengths
from polopt.methods.rec import RatioGate, rec
from polopt.objectives import Clip, SequenceSum


@claim(
    "The one-sided clip with the ratio as weight has PPO's gradient.", kind="identity", baseline="the two-sided clip"
)
def like_ppo() -> Finding:
    tree, policy = lengths()
    old = TabularPolicy(tree, spread=0.3, seed=2)
    plain = {"objective.weights": [], "objective.trust": Clip()}
    ppo = expectation(rec(group=2).but(plain), tree, policy, behaviour=old).mean
    one, two = rec(group=2, weight="importance"), rec(group=2, weight="importance", clip="two-side")
    gap = {}
    for side, algorithm in (("one-side", one), ("two-side", two)):
        ours = expectation(algorithm, tree, policy, behaviour=old).mean
        gap[side] = ((ours - ppo).norm() / ppo.norm()).item()
    return Finding(
        measured={f"relative distance, {side}": g for side, g in gap.items()},
        criterion="off policy: one-side < 1e-10, two-side > 0.01",
        holds=gap["one-side"] < 1e-10 and gap["two-side"] > 0.01,
    )


@claim(
    "On answers of any origin it is a step on the pairwise consistency of R - tau log(policy / start).",
    kind="theory",
    baseline="REINFORCE without the group's mean",
)
def consistency() -> Finding:
    tree, policy = lengths()
    chosen = tree.leaves()[[0, 0, 1, 3, 4, 4]]  # picked by hand, not sampled
    logp = policy.evaluate(chosen).logp
    chosen = chosen.replace(rollout_logp=logp.detach(), group=torch.zeros(6, dtype=torch.long))
    tau, G = 0.3, len(chosen)
    a = chosen.outcome - tau * torch.where(chosen.mask, logp - logp.detach(), 0).sum(1)
    pairs = (a[:, None] - a[None, :]).square().triu().sum() / (2 * tau * G)
    target = flat_gradient(pairs, policy) / G
    plain = rec(clip="none").but(**{"objective.aggregate": SequenceSum(length=1)})
    gap = {}
    for name, algorithm in (("REC", plain), ("no mean", plain.but(**{"credit.baseline": None}))):
        ours = flat_gradient(
            algorithm.objective(algorithm.compute_advantages(chosen), policy.evaluate(chosen)).loss, policy
        )
        gap[name] = ((ours - target).norm() / target.norm()).item()
    return Finding(
        measured={"relative distance": gap["REC"], "without the mean": gap["no mean"]},
        criterion="< 1e-10; without the mean > 0.1",
        holds=gap["REC"] < 1e-10 and gap["no mean"] > 0.1,
    )


@claim(
    "The ring lets a decision back in where it is so far on the other side that its gradient points back.",
    kind="identity",
    baseline="the two-sided clip",
)
def ring() -> Finding:
    ratios = torch.tensor([0.3, 0.4, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0, 2.9, 3.1], dtype=torch.double)
    wrong = {"ring": 0, "two": 0}
    for advantage in (1.0, -1.0):
        batch = Experience(
            mask=torch.ones(11, 1, dtype=torch.bool),
            rollout_logp=-ratios.log()[:, None] - 5,
            advantage=torch.full((11, 1), advantage, dtype=torch.double),
        )
        inside = [0.8 <= r <= 1.2 or (r < 0.39 if advantage > 0 else r > 3.0) for r in ratios.tolist()]
        for side in ("ring", "two"):
            gate = RatioGate(side=side, outer=(0.61, 2.0))  # type: ignore[arg-type]
            found = gate(batch, Evaluation(logp=torch.full((11, 1), -5.0, dtype=torch.double)))[:, 0]
            wrong[side] += sum((x > 0) != y for x, y in zip(found.tolist(), inside, strict=True))
    return Finding(
        measured={"decisions unlike the paper's": float(wrong["ring"]), "two-sided": float(wrong["two"])},
        criterion="0 of 22, at ratios from 0.3 to 3.1 and both signs; two-sided > 0",
        holds=wrong["ring"] == 0 < wrong["two"],
    )


def stale_value(algorithm: Algorithm, prompts: int = 40, rate: float = 3.0, seed: int = 0) -> float:
    """Value after 30 batches, each used 50 times, on bandits with one arm of 1 and 31 of up to 0.6. Prompts are apart
    in the table: as many seeds."""
    worth = 0.6 * torch.rand(prompts, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    worth[:, 0] = 1.0
    tree = TokenTree.bandit(worth.tolist())
    policy = TabularPolicy(tree)
    algorithm = algorithm.but(**{"sampling.group": 32, "credit.scale": GroupStd()})
    train(algorithm, tree, policy, steps=30, epochs=50, rate=rate * prompts, rows=prompts, seed=seed)
    return tree.value(policy).item()


@claim(
    "At one step size, on batches used 50 times, the clip is what matters, the importance weight is not.",
    kind="part",
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


@effect(
    "On batches used 50 times it learns more than without the clip, with an importance weight or not.",
    kind="headline",
    method=rec,
    controls={
        "no clip": lambda: rec(clip="none"),
        "no clip, importance weight": lambda: rec(clip="none", weight="importance"),
    },
    step_sizes=(0.1, 0.3, 1.0, 3.0),
    criteria=[More("value", by=0.1)],
    trials=1,
    cost="slow",
    refuted=True,
    note="At a thirtieth of its step size the loss without a clip ends as high: the clip makes long steps safe.",
)
def clip_learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"value": stale_value(algorithm, prompts=8, rate=step_size, seed=seed)}


@mutation("Good decisions are excluded where they have become rarer, bad ones where likelier.", kills=like_ppo)
def sides_swapped(replace: Replace) -> None:
    right = RatioGate.forward

    def forward(self: RatioGate, experience: Experience, evaluation: Evaluation) -> Tensor:
        return right(self, experience.replace(advantage=-experience.advantage), evaluation)

    replace(RatioGate, "forward", forward)


@mutation("The ring's way back is open on the wrong side.", kills=ring)
def back_on_the_wrong_side(replace: Replace) -> None:
    right = RatioGate.forward

    def forward(self: RatioGate, experience: Experience, evaluation: Evaluation) -> Tensor:
        inside = right(self.but(side="two"), experience, evaluation)
        other = right(self, experience.replace(advantage=-experience.advantage), evaluation)
        return torch.maximum(inside, other) if self.side == "ring" else right(self, experience, evaluation)

    replace(RatioGate, "forward", forward)
