"""PSRO: populations that grow by best responses to a distribution over the others' populations."""

from polopt.method import Paper, method
from polopt.solvers import PSRO, MetaSolver, ProjectedReplicator


@method(
    paper=Paper(
        title="A Unified Game-Theoretic Approach to Multiagent Reinforcement Learning",
        authors="Lanctot, Marc and Zambaldi, Vinicius and Gruslys, Audrunas and others",
        year=2017,
        arxiv="1711.00832",
    ),
    changes="Best responses to a distribution over populations, which a meta-solver takes from their payoffs.",
    room="solvers",
    tier="proven",
)
def psro(*, train_meta: MetaSolver | None = None, eval_meta: MetaSolver | None = None) -> PSRO:
    """In each iteration, with U the expected payoffs of all profiles of the populations' strategies,

        x = train_meta(U),    population_i <- population_i + { best response of i to x_{-i} }

    from the uniform strategy, and the solution is what eval_meta(U) plays.

    train_meta: `solvers.ProjectedReplicator()` if none is given, the paper's; `solvers.NashLP()` makes it the double
        oracle algorithm, which ends with an equilibrium; `solvers.MetaSolver()` is uniform, fictitious play;
        `solvers.AlphaRank()` takes how often evolving populations hold each strategy.
    eval_meta: the same as `train_meta` if none is given.

    Payoffs and best responses are exact; the paper's are sampled, and its best responses are trained networks. The
    paper leaves the steps of the replicator dynamics open; OpenSpiel takes 50,000 of 0.001, and
    here they are 2,000 of 0.01.
    """
    train_meta = ProjectedReplicator() if train_meta is None else train_meta
    return PSRO(train_meta=train_meta, eval_meta=train_meta if eval_meta is None else eval_meta)
