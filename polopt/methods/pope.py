"""POPE: hard tasks are learned from the middle of their solutions, and from their beginning, side by side."""

from polopt.algorithm import Algorithm
from polopt.lab import TreeSource
from polopt.lab.helped import course, lock
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import SolutionPrefixes


@method(
    paper=Paper(
        title="POPE: Learning to Reason on Hard Problems via Privileged On-Policy Exploration",
        authors="Qu, Yuxiao and others",
        year=2026,
        arxiv="2601.18779",
    ),
    changes="GRPO in which every task comes twice: as it is, and behind the shortest beginning of its solution that "
    "helps.",
    room="sampling",
    tier="reading",
)
def pope(
    *,
    group: int = 8,
    checkpoints: int = 8,
    most: float = 0.25,
    tries: int = 8,
    moving: bool = False,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """The two versions of a task are groups of their own, each with its own baseline. What stands there already is read
    and never in the loss: no imitation. At test time nothing does. `most` is the longest share of a solution that is
    ever given away, found in steps of most / checkpoints; `tries` rollouts look from each step, once, when a task comes
    for the first time. They cost samples that are in no batch. moving=True lets the beginning grow and shrink with
    what its groups show instead: an annealed variant, not the paper's.

    Deviations. In the paper the beginning stands in the prompt, with an instruction to go on from it; here it is the
    beginning of the answer itself, so that what is learned behind it is known where the policy gets that far alone.
    Both are tokens that are read. The paper trains on hard tasks alone, those that no rollout of the base model
    solves: choose such tasks. They must come with worked solutions: of a
    solution that is the bare result its beginning gives the result away. We had no access to the authors' program;
    group, clip and kl are GRPO's usual ones.
    """
    guide = SolutionPrefixes(checkpoints=checkpoints, most=most, tries=tries, moving=moving)
    return grpo(group=group, clip=clip, kl=kl).but({"sampling.guide": guide})


def moving() -> Algorithm:
    """It may give all but the last step, as nothing less opens a lock, and finds out by itself how much is enough."""
    return pope(checkpoints=12, most=1.0, tries=0, moving=True)


def opened(algorithm: Algorithm, seed: int, most: int, goal: float = 2.0, easy: int = 0) -> tuple[int, list[float]]:
    """Rollouts, 16 a lock and batch, and how often each lock opens then: at the goal, or after `most` rollouts. The
    rate is one lock's, as rows of other locks dilute its share of a batch's mean."""
    tree, policy = lock(easy=easy)
    source = TreeSource(tree, policy, rows=16 * tree.prompts, seed=seed, needs=algorithm.all_needs)
    return course(algorithm, source, rate=4.0 * tree.prompts, most=most, goal=goal)


@pope.claim(
    "A combination lock of 12 steps opens from the end to the beginning, within 400 batches of 16 rollouts.",
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


@pope.claim(
    "Beside an easy lock the hard one opens as well; without help the easy one alone is learned.",
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
