"""SPO-tree: advantages of siblings in a tree of rollouts."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.method import method
from polopt.methods.spo import PAPER
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.sampling import NonZeroAdvantage, TreeRollouts, UncertainTokens


@method(
    paper=PAPER,
    changes="Rollouts branch: an edge is worth the mean of the leaves beyond it, and is compared with its siblings.",
    room="credit",
    tier="faithful",
)
def spo_tree(
    *, factors: tuple[int, ...] = (6, 6, 6), window: int = 600, threshold: float = 0.9, clip: float = 0.2
) -> Algorithm:
    """From the prompt, and from each node at depth d that has not ended, factors[d] edges of at most `window` tokens go
    on, those of the last level to the end. V(leaf) = R, V(node) = the mean of its children's V. Every token of an edge
    has A = V(child) - V(parent), and

        L = (1 / sum_et d_et) sum_et d_et max(-A_e r_et, -A_e clip(r_et, 1 - clip, 1 + clip))

    over edges e with A != 0, d = 1 at tokens that the sampler took with a probability below `threshold`.

    V(parent) includes the child, which shrinks every advantage by 1 - 1/factor (the authors' "rloo" mode; see the
    claim): `.but` credit.baseline to LeaveOneOut() for the unbiased one, credit.scale to GroupStd(correction=0,
    eps=1e-8) for their "grpo" mode. A batch has as many whole trees as fit into the stage's rows, 258 edges each with
    these factors. Edges are not kept for later batches, as the authors' code can do.
    """
    return Algorithm(
        sampling=TreeRollouts(factors=factors, window=window),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=None),
        select=[NonZeroAdvantage(), UncertainTokens(threshold=threshold)],
        objective=Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean()),
    )
