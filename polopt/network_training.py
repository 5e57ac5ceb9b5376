"""The training of the networks beside a policy."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor, nn

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import Binding
from polopt.network_evaluation import NetworkEvaluator, Place, Proposals, learned_places
from polopt.networks import LearnedNetwork
from polopt.objectives import Objective
from polopt.outputs import POLICY, output_of
from polopt.sampling import policy_input_of
from polopt.updates import PlainSettings


class NetworkTraining:
    """The networks of an algorithm while they learn, each with its optimiser and its target copy.

    lr: of networks without one of their own.
    generator: of initial weights and of proposed actions.

    For an algorithm without networks the policy is evaluated alone, and nothing else is done.
    """

    def __init__(self, policy: Any, algorithm: Algorithm, lr: float, generator: Generator) -> None:
        self.algorithm, self.policy, self.count = algorithm, policy, 0
        self.specs = {spec.name: spec for spec in algorithm.networks}
        # A copy: a resumed run draws weights, too, which are replaced, and must not draw other noise.
        initial = torch.Generator()
        initial.set_state(generator.get_state())
        self.modules = {
            name: spec.network.build(policy.space, initial).to(policy.device).requires_grad_(False)
            for name, spec in self.specs.items()
        }
        self.targets = {
            name: copy.deepcopy(self.modules[name]) for name, spec in self.specs.items() if spec.target_tau is not None
        }
        self.target_policy = None if algorithm.policy_target_tau is None else policy.frozen()
        self.steppers = {
            name: spec.update.begin([*self.modules[name].parameters()], PlainSettings(lr=spec.lr or lr))
            for name, spec in self.specs.items()
        }
        # Listed once: to walk through modules takes longer than to move what they hold.
        self._parameters = {name: [*module.parameters()] for name, module in self.modules.items()}
        self._copies = {name: _Copy(target, self.modules[name]) for name, target in self.targets.items()}
        self._policy_copy = None if self.target_policy is None else _Copy(self.target_policy, policy)
        self._generator, self._lr = generator, lr
        # Whether there are networks, or proposals or a target copy of the policy, so that minibatches are counted.
        # A policy without a space of observations and actions is asked for such outputs itself.
        read = hasattr(policy, "space") and any(output_of(name) is not None for name in algorithm.required_outputs)
        self.active = read or bool(self.specs) or self.target_policy is not None
        # What the policy's loss reads of its own proposals.
        outputs = map(output_of, algorithm.objective.active_fields("policy_outputs"))
        known = [output for output in outputs if output is not None]
        self._learned = learned_places(known)
        self._reads_law = bool(self._learned) or any(output.network == POLICY for output in known)
        self._proposals: Proposals | None = None

    @functools.cached_property
    def _evaluator(self) -> NetworkEvaluator:
        return NetworkEvaluator(
            *(self.policy, self.modules, self.targets, self.target_policy, self._generator, self.specs),
            policy_input=policy_input_of(self.algorithm.sampling),
        )

    def set_course(self, share: float) -> None:
        """Sets the step sizes to this share of what they began with, as the policy's is."""
        for name, stepper in self.steppers.items():
            stepper.set_lr((self.specs[name].lr or self._lr) * share)

    def relabelled(self, batch: Experience) -> Experience:
        """Returns the minibatch with the columns that the networks give it as they are now."""
        with torch.no_grad():
            for part in self.algorithm.relabel:
                evaluation = self._evaluator.evaluate(batch, part.active_fields("policy_outputs"), logp=False)
                batch = part(batch, evaluation, self._generator)
        return batch

    def begin_minibatch(self) -> tuple[bool, ...]:
        """Counts a minibatch. Returns what is due in it: whether the policy's step, and each network's step and its
        copy's."""
        self.count += self.active
        due = (self._is_due(spec) for spec in self.specs.values())
        return (self.policy_is_due, self._copies_policy, *due, *(self._copies_it(name) for name in self._copies))

    def step(self, batch: Experience) -> dict[str, Tensor]:
        """Takes one step of every network that is due on a minibatch, and returns their metrics, by network."""
        if self.specs:
            learned = self._learned if self.policy_is_due else frozenset[Place]()
            learns = self.policy_is_due and self._reads_law
            self._proposals = Proposals(batch.extras["observation"], learned, learns)
        record: dict[str, Tensor] = {}
        for name, spec in self.specs.items():
            if spec.objective is None or not self._is_due(spec):
                continue
            learners = (name, *spec.together_with)
            parameters = [p for learner in learners for p in self._parameters[learner]]
            with _learning(parameters):
                result = spec.objective.of_checked(batch, self.evaluate(batch, spec.objective, learns=False))
                gradients = torch.autograd.grad(result.loss, parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            for learner in learners:
                self.steppers[learner].step()
            for parameter in parameters:
                parameter.grad = None
            metrics = {"loss": result.loss.detach(), **result.metrics}
            record |= {f"{name}/{metric}": value for metric, value in metrics.items()}
        return record

    def _is_due(self, spec: LearnedNetwork) -> bool:
        return spec.objective is not None and not spec.frozen and self.count % spec.every == 0

    def _copies_it(self, name: str) -> bool:
        return self.count % self.specs[name].target_every == 0

    @property
    def _copies_policy(self) -> bool:
        step = self.count // self.algorithm.policy_every
        return self._policy_copy is not None and self.policy_is_due and step % self.algorithm.policy_target_every == 0

    @property
    def reads(self) -> frozenset[str]:
        """The fields that the networks' losses and relabelling read, and their inputs and those of the policy."""
        parts, given = [*self.algorithm.networks, *self.algorithm.relabel], policy_input_of(self.algorithm.sampling)
        own = frozenset[str]() if given is None else frozenset({f"extras.{given.name}"})
        return own.union(*(part.active_fields("reads") for part in parts))

    @property
    def binding(self) -> Binding:
        """The strictest of what the networks' losses and relabelling bind together (`Part.binds`)."""
        parts = [*(spec.objective for spec in self.specs.values() if spec.objective), *self.algorithm.relabel]
        found = {part.binding for part in parts}
        return next((binding for binding in ("group", "row") if binding in found), "decision")

    def evaluate(self, batch: Experience, objective: Objective, *, learns: bool = True) -> Evaluation:
        """Returns the outputs that an objective reads now, with gradient. learns: whether it is that of the policy."""
        needs = objective.active_fields("policy_outputs")
        if not self.active:
            found: Evaluation = self.policy.evaluate(batch, needs)
            return found
        kept = self._proposals
        same = kept is not None and kept.observation is batch.extras["observation"]
        return self._evaluator.evaluate(
            batch, needs, logp=objective.reads_logp, proposals=kept if same else None, learns=learns
        )

    @property
    def policy_is_due(self) -> bool:
        """Tests whether the policy takes a step in this minibatch."""
        return self.count % self.algorithm.policy_every == 0

    @torch.no_grad()
    def move_targets(self) -> None:
        """Moves the target copies that are due in this minibatch, after the policy's step, and so ends it."""
        self._proposals = None
        for name, copied in self._copies.items():
            if self._copies_it(name):
                tau = self.specs[name].target_tau
                assert tau is not None
                copied.move(tau)
        if self._policy_copy is not None and self._copies_policy:
            assert self.algorithm.policy_target_tau is not None
            self._policy_copy.move(self.algorithm.policy_target_tau)

    def _kept(self) -> Iterator[tuple[str, nn.Module]]:
        yield from ((f"networks.{name}.", module) for name, module in self.modules.items())
        yield from ((f"networks.{name}.target.", module) for name, module in self.targets.items())
        if self.target_policy is not None:
            yield "networks.policy.target.", self.target_policy

    def tensors(self) -> dict[str, Tensor]:
        """Returns, by name, all tensors that the steps of networks read or change beside the policy's."""
        found = {
            f"{prefix}{name}": value
            for prefix, module in self._kept()
            for name, value in (*module.named_parameters(), *module.named_buffers())
        }
        steppers = ((f"networks.{name}.optimiser.", stepper) for name, stepper in self.steppers.items())
        return found | {f"{prefix}{name}": v for prefix, stepper in steppers for name, v in stepper.tensors().items()}

    def weights(self) -> dict[str, Tensor]:
        """Returns the networks' weights and those of their target copies, as NAME.PARAMETER and NAME.target.PARAMETER,
        for another stage or run to begin with."""
        modules = [*self.modules.items(), *((f"{name}.target", target) for name, target in self.targets.items())]
        return {
            f"{name}.{key}": value.detach() for name, module in modules for key, value in module.state_dict().items()
        }

    @torch.no_grad()
    def begin(self, found: Mapping[str, Tensor]) -> None:
        """Sets the weights of the networks that `weights` found; a target copy that is not there copies its network."""
        for name, module in self.modules.items():
            prefix = f"{name}."
            own = {key: found[prefix + key] for key in module.state_dict() if prefix + key in found}
            if own:
                module.load_state_dict(own)
            if own and name in self.targets:
                target = {key: found.get(f"{name}.target.{key}", value) for key, value in own.items()}
                self.targets[name].load_state_dict(target)

    def state(self) -> dict[str, Tensor]:
        """Returns weights, target copies and optimisers, by name."""
        tensors = {"networks.count": torch.tensor(self.count)} if self.active else {}
        for prefix, module in self._kept():
            tensors |= {prefix + name: value.detach() for name, value in module.state_dict().items()}
        for name, stepper in self.steppers.items():
            tensors |= {f"networks.{name}.optimiser.{key}": value for key, value in stepper.state().items()}
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        self.count = int(tensors.get("networks.count", 0))
        for prefix, module in self._kept():
            module.load_state_dict({name: tensors[prefix + name] for name in module.state_dict()})
        for name, stepper in self.steppers.items():
            prefix = f"networks.{name}.optimiser."
            state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            stepper.load(state, lambda value, parameter: value.to(parameter.device))


@contextmanager
def _learning(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Lets gradients reach parameters."""
    for parameter in parameters:
        parameter.requires_grad = True
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad = False


class _Copy:
    """A target copy of a module, which moves towards it."""

    def __init__(self, target: nn.Module, module: nn.Module) -> None:
        self._target, self._module = target, module
        self._moved: list[Tensor] = [*target.parameters()]
        self._followed: list[Tensor] = [*module.parameters()]

    def move(self, tau: float) -> None:
        """Moves the parameters by the share tau of the way, and sets the buffers."""
        torch._foreach_lerp_(self._moved, self._followed, tau)
        for buffer, other in zip(self._target.buffers(), self._module.buffers(), strict=True):
            buffer.copy_(other)
