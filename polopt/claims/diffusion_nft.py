"""These programs measure what the paper of DiffusionNFT claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import flows
from polopt.lab.effects import More, effect
from polopt.methods import diffusion_nft as nft
from polopt.methods.diffusion_nft import ReflectedFlow, diffusion_nft
from polopt.policies.flow import FlowPolicy

POSITIVE = {"objective.trust.positive_only": True}


@effect(
    "It reaches a higher reward than from the good points alone.",
    kind="headline",
    method=diffusion_nft,
    controls={"without the reflected velocity": lambda: diffusion_nft().but(POSITIVE)},
    step_sizes=(3e-4, 1e-3, 3e-3, 1e-2),
    criteria=[More("reward", by=0.05)],
    seeds=10,
    cost="slow",
    note="Two modes in the plane, 300 batches of 96 points from a flow of reward 0.35, which knows both modes.",
)
def negatives_teach(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    task, start = flows.pretrained(seed)
    return {"reward": flows.mean_reward(flows.tuned(algorithm, task, start, seed=seed, step_size=step_size), task)}


def _batch(advantage: Tensor | float) -> tuple[FlowPolicy, Experience]:
    """A policy, and 8 points that it made, of given advantages [8, 1]; the slow copy and the base are the policy."""
    policy = FlowPolicy(dimensions=2, hidden=(16,), seed=1).double()
    points = torch.randn(8, 2, generator=torch.Generator().manual_seed(3)).double()
    task = flows.modes(size=20)
    there = flows.source(policy, task, 0, rows=8, draws=3)
    torch.manual_seed(0)
    batch = there.noised_batch(points, torch.zeros(8, dtype=torch.long), torch.zeros(8).double(), torch.arange(8))
    batch = batch.replace(extras={k: batch.extras[k].double() for k in ("noise", "noise_level")})
    own = there.evaluate(batch, frozenset({"extras.velocity"})).extras["velocity"]
    ready = batch.replace(
        advantage=torch.as_tensor(advantage).double().expand(8, 3),
        extras={"slow_velocity": own, "base_velocity": own},
    )
    return policy, ready


def _gradient(algorithm: Algorithm, policy: FlowPolicy, batch: Experience) -> Tensor:
    loss = algorithm.objective(batch, policy.evaluate(batch, frozenset({"extras.velocity"}))).loss
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])


@claim(
    "A point of the group's mean does not move the policy from the one that made it.",
    kind="identity",
    baseline="the good points alone",
)
def level_points_rest() -> Finding:
    policy, batch = _batch(0.0)
    ours = _gradient(diffusion_nft(), policy, batch).norm().item()
    alone = _gradient(diffusion_nft().but(POSITIVE), policy, batch).norm().item()
    return Finding(
        measured={"norm of the gradient": ours, "of the good points alone": alone},
        criterion="< 1e-12; the control's > 1e-2",
        holds=ours < 1e-12 and alone > 1e-2,
    )


@claim(
    "On perfect points it is flow matching of normalised errors, on the worst ones it is its opposite.",
    kind="identity",
    baseline="the formula of flow matching, written out",
)
def ends() -> Finding:
    policy, good = _batch(5.0)
    extras = good.extras
    level = extras["noise_level"][..., None]
    x = (1 - level) * extras["point"][:, None] + level * extras["noise"]
    velocity = policy.velocity(x, extras["noise_level"], torch.zeros(8, 3, dtype=torch.long))
    off = level * (extras["noise"] - extras["point"][:, None] - velocity)
    loss = 5 * (off.square().mean(-1) / off.detach().abs().mean(-1)).mean()
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])
    best, worst = _gradient(diffusion_nft(kl=0), policy, good), _gradient(diffusion_nft(kl=0), *_batch(-5.0))
    apart = [(found - sign * expected).abs().max().item() for found, sign in ((best, 1), (worst, -1))]
    return Finding(
        measured={"difference, best": apart[0], "difference, worst": apart[1], "largest": expected.abs().max().item()},
        criterion="< 1e-9 of gradients whose largest entry is > 1e-2",
        holds=max(apart) < 1e-9 and expected.abs().max().item() > 1e-2,
    )


@claim("Points come from a slow copy of the policy.", kind="part", baseline="a copy that follows at once")
def slow_copy() -> Finding:
    apart = {}
    for name, rate in (("slow", 0.25), ("at once", 0.0)):
        policy = FlowPolicy(dimensions=2, hidden=(8,), seed=1)
        there = flows.source(policy, flows.modes(size=20), 0, rows=4, draws=2)
        sampling = diffusion_nft(group=2, rate=rate).sampling
        start, expected = policy.weights(), policy.weights()
        for number in range(3):
            batch = sampling(there)
            if number:
                decay = min(rate * number, 0.5)
                expected = decay * expected + (1 - decay) * policy.weights()
            with torch.no_grad():
                for parameter in policy.parameters():
                    parameter.add_(0.1)
        with policy.using(expected):
            found = there.evaluate(batch, frozenset({"extras.velocity"})).extras["velocity"]
        with policy.using(start):
            base = there.evaluate(batch, frozenset({"extras.velocity"})).extras["velocity"]
        apart[name] = (found - batch.extras["slow_velocity"]).abs().max().item()
        apart[f"base, {name}"] = (base - batch.extras["base_velocity"]).abs().max().item()
        apart[f"from the base, {name}"] = (base - found).abs().max().item()
    return Finding(
        measured=apart,
        criterion="velocities of the written-out copy to 1e-5, and more than 1e-2 from the base's",
        holds=max(apart[n] for n in ("slow", "at once", "base, slow", "base, at once")) < 1e-5
        and min(apart["from the base, slow"], apart["from the base, at once"]) > 1e-2,
    )


@mutation("The negative velocity is not reflected at the slow policy's, but is the policy's.", kills=level_points_rest)
def not_reflected(replace: Replace) -> None:
    def forward(
        self: ReflectedFlow, log_ratio: Tensor, experience: Experience, evaluation: Evaluation
    ) -> tuple[Tensor, Tensor]:
        error = nft._point_error(evaluation.extras["velocity"], experience)
        return self.limit / self.b * error, torch.zeros_like(log_ratio)

    replace(ReflectedFlow, "forward", forward)
