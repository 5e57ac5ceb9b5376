"""Small worlds that are stepped, and policies that learn in them beside their networks, from stored transitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.transitions import Log, LogSource
from polopt.network_training import NetworkTraining
from polopt.networks import Space
from polopt.policies.explorers import NoisyPolicy, UniformPolicy
from polopt.policies.head import HeadName
from polopt.policies.network import NetworkPolicy
from polopt.policies.open_loop import OpenLoop
from polopt.sampling import LogWeights, PolicyInput, policy_input_of, transition_rows


class SteppedWorld:
    """A world of vectors whose copies are stepped together; actions are within [-1, 1].

    observations, dimensions: numbers in an observation and in an action. horizon: steps after which an episode is cut.
    """

    observations: ClassVar[int]
    dimensions: ClassVar[int]
    horizon: ClassVar[int]

    @property
    def space(self) -> Space:
        """The numbers that a policy reads and decides on."""
        return Space(self.observations, dimensions=self.dimensions)

    def start(self, count: int, generator: Generator) -> Tensor:
        """Returns the first states of so many episodes, [N, S]."""
        raise NotImplementedError

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the states after actions [N, A], the rewards [N], and whether each episode terminated, [N] bool."""
        raise NotImplementedError

    def seen(self, state: Tensor) -> Tensor:
        """Returns the observations [N, D] of states: the states themselves unless overridden."""
        return state


class StoredWorldSource:
    """A source of transitions of copies of a world, all of which are stored.

    A draw of `rows` takes the latest `capacity` transitions, uniformly and with replacement. log: of its logged ones.
    """

    def __init__(
        self,
        world: SteppedWorld,
        policy: NetworkPolicy,
        copies: int,
        generator: Generator,
        given: PolicyInput | None,
        log: Log | None = None,
    ) -> None:
        self.logged = None if log is None else LogSource(log, policy.head.support, generator)
        self.world, self.policy, self.copies, self.generator, self.given = world, policy, copies, generator, given
        self.width = 0 if given is None else given.width(world.space)
        self.state = world.start(copies, generator)
        self.age = torch.zeros(copies, dtype=torch.int64)
        self.input = torch.zeros(copies, 0) if given is None else given.draw(copies, self.width, generator)
        self.bounds = -torch.ones(world.dimensions), torch.ones(world.dimensions)
        self.stored: dict[str, Tensor] = {}
        self.latest: list[dict[str, Tensor]] = []
        self.plan: OpenLoop | None = None

    def transitions(
        self,
        rows: int,
        *,
        steps: int,
        start: int,
        capacity: int,
        noise: float,
        epsilon: float = 0.0,
        n_steps: int = 1,
        gamma: float | None = None,
        sequence: int = 1,
    ) -> Experience:
        """See `sampling.source_protocols.TransitionSource`. Its actions are vectors and its transitions single steps.

        Raises:
            ValueError: epsilon, n_steps or gamma is set.
        """
        if epsilon or n_steps > 1 or gamma is not None:
            raise ValueError(
                "lab.stepped.StoredWorldSource: its actions are vectors and its transitions single steps; need "
                f"epsilon = 0, n_steps = 1 and gamma = None, found {epsilon}, {n_steps} and {gamma}"
            )
        while len(self.stored.get("reward", ())) + len(self.latest) * self.copies < start:
            self._step(UniformPolicy(self.policy, *self.bounds).act(self._read(), self.generator).action)
        for _ in range(steps):
            self._step(self._action(noise, sequence))
        first = not self.stored
        for name in self.latest[0]:
            earlier = [] if first else [self.stored[name]]
            self.stored[name] = torch.cat([*earlier, *(step[name] for step in self.latest)])[-capacity:]
        self.latest = []
        place = torch.randint(len(self.stored["reward"]), (rows,), generator=self.generator)
        columns = {name: column[place] for name, column in self.stored.items()}
        return transition_rows(columns, self.policy.head.support)

    def logged_transitions(
        self, rows: int, *, n_steps: int = 1, gamma: float | None = None, weights: LogWeights | None = None
    ) -> Experience:
        """See `sampling.source_protocols.LoggedTransitionSource`."""
        assert self.logged is not None
        return self.logged.logged_transitions(rows, n_steps=n_steps, gamma=gamma, weights=weights)

    def _action(self, noise: float, sequence: int) -> Tensor:
        if sequence > 1:
            self.plan = self.plan or OpenLoop(self.copies, sequence)
            return self.plan.act(self.policy, self._read(), self.generator).action
        actor = NoisyPolicy(self.policy, noise, *self.bounds) if noise else self.policy
        return actor.act(self._read(), self.generator).action

    def _read(self) -> Tensor:
        return torch.cat([self.world.seen(self.state), self.input], -1)

    def _step(self, action: Tensor) -> None:
        after, reward, terminated = self.world.step(self.state, action)
        self.age += 1
        truncated = (self.age >= self.world.horizon) & ~terminated
        given = {} if self.given is None else {self.given.name: self.input}
        seen = {"observation": self.world.seen(self.state), "next_observation": self.world.seen(after)}
        ends = {"terminated": terminated, "truncated": truncated}
        self.latest.append({**seen, "action": action, "reward": reward, **ends, **given})
        over = (terminated | truncated)[:, None]
        self.state = torch.where(over, self.world.start(self.copies, self.generator), after)
        self.age = torch.where(over[:, 0], 0, self.age)
        if self.plan is not None:
            self.plan.drop(over[:, 0])
        if self.given is not None:
            drawn = self.given.draw(self.copies, self.width, self.generator)
            later = self.given.after(self.input, seen["observation"], action, self.generator, self.policy)
            self.input = torch.where(over, drawn, later)


def learned_in(
    world: SteppedWorld,
    algorithm: Algorithm,
    *,
    head: HeadName,
    rounds: int,
    updates: int,
    seed: int,
    copies: int = 8,
    batch: int = 128,
    lr: float = 1e-3,
    hidden: tuple[int, ...] = (64, 64),
    log: Log | None = None,
    begin: Mapping[str, Tensor] | None = None,
    policy: NetworkPolicy | None = None,
    **policy_settings: Any,
) -> tuple[NetworkPolicy, NetworkTraining]:
    """Trains a policy, and the networks beside it, in a world.

    rounds: of playing `sampling.steps` steps of each copy, then `updates` minibatches of `batch` transitions. log: of
    the logged ones among them. begin: weights of networks, as `NetworkTraining.begin` takes them. policy: to go on
    from; None is a new one, of `hidden` or of the algorithm's trunk. policy_settings: further ones of a new policy.
    """
    draw = torch.Generator().manual_seed(seed)
    algorithm = algorithm.but({"sampling.rows": batch * updates, "sampling.group": algorithm.sampling.group})  # type: ignore[attr-defined]
    given = policy_input_of(algorithm.sampling)
    policy = policy or NetworkPolicy(
        observations=world.observations,
        dimensions=world.dimensions,
        head=head,
        low=[-1.0] * world.dimensions,
        high=[1.0] * world.dimensions,
        hidden=hidden,
        activation="relu",
        seed=seed,
        trunk=algorithm.trunk,
        inputs={} if given is None else {given.name: given.width(world.space)},
        **policy_settings,
    )
    source = StoredWorldSource(world, policy, copies, draw, given, log)
    networks = NetworkTraining(policy, algorithm, lr, draw)
    networks.begin(begin or {})
    optimiser = torch.optim.Adam(policy.parameters(), lr, fused=True)
    for _ in range(rounds):
        drawn = algorithm.with_advantages(algorithm.sampling(source))
        for i in range(updates):
            rows = networks.relabelled(drawn[torch.arange(i * batch, (i + 1) * batch)])
            networks.begin_minibatch()
            networks.step(rows)
            if networks.policy_is_due:
                optimiser.zero_grad()
                algorithm.objective(rows, networks.evaluate(rows, algorithm.objective)).loss.backward()
                optimiser.step()
            networks.move_targets()
        algorithm.step()
    return policy, networks


@torch.no_grad()
def returns_of(world: SteppedWorld, policy: NetworkPolicy, start: Tensor, given: Tensor | None = None) -> Tensor:
    """Returns the undiscounted returns [N] of episodes of the policy's most likely actions from states [N, S].

    given: as in `played`.
    """
    state, generator, total = start, torch.Generator(), torch.zeros(len(start))
    alive = torch.ones(len(start), dtype=torch.bool)
    for _ in range(world.horizon):
        seen = world.seen(state)
        read = seen if given is None else torch.cat([seen, given], -1)
        state, reward, over = world.step(state, policy.act(read, generator, greedy=True).action)
        total += reward * alive
        alive &= ~over
    return total


@torch.no_grad()
def played(
    world: SteppedWorld, policy: NetworkPolicy, start: Tensor, given: Tensor | None = None, steps: int | None = None
) -> Tensor:
    """Plays the policy's most likely actions from states [N, S]. given: what it reads beside the observation, [N, K].

    Returns the states, [T + 1, N, S].
    """
    states, generator = [start], torch.Generator()
    for _ in range(world.horizon if steps is None else steps):
        seen = world.seen(states[-1])
        read = seen if given is None else torch.cat([seen, given], -1)
        states.append(world.step(states[-1], policy.act(read, generator, greedy=True).action)[0])
    return torch.stack(states)
