"""These programs measure what the paper of REX-RAG claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.effects import More, effect
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
    off: dict[str, list[float]] = {}
    for seed in range(10):
        tree = TokenTree.full(3, 3, torch.rand(1, 27, generator=torch.Generator().manual_seed(seed)))
        now = TabularPolicy(tree, spread=0.8, seed=seed + 1)
        batch, probs = pooled(tree, now, [1], share=0.3)
        evaluation = Evaluation(logp=now.evaluate(batch).logp.detach())
        mask, worth = batch.mask, probs * batch.outcome
        weights = {
            "row": MixtureRatio(unit="row", share=0.3)(batch, evaluation)[:, 0],
            "plain": torch.where(mask, evaluation.logp - batch.extras["policy_logp"], 0).sum(1),
            "tokens": torch.where(mask, MixtureRatio(share=0.3)(batch, evaluation), 0).sum(1),
        }
        for name, weight in weights.items():
            off.setdefault(name, []).append(abs((worth * weight.exp()).sum().item() - tree.value(now).item()))
    found = {f"{name}, off by": max(x) if name == "row" else sum(x) / len(x) for name, x in off.items()}
    return Finding(
        measured=found,
        criterion="row, at most, < 1e-10; plain on average > 0.005, tokens > 0.1. Exact, over all answers of 10 trees",
        holds=found["row, off by"] < 1e-10 and found["plain, off by"] > 0.005 and found["tokens, off by"] > 0.1,
        note="The program's token weights multiply each decision of a rollout by 1 / (1 - a).",
    )


def success(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """Success after 2,520 rollouts in batches of 8 groups, probes counted."""
    tree, policy = dead_end()
    source = TreeSource(tree, policy, rows=40, seed=seed, needs=algorithm.required_fields)
    spent, values = course(algorithm, source, rate=step_size, most=2520)
    return {"success": values[0], "rollouts": float(min(spent, 2520))}


@effect(
    "Second tries lead out of a dead end, for the same number of rollouts.",
    kind="headline",
    method=lambda: rex_rag(texts=["1"], kl=0),
    controls={"grpo": lambda: grpo(group=5, kl=0)},
    step_sizes=(0.25, 1.0, 4.0, 16.0, 64.0),
    criteria=[More("success", by=0.6)],
    seeds=5,
    trials=2,
    budget="rollouts",
    cost="slow",
    refuted=True,
    note="The wrong branch has probability 0.98. From steps of 4 on GRPO learns from the few rollouts that leave it; a "
    "rarer way out is of no use to REX-RAG either: the ratio to the mixture leaves it next to no weight.",
)
def way_out(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return success(algorithm, seed, step_size)


@effect(
    "They do at a small step size, at which GRPO alone does not get out.",
    kind="part",
    method=lambda: rex_rag(texts=["1"], kl=0),
    controls={"grpo": lambda: grpo(group=5, kl=0)},
    step_sizes=(1.0,),
    criteria=[More("success", by=0.6)],
    seeds=10,
    budget="rollouts",
    cost="slow",
    refuted=True,
    note="It gets out on most seeds, and GRPO on none, but on others not within so many rollouts: 0.6, from 0.8 "
    "against 0.2, is more than ten seeds show.",
)
def small_steps(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return success(algorithm, seed, step_size)


@mutation("The mixture is the sum of both densities, without their shares.", kills=balanced)
def no_shares(replace: Replace) -> None:
    replace(sentence, "log_mixture", lambda logp, probe, share: torch.logaddexp(logp, probe))
