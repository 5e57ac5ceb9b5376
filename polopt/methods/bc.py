"""BC: imitation of logged actions."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import ActionRegression, PolicyGradient, Surrogate
from polopt.rewards import EnvironmentReward
from polopt.sampling import TransitionReplay


@method(
    paper=Paper(
        title="ALVINN: An Autonomous Land Vehicle in a Neural Network",
        authors="Pomerleau, Dean A.",
        year=1988,
        venue="Advances in Neural Information Processing Systems 1",
    ),
    changes="Actions of a log are imitated, whatever their reward.",
    room="objectives",
    tier="proven",
)
def bc(*, loss: Literal["likelihood", "squared"] = "likelihood", batch: int = 256) -> Algorithm:
    """Over logged transitions,

        likelihood:  L = -log pi(a | s)
        squared:     L = |a - pi(s)|^2 / A

    with A the number of an action's dimensions, scaled to [-1, 1]. loss: squared is for a deterministic head. batch: as
    in `sac`. The log is the recipe's `transitions`.

    The paper's network reads camera images, and its loss is the squared error of a distribution over steering angles.
    """
    likelihood = Surrogate(ratio=None, trust=PolicyGradient())
    return Algorithm(
        sampling=TransitionReplay(rows=batch, logged=1.0),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        objective=likelihood if loss == "likelihood" else ActionRegression(),
    )
