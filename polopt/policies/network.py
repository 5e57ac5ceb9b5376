"""A policy and critic of two multilayer perceptrons, for environments with vector observations."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.networks import (
    LATENT_OUTPUTS,
    Activation,
    IntervalActor,
    MemoryNetwork,
    ResidualNetwork,
    SequenceActor,
    Space,
    Trunk,
    perceptron,
)
from polopt.part import build
from polopt.policies import balanced, latents, memories
from polopt.policies.head import Action, HeadError, HeadName, Law
from polopt.policies.heads import LOG_STD, Bounded, head_of
from polopt.policies.normaliser import ObservationNormaliser

__all__ = ["LOG_STD", "Action", "Activation", "NetworkPolicy"]
_NO_SUM = (
    "NetworkPolicy: a residual is added to the mean of a gaussian head, by perceptrons that read observations as they "
    "are; found head = {!r}, trunk = {!r:.60} and normalise = {}"
)


class NetworkPolicy(nn.Module):
    """A policy pi(a | s) and a critic V(s), each a multilayer perceptron of its own.

    With `actions` n the policy chooses among n; with `dimensions` A an action is a vector [A]. The head is the
    distribution that the actor's outputs determine.

    observations: numbers in an observation, D.
    head: categorical for choices, or action_values, whose outputs are their values; for vectors gaussian, whose
        standard deviation depends on no state, squashed_gaussian, beta, dirichlet or deterministic. None is the first
        that fits.
    low, high: the bounds of a vector, [A]; the Gaussian has none.
    normalise: whether observations are normalised by the mean and standard deviation of those of training so far.
    hidden: widths of the hidden layers.
    trunk: the architecture of both in place of perceptrons, as a part or as `Part.to_dict` gives it.
    inputs: what both read beside the observation, by name, with the numbers in each: `extras.NAME` [B, T, K].
    privileged: numbers that the environment tells beside the observation, P, which the critic reads and the policy
        does not: `extras.privileged` [B, T, P].
    residual: whether the actor is the sum of a frozen perceptron and of one that learns; see `with_residual`.

    Raises:
        HeadError: the head does not fit the actions.
        ValueError: a residual of another head than gaussian, of a trunk, or of normalised observations.
    """

    tags = frozenset({"head=mlp", "input=state"})

    # Whether a learner's steps, and the decisions of training, are compiled graphs.
    compiled = False

    def __init__(
        self,
        *,
        observations: int,
        actions: int | None = None,
        dimensions: int | None = None,
        head: HeadName | None = None,
        low: Sequence[float] | None = None,
        high: Sequence[float] | None = None,
        normalise: bool = False,
        hidden: Iterable[int] = (64, 64),
        activation: Activation = "tanh",
        seed: int = 0,
        inputs: Mapping[str, int] | None = None,
        privileged: int = 0,
        trunk: Trunk | Mapping[str, Any] | None = None,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if (actions is None) == (dimensions is None):
            raise ValueError(f"NetworkPolicy: give actions or dimensions, found {actions} and {dimensions}")
        self.settings: dict[str, Any] = {
            "observations": observations,
            "actions": actions,
            "dimensions": dimensions,
            "hidden": list(hidden),
            "activation": activation,
        }
        default: HeadName = "categorical" if dimensions is None else "gaussian"
        name = head or default
        bounds = [[*b] if b is not None else [s * math.inf] * (dimensions or 0) for s, b in ((-1, low), (1, high))]
        self.head = head_of(name, actions, *bounds)
        if name != default:  # a saved policy of the default head has no such settings
            self.settings |= {"head": name, "low": bounds[0], "high": bounds[1]}
        self.inputs = dict(inputs or {})
        optional = {"normalise": normalise, "inputs": self.inputs, "privileged": privileged}
        self.settings |= {name: value for name, value in optional.items() if value}
        self.actor, self.critic = self._built(trunk, torch.Generator().manual_seed(seed))
        if residual:
            if name != "gaussian" or trunk is not None or normalise:
                raise ValueError(_NO_SUM.format(name, trunk, normalise))
            self.settings |= {"residual": True}
            self.actor = ResidualNetwork(self.actor)  # type: ignore[arg-type]
        self.log_std = nn.Parameter(torch.zeros(self.head.outputs)) if self.head.free_std else None
        self.normaliser = ObservationNormaliser(observations) if normalise else None

    def _built(self, trunk: Trunk | Mapping[str, Any] | None, generator: Generator) -> tuple[nn.Module, nn.Module]:
        """Returns new networks of actor and critic, and notes the trunk in the settings."""
        settings, space = self.settings, self.space
        if trunk is None:
            layers = [space.observations + sum(self.inputs.values()), *settings["hidden"]]
            activation = settings["activation"]
            actor = perceptron([*layers, self.head.outputs], activation, 0.01, generator)
            return actor, perceptron([layers[0] + space.privileged, *layers[1:], 1], activation, 1.0, generator)
        trunk = trunk if isinstance(trunk, Trunk) else build(dict(trunk))
        name = f"networks.{type(trunk).__name__}"
        if "normalise" in settings and not trunk.normalised:
            raise ValueError(f"policy.normalise = true: {name} reads observations as they are; set it to false")
        settings["trunk"] = trunk.to_dict()
        built = trunk.build(space, self.head.outputs, generator), trunk.build_value(space, generator)
        if isinstance(built[0], IntervalActor) and not self.head.takes_interval:
            raise HeadError(
                f"policy.head = {self.head.name!r} does not act within the interval of {name}; set it to deterministic"
            )
        return built

    @property
    def per_decision(self) -> bool:
        """Tests whether each decision is evaluated on its own, so that the decisions of a batch can be its rows."""
        return not isinstance(self.actor, MemoryNetwork)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def space(self) -> Space:
        """The numbers that the policy reads and decides on."""
        settings, bounded = self.settings, isinstance(self.head, Bounded)
        return Space(
            settings["observations"],
            settings["actions"],
            settings["dimensions"],
            low=tuple(settings["low"]) if bounded else None,
            high=tuple(settings["high"]) if bounded else None,
            inputs=tuple(self.inputs.items()),
            privileged=settings.get("privileged", 0),
        )

    @property
    def reads(self) -> frozenset[str]:
        """The columns that policy and critic read beside observation, action and legal choices, as `extras.NAME`."""
        told = ("privileged",) if "privileged" in self.settings else ()
        return frozenset(f"extras.{name}" for name in (*self.inputs, *told))

    def state_of(self, observation: Tensor, extras: Mapping[str, Any]) -> Tensor:
        """Returns what the policy reads: observations [..., D], and after them its inputs among the extras, and what
        its actor reads where it is there."""
        optional = [name for name in getattr(self.actor, "optional", ()) if name in extras]
        inputs = [extras[name] for name in (*self.inputs, *optional)]
        return torch.cat([observation, *(value.to(observation) for value in inputs)], -1) if inputs else observation

    def law(self, observation: Tensor, legal: Tensor | None = None) -> Law:
        """Returns the law of the decision after each observation [..., D], with the policy's inputs behind it, as
        `state_of` returns them, here and in the methods below. legal: [..., n] bool, choices to take."""
        return self.head.law(self.actor(self.normalised(observation)), self.log_std, legal)

    def laws(self, experience: Experience) -> Law:
        """Returns the laws of a batch's decisions, tensors [B, T, ...], and of them [A] what no state changes."""
        extras, T = memories.extras_of(self, experience), experience.mask.shape[1]
        return self.law(self.state_of(extras["observation"][:, :T], extras), extras.get("legal"))

    def law_divergence(self, old: Law, new: Law) -> Tensor:
        """Returns KL(old || new) [...] of laws, in nats."""
        return self.head.divergence(old, new)

    def value(self, state: Tensor) -> Tensor:
        """Returns the critic's value [...] of each state [..., D and more], as `valued_state` returns them."""
        value: Tensor = self.critic(self.normalised(state))[..., 0]
        return value

    def valued_state(self, observation: Tensor, extras: Mapping[str, Any], *, after: bool = False) -> Tensor:
        """Returns what the critic reads: what the policy reads, and then what the environment tells, [..., P].

        after: whether observations are those after the decisions, as `extras["final_NAME"]` are, which stand in for
        `extras["NAME"]` where a source gives them; else these hold.
        """
        if after:
            extras = {name: extras.get(f"final_{name}", value) for name, value in extras.items()}
        state = self.state_of(observation, extras)
        return torch.cat([state, extras["privileged"].to(state)], -1) if "privileged" in self.settings else state

    @torch.no_grad()
    def act(
        self, observation: Tensor, generator: Generator, *, greedy: bool = False, legal: Tensor | None = None
    ) -> Action:
        """Samples an action for each observation [N, D]; the most likely one if greedy."""
        law = self.law(observation, legal)
        if not greedy:
            return self.head.sample(law, generator)
        mode = self.head.mode(law)
        return Action(mode, self.head.logp(law, mode))

    def action_values(self, observation: Tensor) -> Tensor:
        """Returns the values [..., n] of the choices after each observation [..., D], of a head of action values."""
        values: Tensor = self.actor(self.normalised(observation))
        return values

    def choice_logp(self, observation: Tensor) -> Tensor:
        """Returns the log-probabilities [..., n] of all choices after each observation [..., D]."""
        law = self.law(observation)
        choices = torch.arange(self.head.outputs, device=observation.device)
        return torch.stack([self.head.logp(law, choice.expand(observation.shape[:-1])) for choice in choices], -1)

    def propose(self, observation: Tensor, generator: Generator) -> Action:
        """Samples an action for each observation [N, D]; action and logp have a gradient through the sample.

        Raises:
            HeadError: gradients are recorded, and the head is one of choices, whose samples have none.
        """
        return self.propose_of(self.law(observation), generator)

    def propose_of(self, law: Law, generator: Generator) -> Action:
        """Samples an action of each law, as `propose`."""
        self._check_gradient()
        return self.head.sample(law, generator)

    def propose_sequence(
        self, observation: Tensor, length: int, generator: Generator, *, greedy: bool = False
    ) -> Action:
        """Samples `length` actions in turn after a look at each observation [..., D]: action [..., J, A] or [..., J],
        and logp [..., J], each given the actions before it; as `propose`. The most likely ones if greedy.

        A policy whose actor has no sequences takes one action and holds it, with logp of 0 after the first.
        """
        self._check_gradient()
        found: list[Action] = []

        def act(output: Tensor) -> Tensor:
            law = self.head.law(output, self.log_std)
            mode = self.head.mode(law) if greedy else None
            found.append(self.head.sample(law, generator) if mode is None else Action(mode, self.head.logp(law, mode)))
            return found[-1].action

        seen = self.normalised(observation)
        if isinstance(self.actor, SequenceActor):
            self.actor.unroll(seen, act, length)
        else:
            act(self.actor(seen))
            found += [Action(found[0].action, torch.zeros_like(found[0].logp))] * (length - 1)
        place = observation.ndim - 1
        return Action(*(torch.stack([getattr(each, name) for each in found], place) for name in Action._fields))

    def choose_balance(self, observation: Tensor, generator: Generator) -> Action:
        """Samples a balance for each observation [..., D]; see `policies.balanced.choose`."""
        return balanced.choose(self, observation, generator)

    def remember(self, memory: Tensor, observation: Tensor, action: Tensor) -> Tensor:
        """Returns the memories [N, 2 units] after decisions at observations [N, D]; see `policies.memories`."""
        return memories.remember(self, memory, memories.met_by(self, observation, action)[:, None])[:, 0]

    def propose_balanced(self, observation: Tensor, generator: Generator) -> Action:
        """Samples an action at a chosen balance for each observation [..., D]; see `policies.balanced.propose`."""
        return balanced.propose(self, observation, generator)

    def _check_gradient(self) -> None:
        if torch.is_grad_enabled() and not self.head.reparameterised:
            raise HeadError(
                f"samples of a {self.head.name} head have no gradient; take an environment whose actions are a Box, or "
                "a method that reads log-probabilities"
            )

    def evaluate(self, experience: Experience, needs: Iterable[str] = (), *, top: int = 0) -> Evaluation:
        """Evaluates the policy on the decisions of a batch.

        Reads `extras["observation"]` [B, T + 1, D], the state before each decision and after the last one,
        `extras["action"]`, [B, T] int64 or [B, T, A], and, where the environment has illegal choices,
        `extras["legal"]` [B, T, n] bool. Returns logp [B, T] and, if they are among `needs`, the entropy of the
        decision and the value before it; with the value also final_value [B, T], the value after each decision, of
        `extras["final_observation"]` [B, T, D] where a source gives it; see `valued_state`. A batch of T observations
        without it has no final_value. "extras.mean" and "extras.log_std" among them are [B, T, A], of a head of normal
        distributions. An actor with a latent vector gives its law, "extras.latent_mean" and "extras.latent_log_std" [B,
        T, Z], and features [B, T, F]: "extras.predicted_features" from it, and "extras.privileged_features" of
        `extras["privileged"]`, without a gradient.
        """
        needs = frozenset(needs)
        observation, action = experience.extras["observation"], experience.extras["action"]
        T = experience.mask.shape[1]
        extras = memories.extras_of(self, experience)
        before = self.state_of(observation[:, :T], extras)
        law = self.law(before, extras.get("legal"))
        logp = self.head.logp(law, action)
        found: dict[str, Any] = {"entropy": self.head.entropy(law)} if "entropy" in needs else {}
        if "value" in needs:
            found |= self._values(experience, extras)
        if needs & {"extras.mean", "extras.log_std"}:
            mean, log_std = law
            found["extras"] = {"mean": mean, "log_std": log_std.expand_as(mean)}
        if needs & LATENT_OUTPUTS:
            found["extras"] = {**found.get("extras", {}), **latents.latent_of(self, before, extras, needs)}
        return Evaluation(logp=logp, support=experience.support, **found)

    def _values(self, experience: Experience, extras: Mapping[str, Any]) -> dict[str, Tensor]:
        """Returns the values before the decisions, and after them where the batch has what is read there."""
        observation, T = experience.extras["observation"], experience.mask.shape[1]
        after = extras.get("final_observation")
        if self.inputs or "privileged" in self.settings:
            after = observation[:, 1:] if after is None and observation.shape[1] > T else after
            observation = self.valued_state(observation[:, :T], extras)
        value = self.value(observation)
        found = {"value": value[:, :T]}
        if after is not None:
            found["final_value"] = self.value(self.valued_state(after, extras, after=True)).detach()
        elif observation.shape[1] > T:
            found["final_value"] = value[:, 1:].detach()
        return found

    def normalised(self, state: Tensor) -> Tensor:
        """Returns states [..., D and more], as `state_of` returns them, with the observation [..., D] normalised."""
        if self.normaliser is None:
            return state
        seen, inputs = state.tensor_split([self.settings["observations"]], -1)
        return torch.cat([self.normaliser(seen), inputs], -1) if inputs.shape[-1] else self.normaliser(seen)

    def own_parameters(self) -> dict[str, Tensor]:
        """Returns the parameters that can change, and the statistics of the normaliser, by name."""
        statistics = {} if self.normaliser is None else dict(self.normaliser.named_buffers(prefix="normaliser"))
        return {**dict(self.named_parameters()), **statistics}

    def frozen(self) -> Self:
        """Returns a copy without gradient."""
        return copy.deepcopy(self).requires_grad_(False)

    def twin(self) -> Self:
        """Returns a copy with weights of its own, which normalises observations as this policy does at any time."""
        shared = {} if self.normaliser is None else {id(self.normaliser): self.normaliser}
        return copy.deepcopy(self, shared)

    def with_residual(self, *, std: float = 1.0, seed: int = 0) -> Self:
        """Returns a policy N(mu(s) + r(s), std^2) with this one's mean mu, frozen, and a correction r that learns.

        r is a copy of the actor whose last layer is 0, so that r = 0 at first; the critic is new. With the residual
        action a_r ~ N(r(s), std^2), log pi(mu(s) + a_r | s) is that of a_r, so that methods learn as if a_r were the
        action. std: at first, in every dimension. seed: of the critic.

        Raises:
            ValueError: as the constructor.
        """
        if not std > 0:
            raise ValueError(f"NetworkPolicy.with_residual: std must be > 0, found {std}")
        if "residual" in self.settings:
            raise ValueError("NetworkPolicy.with_residual: this policy has a residual already; take its base")
        made = type(self)(**self.settings, residual=True, seed=seed)
        made.actor = ResidualNetwork(copy.deepcopy(self.actor))  # type: ignore[arg-type]
        assert made.log_std is not None
        nn.init.constant_(made.log_std, math.log(std))
        return made.to(self.device)

    def save(self, folder: Path) -> None:
        """Writes weights and settings into a folder; `load` reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.settings, indent=1) + "\n", encoding="utf-8")
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, folder / "model.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Loads a policy from a folder written by `save`."""
        made = cls(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
        made.load_state_dict(load_file(folder / "model.safetensors"))
        return made
