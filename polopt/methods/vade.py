"""VADE: the tasks that promise most, at a success rate drawn from what is known of each."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.lab.budgets import mixed_found
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import PosteriorScore, SuccessCounts


@method(
    paper=Paper(
        title="VADE: Variance-Aware Dynamic Sampling via Online Sample-Level Difficulty Estimation for Multimodal RL",
        authors="Hu, Zengjie and Qiu, Jiantao and others",
        year=2025,
        arxiv="2511.18902",
    ),
    changes="GRPO on the tasks that promise most by Thompson sampling from a Beta posterior of each one's success.",
    room="sampling",
    tier="reading",
)
def vade(
    *,
    group: int = 8,
    by: Literal["gain", "variance"] = "gain",
    keep_all: float = 0.995,
    keep_used: float = 0.5,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """theta_i ~ Beta(1 + right_i, 1 + wrong_i) for every task; a batch is the tasks of the largest

        theta_i (1 - theta_i)^2,

    without replacement, and no rollout is thrown away. As the policy moves on, counts fade: keep_all of every task's
    counts stay from batch to batch, and keep_used of those of the tasks just taken, before their new ones are added.

    The paper names two scales of decay; its factors are not known to us, nor whether the prior fades with the counts:
    here the prior stays, and both factors are settings. keep_all = keep_used = 1 is plain Thompson sampling, which is
    better while the policy stands still. by="variance" scores theta (1 - theta). Level scores are drawn by lot. An
    untried task has Beta(1, 1) and is therefore taken sooner or later. GRPO's own settings are ours.
    """
    choice = PosteriorScore(by=by, success=SuccessCounts(keep_all=keep_all, keep_used=keep_used))
    return grpo(group=group, clip=clip, kl=kl).but(**{"sampling.choice": choice})


@vade.claim(
    "More groups hold right and wrong answers, and it finds them again when the policy has changed.",
    baseline="tasks in random order; and counts that never fade",
)
def finds_the_undecided() -> Finding:
    even, still, ours = (mixed_found(s) for s in (grpo(group=8, kl=0), vade(keep_all=1, keep_used=1), vade()))
    names = ("random order", "no fading", "two scales")
    measured = {
        f"{n}, {when}": x
        for n, xs in zip(names, (even, still, ours), strict=True)
        for when, x in zip(("before", "after"), xs, strict=True)
    }
    return Finding(
        measured=measured,
        criterion="before the change: no fading >= random order + 0.15; after it: two scales >= no fading + 0.05",
        holds=still[0] >= even[0] + 0.15 and ours[1] >= still[1] + 0.05,
        note="400 tasks of logits N(-1, 3), 16 x 8 rollouts a batch, 150 batches; then every logit jumps by 4, up or "
        "down, and 150 more. While nothing changes, fading costs: two scales are between random order and no fading.",
    )
