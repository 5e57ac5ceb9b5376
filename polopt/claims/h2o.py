"""These programs measure what the paper of H2O claims."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.walled_line import WalledLine, real_log, return_of
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.effects import More, effect
from polopt.lab.stepped import learned_in
from polopt.lab.transitions import Log, learned_from
from polopt.methods.cql import cql
from polopt.methods.h2o import ACTION, DynamicsGap, RealTransitionWeight, h2o
from polopt.methods.sac import sac
from polopt.network_training import NetworkTraining
from polopt.objectives.targets import evaluated
from polopt.policies.network import NetworkPolicy
from polopt.sampling import marked, transition_rows
from polopt.support import PLAIN

Side = Callable[[int, float], NetworkPolicy]
SIZES: dict[str, int] = {"batch": 128, "start": 1000}
COMMON = {"gamma": 0.9, "tau": 0.02, "temperature": 0.02}


def in_simulator(algorithm: Algorithm, seed: int, lr: float) -> tuple[NetworkPolicy, NetworkTraining]:
    """Trains a policy in the line without a wall, with a log of the one that has it."""
    return learned_in(
        *(WalledLine(wall=False, seed=seed), algorithm),
        head="squashed_gaussian",
        rounds=1000,
        updates=1,
        copies=4,
        log=real_log(500, seed),
        lr=lr,
        seed=seed,
    )


def line_h2o(beta: float = 0.01) -> Algorithm:
    return h2o(beta=beta, hidden=(64, 64), **SIZES, **COMMON)  # type: ignore[arg-type]


def from_both() -> Algorithm:
    return sac(hidden=(64, 64), **SIZES, **COMMON).but({"sampling.logged": 0.5})  # type: ignore[arg-type]


def from_simulator() -> Algorithm:
    return sac(hidden=(64, 64), **SIZES, **COMMON)  # type: ignore[arg-type]


def trained_by(algorithm: Callable[[], Algorithm]) -> Callable[[], Side]:
    return lambda: lambda seed, lr: in_simulator(algorithm(), seed, lr)[0]


def from_log() -> Side:
    made = cql(gamma=0.9, tau=0.02, hidden=(64, 64))
    return lambda seed, lr: learned_from(
        real_log(500, seed), made, head="squashed_gaussian", steps=1000, batch=128, seed=seed, lr=lr
    )[0]


@effect(
    "Its policy reaches what can be reached in reality, though the simulator shows a better aim that cannot, and the "
    "log does not show the one that can.",
    kind="headline",
    method=trained_by(line_h2o),
    controls={
        "SAC from both": trained_by(from_both),
        "SAC from the simulator": trained_by(from_simulator),
        "CQL from the log": lambda: from_log(),
    },
    criteria=[More("return in reality", by=0.4)],
    step_sizes=(1e-3, 3e-3, 1e-2),
    trials=2,
    seeds=5,
    budget="minibatches",
    cost="slow",
    note="A line with aims of 1 and 0.8 at its ends; a wall, which the simulator lacks, is before the first. The log "
    "is of 500 episodes of two uniform actions. 0.8 is the best return in reality, 1 in the simulator.",
)
def aims_in_reality(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    policy = side(seed, step_size)
    return {"return in reality": return_of(policy, wall=True, seed=seed), "minibatches": 1000.0}


def flipped_weight(self: RealTransitionWeight, experience: Experience, evaluation: Evaluation) -> Tensor:
    ratio = experience.extras["dynamics_gap"].exp().clamp(self.least, 1)
    return torch.where(experience.extras["logged"], 1.0, ratio)


@mutation("the ratio of dynamics is turned over", kills=aims_in_reality)
def turned_over(replace: Replace) -> None:
    replace(RealTransitionWeight, "forward", flipped_weight)


NOISE = 0.2


def moves(count: int, drift: float, seed: int, size: float = 0.6) -> Log:
    """Returns transitions s_next = 0.8 s + 0.4 a + drift s + noise of N(0, 0.2^2), s uniform on [-1, 1] and a within
    `size` of 0."""
    draw = torch.Generator().manual_seed(seed)
    state, action = (2 * torch.rand(count, 1, generator=draw) - 1 for _ in range(2))
    action = size * action
    after = (0.8 + drift) * state + 0.4 * action + NOISE * torch.randn(count, 1, generator=draw)
    never = torch.zeros(count, dtype=torch.bool)
    ends = {"terminated": never, "truncated": never, "reward": torch.zeros(count)}
    return {"observation": state, "next_observation": after, "action": action, **ends}


def learned_gap(drift: float, seed: int, steps: int = 600) -> tuple[Tensor, Tensor]:
    """Returns what the classifiers say of log(P_sim / P_real) at new simulated transitions, and what it is, [N]. The
    simulator has a drift, reality none; the log has larger actions."""
    algorithm = h2o(hidden=(64, 64), gamma=0.0, batch=256)
    policy = NetworkPolicy(observations=1, dimensions=1, head="squashed_gaussian", low=[-1.0], high=[1.0], seed=seed)
    networks = NetworkTraining(policy, algorithm.but(networks=list(algorithm.networks)[:2]), 3e-3, torch.Generator())
    real, simulated = moves(20_000, 0.0, seed, size=1.0), moves(20_000, drift, seed + 1000)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        place = torch.randint(20_000, (128,), generator=draw)
        parts = [
            marked(transition_rows({name: column[place] for name, column in log.items()}, PLAIN), logged)
            for log, logged in ((real, True), (simulated, False))
        ]
        networks.begin_minibatch()
        networks.step(Experience.join(parts))
    new = moves(4000, drift, seed + 2000)
    rows = networks.relabelled(marked(transition_rows(new, PLAIN), False))
    error = new["next_observation"] - 0.8 * new["observation"] - 0.4 * new["action"]
    exact = (error.square() - (error - drift * new["observation"]).square())[:, 0] / (2 * NOISE**2)
    return rows.extras["dynamics_gap"][:, 0], exact.clamp(-4, 4)


@claim(
    "The two classifiers' difference is the log-ratio of the dynamics, and 0 where these are the same.",
    kind="part",
    baseline="a simulator of the real dynamics",
)
def finds_the_ratio() -> Finding:
    said, exact = learned_gap(0.3, 41)
    fit = float(torch.corrcoef(torch.stack([said, exact]))[0, 1])
    same = float(learned_gap(0.0, 42)[0].abs().mean())
    size = float(exact.abs().mean())
    return Finding(
        measured={"correlation": fit, "mean |w|": float(said.abs().mean()), "exact": size, "of equal dynamics": same},
        criterion="at 4,000 new transitions the correlation with the exact one is >= 0.9, the mean of |w| within 25 % "
        "of the exact one's, and below a third of it for equal dynamics",
        holds=fit >= 0.9 and abs(float(said.abs().mean()) / size - 1) < 0.25 and same < size / 3,
    )


@mutation("the odds of the action stand for those of the transition", kills=finds_the_ratio)
def of_the_action(replace: Replace) -> None:
    def forward(
        self: DynamicsGap, experience: Experience, evaluation: Evaluation, generator: torch.Generator
    ) -> Experience:
        gap = evaluated(evaluation, ACTION)[..., 0]
        return experience.replace(extras={**experience.extras, "dynamics_gap": gap})

    replace(DynamicsGap, "policy_outputs", frozenset({ACTION.name}))
    replace(DynamicsGap, "forward", forward)


@claim(
    "Values of simulated decisions that reality does not know are lower for the penalty.",
    kind="part",
    cost="slow",
    baseline="the method at beta = 0",
)
def lowers_the_unreal() -> Finding:
    states, action = torch.linspace(0.5, 0.9, 20)[:, None], torch.ones(20, 1)
    means = {beta: list[float]() for beta in (0.01, 0.0)}
    for beta, found in means.items():
        for seed in range(43, 46):
            _, networks = in_simulator(line_h2o(beta), seed, 3e-3)
            with torch.no_grad():
                found.append(float(networks.modules["critic"](states, action).mean()))
    gaps = [a - b for a, b in zip(means[0.0], means[0.01], strict=True)]
    return Finding(
        measured={"least lowered": min(gaps), **{f"value, beta = {b:g}": sum(v) / len(v) for b, v in means.items()}},
        criterion="3 seeds: behind the wall, where the log has no state, the mean value is lower by > 0.3 in each",
        holds=min(gaps) > 0.3,
    )
