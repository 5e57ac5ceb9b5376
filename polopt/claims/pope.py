"""These programs measure what the paper of POPE claims."""

import math

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.effects import More, effect
from polopt.lab.helped import course, lock
from polopt.methods.grpo import grpo
from polopt.methods.pope import SolutionPrefixes, pope


def moving() -> Algorithm:
    """POPE whose hints may hold all but the last step, as nothing less opens a lock, and which moves them by itself."""
    return pope(checkpoints=12, most=1.0, tries=0, moving=True)


def opened(algorithm: Algorithm, seed: int, most: int, goal: float = 2.0, easy: int = 0) -> tuple[int, list[float]]:
    """Rollouts, 16 a lock and batch, and how often each lock opens then: at the goal, or after `most` rollouts. The
    rate is one lock's, as rows of other locks dilute its share of a batch's mean."""
    tree, policy = lock(easy=easy)
    source = TreeSource(tree, policy, rows=16 * tree.prompts, seed=seed, needs=algorithm.required_fields)
    return course(algorithm, source, rate=4.0 * tree.prompts, most=most, goal=goal)


def hard_to_begin() -> tuple[TokenTree, TabularPolicy]:
    """Returns a lock of 12 steps and a policy that is right with probability 0.15 in the first three, which a
    quarter of the solution gives away, and with 0.6 in the others."""
    tree, policy = lock()
    leaves, right = tree.leaves(), int(tree.outcome.argmax())
    at = leaves.mask[right]
    nodes, actions = tree.nodes[right, at].tolist(), leaves.extras["tokens"][right, at].tolist()
    with torch.no_grad():
        for step, (node, action) in enumerate(zip(nodes, actions, strict=True)):
            p = 0.15 if step < 3 else 0.6
            policy.logits[node, action] = math.log(3 * p / (1 - p))
    return tree, policy


@effect(
    "Beginnings of at most a quarter of the solution open a lock that is hard to begin.",
    kind="headline",
    method=pope,
    controls={"grpo": lambda: grpo(group=8, kl=0)},
    step_sizes=(1.0, 4.0, 16.0, 64.0),
    criteria=[More("opens", by=0.5)],
    seeds=5,
    trials=2,
    budget="rollouts",
    cost="slow",
    note="The paper's setting: the shortest beginning that helps, found once, which stays. The search is counted. "
    "On fresh seeds one run in five did not open the lock, and the criterion was missed: 0.8 on average.",
)
def hard_beginning(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """Returns how often the lock opens without help after 3,200 rollouts."""
    tree, policy = hard_to_begin()
    source = TreeSource(tree, policy, rows=16, seed=seed, needs=algorithm.required_fields)
    spent, values = course(algorithm, source, rate=step_size, most=3200)
    return {"opens": values[0], "rollouts": float(min(spent, 3200))}


@claim(
    "A combination lock of 12 steps opens from the end to the beginning, within 400 batches of 16 rollouts.",
    kind="ours",
    baseline="GRPO, whose rollouts never open it",
)
def lock_opens() -> Finding:
    found = [opened(moving(), seed, 6400, goal=0.9) for seed in range(2)]
    spent, least = max(rollouts for rollouts, _ in found), min(values[0] for _, values in found)
    base = opened(grpo(group=8, kl=0), 0, spent)[1][0]
    return Finding(
        measured={"least": least, "rollouts, at most": spent, "GRPO after as many": base},
        criterion="least of 2 seeds >= 0.9 after at most 6400 rollouts, GRPO < 0.05",
        holds=least >= 0.9 and base < 0.05,
    )


@claim(
    "Beside an easy lock the hard one opens as well; without help the easy one alone is learned.",
    kind="ours",
    baseline="GRPO",
    cost="slow",
)
def no_interference() -> Finding:
    found = [opened(moving(), seed, 12800, goal=0.95, easy=1) for seed in range(2)]
    spent = max(rollouts for rollouts, _ in found)
    base = [opened(grpo(group=8, kl=0), seed, spent, easy=1)[1] for seed in range(2)]
    ours = min(min(values) for _, values in found)
    hard, easy = max(values[0] for values in base), min(values[1] for values in base)
    return Finding(
        measured={"least of both locks": ours, "GRPO, hard": hard, "GRPO, easy": easy, "rollouts, at most": spent},
        criterion="both locks >= 0.9 within 12800 rollouts, while GRPO's hard one is < 0.05; 2 seeds",
        holds=ours >= 0.9 and hard < 0.05,
        note="The two locks share nothing here, so that easy tasks do no harm: only that they do not help is shown.",
    )


@mutation("All but the last step is given, at every checkpoint.", kills=lock_opens)
def gives_all(replace: Replace) -> None:
    replace(SolutionPrefixes, "_given", lambda self, lengths, checkpoint: lengths - 1)
