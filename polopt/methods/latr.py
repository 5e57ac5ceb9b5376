"""LATR: tree rollouts that branch at uncertain tokens, and keep a branch only if its continuation differs."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import Lookahead, LookaheadRollouts
from polopt.schedules import Schedule

# Number of batches learned from, and the share of each group that comes from a tree from then on.
COUNTDOWN = ((0, 1.0), (10, 0.75), (20, 0.5), (80, 0.25), (200, 0.0))


@method(
    paper=Paper(
        title="Lookahead Tree-Based Rollouts for Enhanced Trajectory-Level Exploration in Reinforcement Learning with "
        "Verifiable Rewards",
        authors="Xing, Shangyu and Wang, Siyuan and Yang, Chenyuan and Dai, Xinyu and Ren, Xiang",
        year=2025,
        arxiv="2510.24302",
    ),
    changes="GRPO on groups that are grown as trees: branches at undecided tokens, kept if they go on differently; a "
    "falling share of each group.",
    room="sampling",
    tier="faithful",
)
def latr(
    *,
    group: int = 8,
    share: tuple[tuple[int, float], ...] = COUNTDOWN,
    least: float = 0.25,
    apart: float = 0.15,
    edit: float | None = 0.4,
    suffix: float | None = None,
    rouge: float | None = None,
    windows: tuple[int, ...] = (20, 30, 50),
    until: int | None = 512,
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """Lookahead tree rollouts: k = round(eta G) rows of each group of G are the leaves of one tree, the others are
    independent samples. At each token a branch continues with its likeliest token, and another one begins with each
    further token among the top 2 that has p > least and lies less than `apart` below the likeliest, while there are
    fewer than k. A branch that is 20, 30 or 50 tokens old is dropped if its last tokens are too much like its parent's
    (edit distance over length < edit, or the longest shared suffix > suffix, or ROUGE-L > rouge). A tree stops
    branching with about k branches (5 % fewer are allowed towards the limit) that have all stood the test, or after
    `until` tokens, and its rows go on independently. eta falls by steps with the batches (`share`). Reward, advantage
    and loss are GRPO's.

    r is the ratio to the policy's own probability of each token. The leaves are not drawn from it, so their gradient
    is biased, whatever the ratio; the paper relies on eta's decay. Defaults are the program's for
    countdown; for mathematics they are least 0.15, apart 0.25, suffix 0.2 and ROUGE-L 0.5 instead of the edit distance,
    1024 tokens, and eta 1, 0.75, 0.5 and 0.25 from batches 0, 100, 200 and 300.

    The authors' program was read for this, as of January 2026 (before, it branched where p_1 - p_j *exceeds* `apart`).
    It differs from the paper: it samples once a tree is full where the paper takes the likeliest token
    (`others="full"`); it never drops a branch whose parent's token is a digit, an operator or space (its
    `keep_math_symbols`), which we do; it ends trees at 0.98 of the room for an answer, where we go on to its end; it
    stops for all prompts of a batch together, and fills a tree that is not full with copies of its first branch, where
    we copy those that still run, in turn.

    On short answers, and with a policy of low entropy, no token may be uncertain: the leaves are then copies of one
    answer, and the group has no gradient. The metric tree/branched is the share of trees that branched.
    """
    rule = Lookahead(least=least, apart=apart, windows=windows, edit=edit, suffix=suffix, rouge=rouge, until=until)
    steps = Schedule(knots=share, shape="step")
    return grpo(group=group, clip=clip, kl=kl).but(sampling=LookaheadRollouts(group=group, look=rule, share=steps))
