"""These programs measure what the paper of SALSA claims."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned
from polopt.lab.soft_values import soft_optimum
from polopt.methods.ppo import ppo
from polopt.methods.salsa import salsa
from polopt.metrics import t_interval
from polopt.rewards import KLPenalty

KL = 0.5


def tuned(seed: int, prompts: int = 100, arms: int = 10) -> tuple[TokenTree, TabularPolicy, TabularPolicy]:
    """Returns prompts with answers of random worth, and two policies A and B whose logits are the worth of each answer
    and noise of the same size, each with its own: what two fine-tunings share is right, and their difference is not."""
    g = torch.Generator().manual_seed(seed)
    worth, *noise = torch.randn(3, prompts, arms, generator=g, dtype=torch.double)
    tree = TokenTree.bandit(worth.tolist())
    policies = []
    for own in noise:
        policy = TabularPolicy(tree, critic=True)
        with torch.no_grad():
            policy.logits.copy_((worth + own)[tree_rows(tree)])
        policies.append(policy)
    return tree, policies[0], policies[1]


def tree_rows(tree: TokenTree) -> Tensor:
    """Returns the prompt of each node of a bandit, [nodes]."""
    leaves = tree.leaves()
    return torch.zeros(len(tree.choices), dtype=torch.long).index_put((tree.nodes[leaves.mask],), leaves.group)


def soup_of(a: TabularPolicy, b: TabularPolicy, alpha: float = 0.5) -> TabularPolicy:
    """Returns the policy of the mean weights."""
    soup = TabularPolicy(a.tree)
    with torch.no_grad():
        soup.logits.copy_(alpha * a.logits + (1 - alpha) * b.logits)
    return soup


@effect(
    "At the same weight of the KL penalty it learns answers of more worth than PPO from the same policy.",
    kind="headline",
    method=lambda: salsa(kl=KL, group=8),
    controls={"ppo": lambda: ppo(kl=KL, group=8)},
    step_sizes=(100.0, 300.0, 1000.0),
    criteria=[More("success", by=0.0)],
    seeds=10,
    cost="slow",
    note="Worth of the policy after 60 batches of 800 answers. It also goes further from the policy that both begin "
    "with; at an equal distance PPO is better, see `matched`.",
)
def worth(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, a, b = tuned(seed)
    policy = TabularPolicy(tree, critic=True)
    with torch.no_grad():
        policy.logits.copy_(a.logits)
    soup = {"soup": soup_of(a, b)} if "extras.soup_logp" in algorithm.required_fields else {}
    return learned(algorithm, (tree, policy), steps=60, step_size=step_size, seed=seed, reference=a, policies=soup)


@claim(
    "At an equal distance to the policy that both begin with, the optimum of PPO's objective has more worth.",
    kind="limit",
    baseline="SALSA's optimum, ahead where both have the same weight of the KL penalty",
)
def matched() -> Finding:
    ahead, behind, further = list[float](), list[float](), list[float]()
    for seed in range(20):
        tree, a, b = tuned(seed)
        ours, _ = soft_optimum(tree, soup_of(a, b), KL)
        plain, _ = soft_optimum(tree, a, KL)
        distance = tree.kl(ours, a).item()
        least, most = 1e-3, KL * 10
        for _ in range(50):  # the distance falls with the weight
            middle = math.sqrt(least * most)
            near = tree.kl(soft_optimum(tree, a, middle)[0], a).item() < distance
            least, most = (least, middle) if near else (middle, most)
        equal, _ = soft_optimum(tree, a, most)
        values = [tree.value(policy).item() for policy in (ours, plain, equal)]
        ahead.append(values[0] - values[1])
        behind.append(values[2] - values[0])
        further.append(distance / tree.kl(plain, a).item())
    gain = t_interval(ahead)
    return Finding(
        measured={
            "ahead at the same weight": gain.estimate,
            "distance, times PPO's": float(np.mean(further)),
            "behind at the same distance": float(np.mean(behind)),
            "least of that": min(behind),
        },
        criterion="at the same weight ahead, 95 % interval of 20 problems; at the same distance behind on all",
        holds=gain.low > 0 and min(behind) > 0,
    )


def spread(algorithm: Algorithm, alpha: float) -> float:
    """Returns the largest difference, over a prompt's answers, of their total rewards under the policy A^alpha B^(1 -
    alpha) exp(outcome / kl) / Z, relative to that of the outcomes."""
    tree, a, b = tuned(0)
    laws = [tree.log_probabilities(policy).detach() for policy in (a, b)]
    best = (alpha * laws[0] + (1 - alpha) * laws[1] + tree.outcome / KL).log_softmax(1)
    leaves = tree.leaves()
    batch = leaves.replace(
        rollout_logp=torch.where(leaves.mask, best.flatten()[:, None], 0),
        ref_logp=a.evaluate(leaves).logp.detach(),
        extras={"soup_logp": soup_of(a, b, alpha).evaluate(leaves).logp.detach()},
    )
    total = algorithm.reward(batch).sum(1).view(tree.prompts, -1)
    return float((total.amax(1) - total.amin(1)).max() / (tree.outcome.amax(1) - tree.outcome.amin(1)).max())


@claim(
    "Over single decisions the best policy is A^alpha B^(1 - alpha) exp(outcome / kl), normalised.",
    kind="identity",
    baseline="PPO's reward, of the reference A, which is that of alpha 1",
)
def geometric_mean() -> Finding:
    ours = max(spread(salsa(kl=KL), alpha) for alpha in (0.0, 0.3, 0.5, 1.0))
    plain, at_one = spread(ppo(kl=KL), 0.5), spread(ppo(kl=KL), 1.0)
    return Finding(
        measured={"spread": ours, "of PPO": plain, "of PPO at alpha 1": at_one},
        criterion="all answers earn the same under it, to 1e-12, for alpha 0, 0.3, 0.5 and 1; of PPO > 0.01 at 0.5",
        holds=max(ours, at_one) < 1e-12 and plain > 0.01,
    )


@mutation("The distance is measured from the policy that it starts with.", kills=geometric_mean)
def wrong_reference(replace: Replace) -> None:
    forward = KLPenalty.forward

    def moved(self: KLPenalty, experience: Experience) -> Tensor:
        return forward(self.but(anchor="reference"), experience)

    replace(KLPenalty, "forward", moved)


@mutation("The weight of the distance is twice its setting.", kills=geometric_mean)
def twice(replace: Replace) -> None:
    forward = KLPenalty.forward
    replace(KLPenalty, "forward", lambda self, experience: 2 * forward(self, experience))
