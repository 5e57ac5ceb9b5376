"""These programs measure what the paper of SERL claims."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from polopt.algorithm import Algorithm
from polopt.claim import Replace, mutation
from polopt.claims.problems.marked_place import MarkedPlace, demonstrations, reached
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.lab.effects import Less, More, effect
from polopt.lab.stepped import learned_in, played
from polopt.methods.serl import SuccessLoss, serl
from polopt.networks import Space

EPISODES, ROUNDS = 10, 800


def made() -> Algorithm:
    sizes = {"heads": 4, "batch": 128, "updates": 1, "start": 500}
    return serl(hidden=(32, 32), gamma=0.9, tau=0.02, **sizes)  # type: ignore[arg-type]


def first_classifier(seed: int, steps: int = 300) -> dict[str, Tensor]:
    """Returns a classifier's weights after steps on the demonstrations' successes and on the states of 200 walks of
    five uniform actions."""
    draw, world = Generator().manual_seed(seed), MarkedPlace()
    network = made().networks[0].network.build(Space(2, dimensions=2), draw)
    log = demonstrations(EPISODES, seed)
    success, failures, state = log["next_observation"][log["reward"] > 0], list[Tensor](), world.start(200, draw)
    for _ in range(5):
        state, _, _ = world.step(state, 2 * torch.rand(200, 2, generator=draw) - 1)
        failures.append(state)
    failure, optimiser = torch.cat(failures), torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(steps):
        odds = [network(rows[torch.randint(len(rows), (64,), generator=draw)]) for rows in (success, failure)]
        errors = [-0.9 * logsigmoid(x) - 0.1 * logsigmoid(-x) for x in (odds[0], -odds[1])]
        optimiser.zero_grad()
        (errors[0].mean() + errors[1].mean()).backward()
        optimiser.step()
    return {f"success.{name}": value for name, value in network.state_dict().items()}


@effect(
    "Its policy comes to the place that the demonstrations mark, where a classifier that stays as it began is "
    "satisfied with other places.",
    kind="headline",
    method=made,
    controls={"the same classifier, trained beforehand": lambda: made().but({"networks.0.frozen": True})},
    criteria=[More("at the place", by=0.5), Less("called a success elsewhere", by=-0.5)],
    step_sizes=(1e-3, 3e-3),
    trials=2,
    seeds=10,
    budget="minibatches",
    cost="slow",
    note="The shares are of 100 states after 20 steps of the policy's most likely actions. Both begin with the "
    "classifier of ten demonstrations' successes against states of random walks near the start.",
)
def comes_to_the_place(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    world = MarkedPlace()
    policy, networks = learned_in(
        *(world, algorithm),
        head="squashed_gaussian",
        rounds=ROUNDS,
        updates=1,
        copies=4,
        seed=seed,
        lr=step_size,
        log=demonstrations(EPISODES, seed),
        begin=first_classifier(seed),
    )
    end = played(world, policy, world.start(100, Generator().manual_seed(seed)))[-1]
    with torch.no_grad():
        called = networks.modules["success"](end)[:, 0] >= 0
    there = reached(end)
    return {
        "at the place": float(there.float().mean()),
        "called a success elsewhere": float((called & ~there).float().mean()),
        "minibatches": float(ROUNDS),
    }


@mutation("the states that the policy comes to are no failures", kills=comes_to_the_place)
def no_failures(replace: Replace) -> None:
    right = SuccessLoss.forward

    def forward(self: SuccessLoss, experience: Experience, evaluation: Evaluation) -> Loss:
        every = torch.ones_like(experience.extras["logged"])
        return right(self, experience.replace(extras={**experience.extras, "logged": every}), evaluation)

    replace(SuccessLoss, "forward", forward)
