"""These programs measure what the paper of policy evaluation in learned simulators claims, on a pendulum."""

from __future__ import annotations

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods import wm_policy_evaluation as own
from polopt.methods.wm_policy_evaluation import SimulatorAgreement, wm_policy_evaluation
from polopt.metrics import RandomFeatureDynamics, SimulatedPolicies, simulated_value, t_interval
from polopt.metrics.simulated_policies import Dynamics, Numbers, StatePolicy

HORIZON, STARTS = 60, 50
# Shares of the expert's gains. Data come from others than those that are evaluated.
EVALUATED = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05)
FAILURES = (0.05, 0.2, 0.4, 0.55)


def pendulum(state: Numbers, action: Numbers) -> Numbers:
    """Returns angle and velocity, [N, 2], a step of 0.1 later; the angle is 0 upright, the torque at most 3."""
    angle, velocity = state[:, 0], state[:, 1]
    torque = action[:, 0].clip(-3, 3)
    velocity = (velocity + 0.1 * (2 * np.sin(angle) + torque - 0.3 * velocity)).clip(-6, 6)
    return np.stack([angle + 0.1 * velocity, velocity], 1)


def controller(share: float) -> StatePolicy:
    """Returns a policy with a share of the expert's gains."""
    return lambda state: -share * (5 * state[:, :1] + 2 * state[:, 1:])


def upright(states: Numbers) -> Numbers:
    """Returns the mean height of each rollout's second half, from 0 to 1."""
    found: Numbers = (np.cos(states[len(states) // 2 :, :, 0]).mean(0) + 1) / 2
    return found


def starts(draw: np.random.Generator, n: int) -> Numbers:
    return draw.uniform([-0.6, -0.5], [0.6, 0.5], (n, 2))


def transitions(draw: np.random.Generator, policies: list[StatePolicy], each: int) -> tuple[Numbers, ...]:
    """Returns states, actions and next states of `each` rollouts of every policy."""
    rows: list[tuple[Numbers, Numbers, Numbers]] = []
    for policy in policies:
        state = starts(draw, each)
        for _ in range(HORIZON):
            action = policy(state)
            rows.append((state, action, pendulum(state, action)))
            state = rows[-1][2]
    return tuple(np.concatenate(x) for x in zip(*rows, strict=True))


def two_models(seed: int) -> dict[str, float]:
    """Returns how far the values of eight policies in two learned models agree with the true ones."""
    draw = np.random.default_rng(seed)

    def anything(state: Numbers) -> Numbers:
        return draw.uniform(-3, 3, (len(state), 1))

    expert = controller(1.0)
    mixed = [expert, *map(controller, FAILURES), anything]
    data = {"expert": transitions(draw, [expert], 60), "mixed": transitions(draw, mixed, 10)}
    models = {name: RandomFeatureDynamics.fit(*rows, seed=seed) for name, rows in data.items()}
    first = starts(draw, STARTS)

    def values(model: Dynamics) -> list[float]:
        return [float(simulated_value(model, controller(c), first, HORIZON, upright).mean()) for c in EVALUATED]

    truth = values(pendulum)
    found = SimulatedPolicies(
        policy=[f"{c:g}" for c in EVALUATED] * 2,
        model=np.repeat(list(models), len(EVALUATED)),
        predicted=np.concatenate([values(model) for model in models.values()]),
        true=truth * 2,
    )
    return dict(wm_policy_evaluation(resamples=1)(found).values)


@claim(
    "A model of mixed data predicts the values of policies that it has not seen; one of the expert's data alone is "
    "less correlated with them, and overestimates bad policies.",
    kind="headline",
    baseline="a model of as many transitions of the expert alone",
)
def breadth() -> Finding:
    each = [two_models(seed) for seed in range(10)]
    found = {name: t_interval([x[name] for x in each]) for name in each[0] if "Pearson" in name or "MMRV" in name}
    gap = t_interval([x["mixed, Pearson r"] - x["expert, Pearson r"] for x in each])
    bias = t_interval([x["expert, bias"] for x in each])
    return Finding(
        measured={
            **{name: x.estimate for name, x in found.items()},
            "difference in r": gap.estimate,
            "expert, bias": bias.estimate,
        },
        criterion="over 10 samples, by 95 % intervals: mixed r above 0.9 and MMRV below 0.05, r of the expert's model "
        "lower by more than 0.1, and its bias above 0.1",
        holds=found["mixed, Pearson r"].low > 0.9
        and found["mixed, MMRV"].high < 0.05
        and gap.low > 0.1
        and bias.low > 0.1,
        intervals={
            **{name: (x.low, x.high) for name, x in found.items()},
            "difference in r": (gap.low, gap.high),
            "expert, bias": (bias.low, bias.high),
        },
        note="Eight controllers of an inverted pendulum, 3600 transitions, ridge regression on random features. The "
        "order of the policies is nearly right in both models: what breadth mends are the values.",
    )


@claim(
    "The true simulator agrees with itself, and the reversed order of 0, 0.5 and 1 has MMRV 5/6.",
    kind="identity",
    baseline="none: the numbers are those of the definition",
)
def exact() -> Finding:
    metric, true = wm_policy_evaluation(resamples=1), [0.0, 0.5, 1.0]
    same = metric(SimulatedPolicies(list("abc"), true, true)).values
    reversed_order = metric(SimulatedPolicies(list("abc"), true[::-1], true)).values
    return Finding(
        measured={"same": same["model, MMRV"], "reversed": reversed_order["model, MMRV"]},
        criterion="0 and r = 1; 5/6 and r = -1, to 1e-12",
        holds=same["model, MMRV"] == 0
        and abs(same["model, Pearson r"] - 1) < 1e-12
        and abs(reversed_order["model, MMRV"] - 5 / 6) < 1e-12
        and abs(reversed_order["model, Pearson r"] + 1) < 1e-12,
    )


@mutation("The violation is the mean over all others, not the largest.", kills=exact)
def mean_violation(replace: Replace) -> None:
    def mean(predicted: Numbers, true: Numbers) -> Numbers:
        v, r = predicted[..., None], true[..., None]
        wrong = (v < predicted[..., None, :]) != (r < true[..., None, :])
        found: Numbers = (np.abs(r - true[..., None, :]) * wrong).mean((-1, -2))
        return found

    replace(own, "rank_violations", mean)


@mutation("Predicted values are correlated with themselves.", kills=breadth)
def itself(replace: Replace) -> None:
    agreement = SimulatorAgreement.agreement
    replace(SimulatorAgreement, "agreement", lambda self, predicted, true: agreement(self, predicted, predicted))
