"""These programs measure what the paper of HNPG claims."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.lock_runs import HORIZON, return_of
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.effects import More, best_step_size
from polopt.methods import hnpg as parts
from polopt.methods.hnpg import hnpg
from polopt.methods.trpo import trpo
from polopt.metrics import t_interval
from polopt.network_training import NetworkTraining
from polopt.objectives import ExpectedActionValue
from polopt.policies.network import NetworkPolicy
from polopt.sampling import transition_rows
from polopt.sampling.hybrid import to_the_end
from polopt.support import PLAIN
from polopt.updates import BatchLoss, PlainSettings

SEEDS = range(41, 46)
RADII = (0.01, 0.03, 0.1)


def made() -> Algorithm:
    return hnpg(radius=0.03, steps=HORIZON, gamma=1.0, tau=0.1, critic_lr=1e-2, damping=1e-3, hidden=(64,))


def parent(radius: float) -> Algorithm:
    return trpo(radius=radius, steps=HORIZON, gamma=1.0, damping=1e-3)


def return_of_parent(radius: float, seed: int) -> float:
    return return_of(parent(radius), seed, 1.0)  # it reads no log


def radius_of_parent() -> float:
    """Returns the radius of the grid at which TRPO has its best mean return on two seeds that count nowhere else."""

    def measure(_: None, *, seed: int, step_size: float) -> dict[str, float]:
        return {"return": return_of_parent(step_size, seed)}

    found = best_step_size(lambda: None, measure, RADII, More("return", by=0.0), trials=2)
    assert found is not None
    return found


@claim(
    "With a log of good behaviour it opens a lock on which the on-policy step with as many episodes does not, and a "
    "log of uniform behaviour does no harm.",
    kind="headline",
    cost="slow",
    baseline="TRPO on as many episodes, at its own best radius of three",
)
def opens_the_lock() -> Finding:
    own = [return_of(made(), seed, 1 / HORIZON) for seed in SEEDS]
    uniform = [return_of(made(), seed, 1.0) for seed in SEEDS]
    radius = radius_of_parent()
    other = [return_of_parent(radius, seed) for seed in SEEDS]
    gain = t_interval([a - b for a, b in zip(own, other, strict=True)])
    harm = t_interval([a - b for a, b in zip(uniform, other, strict=True)])
    mean = {"hnpg": own, "uniform log": uniform, "trpo": other}
    measured = {name: sum(values) / len(values) for name, values in mean.items()}
    return Finding(
        measured=measured | {"gain": gain.estimate, "with the uniform log": harm.estimate},
        intervals={"gain": (gain.low, gain.high), "with the uniform log": (harm.low, harm.high)},
        criterion="mean return of 5 seeds, 12 steps, 10 choices, 3,200 episodes: with the log >= 0.9, of TRPO <= 0.2; "
        "the 95 % interval of the difference above 0; with a uniform log >= TRPO's - 0.05",
        holds=measured["hnpg"] >= 0.9
        and measured["trpo"] <= 0.2
        and gain.low > 0
        and measured["uniform log"] >= measured["trpo"] - 0.05,
        step_sizes={"TRPO": radius},
        note="0.1 is the return of a policy that never makes a right choice. TRPO's radius is the best by mean of "
        "0.01, 0.03 and 0.1 on two other seeds; all three have 0.1 there, and the least is taken. HNPG's, 0.03, is "
        "that of a first look on one other seed.",
    )


def states_in_float64(algorithm: Algorithm, seed: int = 0) -> tuple[NetworkTraining, Experience]:
    """Returns untrained networks of a policy that is a table of six states and four choices, and a batch of each state
    once, whose rows are logged and played in turn."""
    policy = NetworkPolicy(observations=6, actions=4, hidden=(), seed=seed).double()
    torch.nn.init.normal_(policy.actor[0].weight, generator=torch.Generator().manual_seed(seed))  # type: ignore[index]
    draw = torch.Generator().manual_seed(seed)
    networks = NetworkTraining(policy, algorithm, 1e-3, draw)
    for module in (*networks.modules.values(), *networks.targets.values()):
        module.double()
    never = torch.arange(6) < 2
    columns = {
        "observation": torch.eye(6).double(),
        "next_observation": torch.eye(6).double().flip(0),
        "action": torch.randint(4, (6,), generator=draw),
        "reward": torch.randn(6, generator=draw).double(),
        "terminated": never,
        "truncated": torch.zeros(6, dtype=torch.bool),
        "discount": torch.rand(6, generator=draw).double(),
        "logged": torch.arange(6) % 2 == 0,
    }
    rows = transition_rows(columns, PLAIN)
    with torch.no_grad():
        logp = policy.evaluate(rows).logp
    return networks, rows.replace(advantage=torch.zeros_like(logp), old_logp=logp)


def table(module: torch.nn.Module) -> Tensor:
    """Returns a critic's values [6, 4] of the states and choices."""
    states = torch.eye(6).double()
    return torch.stack([module(states, torch.full((6,), choice))[:, 0] for choice in range(4)], 1)


def distance_from_weights(damping: float) -> float:
    """Returns the largest difference of a probability after a step from pi exp(lr f) / Z."""
    exact = {"update.search": None, "update.radius": None, "update.solver.damping": damping}
    exact |= {"update.solver.iterations": 60, "update.solver.tolerance": 1e-18}
    algorithm = hnpg(advantage="critic", hidden=(8,)).but(exact)
    networks, rows = states_in_float64(algorithm)
    policy, objective, states = networks.policy, algorithm.objective, torch.eye(6).double()
    with torch.no_grad():
        weights = policy.choice_logp(states).exp() * (0.3 * table(networks.modules["critic"])).exp()
    stepper = algorithm.update.begin(list(policy.parameters()), PlainSettings(lr=0.3))
    batch = networks.relabelled(rows)
    stepper.step_on_batch(BatchLoss(policy, objective, lambda b: networks.evaluate(b, objective), [batch]))
    with torch.no_grad():
        found = policy.choice_logp(states).exp()
    return float((found - weights / weights.sum(1, keepdim=True)).abs().max())


@claim(
    "In a table the step multiplies each probability by exp(lr f), in played and logged states alike.",
    kind="identity",
    baseline="the same with a damping of 0.1",
)
def exponential_weights() -> Finding:
    off = {damping: distance_from_weights(damping) for damping in (0.0, 0.1)}
    return Finding(
        measured={"largest difference": off[0.0], "with damping": off[0.1]},
        criterion="largest difference of a probability < 1e-8; with damping > 1e-4",
        holds=off[0.0] < 1e-8 and off[0.1] > 1e-4,
    )


@claim(
    "A played decision's target is its return, and a logged one's a step of the Bellman equation; so are advantages.",
    kind="identity",
    baseline="targets of one step for all, which differ",
)
def targets() -> Finding:
    algorithm = hnpg(hidden=(8,))
    networks, rows = states_in_float64(algorithm)
    with torch.no_grad():
        found = networks.relabelled(rows)
        chance = networks.policy.choice_logp(torch.eye(6).double()).exp()
        now, slow = (table(modules["critic"]) for modules in (networks.modules, networks.targets))
    gap, largest = 0.0, 0.0
    for s in range(6):
        mean = sum(float(chance[s, a] * now[s, a]) for a in range(4))
        after = sum(float(chance[5 - s, a] * slow[5 - s, a]) for a in range(4))
        target = float(rows.reward[s, 0]) + (0.0 if s < 2 else float(rows.extras["discount"][s, 0]) * after)
        logged = s % 2 == 0
        gap = max(gap, abs(float(found.advantage[s, 0]) - (0.0 if logged else target - mean)))
        for a in range(4):
            every = float(now[s, a]) - mean if logged else 0.0
            gap = max(gap, abs(float(found.extras["choice_advantage"][s, 0, a]) - every))
    # Three episodes in a fragment of seven decisions, the last one open.
    reward = torch.randn(1, 7, generator=torch.Generator().manual_seed(1)).double()
    ends = torch.tensor([[False, False, True, False, True, False, False]])
    seen = torch.arange(8.0).double().view(1, 8, 1)
    extras = {"observation": seen, "action": torch.zeros(1, 7, dtype=torch.int64)}
    whole = torch.ones(1, 7, dtype=torch.bool)
    fragment = Experience(mask=whole, reward=reward, terminated=ends, truncated=~whole, support=PLAIN, extras=extras)
    spanned = to_the_end(fragment, 0.9)
    for t in range(7):
        end = next(e for e in (2, 4, 6) if e >= t)
        total = sum(0.9 ** (u - t) * float(reward[0, u]) for u in range(t, end + 1))
        gap = max(gap, abs(float(spanned.reward[t, 0]) - total))
        gap = max(gap, abs(float(spanned.extras["observation"][t, 1, 0]) - (end + 1)))
        gap = max(gap, abs(float(spanned.extras["discount"][t, 0]) - 0.9 ** (end + 1 - t)))
        gap = max(gap, abs(float(spanned.terminated[t, 0]) - (end < 6)))
        largest = max(largest, abs(float(reward[0, t]) - total))
    return Finding(
        measured={"gap": gap, "one step": largest},
        criterion="gap to sums written out < 1e-6; of one-step targets > 0.1",
        holds=gap < 1e-6 and largest > 0.1,
    )


@mutation("the value after a decision is that of the best choice, not the policy's mean", kills=targets)
def greedy_target(replace: Replace) -> None:
    def forward(self: ExpectedActionValue, experience: Experience, evaluation: Evaluation) -> Tensor:
        return evaluation.extras[self._value.name.removeprefix("extras.")].mean(-1).amax(-1)

    replace(ExpectedActionValue, "forward", forward)


@mutation("in logged states the step follows the advantages of played ones alone", kills=exponential_weights)
def played_alone(replace: Replace) -> None:
    right = parts.ExpectedAdvantage.forward

    def forward(self: parts.ExpectedAdvantage, experience: Experience, evaluation: Evaluation) -> Tensor:
        return right(self, experience, evaluation) * ~experience.extras["logged"]

    replace(parts.ExpectedAdvantage, "forward", forward)


@mutation("nothing follows a logged transition but its reward", kills=opens_the_lock)
def without_a_next_value(replace: Replace) -> None:
    def forward(self: ExpectedActionValue, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.zeros_like(experience.reward)

    replace(ExpectedActionValue, "forward", forward)
