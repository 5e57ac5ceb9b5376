"""The rules that a control recipe lists, for its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.vector import VectorEnv

from polopt.config import ConfigError
from polopt.networks import Space
from polopt.part import build
from polopt.policies.rule import RulePolicy
from polopt.training.specs import short_message
from polopt.worlds.control import ControlRule


class RulesOf:
    """The rules of a recipe, checked when this is made, and prepared for the environment when they first play.

    specs: plain data of rules, by name.

    Raises:
        ConfigError: no rule, or one for other environments.
    """

    def __init__(self, specs: Mapping[str, Any], environments: VectorEnv, space: Space, device: str) -> None:
        self.environments, self.space, self.device = environments, space, device
        self.rules = {name: self._built(name, spec) for name, spec in specs.items()}
        self._prepared: dict[str, RulePolicy] = {}

    def _built(self, name: str, spec: Any) -> ControlRule:
        where = f"evaluation.rules.{name}"
        try:
            rule = build(spec)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}: {short_message(error)}") from None
        if not isinstance(rule, ControlRule):
            raise ConfigError(f"{where}: give a part that is a rule, as polopt.worlds.control:RandomRule")
        world = self.environments.unwrapped
        for part in rule.parts():
            if isinstance(part, ControlRule) and not isinstance(world, part.world):
                raise ConfigError(
                    f"{where}: {type(part).__name__} is for {part.world.__name__}, and the environment is a "
                    f"{type(world).__name__}"
                )
            try:
                if isinstance(part, ControlRule):
                    part.check(world)
            except ValueError as error:
                raise ConfigError(f"{where}: {short_message(error)}") from None
        return rule

    def policies(self) -> dict[str, RulePolicy]:
        """Returns the rules as policies, by name."""
        for name in self.rules.keys() - self._prepared.keys():
            try:
                rule = self.rules[name].prepare(self.environments.unwrapped)
            except ValueError as error:
                raise ConfigError(f"evaluation.rules.{name}: {short_message(error)}") from None
            self._prepared[name] = RulePolicy(rule, self.space, self.device)
        return {name: self._prepared[name] for name in self.rules}
