"""ARPO, agentic reinforced policy optimisation: rollouts branch where the policy is uncertain after a tool's result."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import (
    GroupMean,
    GroupStd,
    RelativeAdvantage,
    SharedPrefixAdvantage,
    WeightedAdvantage,
    WeightedSum,
)
from polopt.features import RowField
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import TurnBranches


@method(
    paper=Paper(
        title="Agentic Reinforced Policy Optimization",
        authors="Dong, Guanting and Mao, Hangyu and Ma, Kai and others",
        year=2025,
        arxiv="2507.19849",
    ),
    changes="GRPO on groups of which half branch off other rollouts, where a tool has raised the entropy.",
    room="sampling",
    tier="faithful",
)
def arpo_agentic(
    *,
    group: int = 16,
    first: int = 8,
    base: float = 0.5,
    slope: float = 0.34,
    tokens: int = 20,
    each: int = 1,
    shared: Literal["soft", "hard"] = "soft",
    leaf: Literal["uniform", "inverse"] = "uniform",
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """`first` rollouts of a prompt, and branches off them before a turn t > 0 with probability

        P_t = base + slope (H_t - H_0)

    H_t the mean entropy of the turn's first decisions, until a group has `group` rows; then GRPO's z-score over them.

    shared: "soft" gives every row its own advantage, so that a token of d rows has the sum of theirs; "hard" gives it
        their mean in each of them. Where rows weigh alike the gradients of both are equal.
    leaf: "uniform" as in the paper: uncertain beginnings have more rows, and count more in mean and gradient; "inverse"
        shares the weight of a rollout among its branches.

    In the paper a row branches if P_t exceeds a threshold; in the authors' code P_t is a probability, as here, and the
    entropy is a sum over 20 tokens of the likeliest 10, over log |V|, of the answer that called the tool. Ours is that
    of the answer that reads its result, as in the text, in nats: 0.34 is their 0.2 with 20 tokens and the vocabulary of
    Qwen. Their reward, token F1 with a tenth more for using both tools and -1 for a wrong form, is the world's. Of one
    turn it is GRPO. Another paper with the same short name is `arpo-replay`.
    """
    sampling = TurnBranches(group=group, first=first, base=base, slope=slope, tokens=tokens, each=each)
    unit: Literal["leaf", "row"] = "leaf" if leaf == "inverse" else "row"
    credit = RelativeAdvantage(baseline=GroupMean(unit=unit), scale=GroupStd(unit=unit))
    weighted = WeightedSum(shares=[WeightedAdvantage(credit=credit, weight=RowField(name="leaf_weight"))])
    found = credit if leaf == "uniform" else weighted
    changes = {"sampling": sampling, "credit": found if shared == "soft" else SharedPrefixAdvantage(credit=found)}
    return grpo(group=group, clip=clip, kl=kl).but(changes)
