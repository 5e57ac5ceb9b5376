"""LOOP: leave-one-out advantages and PPO's clipping, of tokens, turns or whole rollouts, without a critic."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.rloo import rloo
from polopt.objectives import Aggregate, Clip, ProductRatio, Ratio, SequenceMean, SequenceSum, TokenRatio, TurnMean


@method(
    paper=Paper(
        title="Reinforcement Learning for Long-Horizon Interactive LLM Agents",
        authors="Chen, Kevin and Cusumano-Towner, Marco and Huval, Brody and Petrenko, Aleksei and others",
        year=2025,
        arxiv="2502.01600",
    ),
    changes="RLOO that takes several clipped steps on each batch, by the ratio of tokens, of turns or of rollouts.",
    room="objectives",
    tier="faithful",
)
def loop(*, group: int = 6, clip: float = 0.2, unit: Literal["token", "turn", "row"] = "token") -> Algorithm:
    """With A_i = R_i - mean_{j != i} R_j = K / (K - 1) (R_i - mean R) for K rollouts of a task,

        L = -(1/B) sum_i sum_u min(r_iu A_i, clip(r_iu, 1 - clip, 1 + clip) A_i)

    where r_iu is the ratio to the sampler of each token u, or the product of a turn's, or of all of a rollout's.

    unit: of the ratio; the paper finds the token's best.

    No deviation divides, no critic and no reference is needed. Tokens of the environment are no decisions. At ratio 1,
    with one step on each batch, the gradient is RLOO's for each unit. Passes over a batch are the stage's `epochs`; the
    paper shuffles the rollouts of all tasks into minibatches. Its defaults of clip and batch could not be confirmed.
    The paper leaves out rollouts of near-zero advantage, which changes the cost alone.
    """
    ratio: Ratio = TokenRatio() if unit == "token" else ProductRatio(unit=unit)
    # A joint ratio stands on each of its decisions, and counts once.
    aggregates: dict[str, Aggregate] = {
        "token": SequenceSum(length=1),
        "turn": TurnMean(turns="sum"),
        "row": SequenceMean(),
    }
    changes = {"ratio": ratio, "trust": Clip(low=clip, high=clip), "aggregate": aggregates[unit]}
    return rloo(group=group, kl=0.0).but({f"objective.{name}": part for name, part in changes.items()})
