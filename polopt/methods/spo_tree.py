"""SPO-tree: advantages of siblings in a tree of rollouts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.experience import Experience
from polopt.method import method
from polopt.methods.spo import PAPER
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.sampling import NonZeroAdvantage, UncertainTokens
from polopt.sampling.parts import RolloutRequest, Sampling
from polopt.sampling.source_protocols import ContinuingSource
from polopt.support import Support


@method(
    paper=PAPER,
    changes="Rollouts branch: an edge is worth the mean of the leaves beyond it, and is compared with its siblings.",
    room="credit",
    tier="proven",
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


class TreeRollouts(Sampling):
    """A tree of rollouts below each prompt, whose edges are the rows of the batch.

    From the prompt and from every node that has not ended, factors[depth] edges continue, each at most `window`
    decisions long, on the last level to the end of the episode. A node's value is its row's outcome if it has ended,
    else the mean of its children's values.

    A row holds all decisions from the prompt to its edge's end, but only the edge's own decisions are in `mask`;
    `outcome` and `reward` are the value of the node at its end, `group` are the edges of one parent, so credit relative
    to the group compares siblings. `extras["level"]` [B] counts from 0. A tree in which no rollout ends early has
    f1 + f1 f2 + f1 f2 f3 edges, others have fewer: there are at most `source.rows` rows, except that there is at least
    one tree.

    Source: SPO-tree, arXiv:2505.23564.
    """

    factors: Sequence[int] = (6, 6, 6)
    window: int = 600
    support: Support = Support()

    writes = frozenset({"extras.level"})
    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        if not len(self.factors) or min(self.factors) < 1 or self.window < 1:
            raise ValueError(
                "methods.spo_tree.TreeRollouts: need factors >= 1, one a level, and window >= 1, found "
                f"{list(self.factors)} and "
                f"{self.window}"
            )

    @property
    def rollout_support(self) -> Support:
        return self.support

    @property
    def edges(self) -> int:
        """Number of edges of a tree in which no rollout ends early."""
        return sum(math.prod(self.factors[: i + 1]) for i in range(len(self.factors)))

    def forward(self, source: ContinuingSource) -> Experience:
        levels, parents, begins = self._grow(source)
        worth = levels[-1].outcome
        batches = []
        for depth in reversed(range(len(levels))):
            level = levels[depth]
            if depth < len(levels) - 1:
                worth = _mean_of_children(level.outcome, worth, parents[depth + 1])
            own = level.mask & (level.mask.cumsum(1) > begins[depth][:, None])
            extras = {"level": torch.full((len(level),), depth, device=level.device)}
            batches.append(level.replace(mask=own, outcome=worth, reward=worth, group=parents[depth], extras=extras))
        return Experience.cat(batches[::-1])

    def _grow(self, source: ContinuingSource) -> tuple[list[Experience], list[Tensor], list[Tensor]]:
        """Returns, for each level, the nodes, their parents and the number of decisions before their edges.

        A parent is its number in the level above; on the first level it is the prompt.
        """
        windows = [self.window] * (len(self.factors) - 1) + [None]
        prompts = max(1, source.rows // self.edges)
        level = source.rollout(
            RolloutRequest(source.take(prompts), self.factors[0], self.support, max_decisions=windows[0])
        )
        levels, parents, begins = [level], [level.group], [torch.zeros_like(level.lengths)]
        for factor, window in zip(self.factors[1:], windows[1:], strict=True):
            going = (~(level.terminated | level.truncated)).nonzero().flatten()
            if not len(going):
                break
            parents.append(going.repeat_interleave(factor))
            begins.append(level.lengths[parents[-1]])
            level = source.extend(level[going], factor, max_decisions=window)
            levels.append(level)
        return levels, parents, begins


def _mean_of_children(worth: Tensor, children: Tensor, parents: Tensor) -> Tensor:
    """Returns the values [B] of a level's nodes: the mean of their children's if there are any, else `worth`."""
    count = torch.zeros_like(worth).index_add_(0, parents, torch.ones_like(children))
    total = torch.zeros_like(worth).index_add_(0, parents, children)
    return torch.where(count > 0, total / count.clamp(min=1), worth)
