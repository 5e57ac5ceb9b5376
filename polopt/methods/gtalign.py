"""GTAlign: the geometric mean of the user's and the model's utility as the reward."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit.estimators import RelativeAdvantage
from polopt.credit.parts import Credit
from polopt.credit.wrappers import RewardTransform
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SameKind
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import (
    Brevity,
    ConditionalReward,
    GeometricMean,
    HasBlock,
    LeadingBlocks,
    LengthWindow,
    MinimumReward,
    OutcomeReward,
    PositiveReward,
    Reward,
    SumOfRewards,
)
from polopt.rewards.blocks import TextReward, block
from polopt.situation import Situation

BLOCKS = ("thinking", "payoff", "analyze", "response")
# A constant in each utility, so that none is 0.
EPSILON = 1e-4


@method(
    paper=Paper(
        title="GTAlign: Game-Theoretic Alignment of LLM Assistants for Mutual Welfare",
        authors="Zhu, Siqi and others",
        year=2025,
        arxiv="2510.08872",
    ),
    changes="PPO whose reward is the geometric mean of the user's and the model's utility, read off four blocks of the "
    "answer, in units of each source of tasks.",
    room="rewards",
    tier="proven",
)
def gtalign(
    *,
    group: int = 1,
    user: float = 1.0,
    model: float = 1.0,
    blocks: bool = True,
    answer: tuple[float, float] = (20, 500),
    whole: tuple[float, float] = (500, 1000),
    steepness: float = 0.005,
) -> Algorithm:
    """R = (U_user^user U_model^model)^(1 / (user + model)), z-scored per kind of task over the batch, then PPO, with

        U_user  = 1e-4 + 0.5 Q + 0.2 window(words of the response) + 0.3 exp(-characters before the response / 500)
        U_model = 1e-4 + 0.4 Q + 0.2 F + 0.2 P + 0.2 window(words of the whole)

    Q the environment's reward, F 1 for an answer that begins with the blocks thinking, payoff, analyze, response in
    this order, P 1 for payoffs that differ between the parties, and window(L) = sigmoid(k (L - low)) sigmoid(k (high -
    L)). An answer without a response, or without a payoff that can be parsed, has reward 0. user 1, model 0 is the
    user-only baseline, and the other way round.

    This follows the authors' program, of which the tasks' scores and the format were read, with these differences. Its
    quality is a judge's or BLEU; here the environment's reward is both parties' quality. Its z-score divides by n, ours
    by n - 1. Payoffs that are not finite cannot be read here.

    The policy must write the four blocks: fine-tune it to do so first, as the authors do. blocks=False is polopt's
    own, for policies that do not: the terms that read the blocks are dropped, and Q and the length of the answer are
    left. P rewards unequal numbers, true or not. While an answer is generated, `methods.gtalign.choose` reads its
    payoffs, weighted by prices, and returns the move to continue with."""
    soft = {"steepness": steepness, "of": "words"}
    length = LengthWindow(low=answer[0], high=answer[1], block="response" if blocks else None, **soft)  # type: ignore[arg-type]
    of_user: list[tuple[float, Reward]] = [(0.5, OutcomeReward(shift=EPSILON / 0.5)), (0.2, length)]
    of_model: list[tuple[float, Reward]] = [
        (0.4, OutcomeReward(shift=EPSILON / 0.4)),
        (0.2, LengthWindow(low=whole[0], high=whole[1], **soft)),  # type: ignore[arg-type]
    ]
    if blocks:
        of_user += [(0.3, Brevity(scale=500, of="characters", before="response"))]
        of_model += [(0.2, LeadingBlocks(names=BLOCKS)), (0.2, DistinctPayoffs())]
    parties = [
        SumOfRewards(terms=[term for _, term in terms], weights=[weight for weight, _ in terms])
        for terms in (of_user, of_model)
    ]
    welfare = GeometricMean(terms=parties, weights=[user, model])
    plain = ppo(group=group, kl=0)
    readable = PositiveReward(reward=MinimumReward(terms=[LegiblePayoffs(), HasBlock(name="response")]))
    return plain.but(
        reward=ConditionalReward(reward=welfare, when=readable) if blocks else welfare,
        credit=StandardisedReturns(credit=plain.credit, by="zscore"),
    )


Norm = Literal["zscore", "minmax", "robust", "cdf"]


EPS = 1e-8


class StandardisedReturns(RewardTransform):
    """Returns standardised within their kind of task, so that no source has more weight because its rewards are larger:

        zscore: (R - mean) / (std + eps), n - 1 in std's denominator        minmax: (R - least) / (most - least + eps)
        robust: tanh((R - median) / (1.4826 MAD + eps)), MAD the median of |R - median|
        cdf: the fraction of rows below, ties counted half, 0 to 1

    over the rows of a group of `within` in this batch. Rows that are all alike get 0, under cdf 0.5. A credit that
    itself divides by a group's standard deviation undoes any of these that is linear. Source: GTAlign,
    arXiv:2510.08872, which takes zscore.
    """

    credit: Credit = RelativeAdvantage()
    by: Norm = "zscore"
    within: Grouping = SameKind()

    def worth(self, returns: Tensor, experience: Experience) -> Tensor:
        return standardised(returns, self.within(experience), self.by)


def standardised(x: Tensor, group: Tensor, by: Norm) -> Tensor:
    """Standardises numbers [B] within their group; see `StandardisedReturns`."""
    centred = x - ops.group_mean(x, group)
    if by == "zscore":
        return torch.where(centred == 0, 0, centred / (ops.group_std(x, group) + EPS))
    if by == "minmax":
        low, high = ops.group_least(x, group), -ops.group_least(-x, group)
        return (x - low) / (high - low + EPS)
    if by == "robust":
        middle = _by_group(x, group, _median)
        deviation = x - middle
        spread = _by_group(deviation.abs(), group, _median)
        return torch.where(deviation == 0, 0, torch.tanh(deviation / (1.4826 * spread + EPS)))
    below, level = ops.places(x, group)
    return (below + level.to(x.dtype) / 2) / ops.group_size(group)


def _median(x: Tensor) -> Tensor:
    """Computes the median, the mean of the two middle values for an even number."""
    ordered = x.sort().values
    n = len(x)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _by_group(x: Tensor, group: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Applies `of` to each group's numbers, and returns the result on each of its rows."""
    found = torch.empty_like(x)
    for number in group.unique():
        rows = group == number
        found[rows] = of(x[rows])
    return found


# The user's question, direct or vague, by the response: answer, clarifying question, or both.
CELLS = ("DQ_DA", "DQ_CQ", "DQ_AQ", "VQ_DA", "VQ_CQ", "VQ_AQ")


PARTIES = ("user", "LLM")


STRAIGHT = str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''")


def payoffs(text: str) -> Tensor | None:
    """Parses payoffs [2, 6] of the user and of the model in the order of `CELLS`.

    The format is {"DQ_DA": {"user": 1.0, "LLM": 2.0}, ...} as JSON or as a Python literal, in which curly quotes count
    as straight ones; None if the text is anything else, or a number is not finite.
    """
    cells = _literal(text)
    if not isinstance(cells, dict) or set(cells) != set(CELLS):
        return None
    if not all(isinstance(cell, dict) and set(cell) == set(PARTIES) for cell in cells.values()):
        return None
    values = [[cells[cell][party] for cell in CELLS] for party in PARTIES]
    numbers = [v for row in values for v in row]
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in numbers):
        return None
    return torch.tensor(values, dtype=torch.float64)


def _literal(text: str) -> Any:
    """Parses JSON, or else a Python literal; None for neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text.strip().translate(STRAIGHT))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def distinct(found: Tensor, gap: float = 0.1) -> float:
    """Returns how distinct the parties' payoffs [2, N] are, in [0, 1].

    Half the fraction of the N choices with different payoffs, plus half the fraction in which they differ by more than
    `gap` of the larger one.
    """
    difference = (found[0] - found[1]).abs()
    size = found.abs().amax(0)
    return float(((difference > 0).double() + (difference > gap * size).double()).mean() / 2)


class DistinctPayoffs(TextReward):
    """The reward `distinct` of the payoffs in the answer's block `block`; 0 where they cannot be parsed.

    The reward measures difference, not truth: any table of unequal payoffs gets all of it. Source: GTAlign,
    arXiv:2510.08872.
    """

    block: str = "payoff"
    gap: float = 0.1

    def read(self, text: str, row: int, experience: Experience) -> float:
        found = payoffs(block(text, self.block) or "")
        return 0.0 if found is None else distinct(found, self.gap)


class LegiblePayoffs(TextReward):
    """Reward 1 where the payoffs in the answer's block `block` can be parsed, else 0."""

    block: str = "payoff"

    def cautions(self, situation: Situation) -> Iterator[str]:
        shown = [solution for solution in situation.solutions if solution is not None]
        if shown and not any(payoffs(block(text, self.block) or "") is not None for text in shown):
            yield (
                f"none of the first {len(shown)} solutions has a block <{self.block}> that can be read, without which "
                "an answer has reward 0; train the policy on such solutions first, or take a reward without blocks, as "
                "gtalign's with blocks: false"
            )

    def read(self, text: str, row: int, experience: Experience) -> float:
        return float(payoffs(block(text, self.block) or "") is not None)


# (utilities [K, ...] of K parties, weights [K]) -> welfare [...].
Rule = Callable[[Tensor, Tensor], Tensor]


def arithmetic_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Returns sum_k w_k u_k / sum w over the first dimension."""
    return torch.tensordot(weights / weights.sum(), values, 1)


def efficient(values: Tensor) -> Tensor:
    """Returns the Pareto-efficient choices [N] bool of utilities [K, N]: no other choice is as good for all and better
    for one."""
    own, other = values[:, :, None], values[:, None, :]
    return ~((other >= own).all(0) & (other > own).any(0)).any(1)


def choose(payoffs: Tensor, rule: Rule, price: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    """Returns the index of the choice with the highest welfare of payoffs [K, N], the first among equals.

    For steering during generation: parse the payoffs that a policy has written, multiply them by `price` [K] or [K, N],
    which a provider may set, and continue with the choice of highest welfare. A price of one party for all choices does
    not change the geometric mean's choice; a price for each choice does.
    """
    weights = payoffs.new_ones(len(payoffs)) if weights is None else weights
    if price is not None:
        payoffs = payoffs * (price[:, None] if price.ndim == 1 else price)
    return rule(payoffs, weights).argmax()
