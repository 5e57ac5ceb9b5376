"""These programs measure what the paper of POPE claims."""

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import TreeSource
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
