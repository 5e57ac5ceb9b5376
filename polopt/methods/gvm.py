"""GVM-RAFT: rollouts allocated in proportion to the variance of the gradient."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.raft import raft
from polopt.objectives import PromptMean
from polopt.sampling import GradientVarianceAllocator


@method(
    paper=Paper(
        title="Optimizing Chain-of-Thought Reasoners via Gradient Variance Minimization in Rejection Sampling and RL",
        authors="Yao, Jiarui and Hao, Yifan and others",
        year=2025,
        arxiv="2505.02391",
    ),
    changes="RAFT on all right answers, with rollouts in proportion to G / sqrt(p) of each task, measured beforehand.",
    room="sampling",
    tier="faithful",
)
def gvm(
    *,
    group: int = 8,
    first: int = 8,
    alpha: float = 1e-3,
    beta: float = 2.0,
    block: str | None = None,
    least: int = 0,
) -> Algorithm:
    """Rollouts and loss from two statistics of `first` rollouts of each of M tasks: the share p_i that is right, and
    G_i, the mean over the right ones of || grad sum_t logp_t ||, over the parameters whose name contains `block`, as a
    default the policy's input embedding, which the authors' program names embed_tokens. Then group * M rollouts are
    allocated by

        n_i ~ G_i / sqrt(p_i + alpha / p_i^(beta - 1)),    L = -(1 / M) sum_i mean_(right of i) sum_t logp_t.

    The mean over a task's right answers has a variance of about G_i^2 / (n_i p_i); alpha = 0 minimises their sum. The
    first rollouts cost compute and are not learned from. A task without a right one among them gets `least` rollouts, 0
    in
    the paper: it is not tried again in this batch.

    Defaults are those of the authors' program, which measures before each of a few long rounds of training, hands
    every task n_i times to an ordinary trainer, so that a task with more rollouts weighs more, and lets the second
    budget be no larger than the first. Here a round is one batch, and the loss is the sum of means whose variance
    the paper derives. objective.aggregate=TokenMean() is that of the code. The budget works with other learners too:
    `grpo().but(**{"sampling.budget": GradientVarianceAllocator()})` learns from wrong answers as well.
    """
    budget = GradientVarianceAllocator(first=first, alpha=alpha, beta=beta, block=block, least=least)
    changes = {"sampling.budget": budget, "objective.aggregate": PromptMean(decisions="sum")}
    return raft(group=group, keep=None, threshold=1.0).but(changes)
