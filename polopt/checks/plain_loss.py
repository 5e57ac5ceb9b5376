"""Plain functions of tensors wrapped as objectives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.names import nearest
from polopt.objectives import Objective

# Meaning of an argument by its common names: all are [B, T], except logits and the last four.
GIVEN = {
    "policy": ("logp", "logps", "log_prob", "log_probs", "logprob", "logprobs", "per_token_logps", "new_logp"),
    "old": ("old_logp", "old_logps", "old_log_prob", "old_log_probs", "old_logprobs", "old_per_token_logps"),
    "sampler": ("sampling_logp", "rollout_logp", "behaviour_logp", "behavior_logp", "rollout_log_probs"),
    "reference": ("ref_logp", "ref_logps", "ref_log_prob", "ref_log_probs", "ref_logprob", "ref_per_token_logps"),
    "advantage": ("advantage", "advantages", "adv"),
    "mask": ("mask", "response_mask", "completion_mask", "action_mask", "loss_mask"),
    "entropy": ("entropy", "entropies"),
    "value": ("value", "values"),
    "old_value": ("old_value", "old_values"),
    "value_target": ("value_target", "value_targets"),
    "logits": ("logits",),
    "reward": ("reward", "rewards"),
    "group": ("group", "groups"),
    "decisions": ("decisions", "num_items_in_batch", "batch_num_tokens"),
    "rows": ("rows", "global_batch_size"),
}
MEANS = {name: meaning for meaning, names in GIVEN.items() for name in names}


class PlainLoss(Objective):
    """Wraps a function `loss(logp, old_logp, advantage, mask, ...)` of any of the arguments of `GIVEN`, by name, to a
    scalar.

    All arguments are [B, T], but logits [B, T, V], reward and group [B], and two numbers of the whole optimiser batch:
    its count of decisions, and of rows. old_logp is the behaviour policy's, unless the function takes both.

    numbers: passes the mask as numbers instead of bool.
    first: the loss is the first of several returned values.
    seed: the seed of the random numbers in each call; None leaves the generator alone.

    Raises:
        ValueError: an argument without default that is none of these, or no argument for the log-probabilities.
    """

    function: Callable[..., Any]
    numbers: bool = False
    first: bool = False
    seed: int | None = 0

    def setup(self) -> None:
        self.meanings = arguments_of(self.function)

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        meanings = set(self.meanings.values())
        fields = {"reference": "ref_logp", "advantage": "advantage", "reward": "reward", "group": "group"}
        fields["value_target"] = "value_target"
        fields |= {"old": "rollout_logp", "sampler": "rollout_logp", "old_value": "value"}
        own = {"old_logp"} if {"old", "sampler"} <= meanings else set()
        return frozenset({fields[k] for k in meanings if k in fields} | own)

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"entropy", "value", "logits"} & set(self.meanings.values()))

    def arguments(self, experience: Experience, evaluation: Evaluation) -> dict[str, Any]:
        """Returns the arguments of the function's call, by name."""
        return {name: self._argument(meaning, experience, evaluation) for name, meaning in self.meanings.items()}

    def _argument(self, meaning: str, experience: Experience, evaluation: Evaluation) -> Any:
        match meaning:
            case "policy":
                return evaluation.logp
            case "old":
                return experience.old_logp if "sampler" in self.meanings.values() else experience.rollout_logp
            case "sampler":
                return experience.rollout_logp
            case "reference":
                return experience.ref_logp
            case "old_value":
                return experience.value
            case "mask":
                return experience.mask.to(evaluation.logp.dtype) if self.numbers else experience.mask
            case "entropy" | "value" | "logits":
                return getattr(evaluation, meaning)
            case "reward":
                return experience.returns()
            case "decisions":
                return experience.full_batch.mask.sum()
            case "rows":
                return len(experience.full_batch)
            case _:
                return getattr(experience, meaning)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        if self.seed is None:
            return Loss(self._scalar(self.returned(experience, evaluation)), {})
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)  # the one that was forked; others cost milliseconds
            return Loss(self._scalar(self.returned(experience, evaluation)), {})

    def returned(self, experience: Experience, evaluation: Evaluation) -> Any:
        """Returns the function's output unchanged."""
        return self.function(**self.arguments(experience, evaluation))

    def _scalar(self, found: Any) -> Tensor:
        found = found[0] if self.first else found
        if not isinstance(found, Tensor) or found.ndim:
            what = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else f"{found!r:.60}"
            raise ExperienceError(f"{name_of_function(self.function)} must return a scalar tensor, found {what}")
        return found


def as_loss(function: Callable[..., Any], experience: Experience, evaluation: Evaluation) -> PlainLoss:
    """Wraps a function as an objective and tries it on a batch: with a bool mask, or with numbers if it fails on bool.

    Raises:
        ValueError: arguments that have no meaning, no scalar returned, no gradient, or any error of the function
            itself.
    """
    name, (B, T) = name_of_function(function), experience.mask.shape
    errors: list[Exception] = []
    for numbers in (False, True):
        part = PlainLoss(function=function, numbers=numbers)
        try:
            found = part.returned(experience, evaluation)
        except Exception as error:
            errors.append(error)
            continue
        part = part.but(first=True) if isinstance(found, tuple) else part
        if not part(experience, evaluation).loss.requires_grad:
            raise ValueError(f"{name} returns a loss without a gradient to the log-probabilities")
        return part
    reason = " ".join(str(errors[0]).split())
    raise ValueError(f"{name} raises {type(errors[0]).__name__} on a batch of {B} rows and {T} columns: {reason}")


def is_loss(function: Callable[..., Any]) -> bool:
    """Tests whether a function takes log-probabilities, or any argument without default."""
    taken = parameters(function)
    return any(MEANS.get(p.name) == "policy" or _must(p) for p in taken)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Returns the parameters of a function, or of a module's `forward`."""
    return list(inspect.signature(getattr(function, "forward", function)).parameters.values())


def _must(argument: inspect.Parameter) -> bool:
    return argument.default is argument.empty and argument.kind not in (
        argument.VAR_KEYWORD,
        argument.VAR_POSITIONAL,
    )


def name_of_function(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def arguments_of(function: Callable[..., Any]) -> dict[str, str]:
    """Returns the arguments to pass to a function, each with its meaning.

    Raises:
        ValueError: an argument without default that has no meaning, or none for the log-probabilities.
    """
    found, name = {}, name_of_function(function)
    for argument in parameters(function):
        if argument.name in MEANS:
            found[argument.name] = MEANS[argument.name]
        elif _must(argument):
            known = [names[0] for names in GIVEN.values()]
            raise ValueError(
                f"{name}: argument {argument.name!r} is none that a check can give{nearest(argument.name, known)}"
            )
    if "policy" not in found.values():
        raise ValueError(f"{name} takes no log-probabilities of the policy: name one of its arguments logp")
    return found
