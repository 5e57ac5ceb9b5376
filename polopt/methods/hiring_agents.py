"""Hiring agents: efforts that are recommended jointly, with payments under which nobody gains by deviating."""

from polopt.method import Paper, method
from polopt.solvers import MechanismSolver, SignalModel


@method(
    paper=Paper(
        title="Online Information Acquisition: Hiring Multiple Agents",
        authors="Cacciamani, Federico and Castiglioni, Matteo and Gatti, Nicola",
        year=2023,
        arxiv="2307.06210",
    ),
    changes="A linear program over correlated recommendations of efforts and payments for reports.",
    room="solvers",
    tier="reading",
)
def hiring_agents(*, model: SignalModel | None = None) -> MechanismSolver:
    """Agents i have efforts b_i of cost c_i(b_i) and see signals s with P(s | b, th) of a state th with a prior mu. The
    principal draws b with probability x_b, tells each agent its own b_i, decides by their reports, then sees th and
    pays gamma_i(b, s, th) in [0, cap]. With y = x gamma and V(b) the utility of the best decisions, it solves

        max  sum_b x_b V(b) - sum_{i, b, s, th} mu(th) P(s | b, th) y_i(b, s, th)
        with  sum_b x_b = 1,    0 <= y_i <= cap x_b

    such that no agent that is told b_i gains by another effort with any map of its signals to reports, which is
    linear with variables z_i(b_i, b', s_i), at least what each report of s_i would earn after the effort b'.

    model: `solvers.ExploredSignals()` explores the signals, and commits to the mechanism of their frequencies, in which
        deviations lose a margin; if none is given, they are known.

    The size of the program is that of the joint tables, so that it grows exponentially with the number of agents.
    Payments without a bound would have no optimum: recommendations of probability 0 would be paid for. The program is a
    derivation from the setting, not compared with the paper's line by line. Ours in the exploration: prior and costs
    are known, where the paper learns costs too, agents obey in it for the largest payments, and the margin is
    0.2 cap / sqrt(rounds), in place of a mixture with a strictly proper scoring rule.
    """
    return MechanismSolver(model=SignalModel() if model is None else model)
