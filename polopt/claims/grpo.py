"""These programs measure what the paper of GRPO claims."""

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupStd
from polopt.experience import Experience
from polopt.lab.claims import norms_by_success
from polopt.lab.effects import More, effect
from polopt.lab.kl import kl_table, three_actions
from polopt.lab.progress import learned, uneven
from polopt.methods.grpo import grpo
from polopt.methods.ppo import ppo
from polopt.methods.raft import raft


@claim(
    "With rewards 0 and 1 a prompt of success rate p pulls as sqrt(p (1 - p)): hard and easy prompts count more.",
    kind="part",
    baseline="no std: p (1 - p)",
)
def difficulty() -> Finding:
    ours = norms_by_success(grpo(group=512, kl=0), power=0.5)
    plain = norms_by_success(grpo(group=512, kl=0).but(**{"credit.scale": None}), power=1.0)
    return Finding(
        measured={"largest relative error": ours, "without std, against p (1 - p)": plain},
        criterion="both < 0.02",
        holds=ours < 0.02 and plain < 0.02,
    )


@claim(
    "On policy, k3 as a loss pulls along KL(reference || policy), not the other way.", kind="theory", baseline="k1, k2"
)
def kl_direction() -> Finding:
    rows = {(r.estimator, r.ratio, r.on_policy): r for r in kl_table(*three_actions())}
    k1, k2, k3 = (rows[k, False, True] for k in ("k1", "k2", "k3"))
    off = rows["k3", False, False]
    measured = {"k3 to KL(ref || policy)": k3.to_forward, "k3 to KL(policy || ref)": k3.to_reverse}
    measured |= {"k2 to KL(policy || ref)": k2.to_reverse, "k1 to 0": k1.to_zero, "k3 off policy": off.to_forward}
    return Finding(
        measured=measured,
        criterion="k3 to KL(ref || policy), k2 to KL(policy || ref), k1 to 0 < 1e-10; the others > 0.1",
        holds=max(k3.to_forward, k2.to_reverse, k1.to_zero) < 1e-10 and min(k3.to_reverse, off.to_forward) > 0.1,
    )


@claim(
    "The advantages of a group have mean 0 and variance 1, as n - 1 counts it; those of a unanimous group are 0.",
    kind="identity",
    baseline="division by n",
)
def z_score() -> Finding:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.3, 0.9, 0.1, 2.0], [1.0, 1.0, 1.0, 1.0]], dtype=torch.double)
    batch = Experience(
        mask=torch.ones(12, 2, dtype=torch.bool),
        outcome=rewards.flatten(),
        reward=rewards.flatten(),
        group=torch.arange(12) // 4,
    )
    advantage = grpo(group=4).with_advantages(batch).advantage.view(3, 4, 2)
    off = {
        "largest |mean|": advantage.mean(1).abs().max().item(),
        "largest |variance - 1|": (advantage[:2].var(1) - 1).abs().max().item(),
        "of division by n": (advantage[:2].var(1, correction=0) - 1).abs().min().item(),
        "largest |A|, unanimous": advantage[2].abs().max().item(),
    }
    return Finding(
        measured=off,
        criterion="mean < 1e-12, variance - 1 < 1e-4 (eps is 1e-6), unanimous 0; by n variance - 1 > 0.2",
        holds=off["largest |mean|"] < 1e-12
        and off["largest |variance - 1|"] < 1e-4
        and off["of division by n"] > 0.2
        and off["largest |A|, unanimous"] == 0,
    )


def _learned(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """On tasks of very different difficulty that share parameters. A critic has a value for each node of the tree."""
    tree, policy = uneven(seed)
    policy.values = torch.nn.Parameter(torch.zeros(len(tree.choices), dtype=torch.double))
    return learned(algorithm, (tree, policy), steps=40, step_size=step_size, seed=seed)


@effect(
    "Without a critic it learns more from as many answers than PPO with one.",
    kind="headline",
    method=lambda: grpo(group=8, kl=0.0),
    controls={"ppo": lambda: ppo(group=8, kl=0.0)},
    step_sizes=(32.0, 64.0, 128.0, 256.0, 512.0),
    criteria=[More("mean success", by=0.02)],
    budget="answers",
    cost="slow",
    refuted=True,
    note="As much is learned, for less memory, which is the paper's claim; a lead is within the noise of ten seeds.",
)
def no_critic(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@effect(
    "Wrong answers, and the size of a rare right one, make it learn more than right answers alone.",
    kind="part",
    method=lambda: grpo(group=8, kl=0.0),
    controls={"online rejection sampling": lambda: raft(group=8, keep=None, threshold=1.0)},
    step_sizes=(32.0, 64.0, 128.0, 256.0, 512.0),
    criteria=[More("mean success", by=0.02)],
    budget="answers",
    cost="slow",
    refuted=True,
    note="The paper's own comparison, in which it is ahead. Here neither is, each at its own best step size.",
)
def beyond_rejection(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@mutation("The variance of a group is divided by n.", kills=z_score)
def by_n(replace: Replace) -> None:
    def forward(self: GroupStd, experience: Experience, returns: Tensor) -> Tensor:
        return ops.group_std(returns, self.within(experience), correction=0) + self.eps

    replace(GroupStd, "forward", forward)


@mutation("Returns are not divided by the group's standard deviation.", kills=difficulty)
def no_scale(replace: Replace) -> None:
    replace(GroupStd, "forward", lambda self, experience, returns: torch.ones_like(returns))
