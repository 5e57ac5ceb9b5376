"""PolicyRollout: half of a group is sampled with the rules at hand, and all of it is learned without them."""

from typing import Any, Literal

import torch

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage, SameTask
from polopt.evaluation import Evaluation
from polopt.lab import TreeSource, flat_gradient
from polopt.lab.helped import Reading, course, rulebook
from polopt.method import Finding, Paper, method
from polopt.methods.objectives.grpo import grpo
from polopt.methods.objectives.sft import sft
from polopt.objectives import OldPolicyRatio, PolicyGradient, SequenceSum, Surrogate, TokenRatio, Unclipped
from polopt.sampling import RawTexts, Rollouts, RulePrompts
from polopt.sampling.prompt_augmenters import NO_RULES


@method(
    paper=Paper(
        title="Multimodal Policy Internalization for Conversational Agents",
        authors="Wang, Zhenhailong and others",
        year=2025,
        arxiv="2510.09474",
    ),
    changes="GRPO half of whose groups are sampled by a policy that reads the rules, which the rows then do without.",
    tier="reading",
)
def policyrollout(
    *,
    rules: str = NO_RULES,
    group: int = 4,
    correct: Literal["none", "behaviour"] = "none",
    clip: float = 0.2,
    kl: float = 0.0,
    stage: int = 3,
    length: int = 512,
) -> Algorithm:
    """D is a document of rules, `rules`, without which half of the rollouts are wasted; x a task, y an answer. `group`
    answers to a task come from pi(y | x), and as many from pi(y | x, D). Advantages are z-scores over both halves, and
    all rows are learned as answers to x alone, so that what D makes the policy do becomes what it does.

    correct="none": the ratio is pi(y | x) over what the learner said of y | x before its first update, as if it had
    sampled y itself. correct="behaviour": over the probability that y was sampled with, pi_old(y | x, D): unbiased on
    answers of one decision, but what the rules alone make likely then weighs next to nothing, and is hardly learned.

    stage: the paper's three. 1 reads `length` tokens at a time of texts about the rules (without what it masks in
    images), 2 imitates worked solutions behind x alone, 3 is the above. The paper calls the document a policy.
    Its authors' program was not to be had: that the halves are equal, share one baseline and are trained as if the
    policy had sampled them is our reading, as are clip and kl.

    Raises:
        ValueError: a stage that there is not.
    """
    if stage not in (1, 2, 3):
        raise ValueError(f"policyrollout: stage must be 1, 2 or 3, found {stage}")
    if stage < 3:
        return sft().but(sampling=RawTexts(length=length)) if stage == 1 else sft()
    changes: dict[str, Any] = {
        "sampling.guide": RulePrompts(rules=rules),
        "credit": RelativeAdvantage(baseline=GroupMean(within=SameTask()), scale=GroupStd(within=SameTask())),
        "objective.ratio": OldPolicyRatio() if correct == "none" else TokenRatio(),
    }
    return grpo(group=group, clip=clip, kl=kl).but(changes)


@policyrollout.claim(
    "With the probability that an answer was sampled with, both halves give the policy's own gradient.",
    baseline="dropping it",
)
def unbiased() -> Finding:
    tree, policy, right = rulebook(actions=16)
    source = TreeSource(tree, policy, rows=2, hinted={"rules": Reading(policy, right, pull=3.0)})
    decks = [source.deck(hidden=hint) for hint in ("", "rules")]
    exact = flat_gradient(tree.value(policy), policy)
    found = {}
    for name, ratio in (("behaviour", TokenRatio()), ("none", OldPolicyRatio())):
        total = torch.zeros_like(exact)
        for deck, odds in decks:
            # Every answer as often as it comes; a prompt's answers are half of its rows.
            weight = odds.flatten() * len(deck) / tree.prompts / 2
            batch = deck.replace(advantage=torch.where(deck.mask, (weight * deck.outcome)[:, None], 0))
            objective = Surrogate(ratio=ratio, trust=Unclipped(), aggregate=SequenceSum(length=1))
            said = Evaluation(logp=policy.evaluate(deck).logp)
            total -= flat_gradient(objective(batch, said).loss, policy)
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
    source = TreeSource(tree, policy, rows=64, seed=seed, hinted=book, needs=algorithm.all_needs)
    spent, values = course(algorithm, source, rate=4.0, most=most, goal=goal)
    return spent, sum(values) / len(values)


def beside(others: dict[str, Algorithm]) -> dict[str, float]:
    """What others know after as many rollouts as it takes to follow 90 % of the rules; means of 3 seeds."""
    ours = [learned(policyrollout(rules="rules"), seed, 10_000, goal=0.9) for seed in range(3)]
    found = {"followed": min(value for _, value in ours), "rollouts": sum(spent for spent, _ in ours) / 3}
    for name, other in others.items():
        found[name] = sum(learned(other, seed, spent)[1] for seed, (spent, _) in enumerate(ours)) / 3
    return found


@policyrollout.claim(
    "It learns 8 rules that nobody guesses, and follows them without the book.", baseline="GRPO without the book"
)
def internalised() -> Finding:
    found = beside({"GRPO": grpo(group=8, kl=0), "corrected": policyrollout(rules="rules", correct="behaviour")})
    return Finding(
        measured=found,
        criterion="followed >= 0.9, and GRPO <= 0.5 after as many rollouts; 3 seeds",
        holds=found["followed"] >= 0.9 and found["GRPO"] <= 0.5,
        note="With the correction (corrected) the book helps no more: what it makes likely weighs next to nothing.",
    )


@policyrollout.claim(
    "Half of the rollouts without the book are worth it.",
    baseline="context distillation: the likelihood of right answers of who reads it, in all rollouts",
    refuted=True,
)
def beyond_distilling() -> Finding:
    distil = Algorithm(
        sampling=Rollouts(guide=RulePrompts(rules="rules", plain=False)),
        credit=RelativeAdvantage(baseline=None, scale=None),
        objective=Surrogate(ratio=None, trust=PolicyGradient()),
    )
    found = beside({"distilled": distil})
    return Finding(
        measured=found,
        criterion="distilled < followed after as many rollouts; 3 seeds",
        holds=found["distilled"] < found["followed"],
        note="Where the book says all there is to know, imitating who reads it is enough, and a little sooner. What it "
        "does not say has to be found without it; this problem has nothing of the kind.",
    )
