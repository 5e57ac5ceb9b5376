"""BO-REP: bilevel optimisation with normalised momentum, periodic inner updates and a refined initialisation."""

from polopt.method import Paper, method
from polopt.solvers import BilevelDescent, InnerSteps, NormalisedMomentumStep, TrackedHypergradient


@method(
    paper=Paper(
        title="Bilevel Optimization under Unbounded Smoothness: A New Algorithm and Convergence Analysis",
        authors="Hao, Jie and Gong, Xiaochuan and Liu, Mingrui",
        year=2024,
        arxiv="2401.09587",
    ),
    changes="Bilevel descent by steps of fixed length along a momentum, with inner steps only once in a period.",
    room="solvers",
    tier="proven",
)
def bo_rep(
    *,
    lr: float = 0.05,
    beta: float = 0.9,
    linear_lr: float = 0.01,
    inner_lr: float = 0.05,
    inner_steps: int = 10,
    period: int = 2,
    refinement: int = 100,
    seed: int = 0,
) -> BilevelDescent:
    """min_x f(x, y*(x)), y*(x) = argmin_y g(x, y), g strongly convex in y, f of unbounded smoothness in x: its
    curvature may grow as its gradient does. With g_y a stochastic gradient at each use, in iteration k = 0, 1, ...:

        y <- y - inner_lr g_y(x, y), inner_steps times, where period divides k
        z <- z - linear_lr (g_yy z - f_y)
        m <- beta m + (1 - beta) (f_x - g_xy z)
        x <- x - lr m / |m|

    lr, beta: the length of a step of x, and the momentum's persistence.
    linear_lr: the step size of z, which follows the solution of g_yy z = f_y by Hessian-vector products.
    inner_lr, inner_steps, period: the inner steps.
    refinement: inner steps at the first x, before everything.

    Defaults are those of the authors' program for data cleaning; it has no refinement, which the theory needs and does
    by epochs of decreasing step size, here 100 plain steps. As in the program, m takes the new z. Not followed are its
    Hessian-vector product at the y before the inner steps, its regulariser (a norm, not its square), and that its
    validation batches come from the training data. The step of x has one length, so that x circles a solution at that
    distance: lower lr at the end.
    """
    return BilevelDescent(
        inner=InnerSteps(steps=inner_steps, lr=inner_lr, period=period, refinement=refinement),
        hypergradient=TrackedHypergradient(lr=linear_lr),
        update=NormalisedMomentumStep(lr=lr, beta=beta),
        seed=seed,
    )
