"""These programs measure what the paper on the chi-square of occupancies claims."""

from typing import cast

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.proxies import Regulariser, chi_square, correlated_proxies, loved_and_rare, optimised
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
from polopt.methods import chi2_occupancy as sentence
from polopt.methods.chi2_occupancy import AnswerRatio, Divergence, chi2_occupancy
from polopt.methods.ppo import ppo
from polopt.metrics import least_true_gain
from polopt.rewards import Discriminator, SumOfRewards

CORRELATION = 0.7  # of the proxy with the truth, where a policy learns


@claim(
    "What the proxy gains guarantees the truth, less what chi-square takes; no policy falls below.",
    kind="theory",
    baseline="300 random problems with policies at any distance",
)
def guarantee() -> Finding:
    problem = correlated_proxies(300, seed=1)
    g = torch.Generator().manual_seed(1)
    spread = 3 * torch.rand(300, 1, 1, generator=g).double()
    policy = (problem.base.log() + spread * torch.randn(problem.base.shape, generator=g)).softmax(-1)
    mu = problem.mdp.occupancy(policy)
    proxy, true = ((mu * x).sum((-1, -2)) for x in (problem.proxy, problem.true))
    chi2 = chi_square(mu, problem.occupancy)
    short = {}
    for name, tight in (("paper", False), ("tight", True)):
        least = torch.stack(
            [least_true_gain(x, c, float(r), tight) for x, c, r in zip(proxy, chi2, problem.correlation, strict=True)]
        )
        short[name] = (least - true).max().item()
    # The worst truth for each policy: correlated with the proxy as promised, against all else that the policy changed.
    w = torch.where(problem.occupancy > 0, mu / problem.occupancy, 1) - 1
    off = w - proxy[:, None, None] * problem.proxy
    off = off / (problem.occupancy * off.square()).sum((-1, -2), keepdim=True).sqrt()
    r = problem.correlation
    worst = r[:, None, None] * problem.proxy - (1 - r**2).sqrt()[:, None, None] * off
    reached = r * proxy - ((1 - r**2) * (chi2 - proxy**2)).sqrt()
    gap = ((mu * worst).sum((-1, -2)) - reached).abs().max().item()
    return Finding(
        measured={
            "shortfall, paper's bound": short["paper"],
            "shortfall, tight bound": short["tight"],
            "worst truth, off the tight bound": gap,
        },
        criterion="no shortfall above 1e-10; the worst truth is within 1e-8 of the tight bound, all chi2 > 0",
        holds=max(short.values()) <= 1e-10 and gap < 1e-8 and bool((chi2 > 0).all()),
    )


@effect(
    "With the best strength of a grid, sqrt-chi2 of occupancies gains more truth than a KL of actions.",
    kind="headline",
    method=lambda: "sqrt_chi2",
    controls={"KL of actions": lambda: "action_kl"},
    step_sizes=(0.1, 0.3, 1.0, 3.0),
    criteria=[More("true gain", by=0.0)],
    seeds=20,
    trials=1,
    cost="slow",
    note="Means of 40 problems, each at the best of 12 strengths. Optimised exactly, by Adam on occupancies: the "
    "penalty as a reward, and PPO, do not run here; see the claims below.",
)
def mitigates(kind: Regulariser, *, seed: int, step_size: float) -> dict[str, float]:
    problem, strengths = correlated_proxies(40, seed=seed), torch.logspace(-2, 1, 12, dtype=torch.double)
    mu = problem.mdp.occupancy(optimised(problem, kind, strengths, rate=step_size))
    return {"true gain": (mu * problem.true).sum((-1, -2)).amax(0).mean().item()}


@claim(
    "The discriminator finds log(mu / mu_ref) at every state and action.",
    kind="part",
    baseline="what it says untrained, 0",
)
def discriminates() -> Finding:
    problem, many = correlated_proxies(1, seed=2, states=4, actions=2), 8000
    g = torch.Generator().manual_seed(2)
    mu = problem.mdp.occupancy((problem.base.log() + 0.7 * torch.randn(problem.base.shape, generator=g)).softmax(-1))
    one, places = torch.eye(8, dtype=torch.double), ((torch.arange(many) + 0.5) / many).double()
    # Visits in exact proportion: what is drawn has sampling errors of its own.
    seen = [one[torch.searchsorted(p.flatten().cumsum(0), places).clamp(max=7)][None] for p in (mu, problem.occupancy)]
    batch = Experience(
        mask=torch.ones(1, many, dtype=torch.bool),
        extras={"features": seen[0], "base_features": seen[1], "base_mask": torch.ones(1, many, dtype=torch.bool)},
    )
    judge = Discriminator(features=8)
    for _ in range(4):
        judge(batch)
    everything = batch.extras | {"features": one[None]}
    estimate = judge.eval()(Experience(mask=torch.ones(1, 8, dtype=torch.bool), extras=everything))[0]
    truth = (mu / problem.occupancy).log().flatten()
    off, untrained = (estimate - truth).abs().max().item(), truth.abs().max().item()
    return Finding(
        measured={"largest error": off, "untrained": untrained},
        criterion="largest error < 0.05 after 4 batches of 8,000 visits of each in exact proportion; more untrained",
        holds=off < 0.05 < untrained,
        note="From drawn visits a pair that was seen n times is off by about sqrt(2 / n) more.",
    )


@effect(
    "With the coefficient of the theory, PPO on a proxy ends better in truth than PPO on the proxy alone.",
    kind="headline",
    method=lambda: chi2_occupancy(coefficient=(1 - CORRELATION**2) ** 0.5),
    controls={"ppo": lambda: ppo(kl=0)},
    step_sizes=(0.5, 2.0, 8.0, 32.0),
    seeds=20,
    trials=5,
    criteria=[More("true gain", by=0.0)],
    cost="slow",
    refuted=True,
    note="In standard deviations of the truth, over 20 answers, of which one is rare, bad, and loved by the proxy. PPO "
    "alone needs a step so small that it stops before it finds that answer; with one that suits chi-square, 2, it is "
    "hacked, and loses 1.2.",
)
def learns(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    base, true, proxy = loved_and_rare(seed, CORRELATION)
    tree = TokenTree.bandit(proxy.tolist())
    policy, reference = (TabularPolicy(tree, critic=True).set_probabilities(base) for _ in range(2))
    train(algorithm.but(), tree, policy, steps=60, rate=step_size, rows=256, seed=seed, reference=reference)
    probs = tree.log_probabilities(policy).detach().exp()[0]
    return {"true gain": float((probs - base) @ true), "proxy gain": float((probs - base) @ proxy)}


@claim(
    "As a reward, the penalty has the gradient of the divergence that it is named after.",
    kind="identity",
    baseline="the gradient of the KL divergence",
)
def slopes() -> Finding:
    counts = torch.tensor([40, 25, 20, 10, 5])
    logits = (counts.double() / 100).log().requires_grad_()
    base = torch.tensor([0.1, 0.1, 0.3, 0.2, 0.3], dtype=torch.double)
    rows = torch.arange(5).repeat_interleave(counts)  # a batch that holds each answer in exact proportion
    logp = logits.log_softmax(0)[rows]
    batch = Experience(
        mask=torch.ones(100, 1).bool(), rollout_logp=logp.detach()[:, None], ref_logp=base.log()[rows][:, None]
    )
    mu = logits.softmax(0)
    chi2 = ((mu - base).square() / base).sum()
    exact = {"kl": (mu * (mu / base).log()).sum(), "chi2": chi2 / 2, "sqrt_chi2": chi2.sqrt()}
    exact["tv"] = (mu - base).abs().sum()
    true = {name: torch.autograd.grad(0.3 * value, logits, retain_graph=True)[0] for name, value in exact.items()}
    off, apart = 0.0, float("inf")
    for name, gradient in true.items():
        algorithm = chi2_occupancy(coefficient=0.3, divergence=cast(Divergence, name))
        prices = cast(SumOfRewards, algorithm.but({"reward.terms.1.trim": 0.0}).reward).terms
        reward = prices[1](batch)
        found = torch.autograd.grad(-(reward * logp).mean(), logits, retain_graph=True)[0]
        off = max(off, ((found - gradient).norm() / gradient.norm()).item())
        if name != "kl":
            apart = min(apart, ((gradient - true["kl"]).norm() / gradient.norm()).item())
    return Finding(
        measured={"largest relative error": off, "of the KL divergence's gradient, least": apart},
        criterion="relative error < 1e-10 for kl, chi2 / 2, sqrt chi2 and L1; those of kl are > 0.1 off the others",
        holds=off < 1e-10 and apart > 0.1,
    )


@mutation("The penalty is divided by chi-square, not by its root.", kills=slopes)
def divided_by_the_square(replace: Replace) -> None:
    trimmed = sentence.trimmed_mean
    replace(sentence, "trimmed_mean", lambda x, share: trimmed(x, share).square())


@mutation("The log-ratio is that of the reference to the policy.", kills=slopes)
def other_ratio(replace: Replace) -> None:
    def forward(self: AnswerRatio, experience: Experience) -> Tensor:
        return torch.where(experience.mask, experience.ref_logp - experience.rollout_logp, 0).sum(1)

    replace(AnswerRatio, "forward", forward)
