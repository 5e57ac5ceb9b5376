"""REX-RAG: failed rows are retried with an inserted text; ratios are to the mixture of both kinds of rows."""

from collections.abc import Sequence
from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import MixtureRatio, TokenRatio
from polopt.sampling import RetryRollouts

TEXTS = (
    "That may be wrong. Let me try another way.",
    "I have not looked everywhere yet. What else is there?",
    "Something is missing here. Let me go one step back.",
)


@method(
    paper=Paper(
        title="REX-RAG: Reasoning Exploration with Policy Correction in Retrieval-Augmented Generation",
        authors="Jiang, Wentao and others",
        year=2025,
        arxiv="2508.08149",
    ),
    changes="GRPO beside whose failures stand second tries, begun with a text that is put in; its ratio is to the "
    "mixture of both.",
    room="sampling",
    tier="faithful",
)
def rex_rag(
    *,
    group: int = 5,
    texts: Sequence[str] = TEXTS,
    chance: float = 0.2,
    keep: float = 0.08,
    kept: float = 0.0,
    correct: Literal["token", "row", "none"] = "token",
    clip: float = 0.2,
    kl: float = 0.001,
) -> Algorithm:
    """A failed rollout is probed with probability `chance`: cut in its last answer, of which the share `kept` stays,
    extended by one of `texts`, and continued. At most `keep` probes for every rollout stay, those whose text has the
    highest probability under the policy q. They join the groups of the rows they come from; the credit is GRPO's, over
    both. With a the share of probes, m the probe and p the policy,

        r_t = p_t / ((1 - a) q_t + a m_t)

    stands for GRPO's ratio. m_t is q_t, but for the text, whose tokens are as likely as they are frequent after the
    same tokens among `texts`, and before the cut, where it is q_t / err^(1/j): j decisions are shared by failures
    alone, the share err of the rollouts. In rows without a probe m is 0, so that each of their ratios begins at
    1 / (1 - a): keep a small beside the clip.

    That ratio is not that of the row: the product over its tokens is far off. correct="row" is the balance heuristic,
    unbiased for whole rows, for which m is also computed on rollouts that contain such a text by themselves; "none"
    is GRPO's own ratio to the behaviour policy, the text's frequency included.

    The authors' program was read for this. It takes 1 for the first token of a text, where we take its frequency, and
    adapts `keep` to a running failure rate. Its texts are others; give `texts` in the words of your task. None may
    begin another. An answer that is all of a row is cut whole unless `kept` > 0: the paper's rows are agents' of many
    turns, of which all but the last stay.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    sampling = RetryRollouts(group=group, texts=list(texts), chance=chance, keep=keep, kept=kept)
    ratio = TokenRatio() if correct == "none" else MixtureRatio(unit=correct)
    return base.but({"sampling": sampling, "objective.ratio": ratio})
