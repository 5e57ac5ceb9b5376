"""These programs measure what the paper of PolicyRollout claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.features import SamePrompt, SameTask
from polopt.lab import TreeSource, flat_gradient
from polopt.lab.helped import Reading, course, rulebook
from polopt.methods.grpo import grpo
from polopt.methods.policyrollout import RulePrompts, policyrollout
from polopt.objectives import OldPolicyRatio, PolicyGradient, SequenceSum, Surrogate, TokenRatio, Unclipped
from polopt.sampling import Rollouts


@claim(
    "With the probability that an answer was sampled with, both halves give the policy's own gradient.",
    kind="identity",
    baseline="dropping it",
)
def unbiased() -> Finding:
    tree, policy, right = rulebook(actions=16)
    source = TreeSource(tree, policy, rows=2, hinted={"rules": Reading(policy, right, pull=3.0)})
    leaf_tables = [source.leaf_table(hidden=hint) for hint in ("", "rules")]
    exact = flat_gradient(tree.value(policy), policy)
    found = {}
    for name, ratio in (("behaviour", TokenRatio()), ("none", OldPolicyRatio())):
        total = torch.zeros_like(exact)
        for leaf_table, probs in leaf_tables:
            # Every answer as often as it comes; a prompt's answers are half of its rows.
            weight = probs.flatten() * len(leaf_table) / tree.prompts / 2
            batch = leaf_table.replace(
                advantage=torch.where(leaf_table.mask, (weight * leaf_table.outcome)[:, None], 0)
            )
            objective = Surrogate(ratio=ratio, trust=Unclipped(), aggregate=SequenceSum(length=1))
            evaluation = Evaluation(logp=policy.evaluate(leaf_table).logp)
            total -= flat_gradient(objective(batch, evaluation).loss, policy)
        found[name] = ((total - exact).norm() / exact.norm()).item()
    return Finding(
        measured={"relative bias": found["behaviour"], "dropped": found["none"]},
        criterion="< 1e-10 with it, > 0.1 without, by enumeration of 8 prompts and 16 answers",
        holds=found["behaviour"] < 1e-10 and found["none"] > 0.1,
    )


def learned(algorithm: Algorithm, seed: int, most: int, goal: float = 2.0) -> tuple[int, float]:
    """Rollouts, and how often 8 rules are followed without the book then: at the goal, or after `most` rollouts."""
    tree, policy, right = rulebook(seed=seed)
    book = {"rules": Reading(policy, right)}
    source = TreeSource(tree, policy, rows=64, seed=seed, hinted=book, needs=algorithm.required_fields)
    spent, values = course(algorithm, source, rate=4.0, most=most, goal=goal)
    return spent, sum(values) / len(values)


def compare(others: dict[str, Algorithm]) -> dict[str, float]:
    """Share of the rules that other algorithms follow after as many rollouts as this one needs for 90 %; means of 3
    seeds."""
    ours = [learned(policyrollout(rules="rules"), seed, 10_000, goal=0.9) for seed in range(3)]
    found = {"followed": min(value for _, value in ours), "rollouts": sum(spent for spent, _ in ours) / 3}
    for name, other in others.items():
        found[name] = sum(learned(other, seed, spent)[1] for seed, (spent, _) in enumerate(ours)) / 3
    return found


@claim(
    "It learns 8 rules that nobody guesses, and follows them without the book.",
    kind="headline",
    baseline="GRPO without the book",
)
def internalised() -> Finding:
    found = compare({"GRPO": grpo(group=8, kl=0), "corrected": policyrollout(rules="rules", correct="behaviour")})
    return Finding(
        measured=found,
        criterion="followed >= 0.9, and GRPO <= 0.5 after as many rollouts; 3 seeds",
        holds=found["followed"] >= 0.9 and found["GRPO"] <= 0.5,
        note="With the correction (corrected) the book helps no more: what it makes likely weighs next to nothing.",
    )


@claim(
    "Half of the rollouts without the book are worth it.",
    kind="part",
    baseline="context distillation: the likelihood of right answers of who reads it, in all rollouts",
    refuted=True,
)
def beyond_distilling() -> Finding:
    distil = Algorithm(
        sampling=Rollouts(guide=RulePrompts(rules="rules", plain=False)),
        credit=RelativeAdvantage(baseline=None, scale=None),
        objective=Surrogate(ratio=None, trust=PolicyGradient()),
    )
    found = compare({"distilled": distil})
    return Finding(
        measured=found,
        criterion="distilled < followed after as many rollouts; 3 seeds",
        holds=found["distilled"] < found["followed"],
        note="Where the book says all there is to know, imitating who reads it is enough, and a little sooner. What it "
        "does not say has to be found without it; this problem has nothing of the kind.",
    )


@mutation("Each half of a group is compared with itself alone.", kills=internalised)
def halves_apart(replace: Replace) -> None:
    replace(SameTask, "forward", SamePrompt.forward)
