"""These programs measure what the paper of TSCAC claims."""

import dataclasses
from typing import Any

import torch
from scipy import optimize
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.lab.transitions import Log, learned_from
from polopt.methods.tscac import tscac
from polopt.objectives import ConstrainedChoiceWeight, ResponseRegression
from polopt.objectives import responses as formulas

SEEDS = (41, 42, 43)
# Choice -> the mean of the main response and of one in small units: the first choice is best without it, the third with
# it alone, and the second nearly best in both.
MAIN, SMALL = torch.tensor([1.0, 0.85, 0.1, 0.2]), torch.tensor([0.0, 0.09, 0.10, 0.0])


def sessions(seed: int, count: int = 4000) -> Log:
    """Returns single decisions of a uniform policy; the state is the size of the main response, 0.5 to 1.5."""
    draw = torch.Generator().manual_seed(seed)
    state = 0.5 + torch.rand(count, 1, generator=draw)
    choice = torch.randint(4, (count,), generator=draw)
    small = 0.1 * (torch.rand(count, generator=draw) < 10 * SMALL[choice]).float()
    noise = 0.1 * torch.randn(count, generator=draw)
    return {
        "observation": state,
        "next_observation": state,
        "action": choice,
        "reward": state[:, 0] * MAIN[choice] + noise,
        "responses": small[:, None],
        "terminated": torch.ones(count, dtype=torch.bool),
        "truncated": torch.zeros(count, dtype=torch.bool),
    }


@torch.no_grad()
def responses_of(log: Log, multiplier: float, seed: int) -> tuple[float, float]:
    """Returns the exact means of both responses under the learned policy, at states of the same law."""
    made = tscac(multipliers=(multiplier,), temperature=multiplier / 10, tau=0.05)
    with torch.enable_grad():
        policy, _ = learned_from(log, made, head="categorical", steps=500, seed=seed, lr=1e-2, batch=128)
    state = torch.linspace(0.5, 1.5, 101)[:, None]
    p = policy.law(state)[0].exp()
    return float((p @ MAIN * state[:, 0]).mean()), float((p @ SMALL).mean())


def summed(log: Log) -> Log:
    """The log with the sum of both responses as the main one, and without another: the other policy is uniform."""
    response = log["responses"]
    return dict(log) | {"reward": log["reward"] + response[:, 0], "responses": torch.zeros_like(response)}


@claim(
    "A response in small units rises to nearly its best, at a fifth of the main one at the most.",
    kind="headline",
    cost="slow",
    baseline="the sum of both responses as the main one, with the multiplier 0.05",
)
def both_responses() -> Finding:
    """The first choice has the best main response, 1, and none of the small one, of which the best is 0.1."""
    own = [responses_of(sessions(seed), 0.2, seed) for seed in SEEDS]
    control = [responses_of(summed(sessions(seed)), 0.05, seed) for seed in SEEDS]
    least = [min(column) for column in zip(*own, strict=True)]
    most = max(small for _, small in control)
    return Finding(
        measured={"least main": least[0], "least small": least[1], "largest small of the sum": most},
        criterion="3 seeds: the main response > 0.75 and the small one > 0.07; of the sum the small one < 0.05",
        holds=least[0] > 0.75 and least[1] > 0.07 and most < 0.05,
    )


def random_choices(seed: int, choices: int = 5, others: int = 3) -> tuple[Tensor, Tensor, list[float]]:
    draw = torch.Generator().manual_seed(seed)
    value = torch.randn(choices, generator=draw, dtype=torch.float64)
    logits = torch.randn(others, choices, generator=draw, dtype=torch.float64)
    return value, logits, (0.2 + torch.rand(others, generator=draw)).tolist()


@claim(
    "Its closed form maximises the main response less the priced distances from the other policies.",
    kind="theory",
    baseline="a numerical maximum over the simplex",
)
def closed_form() -> Finding:
    gaps, off = [], []
    for seed in range(5):
        value, logits, multipliers = random_choices(seed)

        def cost(x: Any, v: Tensor = value, z: Tensor = logits, lam: list[float] = multipliers) -> tuple[float, Any]:
            given = torch.as_tensor(x, dtype=torch.float64).clone().requires_grad_()
            logp = given.log_softmax(-1)
            distances = (logp.exp() * (logp - z.log_softmax(-1))).sum(-1)
            found = -(logp.exp() * v).sum() + (torch.tensor(lam, dtype=torch.float64) * distances).sum()
            found.backward()
            assert given.grad is not None
            return float(found.detach()), given.grad.numpy()

        best = optimize.minimize(cost, torch.zeros(5).double().numpy(), jac=True, tol=1e-12)
        own = formulas.constrained_logp(value, logits, multipliers)
        gaps.append(abs(cost(own)[0] - best.fun))
        off.append(float((own.exp() - torch.as_tensor(best.x).softmax(-1)).abs().max()))
    return Finding(
        measured={"largest gap": max(gaps), "largest difference of a probability": max(off)},
        criterion="5 random problems of 5 choices and 3 policies: gap < 1e-8, probabilities within 1e-3",
        holds=max(gaps) < 1e-8 and max(off) < 1e-3,
    )


@mutation("the policies' mean in the place of their geometric one", kills=closed_form)
def arithmetic(replace: Replace) -> None:
    def mixture(value: Tensor, logits: Tensor, multipliers: list[float]) -> Tensor:
        total = sum(multipliers)
        shares = torch.tensor(multipliers).to(value) / total
        prior = (shares[:, None] * logits.softmax(-1)).sum(-2).log()
        return (prior + value / total).log_softmax(-1)

    replace(formulas, "constrained_logp", mixture)


@mutation("the weight forgets who logged, and the other policies", kills=both_responses)
def unweighted(replace: Replace) -> None:
    replace(ConstrainedChoiceWeight, "forward", lambda self, experience, evaluation: experience.mask.double())


CHAIN_STATES = torch.eye(3)


def chain(seed: int, count: int = 3000) -> Log:
    """Three states in a row, two choices: stay or go on; the last state ends. The other response is for going on from
    the second one."""
    draw = torch.Generator().manual_seed(seed)
    state, choice = torch.randint(2, (count,), generator=draw), torch.randint(2, (count,), generator=draw)
    after = state + choice
    return {
        "observation": CHAIN_STATES[state],
        "next_observation": CHAIN_STATES[after],
        "action": choice,
        "reward": 1.0 - choice.float(),
        "responses": ((state == 1) & (choice == 1)).float()[:, None],
        "terminated": after == 2,
        "truncated": torch.zeros(count, dtype=torch.bool),
    }


@claim(
    "Each critic has the value of its own response under its own policy.",
    kind="part",
    cost="slow",
    baseline="exact values of the chain",
)
def own_values() -> Finding:
    """The other response's policy goes on in each state: its values are gamma and 1 for it, gamma^2 and gamma for
    waiting a step."""
    gamma, off = 0.9, []
    for seed in SEEDS[:3]:
        made = tscac(gamma=gamma, response_gamma=gamma, tau=0.1)
        _, networks = learned_from(chain(seed), made, head="categorical", steps=600, seed=seed)
        with torch.no_grad():
            values = networks.modules["critic"](CHAIN_STATES[:2])[:, 1]
        exact = torch.tensor([[gamma**2, gamma], [gamma, 1.0]])
        off.append(float((values - exact).abs().max()))
    return Finding(
        measured={"largest error": max(off)},
        criterion="3 seeds: each of the four values of the other response within 0.05",
        holds=max(off) < 0.05,
    )


@mutation("the other responses' values are those of a uniform policy", kills=own_values)
def uniform_policy(replace: Replace) -> None:
    plain = ResponseRegression.forward

    def forward(self: ResponseRegression, experience: Experience, evaluation: Evaluation) -> Loss:
        name = self._policies.name.removeprefix("extras.")
        uniform = {**evaluation.extras, name: torch.zeros_like(evaluation.extras[name])}
        return plain(self, experience, dataclasses.replace(evaluation, extras=uniform))

    replace(ResponseRegression, "forward", forward)
