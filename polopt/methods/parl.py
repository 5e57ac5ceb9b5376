"""PARL: reward learning as a bilevel problem, whose gradient has the policy's response to the reward."""

from polopt.method import Paper, method
from polopt.solvers import BilevelDescent, ConjugateGradient, ImplicitHypergradient, InnerSteps, MomentumStep


@method(
    paper=Paper(
        title="PARL: A Unified Framework for Policy Alignment in Reinforcement Learning from Human Feedback",
        authors="Chakraborty, Souradip and Bedi, Amrit Singh and Koppel, Alec and others",
        year=2023,
        arxiv="2308.02585",
    ),
    changes="Reward learning on a policy's own trajectories, whose gradient has the change of these trajectories.",
    room="solvers",
    tier="faithful",
)
def parl(
    *,
    lr: float = 0.1,
    inner_lr: float = 0.5,
    inner_steps: int = 20,
    damping: float = 1e-3,
    iterations: int = 50,
    seed: int = 0,
) -> BilevelDescent:
    """min_x G(x) = E_tau~pi_theta*(x) U_x(tau), theta*(x) = argmax_theta V(x, theta), V the regularised return under
    the reward r_x, and U_x(tau) what the reward is judged by, as the cross-entropy of labelled pairs. With the score of
    whole trajectories, of both of a pair, and with V_{x theta} and V_{theta theta} for second derivatives:

        grad G(x) = E grad_x U_x - V_{x theta} (V_{theta theta} - damping)^(-1) E[ U_x(tau) grad_theta log pi(tau) ]

    A-PARL: inner_steps policy-gradient steps from where theta was, then x <- x - lr grad G(x); each derivative from
    fresh trajectories of the present policy (or exactly, where the problem has no `rows`).

    lr, inner_lr, inner_steps: the steps of the reward, and of the policy between two of them.
    damping, iterations: of the conjugate gradients that solve with the Hessian.

    Iterative reward learning leaves the second term out (`but(hypergradient=DirectGradient())`), as if the trajectories
    did not depend on the reward; where U depends on x only through the policy, as a designer's utility does, nothing is
    left. Step sizes, damping and the number of inner steps are ours: the paper's are per environment. It estimates the
    inverse by a Neumann series or takes it as exact; trajectories have a baseline, which it has not. Our problems are
    `problems.PreferenceAlignment` and `problems.RewardDesign`, with tables for reward and policy, and V must be
    regularised, here by entropy and a small ridge, as the softmax has a direction without curvature.
    """
    solver = ConjugateGradient(damping=damping, iterations=iterations)
    return BilevelDescent(
        inner=InnerSteps(steps=inner_steps, lr=inner_lr),
        hypergradient=ImplicitHypergradient(solver=solver),
        update=MomentumStep(lr=lr, beta=0.0),
        seed=seed,
    )
