"""EconProver: think only where it pays, and spread few attempts over voices that differ."""

import torch

from polopt.algorithm import Algorithm
from polopt.lab.alike import solved_by, switched, ways
from polopt.method import Finding, Paper, method
from polopt.methods.ppo import ppo
from polopt.methods.raft import raft
from polopt.sampling import ShortestCorrect, TaggedPrompts


@method(
    paper=Paper(
        title="EconProver: Towards More Economical Test-Time Scaling for Automated Theorem Proving",
        authors="Li, Mukai and Song, Linfeng and Liang, Zhenwen and Xu, Jiahao and Gong, Shansan and Liu, Qi and "
        "Mi, Haitao and Yu, Dong",
        year=2025,
        arxiv="2509.12603",
    ),
    changes="First the cheapest right answer to each task is imitated, then PPO with prefixes, each on its part of the "
    "tasks.",
    room="sampling",
    tier="reading",
)
def econprover(
    *,
    stage: int = 2,
    group: int = 8,
    prefixes: int = 8,
    wording: str = " #{number}",
    clip: float = 0.2,
    kl: float = 0.05,
) -> Algorithm:
    """Stage 1, the switch: of each task's answers the right one with the fewest tokens is imitated,

        L = -(1 / sum_i |y_i|) sum_it logp_it over y_i = argmin |y| among the group's right answers,

    so that the policy answers at once where that suffices and thinks where only thinking is right. Stage 2, diversity:
    the tasks are parted into m parts, each has a prefix behind its prompts, " #0" to " #7", and PPO trains all of them
    in one policy. To solve a task in k passes, spread them over the prefixes: on `metrics.cost_curve`, tokens are
    what is paid, not passes.

    prefixes=1 with wording="" is PPO. The paper's text beyond its summary was not at hand. Ours are: imitation for the
    switch, where the paper is said to use preferences of a direct proof that succeeds over one with a chain of thought;
    text tags for its trainable prefixes, and all weights learn (`train` of a stage can hold some still); parts by the
    tasks' order, which should be that of difficulty.

    Raises:
        ValueError: another stage than 1 or 2.
    """
    if stage == 1:
        return raft(group=group).but({"sampling.select": [ShortestCorrect()]})
    if stage != 2:
        raise ValueError(f"econprover: stage must be 1, the switch, or 2, the prefixes, found {stage}")
    guide = TaggedPrompts(count=prefixes, wording=wording) if prefixes > 1 or wording else None
    return ppo(group=group, clip=clip, kl=kl).but({"sampling.guide": guide})


@econprover.claim(
    "Eight answers in eight voices solve 0.15 more of the problems than eight of one voice.",
    baseline="one policy of as many samples, at the best of 12 temperatures",
    refuted=True,
)
def voices() -> Finding:
    ours, base, hot = [], [], []
    texts = [TaggedPrompts().text(i) for i in range(8)]
    for seed in range(2):
        odds, solves = ways(econprover(kl=0.0), texts, batches=60, seed=seed)
        ours.append(solved_by(odds[1:], solves))
        single, _ = ways(ppo(group=8, kl=0.0), [], batches=60, seed=seed)
        base.append(solved_by(single[:1].expand(8, -1), solves))
        heated = [(single[:1].log() / t).softmax(1).expand(8, -1) for t in torch.logspace(-1, 2, 12).tolist()]
        hot.append(max(solved_by(odds, solves) for odds in heated))
    measured = {
        "pass@8, eight voices": sum(ours) / 2,
        "one voice": sum(base) / 2,
        "at its best temperature": sum(hot) / 2,
    }
    return Finding(
        measured=measured,
        criterion=">= 0.15 over one voice at any temperature (2 seeds, 60 batches of 64 answers)",
        holds=sum(ours) / 2 >= sum(hot) / 2 + 0.15,
        note="It comes later: after 200 batches, when each voice is sure of its way, it is 0.994 against 0.778. The "
        "policy cannot tell the problems apart, so one voice can do no better than to try all ways alike.",
    )


@econprover.claim(
    "The switch halves the tokens at the same rate of success where 70 % of the problems are easy.",
    baseline="always thinking",
    refuted=True,
)
def switch() -> Finding:
    tokens, success, all_tokens, all_success = switched(econprover(stage=1), batches=60)
    return Finding(
        measured={"tokens over always thinking": tokens / all_tokens, "success": success, "always": all_success},
        criterion="tokens <= 0.5, success at most 0.02 lower, after 60 batches",
        holds=tokens <= 0.5 * all_tokens and success >= all_success - 0.02,
        note="After 200 batches it holds, with 37 % of the tokens and 0.009 less success: a hard problem whose direct "
        "answer was right once by luck is slow to forget it.",
    )
