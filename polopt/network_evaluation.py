"""The evaluation of a policy and of the networks beside it, on the decisions of a batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.networks import BALANCE, INPUTS, LearnedNetwork
from polopt.outputs import POLICY, NetworkOutput, Proposal, output_of
from polopt.sampling import PolicyInput

# What determines the law of a decision, as a policy's head reads it.
Law = tuple[Tensor, ...]
# A proposal, and whether it is made at the state after the decision.
Place = tuple[Proposal, bool]


@dataclasses.dataclass
class Proposals:
    """Laws and proposed actions of a policy in the states of a minibatch, each computed once.

    observation: of the minibatch, which it is known by.
    with_gradient: the proposals whose gradient reaches the policy. All others have none.
    learns: whether any gradient through a law does.
    laws: by whether of the target copy, and whether at the state after the decision.
    actions: with their log-probabilities.
    imagined: the states [B, T, J, D] at which the actions of a sequence are taken, as networks read them.
    """

    observation: Tensor
    with_gradient: frozenset[Place] = frozenset()
    learns: bool = True
    laws: dict[tuple[bool, bool], Law] = dataclasses.field(default_factory=dict)
    actions: dict[Place, tuple[Tensor, Tensor]] = dataclasses.field(default_factory=dict)
    imagined: dict[Place, Tensor] = dataclasses.field(default_factory=dict)


class NetworkEvaluator:
    """Evaluates a policy on the decisions of a batch, and networks at its states and actions.

    policy: with `evaluate`, `law` and `propose_of`, as `policies.network.NetworkPolicy`.
    modules, targets: the networks and their target copies, by name.
    target_policy: the policy's target copy, if there is one.
    generator: of the noise of proposed actions.
    policy_input: what the policy reads beside the observation.

    Networks read observations as the policy's normaliser leaves them, if it has one, and actions scaled from their
    bounds to [-1, 1]; densities are of the scaled ones. An action that is proposed at a state is drawn once in a call,
    or for all calls that are given the same `Proposals`, for all outputs that are read there.
    """

    def __init__(
        self,
        policy: Any,
        modules: Mapping[str, nn.Module],
        targets: Mapping[str, nn.Module],
        target_policy: Any,
        generator: Generator,
        specs: Mapping[str, LearnedNetwork],
        policy_input: PolicyInput | None = None,
    ) -> None:
        self.policy, self.modules, self.targets, self.target_policy = policy, modules, targets, target_policy
        self.generator, self.specs, self.policy_input = generator, specs, policy_input
        low, high = (None if bound is None else torch.tensor(bound) for bound in (policy.space.low, policy.space.high))
        self.bounds = None if low is None or high is None else ((low + high) / 2, (high - low) / 2)

    def evaluate(
        self,
        experience: Experience,
        needs: Iterable[str] = (),
        *,
        top: int = 0,
        logp: bool = True,
        proposals: Proposals | None = None,
        learns: bool = True,
    ) -> Evaluation:
        """Returns the outputs of `policies.network.NetworkPolicy.evaluate`, and those of networks by their names.
        logp: False leaves the log-probabilities at 0 where no other output of the policy is read. proposals: those of
        the minibatch so far. learns: whether gradients through proposed actions reach the policy."""
        needs = sorted(needs)
        outputs = {name: output for name in needs if (output := output_of(name)) is not None}
        own = [name for name in needs if name not in outputs]
        if logp or own:
            evaluation = self.policy.evaluate(experience, own, top=top)
        else:
            zero = torch.zeros_like(experience.mask, dtype=experience.extras["observation"].dtype)
            evaluation = Evaluation(logp=zero, support=experience.support)
        if proposals is None:
            learned = learned_places(outputs.values()) if learns else frozenset[Place]()
            proposals = Proposals(experience.extras["observation"], learned, learns)
        found = {
            name.removeprefix("extras."): self._output(output, experience, proposals, learns)
            for name, output in outputs.items()
        }
        return Evaluation(
            **{field: getattr(evaluation, field) for field in ("logp", "support", "entropy", "value", "final_value")},
            extras={**evaluation.extras, **found},
        )

    def _output(
        self,
        output: NetworkOutput,
        experience: Experience,
        proposals: Proposals,
        learns: bool,
    ) -> Tensor:
        observation = experience.extras["observation"]
        state = observation[:, 1:] if output.next else observation[:, :-1]
        place = _place(output)
        if output.network == "observation":
            return self._input("observation", experience, state, state, output.next)
        if output.network == BALANCE:
            chosen: Tensor = self.policy.choose_balance(state, self.generator).action
            return chosen.detach()
        if place is None:
            action = self._scaled(experience.extras["action"])
        elif output.network == "logp" and place[0].of == "every":
            with torch.set_grad_enabled(torch.is_grad_enabled() and not place[1]):
                every: Tensor = self.policy.choice_logp(self._state(experience, place[1]))
            return every
        else:
            if place not in proposals.actions:
                proposals.actions[place] = self._propose(place, experience, proposals)
            action, logp = (x if learns else x.detach() for x in proposals.actions[place])
            if output.network == "logp":
                return logp
        if output.network == "action":
            return action
        if output.network == POLICY:
            values = self._action_values(output, action, experience, proposals)
            return values if learns else values.detach()
        module = (self.targets if output.target else self.modules)[output.network]
        names = self.specs[output.network].network.inputs
        inputs = [self._input(name, experience, state, action, output.next) for name in names]
        several = self._several(output, experience, action)
        if several is not None:
            drawn = several.shape[2]
            known = {"action": several}
            if place in proposals.imagined:
                known["observation"] = proposals.imagined[place]
            inputs = [
                known[name] if name in known else value[:, :, None].expand(-1, -1, drawn, *value.shape[2:])
                for name, value in zip(names, inputs, strict=True)
            ]
        with torch.set_grad_enabled(torch.is_grad_enabled() and not output.target):
            found: Tensor = module(*inputs)
        if output.heads is not None:
            kept = torch.randperm(found.shape[-1], generator=self.generator)[: output.heads]
            found = found[..., kept.to(found.device)]
        return found

    def _several(self, output: NetworkOutput, experience: Experience, action: Tensor) -> Tensor | None:
        """Returns the actions [B, T, K, ...] at each of which an output is read, if there are several."""
        if output.column is not None:
            return experience.extras[output.column]
        return action if output.proposal is not None and output.proposal.several else None

    def _read(self, state: Tensor, experience: Experience, after: bool) -> Tensor:
        """Returns what the policy reads at a state."""
        if self.policy_input is None:
            return state
        name = self.policy_input.name
        given: Tensor = self.policy.state_of(state, {name: self._given(name, experience, after)})
        return given

    def _given(self, name: str, experience: Experience, after: bool) -> Tensor:
        """Returns a column; if `after`, as it is after the decision."""
        extras = experience.extras
        value: Tensor = extras[name]
        if not after:
            return value
        if self.policy_input is None or name != self.policy_input.name:
            later: Tensor = extras.get(f"final_{name}", value)
            return later
        before = extras["observation"][:, :-1]
        return self.policy_input.after(value, before, extras["action"], self.generator, self.policy)

    def _input(self, name: str, experience: Experience, state: Tensor, action: Tensor, after: bool) -> Tensor:
        """Returns an input of a network, by its name among `Network.inputs`."""
        if name == "action":
            return action
        if name not in INPUTS:
            return self._given(name.removeprefix("extras."), experience, after)
        observation = state if name == "observation" else experience.extras["observation"][:, 1:]
        normaliser = self.policy.normaliser
        found: Tensor = observation if normaliser is None else normaliser(observation)
        return found

    def _state(self, experience: Experience, after: bool) -> Tensor:
        """Returns what the policy reads before each decision, or after it."""
        observation = experience.extras["observation"]
        return self._read(observation[:, 1:] if after else observation[:, :-1], experience, after)

    def _law(self, target: bool, after: bool, experience: Experience, proposals: Proposals) -> Law:
        """Returns the laws of the policy, or of its target copy, in the states before or after the decisions. What
        stands in a target has no gradient, and needs no graph."""
        key = target, after
        if key not in proposals.laws:
            policy = self.target_policy if target else self.policy
            learned = torch.is_grad_enabled() and proposals.learns and not (target or after)
            with torch.set_grad_enabled(learned):
                proposals.laws[key] = policy.law(self._state(experience, after))
        return proposals.laws[key]

    def _action_values(
        self, output: NetworkOutput, action: Tensor, experience: Experience, proposals: Proposals
    ) -> Tensor:
        """Returns the policy's values [B, T, 1] of choices [B, T], or [B, T, n, 1] of every one."""
        values = self._law(output.target, output.next, experience, proposals)[0]
        if output.proposal is not None and output.proposal.of == "every":
            return values[..., None]
        return values.gather(-1, action[..., None])

    def _scaled(self, action: Tensor) -> Tensor:
        """Scales actions from their bounds to [-1, 1]."""
        if self.bounds is None:
            return action
        middle, half = self.bounds
        return (action - middle.to(action)) / half.to(action)

    def _propose(self, place: Place, experience: Experience, proposals: Proposals) -> tuple[Tensor, Tensor]:
        """Returns actions [B, T, ...], or [B, T, K, ...] of several, and their log-probabilities."""
        proposal, after = place
        if proposal.of == "every":
            shape = (*experience.mask.shape, -1)
            action = torch.arange(self.policy.space.actions, device=experience.device).expand(shape)
            return action, torch.zeros_like(action, dtype=torch.get_default_dtype())  # for its own, see `_output`
        if proposal.of == "uniform":
            state, dimensions = experience.extras["observation"], self.policy.space.dimensions
            shape = (*experience.mask.shape, *([proposal.draws] if proposal.draws else []))
            action = 2 * torch.rand(*shape, dimensions, generator=self.generator).to(state) - 1
            return action, state.new_full(shape, -dimensions * math.log(2))
        policy = self.target_policy if proposal.target else self.policy
        if proposal.of == BALANCE:
            with torch.set_grad_enabled(torch.is_grad_enabled() and place in proposals.with_gradient):
                action, logp = policy.propose_balanced(self._state(experience, after), self.generator)
            return self._scaled(action), logp
        if proposal.sequence:
            return self._imagine(policy, place, experience, proposals)
        law = self._law(proposal.target, after, experience, proposals)
        with torch.set_grad_enabled(torch.is_grad_enabled() and place in proposals.with_gradient):
            if proposal.draws:
                law = tuple(_repeated(x, proposal.draws) for x in law)
            action, logp = policy.propose_of(law, self.generator)
            if self.bounds is not None:
                action, logp = self._scaled(action), logp + self.bounds[1].log().sum()
            if proposal.noise:
                noise = torch.randn(action.shape, generator=self.generator).to(action) * proposal.noise
                least, most = self._limits(policy, law)
                action = (action + noise.clamp(-proposal.clip, proposal.clip)).clamp(least, most)
        return action, logp

    def _limits(self, policy: Any, law: Law) -> tuple[Any, Any]:
        """Returns the least and the largest scaled action of laws: -1 and 1, or those [..., A] of the interval that
        the policy acts in."""
        limits = policy.head.limits(law)
        return (-1.0, 1.0) if limits is None else tuple(self._scaled(bound) for bound in limits)  # type: ignore[return-value]

    def _imagine(
        self, policy: Any, place: Place, experience: Experience, proposals: Proposals
    ) -> tuple[Tensor, Tensor]:
        """Returns actions in turn [B, T, J, A] and their log-probabilities [B, T, J], and notes the states."""
        proposal, after = place
        seen = self._state(experience, after)
        with torch.set_grad_enabled(torch.is_grad_enabled() and place in proposals.with_gradient):
            action, logp = policy.propose_sequence(seen, proposal.sequence, self.generator)
            if self.bounds is not None:
                action, logp = self._scaled(action), logp + self.bounds[1].log().sum()
        model = self.targets.get(proposal.model, self.modules[proposal.model])
        observation = experience.extras["observation"]
        state = self._input(
            "observation", experience, observation[:, 1:] if after else observation[:, :-1], action, False
        )
        states = [state]
        with torch.no_grad():
            for one in action.unbind(2)[:-1]:
                states.append(model(states[-1], one))
        proposals.imagined[place] = torch.stack(states, 2)
        return action, logp


def _place(output: NetworkOutput) -> Place | None:
    """Returns the proposal that an output is read at, if it is."""
    return None if output.proposal is None else (output.proposal, output.next or output.proposal.after)


def learned_places(outputs: Iterable[NetworkOutput]) -> frozenset[Place]:
    """Returns the proposals that outputs are read at with a gradient: those in the state before a decision."""
    places = {place for output in outputs if (place := _place(output)) is not None}
    return frozenset((proposal, after) for proposal, after in places if proposal.learns and not after)


def _repeated(law: Tensor, draws: int) -> Tensor:
    """Returns what a law holds of each decision, [B, T, ...], as [B, T, K, ...]; what no state changes as it is."""
    return law[:, :, None].expand(-1, -1, draws, *law.shape[2:]) if law.ndim > 1 else law
