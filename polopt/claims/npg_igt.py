"""These programs measure what the paper of N-PG-IGT and HARPG claims."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.methods.npg_igt import npg_igt
from polopt.metrics import t_interval
from polopt.updates import BatchLoss, PlainSettings
from polopt.updates.momentum import MomentumStepper, TransportStepper

SEED, COPIES, ARMS = 41, 400, 4


class Copies(nn.Module):
    """Independent softmax policies over the arms of one bandit, each of a row of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(COPIES, ARMS, dtype=torch.double))

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        logp = self.logits.log_softmax(-1).gather(-1, experience.extras["action"])
        return Evaluation(logp=logp)


def errors(algorithm: Algorithm, seed: int, *, lr: float, steps: int = 60, skip: int = 20) -> Tensor:
    """Returns the mean squared distance of the direction from the exact gradient at the policy that it moves, for each
    copy, over the steps from `skip` on; every step has one pull of each copy, or two with an estimated Hessian."""
    draw = torch.Generator().manual_seed(seed)
    means = torch.rand(ARMS, generator=draw).double()
    policy, found = Copies(), []
    stepper = algorithm.update.begin([policy.logits], PlainSettings(lr=lr))
    count = 0
    while count < steps:
        probs = policy.logits.detach().softmax(-1)
        exact = -probs * (means - (probs * means).sum(1, keepdim=True))
        stepper.begin_batch(draw)
        action = torch.multinomial(policy.logits.detach().softmax(-1), 1, generator=draw)
        reward = (torch.rand(COPIES, 1, generator=draw) < means[action]).double()
        batch = Experience(
            mask=torch.ones(COPIES, 1, dtype=torch.bool),
            advantage=COPIES * reward,  # the loss is a mean over rows
            group=torch.arange(COPIES),
            extras={"action": action},
        )
        loss = BatchLoss(policy, algorithm.objective, policy.evaluate, [batch])
        record = stepper.step_on_batch(loss)
        stepper.end_batch()
        if "update/eta" in record:
            direction = stepper.state()["direction"].view(COPIES, ARMS)
            found.append((direction - exact).square().sum(1))
            count += 1
    return torch.stack(found[skip:]).mean(0)


def rule(estimator: Literal["igt", "harpg"], least: float = 0.05) -> Algorithm:
    return npg_igt(estimator=estimator, power=1.0, least=least, normalised=False)


def momentum(least: float = 0.05) -> Algorithm:
    return rule("igt", least).but({"update.extrapolate": False})


@claim(
    "With transported gradients the average is nearer to the gradient than a momentum of the same weights.",
    kind="headline",
    baseline="the same average of gradients taken at the policies themselves",
    cost="slow",
)
def nearer() -> Finding:
    measured, intervals, holds = dict[str, float](), dict[str, tuple[float, float]](), True
    for seed in (SEED, SEED + 1, SEED + 2):
        own, other = (errors(algorithm, seed, lr=1.0) for algorithm in (rule("igt"), momentum()))
        gain, ratio = t_interval((other - own).tolist()), float(own.mean() / other.mean())
        measured |= {f"bandit {seed}: ratio": ratio, f"bandit {seed}: gain": gain.estimate}
        intervals[f"bandit {seed}: gain"] = (gain.low, gain.high)
        holds &= ratio < 0.8 and gain.low > 0
    return Finding(
        measured=measured,
        intervals=intervals,
        criterion="3 bandits, 400 copies each, steps 21 to 60: mean squared error < 0.8 of the momentum's, and the "
        "95 % interval of the difference over copies above 0",
        holds=holds,
    )


class _Quadratic:
    """The loss p'Ap / 2 of a parameter p, with its gradient and Hessian."""

    def __init__(self, parameter: nn.Parameter, matrix: Tensor) -> None:
        self.parameter, self.matrix, self.metrics = parameter, matrix, list[dict[str, Tensor]]()

    def gradient(self, parameters: Any) -> list[Tensor]:
        return [self.matrix @ self.parameter.detach()]

    def hessian_product(self, parameters: Any, vector: Tensor) -> Tensor:
        return self.matrix @ vector


def worst(algorithm: Algorithm) -> float:
    """Returns the largest distance of the direction from the gradient of a quadratic, in 30 steps without noise."""
    draw = torch.Generator().manual_seed(SEED)
    factor = torch.randn(4, 4, generator=draw).double()
    parameter = nn.Parameter(torch.randn(4, generator=draw).double())
    loss: Any = _Quadratic(parameter, factor @ factor.T)
    stepper, apart, count = algorithm.update.begin([parameter], PlainSettings(lr=0.05)), 0.0, 0
    while count < 30:
        exact = loss.gradient(None)[0]
        stepper.begin_batch(draw)
        record = stepper.step_on_batch(loss)
        stepper.end_batch()
        if "update/eta" in record:
            apart, count = max(apart, float((stepper.state()["direction"] - exact).norm())), count + 1
    return apart


@claim(
    "Where the gradient is linear, both averages have no bias.",
    kind="identity",
    baseline="momentum of the same weights",
)
def no_bias() -> Finding:
    measured = {
        "igt": worst(npg_igt()),
        "harpg": worst(npg_igt(estimator="harpg")),
        "momentum": worst(npg_igt().but({"update.extrapolate": False})),
    }
    return Finding(
        measured=measured,
        criterion="a quadratic without noise, 30 steps: largest distance from the gradient < 1e-10; momentum > 0.1",
        holds=max(measured["igt"], measured["harpg"]) < 1e-10 and measured["momentum"] > 0.1,
    )


@claim(
    "With as many pulls HARPG's average is nearer to the gradient than the transported one.",
    kind="headline",
    baseline="N-PG-IGT of the same weights",
    cost="slow",
    refuted=True,
)
def hessian_is_nearer() -> Finding:
    seeds = (SEED, SEED + 1, SEED + 2)
    own = [errors(rule("harpg"), seed, lr=1.0, steps=30, skip=10) for seed in seeds]
    other = [errors(rule("igt"), seed, lr=1.0) for seed in seeds]
    ratios = [float(a.mean() / b.mean()) for a, b in zip(own, other, strict=True)]
    return Finding(
        measured={f"bandit {seed}: ratio of errors": ratio for seed, ratio in zip(seeds, ratios, strict=True)},
        criterion="3 bandits, 400 copies each, 60 pulls: mean squared error < 0.9 of the other's on each",
        holds=max(ratios) < 0.9,
        note="The estimate of the Hessian from one pull has more noise than it takes away; the paper's rates are for "
        "an accuracy that goes to 0.",
    )


@mutation("The extrapolation goes the other way.", kills=nearer)
def backwards(replace: Replace) -> None:
    right = TransportStepper.moved
    replace(TransportStepper, "moved", lambda self: -right(self))


@mutation("The average is not carried to the next policy.", kills=no_bias)
def not_carried(replace: Replace) -> None:
    right = MomentumStepper.take

    def take(self: MomentumStepper, gradient: Tensor, carried: Tensor) -> dict[str, float]:
        return right(self, gradient, self.direction)

    replace(MomentumStepper, "take", take)
