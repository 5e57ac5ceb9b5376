"""N-PG-IGT and HARPG: one trajectory a step, and averages of gradients that follow the moving policy."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import RewardToGo
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, SequenceSum, Surrogate
from polopt.rewards import EnvironmentReward
from polopt.sampling import Fragments
from polopt.updates import HessianAidedMomentum, TransportedMomentum


@method(
    paper=Paper(
        title="Stochastic Policy Gradient Methods: Improved Sample Complexity for Fisher-non-degenerate Policies",
        authors="Fatkhullin, Ilyas and Barakat, Anas and Kireeva, Anastasia and He, Niao",
        year=2023,
        arxiv="2302.01734",
    ),
    changes="Gradients of single trajectories are averaged, each taken where the average stays unbiased.",
    room="updates",
    tier="proven",
)
def npg_igt(
    *,
    estimator: Literal["igt", "harpg"] = "igt",
    power: float | None = None,
    least: float = 0.05,
    normalised: bool = True,
    steps: int = 128,
    gamma: float = 0.99,
) -> Algorithm:
    """With g the gradient of -mean_i sum_t A_it log pi(a_it | s_it), A_t the discounted rewards from t on,

        igt:    sample at theta + (1 - eta) / eta (theta - theta_before),     d <- (1 - eta) d + eta g
        harpg:  d <- (1 - eta) (d + H (theta - theta_before)) + eta g
        theta <- theta - lr d / |d|

    with eta = max(least, (2 / (t + 2))^power) in step t. estimator: igt, or harpg, whose every second batch estimates
    the product with the Hessian H and takes no step. power: None is 4/5 for igt and 1 for harpg. normalised: False
    divides by no norm. steps: decisions of a trajectory. gamma: discount.

    The trajectory is a fragment of an environment, so `steps` should be the length of an episode; a stage's rows are
    averaged, 1 in the paper. The rate's course is the recipe's, where the paper has lr proportional to 1 / t; `least`,
    0 there, bounds the extrapolation by 1 / least. Rewards are discounted from t, not from the trajectory's beginning.
    """
    decay = {"igt": 0.8, "harpg": 1.0}[estimator] if power is None else power
    rule = TransportedMomentum if estimator == "igt" else HessianAidedMomentum
    return Algorithm(
        sampling=Fragments(steps=steps),
        reward=EnvironmentReward(),
        credit=RewardToGo(gamma=gamma),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
        update=rule(power=decay, least=least, normalised=normalised),
    )
