"""These programs measure what the paper of NFT claims."""

import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupStd
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.masks import IsCorrect
from polopt.lab import TabularPolicy, TokenTree, expectation, flat_gradient, train
from polopt.lab.effects import Less, effect
from polopt.lab.problems import many_right
from polopt.methods.dr_grpo import dr_grpo
from polopt.methods.nft import NFTTerm, nft
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    Objective,
    SequenceSum,
    Surrogate,
    SurrogateTerm,
    Unclipped,
)
from polopt.sampling import Rollouts


@claim(
    "On policy it is Dr. GRPO or GRPO, as its omega says.", kind="identity", baseline="a policy away, where they part"
)
def like_grpo() -> Finding:
    tree, _ = many_right(right=1, arms=3)
    policy, old = (TabularPolicy(tree, spread=1.0, seed=seed) for seed in (1, 5))
    plain = dr_grpo(group=3)
    parents = {"dr-grpo": plain, "grpo": plain.but(**{"credit.scale": GroupStd(correction=0, eps=0.0)})}
    ours = {"dr-grpo": nft(group=3, refills=0), "grpo": nft(group=3, refills=0, omega="grpo")}
    gap = {}
    for name, behaviour in (("on", policy), ("off", old)):
        for omega in parents:
            a, b = (expectation(s[omega], tree, policy, behaviour=behaviour).mean for s in (ours, parents))
            gap[f"{omega}, {name} policy"] = ((a - b).norm() / b.norm()).item()
    return Finding(
        measured=gap,
        criterion="relative distances < 1e-10 on policy, > 0.05 off",
        holds=all((g < 1e-10) if "on policy" in n else (g > 0.05) for n, g in gap.items()),
    )


@claim(
    "It goes on where PPO's clip has stopped: softly, less the further a wrong answer is down.",
    kind="identity",
    baseline="PPO",
)
def soft() -> Finding:
    def push(trust: SurrogateTerm, ratio: float) -> float:
        """Returns how hard the wrong one of a group of two is pushed down, at this ratio."""
        logp = torch.full((2, 1), -4.0, dtype=torch.double, requires_grad=True)
        batch = Experience(
            mask=torch.ones(2, 1, dtype=torch.bool),
            rollout_logp=torch.tensor([[-4.0], [-4.0 - math.log(ratio)]], dtype=torch.double),
            advantage=torch.tensor([[1.0], [-1.0]], dtype=torch.double),
            outcome=torch.tensor([1.0, 0.0], dtype=torch.double),
            group=torch.zeros(2, dtype=torch.long),
        )
        loss = Surrogate(trust=trust, aggregate=SequenceSum(length=1))(batch, Evaluation(logp=logp)).loss
        return 2 * torch.autograd.grad(loss, logp)[0][1].item()

    ratios = (0.2, 0.5, 0.79, 1.5, 3.0)
    found = {r: push(NFTTerm(omega="none", floor=0.1), r) for r in ratios}
    error = max(abs(found[r] - 0.5 * r / (0.5 * max((1 - 0.5 * r) / 0.5, 0.1))) for r in ratios)
    clipped = max(push(Clip(), r) for r in ratios[:3])
    return Finding(
        measured={**{f"ratio {r}": w for r, w in found.items()}, "off the formula": error, "PPO below 0.8": clipped},
        criterion="p R / ((1 - p) max(x, floor)) to 1e-12, rising, > 0.1; PPO's clip 0 below 0.8",
        holds=error < 1e-12 and list(found.values()) == sorted(found.values()) and found[0.2] > 0.1 and clipped == 0,
    )


@claim(
    "Fitted to all that its sampler says, it is the sampler when the sampler is right.",
    kind="part",
    baseline="Dr. GRPO without a clip",
)
def fixed_point() -> Finding:
    tree = TokenTree.bandit([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    counts = torch.tensor([1, 2, 6, 3, 5, 3])
    batch = tree.leaves()[torch.arange(6).repeat_interleave(counts)]
    probs = counts / counts.sum()
    target = torch.where(tree.outcome[0] > 0, probs, 0).double() / probs[:3].sum()
    distance = {}
    for name, algorithm in (("NFT", nft()), ("free", dr_grpo().but(**{"objective.trust": Unclipped()}))):
        policy = TabularPolicy(tree).set_probabilities(probs.double())
        data = algorithm.compute_advantages(batch.replace(rollout_logp=policy.evaluate(batch).logp.detach()))
        for _ in range(400):
            gradient = flat_gradient(algorithm.objective(data, policy.evaluate(data)).loss, policy)
            with torch.no_grad():
                policy.logits.sub_(20.0 * gradient.view_as(policy.logits))
        p = tree.log_probabilities(policy).detach().exp()[0]
        distance[name] = (p - target).abs().sum().item() / 2
    return Finding(
        measured={"total variation": distance["NFT"], "Dr. GRPO without a clip": distance["free"]},
        criterion="< 0.01; without a clip > 0.1",
        holds=distance["NFT"] < 0.01 and distance["free"] > 0.1,
    )


@effect(
    "Learning from wrong answers too leaves fewer of them.",
    kind="headline",
    method=lambda: _sampled(nft().objective),
    controls={
        "right answers alone": lambda: _sampled(_right_alone(nft().objective)),
        "right answers alone, without omega": lambda: _sampled(_right_alone(nft(omega="none").objective)),
    },
    step_sizes=(4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
    criteria=[Less("wrong", times=0.7)],
    cost="slow",
    refuted=True,
    note="It is ahead of right answers with its own weights omega. Without omega these have the expected step of all "
    "answers, and long steps learn as much from them.",
)
def learns_from_wrong(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """The share of wrong answers after 30 batches, on 20 prompts whose one right arm of 32 starts at odds of 0.02 to
    0.2. Prompts are apart in the table."""
    prompts = 20
    tree = TokenTree.bandit([[1.0] + [0.0] * 31] * prompts)
    right = torch.linspace(0.02, 0.2, prompts, dtype=torch.double)[:, None]
    policy = TabularPolicy(tree).set_probabilities(torch.cat([right, (1 - right).expand(-1, 31) / 31], 1))
    train(algorithm, tree, policy, steps=30, rate=step_size * prompts, rows=prompts, seed=seed)
    return {"wrong": 1 - tree.value(policy).item()}


def _sampled(objective: Objective) -> Algorithm:
    return nft().but(sampling=Rollouts(group=16), objective=objective)


def _right_alone(objective: Objective) -> Objective:
    return BranchedObjective(routes=[Branch(objective=objective, rows=IsCorrect())])


@mutation("What is below the floor has no gradient.", kills=soft)
def plain_clamp(replace: Replace) -> None:
    def forward(
        self: NFTTerm, log_ratio: Tensor, experience: Experience, evaluation: Evaluation
    ) -> tuple[Tensor, Tensor]:
        right, rate = self._rates(experience, log_ratio.dtype)
        implied = ((1 - rate * log_ratio.exp()) / (1 - rate)).clamp(min=self.floor)
        return -torch.where(right, log_ratio, implied.log()), torch.zeros_like(log_ratio)

    replace(NFTTerm, "forward", forward)


@mutation("The weight omega is p in place of 1 - p.", kills=like_grpo)
def other_share(replace: Replace) -> None:
    forward = NFTTerm.forward

    def bent(self: NFTTerm, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        terms, clipped = forward(self.but(omega="none"), log_ratio, experience, evaluation)
        return terms * self._rates(experience, log_ratio.dtype)[1], clipped

    replace(NFTTerm, "forward", bent)
