"""SPO-chain: segment-level advantages from Monte Carlo values at the segments' ends."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.sampling import UncertainTokens
from polopt.sampling.filters import in_doubt
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.source_protocols import ContinuingSource

PAPER = Paper(
    title="Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models",
    authors="Guo, Yiran and Xu, Lijie and Liu, Jie and Ye, Dan and Qiu, Shuang",
    year=2025,
    arxiv="2505.23564",
)


@method(
    paper=PAPER,
    changes="Credit by segments: rows are cut at tokens in doubt, fresh rollouts from each cut give its value, only "
    "tokens in doubt learn.",
    room="credit",
    tier="proven",
)
def spo(
    *, group: int = 8, rollouts: int = 9, threshold: float = 0.9, interval: int = 5, clip: float = 0.2
) -> Algorithm:
    """The chain variant; `spo-tree` is the other. A token is in doubt if its probability under the sampler is below
    `threshold`. A row is cut before the first such token and before every `interval`-th after it; V at a cut is the
    mean reward of `rollouts` fresh continuations. A segment's advantage is the next cut's V minus its own, the last
    one's R - V, and

        L = (1 / sum_it d_it) sum_it d_it max(-A_it r_it, -A_it clip(r_it, 1 - clip, 1 + clip))

    with d = 1 at tokens in doubt. A row without them has A = 0. This costs `rollouts` answers per cut: far more samples
    than rows. Continuations start from the same tokens over the same support, in the middle of an answer; in
    environments of many turns the episode is first replayed up to there, so the environment must be deterministic.

    The authors' code, which was read for this, also whitens the advantages over the tokens in doubt and has a KL term
    to a reference among its PPO defaults; the configuration that was read samples at temperature 0.6. None of that is
    here: `.but` sampling.support and objective.regularise for the last two.
    """
    return Algorithm(
        sampling=SegmentRollouts(group=group, threshold=threshold, interval=interval, rollouts=rollouts),
        credit=SegmentAdvantage(),
        select=[UncertainTokens(threshold=threshold)],
        objective=Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean()),
    )


class SegmentAdvantage(Credit):
    """A_t = V(next cut) - V(last cut at or before t): the change of value over the segment of decisions around t.

    cut: [B, T] `extras["cut"]`, decisions before which the value of the state, `extras["cut_value"]` [B, T], is known;
    after the last cut the row's own outcome takes the place of the next value. Decisions before the first cut, and
    rows without one, have advantage 0. Each segment counted once, a row's advantages add up to its outcome minus the
    value at its first cut. Values are in units of the environment's outcome: a shaped reward does not enter.

    Source: SPO, arXiv:2505.23564.
    """

    reads = frozenset({"outcome", "extras.cut", "extras.cut_value"})

    def forward(self, experience: Experience) -> Tensor:
        cut = experience.extras["cut"] & experience.mask
        outcome = experience.outcome.detach()
        stretch = cut.cumsum(1)  # 0 before the first cut
        known = outcome[:, None].repeat(1, cut.shape[1] + 2)
        row, column = cut.nonzero(as_tuple=True)
        known[row, stretch[row, column]] = experience.extras["cut_value"][row, column].to(outcome)
        advantage = known.diff(dim=1).gather(1, stretch)
        return torch.where(experience.mask & (stretch > 0), advantage, 0)


class SegmentRollouts(Rollouts):
    """Rollouts that are cut where the policy was uncertain, with a Monte-Carlo value of the state at each cut.

    Uncertain decisions are those with a sampling probability below `threshold`; each row is cut before the first of
    them and before every `interval`-th one after it. A cut's value is the mean outcome of `rollouts` new continuations
    from there, over the same support. Cuts at which rows of a group have the same tokens so far, such as those at their
    beginning, share their continuations. The continuations are not part of the batch.

    `extras["cut"]` [B, T] bool marks the decisions before which a row is cut. `extras["cut_value"]` [B, T] holds the
    values there, 0 elsewhere, in units of the outcome, the reward before the cut included.

    Source: SPO-chain, arXiv:2505.23564.
    """

    threshold: float = 0.9
    interval: int = 5
    rollouts: int = 9

    writes = frozenset({"extras.cut", "extras.cut_value"})
    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        super().setup()
        if self.interval < 1 or self.rollouts < 1:
            raise ValueError(
                f"methods.spo.SegmentRollouts: need interval >= 1 and rollouts >= 1, found {self.interval} and "
                f"{self.rollouts}"
            )

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        """Estimates the overhead as if a fifth of a row's decisions are uncertain; a continuation is half a row on
        average."""
        return super().sampling_overhead(kept, decisions) + self.rollouts * math.ceil(decisions / 5 / self.interval) / 2

    def gather(self, source: ContinuingSource) -> Experience:
        batch = super().gather(source)
        doubtful = in_doubt(batch, self.threshold)
        cut = doubtful & ((doubtful.cumsum(1) - 1) % self.interval == 0)
        value = torch.zeros_like(batch.outcome)[:, None].repeat(1, cut.shape[1])
        rows, columns = cut.nonzero(as_tuple=True)
        if len(rows):
            one, shared = _states(batch, rows, columns)
            found = source.extend(batch[rows[one]], self.rollouts, at=columns[one])
            value[rows, columns] = found.outcome.view(-1, self.rollouts).mean(1)[shared]
        return batch.replace(extras={"cut": cut, "cut_value": value})


def _states(batch: Experience, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the index of one cut for each distinct state of a group, and each cut's index of its state."""
    tokens = batch.extras["tokens"][rows]
    before = torch.arange(tokens.shape[1], device=tokens.device) < columns[:, None]
    key = torch.cat([batch.group[rows, None], columns[:, None], torch.where(before, tokens, -1)], 1)
    states, shared = torch.unique(key, dim=0, return_inverse=True)
    cuts = torch.arange(len(rows), device=tokens.device)
    one = torch.full((len(states),), len(rows), device=tokens.device).scatter_reduce(0, shared, cuts, "amin")
    return one, shared
