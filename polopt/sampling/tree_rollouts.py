"""Tree rollouts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest, Sampling
from polopt.sampling.source_protocols import ContinuingSource
from polopt.support import Support


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
                "sampling.TreeRollouts: need factors >= 1, one a level, and window >= 1, found "
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
