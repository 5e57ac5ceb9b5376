"""These programs measure what the paper of REX-RAG claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.helped import course, dead_end, pooled
from polopt.methods import rex_rag as sentence
from polopt.methods.grpo import grpo
from polopt.methods.rex_rag import MixtureRatio, rex_rag


@claim(
    "Weighed by the mixture of whole rows a pooled batch says what the policy is worth.",
    kind="identity",
    baseline="the policy's ratio alone; the product of the tokens' mixtures",
)
def balanced() -> Finding:
    tree = TokenTree.full(3, 3, torch.rand(1, 27, generator=torch.Generator().manual_seed(0)))
    now = TabularPolicy(tree, spread=0.8, seed=1)
    batch, probs = pooled(tree, now, [1], share=0.3)
    evaluation = Evaluation(logp=now.evaluate(batch).logp.detach())
    mask, worth = batch.mask, probs * batch.outcome
    plain = torch.where(mask, evaluation.logp - batch.extras["policy_logp"], 0).sum(1)
    token = torch.where(mask, MixtureRatio(share=0.3)(batch, evaluation), 0).sum(1)
    row = MixtureRatio(unit="row", share=0.3)(batch, evaluation)[:, 0]
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
    source = TreeSource(tree, policy, rows=40, seed=seed, needs=algorithm.required_fields)
    spent, values = course(algorithm, source, rate=1.0, most=most, goal=goal)
    return spent, values[0]


@claim("Second tries lead out of a dead end, for the same number of rollouts.", kind="headline", baseline="GRPO")
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


@mutation("The mixture is the sum of both densities, without their shares.", kills=balanced)
def no_shares(replace: Replace) -> None:
    replace(sentence, "log_mixture", lambda logp, probe, share: torch.logaddexp(logp, probe))
