"""PEARL: preferences carried to another task by optimal transport, and a reward that knows its uncertainty."""

from polopt.method import Paper, method
from polopt.solvers import GaussianTransferReward, GromovWasserstein, PreferenceTransferSolver


@method(
    paper=Paper(
        title="PEARL: Zero-shot Cross-task Preference Alignment and Robust Reward Learning for Robotic Manipulation",
        authors="Liu, Runze and Du, Yali and Bai, Fengshuo and Lyu, Jiafei and Li, Xiu",
        year=2023,
        arxiv="2306.03615",
    ),
    changes="A task without labels takes another one's preferences, by a coupling of distances between trajectories.",
    room="solvers",
    tier="reading",
)
def pearl_ot(
    *,
    eps: float = 0.02,
    starts: int = 32,
    temperature: float = 1e-4,
    lr: float = 0.5,
    lam: float = 0.01,
    eta: float = 0.0,
) -> PreferenceTransferSolver:
    """Of N source trajectories with preferences z, and M target trajectories, with distances C and D in each task:

        T = argmin sum_ijkl |C_ik - D_jl|^2 T_ij T_kl    over couplings with uniform marginals
        z_jl = sum_{i != k} T_ij T_kl z_ik / sum_{i != k} T_ij T_kl
        r(s) ~ N(mu(s), sigma(s)^2) minimises E_r [ cross-entropy of z_jl with sigmoid(sum r_j - sum r_l) ]
                                              + lam max(0, eta - entropy of r)

    and a policy is learned offline with mu.

    eps, starts: of the couplings, see `solvers.GromovWasserstein`.
    temperature: a coupling of cost c has the share exp(-c / temperature) in the labels; distances are at most 1.
    lr, lam, eta: the step size of the reward, and its regulariser, see `solvers.GaussianTransferReward`.

    Distances cannot tell mirror images: where a task's shape is symmetric, several couplings cost the same, and some
    turn preferences round. The paper takes the one that its solver ends with; here labels are the mean over all that
    cost as little as the best, so that they are 0.5 there, as `PreferenceTransferSolver.findings` shows.

    Deviations. The full text was not available: the division of labels by their pairs' weight, without which they sum
    to less than 1, and the regulariser's form are our reading. The entropic solver is a proximal one here, whose
    couplings become sharp; trajectories are compared whole, without k-means; draws of the reward are replaced by their
    exact mean; couplings and reward move in turns, not one after the other. The paper's reward is a transformer and its
    learner IQL: ours are linear in a step's features, and imitation in proportion to exp(return); both are slots.
    """
    return PreferenceTransferSolver(
        coupling=GromovWasserstein(eps=eps, starts=starts),
        reward=GaussianTransferReward(lam=lam, eta=eta),
        temperature=temperature,
        lr=lr,
    )
