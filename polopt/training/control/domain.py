"""The control domain: a network policy, and environments of gymnasium that are stepped."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import Dict
from gymnasium.vector import VectorEnv
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.capabilities import CORE_FIELDS, Capabilities
from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.networks import LATENT_OUTPUTS, Trunk
from polopt.policies.network import NetworkPolicy
from polopt.sampling import HindsightReplay, PolicyInput, policy_input_of
from polopt.sampling.source_protocols import STEPPED
from polopt.step_source import ACTION_MASK, GOAL_KEYS
from polopt.training.control.clip import animated_png, rendered_episode
from polopt.training.control.environments import make_copies, make_one
from polopt.training.control.fitting import check_fit, has_illegal_choices
from polopt.training.control.goal_source import ComputeReward, GoalReplaySource
from polopt.training.control.logged import FURTHER, load_transitions
from polopt.training.control.playing import played
from polopt.training.control.policies import policy_for
from polopt.training.control.recipe import ControlRecipe
from polopt.training.control.replay_source import ReplaySource
from polopt.training.control.returns import ReturnScore
from polopt.training.control.rules import RulesOf
from polopt.training.files import CLIP
from polopt.training.flat_updates import check_compiled
from polopt.training.network_domain import NetworkDomain, check_one_process
from polopt.training.process_group import ProcessGroup

_FIELDS = CORE_FIELDS | {
    *("final_value", "advantage", "extras.observation", "extras.action"),
    *("extras.episode_return", "extras.episode_length", "extras.cost", *(f"extras.{name}" for name in FURTHER)),
    *("extras.privileged", "extras.history"),
}
CONTROL = Capabilities(
    name="control training",
    advantage_fields=_FIELDS,
    loss_fields=_FIELDS,
    policy_outputs=frozenset({"entropy", "value", "extras.mean", "extras.log_std"}) | LATENT_OUTPUTS,
    source_capabilities=STEPPED,
    networks=True,
    updates=frozenset({"optimiser", "batch", "laws", "sampling_weights"}),
    teaches=False,
    clauses={
        "": "needs {names}, which {loop} cannot provide; take another part",
        "rollouts": "samples answers to tasks, and a control policy learns from fragments; set the stage's but: "
        "{sampling: {part: sampling.Fragments}}",
        "teacher": "reads texts; set teacher to null",
        "extras.logged": "needs {names}, of batches with played and logged rows; set sampling.logged between 0 and 1",
    },
)
# Copies that play the episodes of an evaluation.
COPIES = 128


@contextmanager
def open_domain(recipe: ControlRecipe, team: ProcessGroup, address: str | None) -> Iterator[ControlDomain]:
    """Opens the domain of a recipe.

    Raises:
        ConfigError: the recipe cannot be prepared, or several processes were started.
    """
    check_one_process(recipe, team)
    domain = ControlDomain(recipe)
    try:
        yield domain
    finally:
        domain.close()


class ControlDomain(NetworkDomain):
    """The domain of a control recipe: policy, environments and sources of its stages; see `Domain`."""

    policy_class = NetworkPolicy
    policy: NetworkPolicy
    recipe: ControlRecipe

    def __init__(self, recipe: ControlRecipe) -> None:
        super().__init__(recipe, CONTROL)
        for name, algorithm in self.algorithms.items() if recipe.compiled else ():
            check_compiled(algorithm, recipe.stages[name], f"stages.{name}", recipe.device)
        self._opened: list[VectorEnv] = []
        self._folder = Path()
        self.evaluated = self._environments(min(COPIES, recipe.evaluation.problems))
        self.set_policy(policy_for(self.evaluated, recipe, self._inputs(), self._trunk()))
        self.policy.compiled = recipe.compiled
        for name, algorithm in self.algorithms.items():
            check_fit(name, algorithm, self.policy, self.evaluated, logged=recipe.transitions is not None)
        self.logged = self._logged()
        self.rules = RulesOf(recipe.evaluation.rules, self.evaluated, self.policy.space, recipe.device)
        self.compute_reward = self._compute_reward()
        if recipe.evaluation.frequency is not None and has_illegal_choices(self.evaluated):
            raise ConfigError(
                f"evaluation.frequency: it holds an action for several steps, and observations have an {ACTION_MASK}, "
                "by which it may not be taken later; leave it out"
            )
        for name, algorithm in self.algorithms.items():
            self._check_goals(name, algorithm)
            self._check_columns(name, algorithm)

    def _check_goals(self, stage: str, algorithm: Algorithm) -> None:
        """Refuses hindsight where the environment has no goals, or no rewards of others."""
        if not isinstance(algorithm.sampling, HindsightReplay):
            return
        if not goal_size(self.evaluated):
            raise ConfigError(
                f"stages.{stage}: hindsight replaces goals, and observations of environment.id = "
                f"{self.recipe.environment.id!r} are no Dict of {', '.join(GOAL_KEYS)}; take sampling.TransitionReplay"
            )
        if algorithm.sampling.goal_reward is None and self.compute_reward is None:
            raise ConfigError(
                f"stages.{stage}: environment.id = {self.recipe.environment.id!r} has no compute_reward, which a "
                "replaced goal needs; set sampling.goal_reward: {part: sampling.GoalDistanceReward}"
            )

    def _compute_reward(self) -> ComputeReward | None:
        """Returns the reward of goals, of an environment that nothing else uses."""
        if not goal_size(self.evaluated):
            return None
        return getattr(make_one(self.recipe.environment).unwrapped, "compute_reward", None)

    def _check_columns(self, stage: str, algorithm: Algorithm) -> None:
        """Refuses parts that read columns which only a log has, where it has not."""
        read = [name for name in FURTHER if f"extras.{name}" in algorithm.required_fields]
        logged = self.logged if getattr(algorithm.sampling, "logged", 0) == 1 else None
        if missing := [name for name in read if name not in (logged or {})]:
            raise ConfigError(
                f"stages.{stage}: it reads {FURTHER[missing[0]]}, which only a log has; set sampling.logged to 1, and "
                f"transitions to one with a column {missing[0]}"
            )
        for part in algorithm.relabel:
            try:
                part.check_log(self.logged or {})
            except ValueError as error:
                raise ConfigError(f"stages.{stage}: transitions = {self.recipe.transitions!r}: {error}") from None

    def _inputs(self) -> dict[str, PolicyInput]:
        """Returns what the policy of every stage reads beside the observation, by name."""
        found = {name: policy_input_of(algorithm.sampling) for name, algorithm in self.algorithms.items()}
        stage, first = next(iter(found.items()))
        for other, given in found.items():
            if repr(given) != repr(first):
                raise ConfigError(
                    f"stages.{other}: its policy reads {given} beside the observation, and that of stages.{stage} "
                    f"{first}; give both stages the same sampling.policy_input"
                )
        return {} if first is None else {first.name: first}

    def _trunk(self) -> Trunk | None:
        """Returns the architecture of the policy of every stage; None for perceptrons."""
        trunks = {repr(algorithm.trunk): algorithm.trunk for algorithm in self.algorithms.values()}
        if len(trunks) > 1:
            raise ConfigError(
                f"stages: their policies have different trunks, {', '.join(trunks)}; give all stages the same trunk"
            )
        return next(iter(trunks.values()))

    def _evaluation_input(self, stage: str) -> PolicyInput | None:
        """Returns what the policy reads beside the observation while it is measured."""
        algorithm = self.algorithms[stage]
        own = [given for part in algorithm.relabel if (given := part.evaluation_input()) is not None]
        return own[-1] if own else policy_input_of(algorithm.sampling)

    def _logged(self) -> dict[str, Tensor] | None:
        path = self.recipe.transitions
        if path is None:
            return None
        space = self.policy.space
        action = () if space.dimensions is None else (space.dimensions,)
        relabelled = {name for a in self.algorithms.values() for part in a.relabel for name in part.writes}
        inputs = {name: width for name, width in space.inputs if f"extras.{name}" not in relabelled}
        return load_transitions(path, "transitions", observations=space.observations, action=action, inputs=inputs)

    def _environments(self, copies: int) -> VectorEnv:
        environments = make_copies(self.recipe.environment, copies)
        self._opened.append(environments)
        return environments

    def close(self) -> None:
        """Closes all environments."""
        while self._opened:
            self._opened.pop().close()

    def save(self, folder: Path) -> None:
        """Writes the policy, and a clip of one episode if the environment renders."""
        super().save(folder)
        found = rendered_episode(
            functools.partial(make_one, self.recipe.environment),
            self.policy,
            seed=self.recipe.seed_of("clip"),
            greedy=self.recipe.evaluation.greedy,
            policy_input=self._evaluation_input(list(self.algorithms)[-1]),
        )
        if found is not None:
            (folder / CLIP).write_bytes(animated_png(*found))

    def try_worlds(self) -> None:
        self.evaluated.reset(seed=0)

    def described(self) -> dict[str, Any]:
        return {"environment": self.recipe.environment.id}

    def use_folder(self, folder: Path) -> None:
        self._folder = folder

    def source(self, stage: str, *, round: int = 1) -> ReplaySource:
        while len(self._opened) > 1:  # those of the stage before
            self._opened.pop().close()
        environments = self._environments(self.recipe.stages[stage].rows)
        seed = self.recipe.seed_in_round(round, "environments", stage)
        settings: dict[str, Any] = {"seed": seed, "generator": self.sampling, "training": True, "logged": self.logged}
        settings |= {"folder": self._folder / f"transitions-{stage}", "checkpoint_every": self.recipe.checkpoint.every}
        settings |= {"policy_input": policy_input_of(self.algorithms[stage].sampling)}
        self._played = (
            GoalReplaySource(environments, self.policy, goals=goals, compute_reward=self.compute_reward, **settings)
            if (goals := goal_size(environments))
            else ReplaySource(environments, self.policy, **settings)
        )
        return self._played

    def describe(self, experience: Experience) -> dict[str, Any]:
        """Computes the returns and lengths of the episodes that ended while the batch was sampled, and the batch's
        rewards and advantages."""
        mask, ended = experience.mask, self._played.ended()
        record: dict[str, Any] = {
            "reward/mean": float(ops.masked_mean(experience.reward, mask)),
            "advantage/std": float(experience.advantage[mask].std(correction=0)),
            "episodes": len(ended),
            **self._played.exploration(),
        }
        if ended:
            returns, lengths, truncated = torch.tensor(ended, dtype=torch.float64).T
            record |= {"return/mean": float(returns.mean()), "return/max": float(returns.max())}
            record |= {"length/mean": float(lengths.mean()), "truncated": float(truncated.mean())}
        return record

    def rollouts(self, experience: Experience) -> Iterator[dict[str, Any]]:
        if "episode_return" not in experience.extras:  # single transitions
            return
        over = experience.terminated | experience.truncated
        age = experience.extras.get("age", torch.zeros(len(over)))  # episodes of earlier batches are logged already
        for row, column in (over & (age == 0).to(over.device)[:, None]).nonzero().tolist():
            yield {
                "copy": row,
                "return": float(experience.extras["episode_return"][row, column]),
                "length": int(experience.extras["episode_length"][row, column]),
                "truncated": bool(experience.truncated[row, column]),
            }

    def score(self, stage: str, problems: int, step: int) -> ReturnScore:
        """Plays whole episodes of the policy."""
        full = problems >= self.recipe.evaluation.problems
        return self.measured(problems, self.recipe.seed_of("evaluation", step), stage, full=full)

    def measured(self, problems: int, seed: int, stage: str | None = None, *, full: bool = True) -> ReturnScore:
        """Returns the policy's score; if full, with those of the recipe's rules and of fewer decisions, on the same
        seed."""
        spec, given = self.recipe.evaluation, self._evaluation_input(stage or [*self.algorithms][-1])
        play = functools.partial(played, self.evaluated, episodes=problems, seed=seed, greedy=spec.greedy)
        own = play(self.policy, policy_input=given)
        if not full:
            return own
        rules = {name: play(rule) for name, rule in self.rules.policies().items()}
        if spec.frequency is None:
            return dataclasses.replace(own, rules=rules)
        scores = {n: play(self.policy, policy_input=given, sequence=n) for n in spec.frequency.lengths}
        return dataclasses.replace(own, rules=rules, frequency=spec.frequency.score(scores))


def goal_size(environments: VectorEnv) -> int:
    """Returns the numbers in a goal, G; 0 of environments without goals."""
    space = environments.single_observation_space
    if not isinstance(space, Dict) or {*space.spaces} != {*GOAL_KEYS}:
        return 0
    shape = space["achieved_goal"].shape
    return 0 if shape is None else math.prod(shape)
