"""POPE: hard tasks are trained both as they are and from the middle of their solutions."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
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
    """The two versions of a task are groups of their own, each with its own baseline. The given prefix is read
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
