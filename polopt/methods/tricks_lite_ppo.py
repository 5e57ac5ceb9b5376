"""Lite PPO: group mean, batch std and a token mean, a minimal combination of tricks."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupStd
from polopt.features.groupings import WholeBatch
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import TokenMean
from polopt.support import Support


@method(
    paper=Paper(
        title="Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning",
        authors="Liu, Zihe and others",
        year=2025,
        arxiv="2508.08221",
    ),
    changes="GRPO with the std of the whole batch's rewards in place of the group's, and a mean over tokens.",
    room="credit",
    tier="faithful",
)
def tricks_lite_ppo(*, group: int = 8, clip: float = 0.2, support: Support = Support()) -> Algorithm:  # noqa: B008
    """A_i = (R_i - mean_g R) / (std_batch R + eps), std over all rollouts of the batch, PPO's clip, token mean. No
    critic, no KL, no filter.

    What the paper advises, with its conditions:

    - Group mean with batch std is the most robust normaliser. Where rewards within groups hardly differ, drop the std.
    - A higher upper clip helps aligned (instruction-tuned) models; on base models it changes little.
    - The token mean is for base models; aligned models do better with a mean over sequences.
    - Masking answers that were cut off helps up to medium answer lengths (8k tokens); at 20k it changes little.

    The paper samples at temperature 0.99, top-p 0.99 and top-k 100: support=Support(0.99, 100, 0.99), and log-probs
    are then over what those leave. std is the sample's, over rewards, not over centred ones, and over the optimiser
    batch as it was sampled.
    """
    return grpo(group=group, clip=clip, kl=0).but(
        {
            "sampling.support": support,
            "credit.scale": GroupStd(within=WholeBatch()),
            "objective.aggregate": TokenMean(),
        }
    )
