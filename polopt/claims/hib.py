"""These programs measure what the paper of HIB claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.effects import Less, More, effect
from polopt.lab.stepping import policy_for, returns_of, source_of, trained
from polopt.methods.hib import hib
from polopt.methods.ppo import control_ppo
from polopt.networks import HistoryActor
from polopt.objectives import PrivilegedDistance
from polopt.policies.network import NetworkPolicy
from polopt.sampling import policy_input_of
from polopt.step_source import StepSource
from polopt.worlds.control import HiddenDynamics

BATCHES, COPIES, GAMMA = 100, 64, 0.97
Side = Callable[[int, float], tuple[NetworkPolicy, Algorithm]]


def policy_of(algorithm: Algorithm, seed: int) -> NetworkPolicy:
    """Returns a policy for the world, with what the algorithm gives it beside the observation."""
    given = policy_input_of(algorithm.sampling)
    return policy_for(HiddenDynamics(), seed=seed, trunk=algorithm.trunk, policy_input=given)


def learned(algorithm: Algorithm) -> Callable[[], Side]:
    def side(seed: int, lr: float) -> tuple[NetworkPolicy, Algorithm]:
        policy = policy_of(algorithm, seed)
        return trained(HiddenDynamics(COPIES), algorithm, policy, steps=BATCHES, lr=lr, seed=seed), algorithm

    return lambda: side


def price_of(policy: NetworkPolicy, algorithm: Algorithm, seed: int) -> float:
    """Returns the mean price, minus the return, of 1000 episodes of the policy's most likely actions."""
    given = policy_input_of(algorithm.sampling)
    return -float(returns_of(HiddenDynamics(1000), policy, seed=seed, policy_input=given).mean())


@torch.no_grad()
def kept_by(policy: NetworkPolicy, algorithm: Algorithm, seed: int) -> dict[str, float]:
    """Returns what a linear map of the latent vector's mean explains, R^2, of the wind and of what means nothing, on
    half of 1000 episodes after it was fitted to the others."""
    world, given = HiddenDynamics(1000), policy_input_of(algorithm.sampling)
    batch = source_of(world, policy, seed, given, training=False).fragments(world.horizon)
    observation = batch.extras["observation"][:, :-1]
    assert isinstance(policy.actor, HistoryActor)
    mean = policy.actor.encoded(policy.state_of(observation, batch.extras)).mean[:, 10:].double()
    truth = torch.cat([batch.extras["privileged"][..., 1:], observation[..., 2:]], -1)[:, 10:].double()
    (read, fresh), (known, unknown) = mean.chunk(2), truth.chunk(2)
    flat = [torch.nn.functional.pad(x.flatten(0, 1), (0, 1), value=1.0) for x in (read, fresh)]
    fit = torch.linalg.lstsq(flat[0], known.flatten(0, 1)).solution
    left = (flat[1] @ fit - unknown.flatten(0, 1)).square().mean(0)
    explained = 1 - left / unknown.flatten(0, 1).var(0, correction=0)
    return {"R2 of the wind": float(explained[0]), "R2 of what means nothing": float(explained[1])}


@effect(
    "With what the simulator tells, a policy by history pays less than one that has learned from rewards alone, and "
    "less than one that acts by the observation, in dynamics that it was not told of.",
    kind="headline",
    method=learned(hib(gamma=GAMMA)),
    controls={
        "PPO by a history": learned(hib(gamma=GAMMA, privileged=0.0, bottleneck=0.0)),
        "PPO in random dynamics": learned(control_ppo(gamma=GAMMA, lam=0.95, clip=0.2, entropy=0.0, steps=32)),
    },
    criteria=[Less("price", times=1.0)],
    step_sizes=(1e-3, 3e-3),
    trials=3,
    seeds=10,
    budget="steps",
    cost="slow",
    note="A mass between walls with a delayed motor, whose gain and wind are drawn for each episode; 100 batches of "
    "2,048 steps. Critics of all three read what the simulator tells, so that only the policies differ; 1000 episodes "
    "of most likely actions. With step sizes of 0.0003 to 0.003 chosen by two runs each it paid 0.82 (0.67 to 1.02) of "
    "PPO by a history on ten seeds, and 0.46 (0.40 to 0.52) of the other, where 0.9 was asked for: the larger step "
    "size was taken, at which some runs are far worse than others. 0.0003 was best for none.",
)
def pays_less(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    policy, algorithm = side(seed, step_size)
    return {"price": price_of(policy, algorithm, 10_000 + seed), "steps": float(BATCHES * COPIES * 32)}


@effect(
    "A larger bottleneck keeps less of what means nothing, and the wind.",
    kind="part",
    method=learned(hib(gamma=GAMMA, bottleneck=0.1)),
    controls={"no bottleneck": learned(hib(gamma=GAMMA, bottleneck=0.0))},
    criteria=[Less("R2 of what means nothing", by=-0.2), More("R2 of the wind", by=-0.15)],
    seeds=5,
    budget="steps",
    cost="slow",
    note="R^2 of linear maps of the latent vector's mean, at a step size of 0.001. On the seed of the first look the "
    "nuisance was explained to 0.66 without a bottleneck, 0.5 with 0.001, 0.2 with 0.1, and no better with 0.3, where "
    "the wind suffers, too. None keeps the gain: the value, which trains the features, depends little on it.",
)
def keeps_what_counts(side: Side, *, seed: int, step_size: float | None = None) -> dict[str, float]:
    policy, algorithm = side(seed, step_size or 1e-3)
    return {**kept_by(policy, algorithm, 10_000 + seed), "steps": float(BATCHES * COPIES * 32)}


def fragments_of(algorithm: Algorithm, seed: int) -> tuple[NetworkPolicy, StepSource]:
    policy = policy_of(algorithm, seed)
    draw = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=draw)
    return policy, source_of(HiddenDynamics(8), policy, seed, policy_input_of(algorithm.sampling))


@claim(
    "The latent vector of a batch is the one that was acted by: ratios are 1 before the first step, and the two terms "
    "are their formulas.",
    kind="identity",
    baseline="the actor's layers, one by one, in float64",
)
def acts_by_what_it_learns() -> Finding:
    errors = list[float]()
    for seed in range(3):
        made = hib(length=3, latent=2, features=4, encoder=(5,), hidden=(6,), steps=7)
        policy, source = fragments_of(made, seed)
        batch = made.sampling(source)
        evaluation = policy.evaluate(batch, made.objective.required_outputs)
        errors.append(float((evaluation.logp.detach() - batch.rollout_logp).abs().max()))
        layers = {name: value.detach().double() for name, value in policy.named_parameters()}

        def perceptron(name: str, read: Tensor, of: dict[str, Tensor] = layers) -> Tensor:
            hidden = (read @ of[f"{name}.0.weight"].T + of[f"{name}.0.bias"]).tanh()
            return hidden @ of[f"{name}.2.weight"].T + of[f"{name}.2.bias"]

        history, told = batch.extras["history"].double(), batch.extras["privileged"].double()
        window, noise = history[..., :-2], history[..., -2:]
        mean, log_std = perceptron("actor.encoder", window).chunk(2, -1)
        std = log_std.clamp(-10, 2).exp()
        y, e = perceptron("actor.predictor", mean + std * noise), perceptron("critic.encoder", told)
        distance = 2 - 2 * torch.nn.functional.cosine_similarity(y, e, dim=-1)
        law, prior = torch.distributions.Normal(mean, std), torch.distributions.Normal(0.0, 1.0)
        divergence = torch.distributions.kl_divergence(law, prior).sum(-1)
        objective: Any = made.objective
        for term, expected in zip(objective.regularise[-2:], (distance, divergence), strict=True):
            errors.append(float((term(batch, evaluation).detach() - expected).abs().max()))
    return Finding(
        measured={"largest error": max(errors)},
        criterion="3 policies with random weights, fragments of 8 copies: the largest error < 1e-4",
        holds=max(errors) < 1e-4,
    )


@claim(
    "The distance trains the policy and its encoder, and neither the features of the privileged state nor the critic.",
    kind="identity",
    baseline="the gradient of every parameter",
)
def trains_the_encoder() -> Finding:
    made = hib(length=3, latent=2, features=4, encoder=(5,), hidden=(6,), steps=7)
    policy, source = fragments_of(made, 0)
    batch, term = made.sampling(source), PrivilegedDistance()
    term(batch, policy.evaluate(batch, term.policy_outputs)).mean().backward()
    moved = {n.split(".")[1] for n, p in policy.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    return Finding(
        measured={"networks with a gradient": len(moved)},
        criterion="the encoder of the history and the predictor alone have a gradient",
        holds=moved == {"encoder", "predictor"} and all(p.grad is None for p in policy.critic.parameters()),
    )


def unsquared(self: PrivilegedDistance, experience: Experience, evaluation: Evaluation) -> Tensor:
    predicted, told = (evaluation.extras[f"{name}_features"] for name in ("predicted", "privileged"))
    return (predicted - told).square().sum(-1)


@mutation("features are compared with their lengths", kills=acts_by_what_it_learns)
def with_lengths(replace: Replace) -> None:
    replace(PrivilegedDistance, "forward", unsquared)
