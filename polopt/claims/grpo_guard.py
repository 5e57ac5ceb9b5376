"""These programs measure what the paper of GRPO-Guard claims."""

import itertools

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import ChainSource, GaussianChain, learning
from polopt.methods.grpo_guard import GRPOGuardRatio, InverseTimeStep, grpo_guard
from polopt.objectives import Clip, Objective, Ratio, Surrogate, TokenMean, TokenRatio, Unclipped

NOISE = (0.02, 0.05, 0.1, 0.2, 0.5)


def log_ratios(ratio: Ratio, std: float, rows: int = 4000) -> torch.Tensor:
    """[rows] log ratio to a step of noise std from one whose mean is 0.1 away, in 64 dimensions."""
    old, new = GaussianChain(64, [std], [1.0]), GaussianChain(64, [std], [1.0])
    with torch.no_grad():
        new.shift.fill_(0.1 / 8)
        batch = old.sample(rows, torch.Generator().manual_seed(0))
        return ratio(batch, new.evaluate(batch, frozenset({"extras.mean"})))[:, 0]


@claim("The log ratio has mean 0 and one spread at every noise level.", kind="part", baseline="the plain ratio")
def one_spread() -> Finding:
    spread, centre = {}, {}
    for name, ratio in (("guard", GRPOGuardRatio(reduce="sum")), ("plain", TokenRatio())):
        found = [log_ratios(ratio, std) for std in NOISE]
        stds = [x.std().item() for x in found]
        spread[name] = max(stds) / min(stds)
        centre[name] = max(abs(x.mean() / x.std()).item() for x in found)
    return Finding(
        measured={
            "largest over smallest std": spread["guard"],
            "plain ratio's": spread["plain"],
            "|mean| / std": centre["guard"],
            "of the plain ratio": centre["plain"],
        },
        criterion="std 0.02 to 0.5: spread < 1.05 and |mean| / std < 0.05; plain > 10 and > 1",
        holds=spread["guard"] < 1.05 and centre["guard"] < 0.05 and spread["plain"] > 10 and centre["plain"] > 1,
    )


@claim("A clip holds as many good decisions as bad ones.", kind="part", baseline="the plain ratio")
def both_sides() -> Finding:
    share = {}
    for name, ratio in (("guard", GRPOGuardRatio(reduce="sum")), ("plain", TokenRatio())):
        found = log_ratios(ratio, std=0.05).exp()
        share[name] = (found > 1.05).double().mean().item(), (found < 0.95).double().mean().item()
    (good, bad), (plain_good, plain_bad) = share["guard"], share["plain"]
    return Finding(
        measured={"A > 0 held": good, "A < 0 held": bad, "plain, A > 0": plain_good, "plain, A < 0": plain_bad},
        criterion="clip 0.05: shares within 0.05 of each other; plain more than 0.5 apart",
        holds=abs(good - bad) < 0.05 and plain_bad - plain_good > 0.5,
    )


def gradient_norms(algorithm: Algorithm) -> torch.Tensor:
    """[T] norm of the gradient by each step's velocity, on policy, with advantages by lot."""
    chain = GaussianChain(512, NOISE[::-1], [0.1, 0.1, 0.2, 0.3, 0.3])
    draw = torch.Generator().manual_seed(0)
    sign = torch.randint(0, 2, (500, 1), generator=draw).double() * 2 - 1
    batch = chain.sample(500, draw).replace(advantage=sign.expand(500, 5))
    evaluation = chain.evaluate(batch, algorithm.objective.required_outputs)
    return torch.autograd.grad(algorithm.objective(batch, evaluation).loss, chain.shift)[0].norm(dim=1)


@claim("Every denoising step pulls alike, whatever its noise and its time.", kind="part", baseline="the plain ratio")
def equal_pull() -> Finding:
    plain = {"objective.ratio": TokenRatio(), "objective.weights": []}
    ours, raw = (gradient_norms(a) for a in (grpo_guard(), grpo_guard().but(plain)))
    return Finding(
        measured={"largest over smallest": (ours.max() / ours.min()).item(), "plain": (raw.max() / raw.min()).item()},
        criterion="< 1.2 in 512 dimensions; plain > 10",
        holds=bool(ours.max() < 1.2 * ours.min() and raw.max() > 10 * raw.min()),
    )


def gold_at(objective: Objective, gain: float, rate: float) -> float:
    """Returns how much of the gold reward is left when the expected proxy reward has grown by `gain`.

    A flow to a small cloud at 0 in two dimensions. The gold reward is a bump there; the proxy adds a higher one two
    away. Both expectations are exact.
    """
    chain = GaussianChain(2, torch.logspace(-0.5, -1.7, 10).tolist(), [0.1] * 10)
    here, there = torch.zeros(2, dtype=torch.double), torch.tensor([2.0, 0.0], dtype=torch.double)
    with torch.no_grad():
        chain.matrix.copy_(-2 * torch.eye(2, dtype=torch.double).expand(10, 2, 2))

    def proxy(x: torch.Tensor) -> torch.Tensor:
        bump = lambda c, w: torch.exp(-(x - c).square().sum(-1) / (2 * w**2))  # noqa: E731
        return bump(here, 0.5) + 3 * bump(there, 1.0)

    def expected() -> tuple[float, float]:
        gold = chain.expected_bump(here, 0.5).item()
        return gold, gold + 3 * chain.expected_bump(there, 1.0).item()

    start, before = expected()
    algorithm = grpo_guard(group=16).but(objective=objective)
    source = ChainSource(chain, proxy, rows=256)
    for _ in itertools.islice(learning(algorithm, source, chain, rate=rate, epochs=4), 400):
        gold, value = expected()
        if value >= before + gain:
            return gold / start
    raise RuntimeError(f"{objective!r} did not gain {gain} within 400 batches")


@claim(
    "It keeps the gold reward while the proxy grows.",
    kind="headline",
    baseline="the plain ratio with its clip, and without any, at equal proxy gain",
    cost="slow",
    refuted=True,
)
def keeps_gold() -> Finding:
    guard = grpo_guard(clip=0.1, reduce="sum").objective
    plain = Surrogate(trust=Clip(low=0.1, high=0.1), aggregate=TokenMean())
    arms = {"guard": (guard, 0.5), "plain": (plain, 0.5), "free": (plain.but(trust=Unclipped()), 0.2)}
    left = {f"{n}, gain {g}": gold_at(o, g, rate) for n, (o, rate) in arms.items() for g in (0.1, 0.4)}
    return Finding(
        measured=left,
        criterion="at gain 0.4 the guard keeps > 0.9 of the gold reward, the plain ratio < 0.7",
        holds=left["guard, gain 0.4"] > 0.9 and left["plain, gain 0.4"] < 0.7,
        note="All lose the same at equal gain: here the proxy's far mode can only be had at the gold reward's expense, "
        "whatever the steps. The guard changes how evenly the steps move, not where the proxy leads.",
    )


@mutation("The ratio is re-centred the wrong way.", kills=one_spread)
def wrong_sign(replace: Replace) -> None:
    def forward(self: GRPOGuardRatio, experience: Experience, evaluation: Evaluation) -> torch.Tensor:
        std = experience.extras["std"]
        drift = (evaluation.extras["mean"] - experience.extras["mean"]).square().sum(-1)
        return (evaluation.logp - experience.rollout_logp) * std - drift / (2 * std)

    replace(GRPOGuardRatio, "forward", forward)


@mutation("The loss of a step is not divided by its time.", kills=equal_pull)
def no_time(replace: Replace) -> None:
    replace(InverseTimeStep, "forward", lambda self, experience, _: torch.ones_like(experience.extras["dt"]))
