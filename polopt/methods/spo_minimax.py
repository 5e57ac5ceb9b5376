"""SPO of minimax winners: one learner in self-play, with the average of its policies as the solution."""

from polopt.method import Paper, method
from polopt.solvers import IterationWeight, Opponent, PreferenceMirrorDescent, StepSize


@method(
    paper=Paper(
        title="A Minimaximalist Approach to Reinforcement Learning from Human Feedback",
        authors="Swamy, Gokul and Dann, Christoph and Kidambi, Rahul and others",
        year=2024,
        arxiv="2401.04056",
    ),
    changes="Win rates against the learner's own answers as the reward, and the mean of all policies as the winner.",
    room="solvers",
    tier="proven",
)
def spo_minimax(*, lr: float = 0.1) -> PreferenceMirrorDescent:
    """The minimax winner max_pi min_pi' P(pi > pi') of a preference that need not be transitive, by a learner without
    regret that plays against itself:

        r(y) = P(y > pi),    pi(y) <- pi(y) exp(lr r(y))

    normalised, and the solution is the mean of all policies. As the game is symmetric, a second learner would do the
    same steps. The gap of the mean is at most twice the learner's mean regret, log(N) / (lr T) + lr / 8 after T steps
    from the uniform policy.

    lr: the step size.

    This is the exact solver for answers in a table, for one prompt, with exponential weights for the learner. In its
    experiments the paper takes any policy optimisation on sampled trajectories, with the proportion of wins against a
    queue of recent ones as the reward and the last policy as the result; that is `spo-self-play`. lr = 0.1 is ours, and
    the game's tau is not used.
    """
    return PreferenceMirrorDescent(
        step_size=StepSize(lr=lr), regularised=False, opponent=Opponent(), average=IterationWeight()
    )
