"""SCoRe: multi-turn RL for self-correction, with a bonus for improvement in the second attempt."""

from polopt.algorithm import Algorithm
from polopt.credit import LeaveOneOut, TurnAdvantage
from polopt.method import Paper, method
from polopt.methods.rloo import rloo
from polopt.rewards import KLPenalty, Reward, SumOfRewards, TurnRewards


@method(
    paper=Paper(
        title="Training Language Models to Self-Correct via Reinforcement Learning",
        authors="Kumar, Aviral and others",
        year=2024,
        arxiv="2409.12917",
    ),
    changes="RLOO by turn: the second attempt is also paid for its progress; in a stage before, it alone learns.",
    room="credit",
    tier="faithful",
)
def score(*, stage: int = 2, group: int = 4, alpha: float = 10.0, kl: float = 0.01, first_kl: float = 0.1) -> Algorithm:
    """With r1, r2 the environment's rewards of the two attempts, k1 the distance to the reference token by token,

        stage 1: maximise E[ r2 - kl KL - first_kl KL of the first attempt ]
        stage 2: maximise E[ r1 + r2 - kl KL ], with alpha (r2 - r1) more for the decisions of the second attempt

    by REINFORCE, each turn with its own return to go less the mean of the group's other rows. In stage 1 the first
    attempt stays where it is, so that the second learns to correct it, not to copy it. Each stage is a stage of a
    recipe (`polopt/recipes/score.yaml`); the reference is the policy as its stage began, in the paper the base model
    throughout. Tasks must have two attempts, as in the environment second-chance; with one turn this is RLOO.

    The paper's text leaves open whether the first attempt is credited with the bonus of the second. Here it is not:
    its share would be -alpha r1, a penalty on a right first attempt. Given the first attempt r1 is a constant, so that
    the bonus is in expectation 1 + alpha times the second's own reward, with r1 as a baseline. first_kl counts per
    token; on short answers 0.1 is not strong.
    """
    if stage not in (1, 2):
        raise ValueError(f"score: stage must be 1 or 2, found {stage}")
    terms: list[Reward] = [TurnRewards(weights=(0.0, 1.0)) if stage == 1 else TurnRewards(), KLPenalty(coefficient=kl)]
    if stage == 1:
        terms += [KLPenalty(coefficient=first_kl, turn=0)]
    bonus = alpha if stage == 2 else 0.0
    return rloo(group=group).but(
        reward=SumOfRewards(terms=terms), credit=TurnAdvantage(baseline=LeaveOneOut(), bonus=bonus)
    )
