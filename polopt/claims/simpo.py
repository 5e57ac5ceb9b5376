"""These programs measure what the paper of SimPO claims."""

from polopt.claim import Finding, claim
from polopt.lab.preferences import length_and_reward
from polopt.methods.simpo import simpo


@claim(
    "Its reward does not depend on how long an answer is.",
    kind="part",
    baseline="the sum of log-probabilities in place of the mean",
)
def length() -> Finding:
    mean = length_and_reward(simpo())
    total = length_and_reward(simpo().but({"objective.implicit.decisions": "sum"}))
    return Finding(
        measured={"mean": mean, "sum": total},
        criterion="correlation of reward and length after learning, |mean| < 0.2, |sum| > 0.4",
        holds=abs(mean) < 0.2 and abs(total) > 0.4,
    )
