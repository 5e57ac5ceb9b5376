"""BARFI: bi-level optimisation of the reward function, by implicit gradients of the policy's environment return."""

from polopt.algorithm import Algorithm
from polopt.credit import LearnedDiscount
from polopt.method import Paper, method
from polopt.methods.reinforce import reinforce
from polopt.objectives import EntropyBonus
from polopt.rewards import AlignedReward


@method(
    paper=Paper(
        title="Behavior Alignment via Reward Function Optimization",
        authors="Gupta, Dhawal and Chandak, Yash and others",
        year=2023,
        arxiv="2310.19007",
    ),
    changes="REINFORCE on a learned mix of the world's reward and a designer's hint, under a learned discount.",
    room="rewards",
    tier="reading",
)
def barfi(*, group: int = 1, features: int = 1, discount: float = 0.99, entropy: float = 0.0) -> Algorithm:
    """Inner: r_phi = phi_1 + phi_2 r_primary + phi_3 r_aux of a decision in its state, and
    Delta(theta, phi) = E sum_t grad log pi(a_t) sum_{j >= t} gamma_phi^(j - t) r_phi,j, iterated to Delta = 0.
    Outer: max over phi of J(theta(phi)) - price gamma_phi, J the expected environment return, along

        dJ/dphi = -(dJ/dtheta)' (d Delta / d theta)^{-1} (d Delta / d phi)

    with a damped inverse (`solvers.implicit_gradient`, by conjugate gradients or Neumann's series) and the policy
    going on from where it was. phi begins at (0, 1, 1), the naive sum.

    The sentence is the inner update: phi is a buffer of `rewards.AlignedReward`, gamma_phi one of
    `credit.LearnedDiscount`. The outer loop is `align` of `claims.problems.bilevel`, on expectations (`Bilevel`) or on
    episodes (`SampledBilevel` of `claims.problems.sampled`, which draws those of dJ/dtheta and those of Delta's
    derivatives apart).
    Off-policy inner updates are not implemented. Ours are `entropy`, which makes the inner solution unique, phi as a
    table, its Adam and all step sizes; the authors' code was not available. Language training has neither hints nor
    features, and refuses it.
    """
    changes = {"reward": AlignedReward(features=features), "credit": LearnedDiscount(start=discount)}
    kept = {"objective.regularise": [EntropyBonus(coefficient=entropy)]} if entropy else {}
    return reinforce(group=group).but(changes, **kept)
