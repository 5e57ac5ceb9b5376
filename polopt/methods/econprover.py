"""EconProver: imitation of the shortest right answers, then PPO with diverse prompt prefixes."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
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

    so that the policy answers directly where that suffices, and with a chain of thought where only that is right.
    Stage 2, diversity: the tasks are split into m parts, each has a prefix after its prompts, " #0" to " #7", and PPO
    trains all of them in one policy. To solve a task in k passes, spread them over the prefixes:
    `metrics.cost_curve` measures the cost in tokens, not passes.

    prefixes=1 with wording="" is PPO. The paper's text beyond its summary was not available. Ours are: imitation for
    the switch, where the paper reportedly prefers a successful direct proof over one with a chain of thought;
    text tags for its trainable prefixes, with all weights trained (`train` of a stage can freeze some); parts by the
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
