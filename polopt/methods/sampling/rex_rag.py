"""REX-RAG: failed rows are cut, told to try another way, and go on; ratios are to the mixture of both kinds of rows."""

from collections.abc import Sequence
from typing import Literal

import torch

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.helped import course, dead_end, pooled
from polopt.method import Finding, Paper, method
from polopt.methods.objectives.grpo import grpo
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
    told one of `texts`, and continued. At most `keep` probes for every rollout stay, those whose text the policy q
    finds likeliest. They join the groups of the rows they come from; the credit is GRPO's, over both. With a the share
    of probes, m the probe and p the policy,

        r_t = p_t / ((1 - a) q_t + a m_t)

    stands for GRPO's ratio. m_t is q_t, but for the text, whose tokens are as likely as they are frequent after the
    same tokens among `texts`, and before the cut, where it is q_t / err^(1/j): j decisions are shared by failures
    alone, the share err of the rollouts. In rows that no probe made m is 0, so that each of their ratios begins at
    1 / (1 - a): keep a small beside the clip.

    That ratio is not that of the row: the product over its tokens is far off. correct="row" is the balance heuristic,
    unbiased for whole rows, under which m is also told of rollouts that say such a text by themselves; "none" is
    GRPO's own ratio to whoever decided, the text's frequency included.

    The authors' program was read for this. It takes 1 for the first token of a text, where we take its frequency, and
    adapts `keep` to a running failure rate. Its texts are others; give `texts` in the words of your task. None may
    begin another. An answer that is all of a row is cut whole unless `kept` > 0: the paper's rows are agents' of many
    turns, of which all but the last stay.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    sampling = RetryRollouts(group=group, texts=list(texts), chance=chance, keep=keep, kept=kept)
    ratio = TokenRatio() if correct == "none" else MixtureRatio(unit=correct)
    return base.but({"sampling": sampling, "objective.ratio": ratio})


@rex_rag.claim(
    "Weighed by the mixture of whole rows a pooled batch says what the policy is worth.",
    baseline="the policy's ratio alone; the product of the tokens' mixtures",
)
def balanced() -> Finding:
    tree = TokenTree.full(3, 3, torch.rand(1, 27, generator=torch.Generator().manual_seed(0)))
    now = TabularPolicy(tree, spread=0.8, seed=1)
    batch, odds = pooled(tree, now, [1], share=0.3)
    said = Evaluation(logp=now.evaluate(batch).logp.detach())
    mask, worth = batch.mask, odds * batch.outcome
    plain = torch.where(mask, said.logp - batch.extras["policy_logp"], 0).sum(1)
    token = torch.where(mask, MixtureRatio(share=0.3)(batch, said), 0).sum(1)
    row = MixtureRatio(unit="row", share=0.3)(batch, said)[:, 0]
    truth = tree.value(now).item()
    found = {name: (worth * w.exp()).sum().item() for name, w in (("row", row), ("plain", plain), ("tokens", token))}
    return Finding(
        measured={"value": truth, **found},
        criterion="|row - value| < 1e-10; plain off by > 0.005; tokens off by > 0.1. Exact, over all answers",
        holds=abs(found["row"] - truth) < 1e-10
        and abs(found["plain"] - truth) > 0.005
        and abs(found["tokens"] - truth) > 0.1,
        note="The program's token weights multiply each decision of a rollout by 1 / (1 - a).",
    )


def success(algorithm: Algorithm, seed: int, most: int, goal: float = 2.0) -> tuple[int, float]:
    """Rollouts in batches of 8 groups, probes counted, and the success then: at the goal, or after `most`."""
    tree, policy = dead_end()
    source = TreeSource(tree, policy, rows=40, seed=seed, needs=algorithm.all_needs)
    spent, values = course(algorithm, source, rate=1.0, most=most, goal=goal)
    return spent, values[0]


@rex_rag.claim("Second tries lead out of a dead end, for the same number of rollouts.", baseline="GRPO")
def way_out() -> Finding:
    build = lambda correct: rex_rag(texts=["1"], correct=correct, kl=0)  # noqa: E731
    ours = [success(build("token"), seed, 10_000, goal=0.8) for seed in range(2)]
    found = {"tokens": min(value for _, value in ours), "rollouts": sum(spent for spent, _ in ours) / 2}
    others = {"GRPO": grpo(group=5, kl=0), "rows": build("row"), "no correction": build("none")}
    for name, other in others.items():
        found[name] = sum(success(other, seed, spent)[1] for seed, (spent, _) in enumerate(ours)) / 2
    return Finding(
        measured=found,
        criterion="tokens >= 0.8; after as many rollouts GRPO < 0.2; 2 seeds",
        holds=found["tokens"] >= 0.8 and found["GRPO"] < 0.2,
    )
