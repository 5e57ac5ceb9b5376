"""These programs measure what the paper of RTO claims."""

from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned
from polopt.methods.ppo import ppo
from polopt.methods.rto import rto
from polopt.rewards import KLPenalty, PolicyLogRatio

STRENGTH = 0.1  # of the DPO policy's KL term


def sentences(seed: int, length: int = 4, noise: float = 0.25) -> tuple[TokenTree, TabularPolicy, TabularPolicy]:
    """Returns answers of tokens out of four, of which one at each position is right and all together earn 1; the
    uniform policy; and a DPO policy, the optimum of a reward for each token that is right but for noise."""
    g = torch.Generator().manual_seed(seed)
    key = torch.randint(4, (length,), generator=g).tolist()
    tree = TokenTree.full(4, length, lambda _, answer: float(list(answer) == key))
    judge = TabularPolicy(tree, tied=tree.positions)
    right = torch.nn.functional.one_hot(torch.tensor(key), 4).double()
    guess = (right + noise * torch.randn(length, 4, generator=g, dtype=torch.double)) / length
    with torch.no_grad():
        judge.logits.copy_(guess / STRENGTH)
    return tree, TabularPolicy(tree, critic=True), judge


@effect(
    "It learns sooner than from the answer's reward alone.",
    kind="headline",
    method=lambda: rto(group=4),
    controls={"ppo": lambda: ppo(group=4, kl=0.01)},
    step_sizes=(1.0, 4.0, 16.0),
    criteria=[More("mean success", by=0.05)],
    seeds=30,
    trials=6,
    cost="slow",
    note="Mean over 60 batches of 8 answers. The DPO policy has learned the right rewards of the tokens but for noise "
    "of a quarter of their size. With twice that noise it pulls to wrong answers on some seeds, and never comes back.",
)
def sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, judge = sentences(seed)
    ways: dict[str, Any] = {"reference": TabularPolicy(tree), "policies": {"dpo": judge}}
    return learned(algorithm, (tree, policy), steps=60, step_size=step_size, seed=seed, rows=2, **ways)


def earned(algorithm: Algorithm, dense: float, kl: float) -> float:
    """Returns the spread of the answers' total rewards under the policy ref (dpo / ref)^(dense / kl) exp(R / kl) / Z,
    relative to that of their outcomes."""
    tree, base, judge = sentences(0)
    laws = [tree.log_probabilities(law).detach()[0] for law in (base, judge)]
    best = (laws[0] + dense / kl * (laws[1] - laws[0]) + tree.outcome[0] / kl).log_softmax(0)
    leaves = tree.leaves()
    share = torch.where(leaves.mask, best[:, None] / leaves.lengths[:, None], 0)  # only the sum over an answer counts
    batch = leaves.replace(
        rollout_logp=share,
        ref_logp=base.evaluate(leaves).logp.detach(),
        extras={"dpo_logp": judge.evaluate(leaves).logp.detach()},
    )
    total = algorithm.reward(batch).sum(1)
    return ((total.max() - total.min()) / (tree.outcome.max() - tree.outcome.min())).item()


@claim(
    "Unclipped, its best policy is the reference, tilted by the DPO policy's reward and by the answer's.",
    kind="identity",
    baseline="the published clip, which gives that up",
)
def optimum() -> Finding:
    dense, kl = 0.05, 0.1
    free = earned(rto(dense=dense, kl=kl, limit=float("inf")), dense, kl)
    clipped = earned(rto(dense=dense, kl=kl), dense, kl)
    return Finding(
        measured={"spread": free, "clipped": clipped},
        criterion="all answers earn the same under it, to 1e-12; clipped at 0.05 they differ by > 0.01",
        holds=free < 1e-12 and clipped > 0.01,
    )


@mutation("The dense reward has the wrong sign.", kills=optimum)
def wrong_sign(replace: Replace) -> None:
    forward = PolicyLogRatio.forward
    replace(PolicyLogRatio, "forward", lambda self, experience: -forward(self, experience))


@mutation("The KL term is measured from the DPO policy.", kills=optimum)
def wrong_reference(replace: Replace) -> None:
    forward = KLPenalty.forward

    def moved(self: KLPenalty, experience: Experience) -> torch.Tensor:
        return forward(self, experience.replace(ref_logp=experience.extras["dpo_logp"]))

    replace(KLPenalty, "forward", moved)
