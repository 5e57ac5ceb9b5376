"""A policy and critic of two multilayer perceptrons, for environments with vector observations."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience

Activation = Literal["tanh", "relu"]
# The logarithm of the standard deviation is kept in this range.
LOG_STD = (-20.0, 2.0)


class Action(NamedTuple):
    """A decision for each of N environments.

    action: [N] int64, or [N, A].
    logp: [N], its log-probability or log-density.
    """

    action: Tensor
    logp: Tensor


class NetworkPolicy(nn.Module):
    """A policy pi(a | s) and a critic V(s), each a multilayer perceptron of its own.

    With `actions` n the policy is categorical over n choices. With `dimensions` A it is Gaussian, with a mean of shape
    [A] that depends on the state and a standard deviation that does not; the log-probability of an action is the sum
    over its dimensions.

    observations: numbers in an observation, D.
    hidden: widths of the hidden layers.
    """

    def __init__(
        self,
        *,
        observations: int,
        actions: int | None = None,
        dimensions: int | None = None,
        hidden: Iterable[int] = (64, 64),
        activation: Activation = "tanh",
        seed: int = 0,
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
        generator = torch.Generator().manual_seed(seed)
        outputs = actions if actions is not None else int(dimensions or 0)
        layers = [observations, *self.settings["hidden"]]
        self.actor = _perceptron([*layers, outputs], activation, 0.01, generator)
        self.critic = _perceptron([*layers, 1], activation, 1.0, generator)
        self.log_std = None if dimensions is None else nn.Parameter(torch.zeros(dimensions))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @torch.no_grad()
    def act(self, observation: Tensor, generator: Generator, *, greedy: bool = False) -> Action:
        """Samples an action for each observation [N, D]; the most likely one if greedy."""
        output = self.actor(observation)
        if self.log_std is None:
            logp = output.log_softmax(-1)
            noise = torch.rand(logp.shape, generator=generator).clamp(min=1e-20).to(logp)
            choice = (logp if greedy else logp - (-noise.log()).log()).argmax(-1)  # Gumbel's maximum
            return Action(choice, logp.gather(-1, choice[..., None])[..., 0])
        noise = torch.zeros_like(output) if greedy else torch.randn(output.shape, generator=generator).to(output)
        action = output + self._log_std().exp() * noise
        return Action(action, self._log_density(output, action))

    def evaluate(self, experience: Experience, needs: Iterable[str] = (), *, top: int = 0) -> Evaluation:
        """Evaluates the policy on the decisions of a batch.

        Reads `extras["observation"]` [B, T + 1, D], the state before each decision and after the last one, and
        `extras["action"]`, [B, T] int64 or [B, T, A]. Returns logp [B, T] and, if they are among `needs`, the entropy
        of the decision and the value before it; with the value also final_value [B, T], the value after each decision.
        """
        needs = frozenset(needs)
        observation, action = experience.extras["observation"], experience.extras["action"]
        output = self.actor(observation[:, :-1])
        if self.log_std is None:
            log_p = output.log_softmax(-1)
            logp = log_p.gather(-1, action[..., None])[..., 0]
            entropy = -(log_p.exp() * log_p).sum(-1)
        else:
            logp = self._log_density(output, action)
            entropy = (self._log_std() + 0.5 * math.log(2 * math.pi * math.e)).sum().expand_as(logp)
        found: dict[str, Any] = {"entropy": entropy} if "entropy" in needs else {}
        if "value" in needs:
            value = self.critic(observation)[..., 0]
            found |= {"value": value[:, :-1], "final_value": value[:, 1:].detach()}
        return Evaluation(logp=logp, support=experience.support, **found)

    def _log_std(self) -> Tensor:
        assert self.log_std is not None
        return self.log_std.clamp(*LOG_STD)

    def _log_density(self, mean: Tensor, action: Tensor) -> Tensor:
        scaled = (action - mean) / self._log_std().exp()
        return (-0.5 * scaled.square() - self._log_std() - 0.5 * math.log(2 * math.pi)).sum(-1)

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Returns the parameters that can change, by name."""
        return dict(self.named_parameters())

    def frozen(self) -> Self:
        """Returns a copy without gradient."""
        return copy.deepcopy(self).requires_grad_(False)

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


def _perceptron(widths: list[int], activation: Activation, gain: float, generator: Generator) -> nn.Sequential:
    """Returns layers with orthogonal weights of gain sqrt(2), the last one of `gain`, and biases of 0."""
    layers: list[nn.Module] = []
    for i, (inner, outer) in enumerate(itertools.pairwise(widths)):
        last = i == len(widths) - 2
        layer = nn.Linear(inner, outer)
        nn.init.orthogonal_(layer.weight, gain if last else math.sqrt(2), generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, nn.Tanh() if activation == "tanh" else nn.ReLU()]
    return nn.Sequential(*layers)
