"""Credit by states that recur: a turn is compared with the turns of other rollouts in the same state."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.estimators import RelativeAdvantage, RewardToGo
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt


class StateRelativeAdvantage(Credit):
    """The return of a turn, less the mean return of the turns of its group with the same history of states:

        A_h = sum_n w_n a_n / sum_n w_n,    a_n = (G_h - mean_{C_n} G) / scale,    w_n = (n + 1)^power

    C_n are the turns of the group whose last n states, `extras["turn_state"]`, are those of turn h, for n = least to
    depth, as far as h has a past; with n = 0 they are all turns of the group. n is left out where C_n holds h alone,
    and where a_n is 0, as in a cluster of equal returns; A_h is 0 if none is left. Visits of a state by one row all
    count. All decisions of a turn have its A.

    returns: G, the mean over a turn's decisions.
    depth, least: the most and the fewest states that are compared.
    power: of the weights; large for the longest history that has other turns, 0 for the mean of all.
    normalise: whether scale is the standard deviation of C_n plus eps, else 1. correction: as in `GroupStd`.
    base: a credit that counts as a_0, with weight 1, where it is not 0.
    within: the grouping.

    Sources: the step-level advantage of GiGPO, arXiv:2505.10978, at depth 1; HGPO, arXiv:2602.22817.
    """

    returns: Credit = RewardToGo(gamma=0.95, unit="turn")
    depth: int = 1
    least: int = 1
    power: float = 1.0
    normalise: bool = True
    correction: int = 1
    eps: float = 1e-6
    base: Credit | None = None
    within: Grouping = SamePrompt()

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"turn"} if self.depth == 0 else {"turn", "extras.turn_state"})

    def setup(self) -> None:
        if not 0 <= self.least <= self.depth or self.eps < 0:
            raise ValueError(
                "credit.StateRelativeAdvantage: needs 0 <= least <= depth and eps >= 0, found "
                f"{self.least}, {self.depth} and {self.eps}"
            )

    def forward(self, experience: Experience) -> Tensor:
        mask, turn = experience.mask, experience.turn
        number, row, _ = ops.turns(turn, mask)
        returns = ops.turn_mean(self.returns(experience), turn, mask)
        if not len(row):
            return torch.zeros_like(mask, dtype=returns.dtype)
        total, weights = torch.zeros_like(returns), torch.zeros_like(returns)
        if self.base is not None:
            total = ops.turn_mean(self.base(experience), turn, mask).to(returns)
            weights = (total != 0).to(returns)
        for n, (known, cluster) in enumerate(self._clusters(experience, row)):
            if n < self.least:
                continue
            found = torch.where(known, self._compared(returns, cluster), 0)
            weight = float(n + 1) ** self.power * (found != 0)
            total, weights = total + weight * found, weights + weight
        advantage = torch.where(weights > 0, total / torch.where(weights > 0, weights, 1), 0)
        return torch.where(mask, advantage[number], 0)

    def _compared(self, returns: Tensor, cluster: Tensor) -> Tensor:
        gap = returns - ops.group_mean(returns, cluster)
        if self.normalise:
            scale = ops.group_std(returns, cluster, self.correction) + self.eps
            gap = torch.where(gap == 0, 0, gap / scale)
        return gap

    def _clusters(self, experience: Experience, row: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Returns, for n = 0 to depth, which turns have n states, and the number of each turn's cluster."""
        place, at = ops.turn_place(row), torch.arange(len(row), device=row.device)
        cluster = self.within(experience)[row]
        found = [(torch.ones_like(row, dtype=torch.bool), cluster)]
        if not self.depth:
            return found
        state = ops.turn_first(experience.extras["turn_state"], experience.turn, experience.mask)
        for n in range(1, min(self.depth, int(place.max()) + 1) + 1):
            known = place >= n - 1
            # A turn without so long a past is a cluster of its own.
            past = torch.where(known, state[(at - (n - 1)).clamp(min=0)], 0)
            cluster = ops.crossed(ops.crossed(cluster, past), torch.where(known, -1, at))
            found.append((known, cluster))
        return found


class EdgeMeanAdvantage(Credit):
    """Another credit's mean over the rollouts of a group that share a step: turns with the same state, the same action,
    the same state after it, and the same `window` states before. A step that no other rollout shares keeps its own.

    A turn's action is its decided tokens; its state is `extras["turn_state"]`, and after the last turn of a row comes
    the end. A rollout that takes a step twice counts once. All decisions of a turn have the mean over its decisions.
    Where the policy's gradient of a step depends on its edge alone, all decisions weigh the same and no rollout takes a
    step twice, the sum over rollouts is that of the credit inside: the means then only matter for steps that are
    clipped, weighed by their row's length, or read in different contexts.

    Source: the merged edges of SALT's trajectory graph, arXiv:2510.20022.
    """

    credit: Credit = RelativeAdvantage()
    window: int = 0
    within: Grouping = SamePrompt()

    reads = frozenset({"turn", "extras.turn_state", "extras.tokens"})

    def setup(self) -> None:
        if self.window < 0:
            raise ValueError(f"credit.EdgeMeanAdvantage: window must be >= 0, found {self.window}")

    def forward(self, experience: Experience) -> Tensor:
        mask, turn = experience.mask, experience.turn
        number, row, _ = ops.turns(turn, mask)
        own = ops.turn_mean(self.credit(experience), turn, mask)
        if not len(row):
            return torch.zeros_like(mask, dtype=own.dtype)
        edge = self._edges(experience, number, row)
        # One visit of each rollout, so that a loop does not weigh more.
        visit = ops.crossed(edge, row)
        first = torch.zeros_like(visit, dtype=torch.bool)
        first[ops.group_first(visit)] = True
        mean = ops.group_mean(own, edge, first.long())
        return torch.where(mask, mean[number], 0)

    def _edges(self, experience: Experience, number: Tensor, row: Tensor) -> Tensor:
        """Returns the number of each turn's edge."""
        mask, turns = experience.mask, len(row)
        state = ops.turn_first(experience.extras["turn_state"], experience.turn, mask)
        words: list[list[int]] = [[] for _ in range(turns)]
        for at, token in zip(number[mask].tolist(), experience.extras["tokens"][mask].tolist(), strict=True):
            words[at].append(token)
        rows, states = row.tolist(), state.tolist()
        groups = self.within(experience)[row].tolist()
        keys = []
        for h in range(turns):
            begin = h
            while begin > 0 and h - begin < self.window and rows[begin - 1] == rows[h]:
                begin -= 1
            after = states[h + 1] if h + 1 < turns and rows[h + 1] == rows[h] else None
            keys.append((groups[h], tuple(states[begin : h + 1]), tuple(words[h]), after))
        return torch.tensor(ops.numbered(keys), dtype=torch.long, device=row.device)


class SharedPrefixAdvantage(Credit):
    """Another credit's mean, at each decision, over the rows of the group that agree with the row up to and including
    that decision: in what was read, decided, and decided by whom. A decision that no other row shares keeps its own.

    Sources: the hard estimate of ARPO, arXiv:2507.19849.
    """

    credit: Credit = RelativeAdvantage()
    within: Grouping = SamePrompt()

    reads = frozenset({"extras.tokens"})

    def forward(self, experience: Experience) -> Tensor:
        mask, tokens = experience.mask, experience.extras["tokens"]
        own = torch.where(mask, self.credit(experience), 0)
        found = own.clone()
        index, _ = ops.group_index(self.within(experience))
        for group in range(int(index.max()) + 1 if len(index) else 0):
            rows = (index == group).nonzero().flatten()
            agree = (tokens[rows, None] == tokens[None, rows]) & (mask[rows, None] == mask[None, rows])
            shared = (agree.cummin(2).values & mask[rows, None]).to(own.dtype)
            found[rows] = torch.einsum("ijt,jt->it", shared, own[rows]) / shared.sum(1).clamp(min=1)
        return found
