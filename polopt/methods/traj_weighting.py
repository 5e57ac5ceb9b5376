"""Trajectory weighting: an offline learner draws its transitions from the better trajectories of a mixed log."""

from collections.abc import Callable, Mapping
from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.cql import cql
from polopt.methods.iql import iql
from polopt.methods.td3_bc import td3_bc
from polopt.sampling import TrajectoryWeights

LEARNERS: Mapping[str, Callable[..., Algorithm]] = {"cql": cql, "iql": iql, "td3-bc": td3_bc}


@method(
    paper=Paper(
        title="Harnessing Mixed Offline Reinforcement Learning Datasets via Trajectory Weighting",
        authors="Hong, Zhang-Wei and Agrawal, Pulkit and Tachet des Combes, Remi and Laroche, Romain",
        year=2023,
        arxiv="2306.13085",
    ),
    changes="Logged transitions are drawn by the return, or the advantage, of their trajectory.",
    room="sampling",
    tier="proven",
)
def traj_weighting(
    *,
    alpha: float = 0.1,
    advantage: bool = True,
    learner: Literal["cql", "iql", "td3-bc"] = "iql",
    batch: int = 256,
) -> Algorithm:
    """A transition of trajectory i is drawn with a chance proportional to

        w_i = exp(x_i / alpha),    x_i = (A_i - min A) / (max A - min A)

    with A_i = G_i - V(s_i0) its undiscounted return less the linear fit of the returns by the first states, or, without
    `advantage`, A_i = G_i. There is no importance weight: the learner sees another logging policy. learner: of which
    all else is. batch: as in `sac`.

    Of any other offline method, `but: {sampling.weights: {part: sampling.TrajectoryWeights}}`. The log's rows must
    stand in the order of their trajectories, as those of runs, Minari and LeRobot do. The authors' example weighs by
    the returns before they are scaled to [0, 1]; this follows the paper.
    """
    return LEARNERS[learner](batch=batch).but({"sampling.weights": TrajectoryWeights(alpha=alpha, advantage=advantage)})
