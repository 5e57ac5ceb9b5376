"""AgentFly (Memento): an agent improves by a memory of cases and a learned choice among them, its weights stay."""

from polopt.method import Paper, method
from polopt.solvers import CaseMemory, PairLogistic


@method(
    paper=Paper(
        title="AgentFly: Fine-tuning LLM Agents without Fine-tuning LLMs",
        authors="Zhou, Huichi and Chen, Yihang and Guo, Siyuan and Yan, Xue and Lee, Kin Hei and others",
        year=2025,
        arxiv="2508.16153",
    ),
    changes="The agent is shown an earlier case, and what is learned is which one helps in which task; no weights of "
    "the agent change.",
    room="solvers",
    tier="reading",
)
def agentfly_memento(
    *, temperature: float = 0.05, explore: float = 0.1, ridge: float = 100.0, batch: int = 50, seed: int = 0
) -> CaseMemory:
    """A policy with a memory M of cases (s, a, r): with mu the choice of a case and p the agent, which is frozen,

        pi(a | s, M) = sum_c mu(c | s) p(a | s, c),
        mu(c | s) = exp(Q(s, c) / temperature) / sum_x exp(Q(s, x) / temperature)

    x goes over the solved cases of M. Q is fitted to what was earned, r of 0 or 1, by the cross-entropy -r log Q -
    (1 - r) log(1 - Q) over the pairs of a task and the case that was shown in it; then (s, a, r) becomes a case.

    explore: the share of tasks without a case. ridge: of the fit of Q. batch: tasks between two fits.

    Tasks are those of `problems.CaseTasks`, of which `respond` asks any agent, a chat model too, and `states` are any
    encoder's. The paper's planner is a large model, its encoder SimCSE with a network of 512 units on a pair, for which
    a logistic regression on products and squared differences stands here, in the slot `value`; its tasks are one step
    too, so that there is no value after them. It shows four cases, solved and unsolved ones, and credits each with the
    joint result; here one case is shown, a solved one, so that the credit is its own. Its non-parametric memory is
    `.but(value=CosineSimilarity(), temperature=0.0)`. The formulas are from an account of the paper and its code.
    """
    return CaseMemory(value=PairLogistic(ridge=ridge), temperature=temperature, explore=explore, batch=batch, seed=seed)
