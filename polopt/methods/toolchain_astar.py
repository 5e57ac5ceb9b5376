"""ToolChain*: best-first search of plans of tool calls."""

from polopt.method import Paper, method
from polopt.solvers import BestFirst, RememberedCost


@method(
    paper=Paper(
        title="ToolChain*: Efficient Action Space Navigation in Large Language Models with A* Search",
        authors="Zhuang, Yuchen and Chen, Xiang and Yu, Tong and Mitra, Saayan and Bursztyn, Victor and Rossi, Ryan A. "
        "and Sarkhel, Somdeb and Zhang, Chao",
        year=2023,
        arxiv="2310.13227",
    ),
    changes="A* search over plans of tool calls, with costs from remembered plans and from how often a model proposes "
    "a call.",
    room="solvers",
    tier="reading",
)
def toolchain_astar(*, samples: int | None = 10, alpha: float = 0.5, beta: float = 0.5, seed: int = 0) -> BestFirst:
    """Of the plans on the frontier the one of the lowest f is extended by the calls that the model proposes:

        f(n) = g(n) + h(n),   g(n) = sum_i (1 - m_i)^alpha (1 - s_i)^(1 - alpha),
        h(n) = (1 - q)^beta (1 - d)^(1 - beta),

    m from the longest common subsequence with a remembered plan, s the share of the proposals, q the call's usual place
    in remembered plans and d how much of an imagined plan is done; see `solvers.RememberedCost`. The first finished
    plan is the solution.

    samples: proposals in one request of the model; None for every call once.
    alpha, beta: weights of memory beside the model.
    seed: of the proposals.

    `.but(cost=TrueCost())` is A* by the problem's own costs. That g joins memory and self-consistency, and h memory and
    imagination, is the paper's; the exact forms and the settings are a reading. h is no bound of what is ahead, so that
    the plan need not be the cheapest. The memory is the problem's, and does not grow by what was solved.
    """
    return BestFirst(cost=RememberedCost(alpha=alpha, beta=beta), samples=samples, seed=seed)
