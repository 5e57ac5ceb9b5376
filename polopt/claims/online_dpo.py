"""These programs measure what the paper of online DPO claims."""

from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, uneven
from polopt.methods.dpo import dpo
from polopt.methods.online_dpo import online_dpo
from polopt.rewards import WinRate


@effect(
    "From as many answers it solves more than from pairs of the first policy.",
    kind="headline",
    method=lambda: (online_dpo(), "own pairs"),
    controls={"pairs of the first policy": lambda: (online_dpo(), "first pairs")},
    step_sizes=(10.0, 30.0, 100.0, 300.0, 1000.0),
    criteria=[More("success", by=0.05)],
    cost="slow",
    refuted=True,
    note="16 tasks whose success rates go from 0.005 to 0.9 at first, 200 batches of 16 pairs. Up to a step of 100 it "
    "is 0.13 ahead (0.05 to 0.21); pairs of the first policy, whose labels are right, bear steps of 1000 and catch up.",
)
def online_wins(side: tuple[Algorithm, str], *, seed: int, step_size: float) -> dict[str, float]:
    algorithm, source = side
    problem = uneven(seed)
    ways: dict[str, Any] = {"reference": uneven(seed)[1]}
    if source == "first pairs":
        ways["behaviour"] = uneven(seed)[1]
    return learned(algorithm, problem, steps=200, step_size=step_size, seed=seed, **ways)


def _setting() -> tuple[TokenTree, TabularPolicy, TabularPolicy, Experience]:
    """Three answers to each of 12 prompts, a policy away from its reference, and two of its answers to each prompt."""
    tree = TokenTree.full(3, 1, lambda prompt, answer: float((prompt + answer[0]) % 3), prompts=12)
    policy, reference = TabularPolicy(tree, spread=1.0, seed=1), TabularPolicy(tree, spread=1.0, seed=2)
    source = TreeSource(tree, policy, rows=24, seed=3, reference=reference, needs=frozenset({"ref_logp"}))
    return tree, policy, reference, online_dpo().sampling(source)


@claim(
    "Loss and gradient are DPO's on the same answers, given as pairs.",
    kind="identity",
    baseline="the formula, written out",
)
def is_dpo_on_its_own_answers() -> Finding:
    tree, policy, reference, batch = _setting()
    online = online_dpo(beta=0.5)
    found = online.objective(online.compute_advantages(batch), policy.evaluate(batch)).loss
    given = dpo(beta=0.5).objective(batch, policy.evaluate(batch)).loss
    ratio = tree.log_probabilities(policy) - tree.log_probabilities(reference).detach()
    terms = list[Tensor]()
    for prompt in range(12):
        rows = (batch.extras["index"] == prompt).nonzero().flatten().tolist()
        (one, r), (other, s) = ((int(batch.extras["leaf"][i]) % 3, float(batch.outcome[i])) for i in rows)
        if r != s:
            sign = 1 if r > s else -1
            terms.append(-torch.nn.functional.logsigmoid(0.5 * sign * (ratio[prompt, one] - ratio[prompt, other])))
    expected = torch.stack(terms).mean()
    slopes = [torch.autograd.grad(loss, policy.logits, retain_graph=True)[0] for loss in (found, given, expected)]
    apart = max((slope - slopes[2]).abs().max().item() for slope in slopes[:2])
    return Finding(
        measured={"pairs": len(terms), "loss": abs(found.item() - expected.item()), "gradient": apart},
        criterion="differences < 1e-12, of at least two pairs",
        holds=max(apart, abs(found.item() - expected.item())) < 1e-12 and len(terms) >= 2,
    )


@mutation("The answer that loses is the preferred one.", kills=is_dpo_on_its_own_answers)
def reversed_order(replace: Replace) -> None:
    forward = WinRate.forward
    replace(WinRate, "forward", lambda self, experience: -forward(self, experience))
