"""RoRecomp: batches of short right answers and long wrong ones; the other rows are replayed later, or dropped."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import LengthRecomposed, SelectByField
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="RoRecomp: Enhancing Reasoning Efficiency via Rollout Response Recomposition in Reinforcement Learning",
        authors="Li, Gang and Qin, Yulei and Tan, Xiaoyu and Yang, Dingkang and Shi, Yuchen and Xu, Zihan and Li, "
        "Xiang and Sun, Xing and Li, Ke",
        year=2025,
        arxiv="2509.25958",
    ),
    changes="GRPO on each group's shortest right and longest wrong answers; what is left comes back in batches of its "
    "own, more and more seldom.",
    room="sampling",
    tier="reading",
)
def rorecomp(
    *,
    group: int = 16,
    share: float = 0.5,
    compensate: float | tuple[float, int] = (1.0, 200),
    statistics: Literal["selected", "full"] = "selected",
    by: Literal["decisions", "turns"] = "decisions",
    clip: float = 0.2,
) -> Algorithm:
    """A priority batch holds, of each group, the ceil(share n) shortest of its n right rows and the ceil(share n)
    longest of its n wrong ones; the reward stays the verifier's, and

        A_i = (R_i - mean R) / (std R + eps) over the rows of the recomposed group,

    so that short and right against long and wrong is the contrast that is left. The other rows are buffered with
    their behaviour log-probabilities. After a priority batch the next one is, with probability `compensate`, a
    compensation batch of all buffered rows; nothing is sampled for it, and the buffer is empty again. (p, steps) lets
    that probability fall from p to 0 along half a cosine in so many batches.

    statistics="full" takes mean and std over all that was sampled for the prompt, in both kinds of batch. A group of
    which only right or only wrong rows are left has no gradient with "selected", but has one with "full". by="turns" is
    for agents whose length is the number of their calls.

    The paper's text and program were not at hand, only its summary: the shares, how often compensation comes (its
    decay is reported, not its end points), its being a batch of its own and the set behind the statistics are
    readings. No KL term, so that the recomposition is the one change to GRPO.
    """
    often = compensate
    if isinstance(often, tuple):
        often = Schedule(knots=[(0, often[0]), (often[1], 0.0)], shape="cosine")  # type: ignore[assignment]
    sampling = LengthRecomposed(group=group, share=share, compensate=often, statistics=statistics, by=by)  # type: ignore[arg-type]
    select = [SelectByField()] if statistics == "full" else []
    return grpo(group=group, clip=clip, kl=0).but(sampling=sampling, select=select)
