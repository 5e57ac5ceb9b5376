"""Methods as prime-rl's custom loss, and as the credit of one of its algorithms.

prime-rl calls a loss with one sequence and divides the sum over all sequences by the learned tokens of the global
batch, on all ranks: a mean over tokens is exact, however sequences are packed and split. Means over answers need the
number of answers, which the loss does not receive; with `typical`, an answer's length, they keep their direction but
not their size: the gradient is the method's times typical / (the batch's tokens / its answers). Read at prime-rl
559b447 (0.8.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.functions import FunctionTrainer, Method, named, not_by_groups, summed
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.objectives import SequenceSum, Surrogate, TokenMean


class _PrimeRL(FunctionTrainer):
    counts = "counts what prime-rl's sequences do not contain"

    def _measured(self, algorithm: Algorithm, objective: Surrogate) -> Iterator[str]:
        yield from super()._measured(algorithm, objective)
        yield from not_by_groups(algorithm)

    def condition(self, algorithm: Algorithm) -> str:
        objective = algorithm.objective
        by_tokens = isinstance(objective, Surrogate) and isinstance(objective.aggregate, TokenMean)
        return "" if by_tokens else "with typical"


HOST = _PrimeRL(
    name="prime-rl",
    advantage_fields=frozenset({"reward", "outcome", "group", "terminated", "truncated", "turn"}),
    loss_fields=frozenset({"rollout_logp", "advantage"}),
    sampling_settings=frozenset({"group"}),
    carries_fields=False,
    selects=False,
    keeps_state=False,
)


def loss(method: Method, *, typical: float | None = None, horizon: int | None = None) -> Callable[..., Loss]:
    """Returns the method's objective as a custom loss, for `[trainer.loss] type = "custom"`.

    typical: the typical length, in tokens, of an answer of the batch, for methods that do not take a mean over tokens.
    horizon: the most tokens of an answer, for sums that are divided by it.

    Raises:
        BridgeError: prime-rl does not provide all fields that the method needs, or `typical` or `horizon` is missing;
            when called, a token has a weight other than 1.
    """
    name, algorithm = named(method)
    HOST.refuse(name, algorithm)
    objective = algorithm.objective
    assert isinstance(objective, Surrogate)
    if by_tokens := not HOST.condition(algorithm):
        objective = summed(objective)
    elif typical is None:
        raise BridgeError(
            f"{name} takes {objective.aggregate!r}, and prime-rl divides by tokens without the number of answers: "
            "give typical, an answer's length, to keep the direction, or take TokenMean with "
            'algorithm.but({"objective.aggregate": polopt.objectives.TokenMean()})'
        )
    if isinstance(objective.aggregate, SequenceSum) and objective.aggregate.length is None and horizon is None:
        raise BridgeError(f"{objective.aggregate!r} divides by a constant length: give horizon, the most of an answer")
    scale = 1.0 if by_tokens or typical is None else typical

    def custom(inputs: Any) -> Loss:
        mask = inputs.loss_mask
        if inputs.loss_weights is not None and not bool((inputs.loss_weights[mask] == 1).all()):
            raise BridgeError("prime-rl gave tokens weights of their own, which are no part of the method")
        experience = Experience(
            mask=mask[None],
            rollout_logp=inputs.inference_logprobs[None],
            advantage=inputs.advantages[None],
            horizon=horizon,
        )
        found = objective(experience, Evaluation(logp=inputs.trainer_logprobs[None]))
        return Loss(found.loss * scale, {"clip_fraction": found.metrics["clip_fraction"]})

    return custom


def advantage(method: Method, *, horizon: int | None = None) -> Callable[[Sequence[Any]], list[list[float]]]:
    """Returns the method's reward and credit, for `score_group` of an algorithm of prime-rl.

    The function maps traces of one task to the advantages of each trace's sampled tokens, the form of
    `assign_advantages`. A node of a trace is a turn.

    horizon: the most tokens of a trace's decisions, for rewards that use it.

    Raises:
        BridgeError: prime-rl does not provide all fields that the method needs.
    """
    name, algorithm = named(method)
    HOST.refuse(name, algorithm)

    def credit(traces: Sequence[Any]) -> list[list[float]]:
        if not traces:
            return []
        turn_lengths = [[sum(node.mask) for node in trace.nodes if any(node.mask)] for trace in traces]
        turns = [[turn for turn, length in enumerate(of) for _ in range(length)] for of in turn_lengths]
        lengths = torch.tensor([len(of) for of in turns])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        turn = torch.full(mask.shape, -1)
        turn[mask] = torch.tensor([number for of in turns for number in of])
        rewards = torch.tensor([float(trace.reward) for trace in traces])
        cut = torch.tensor([bool(trace.is_truncated) for trace in traces])
        experience = Experience(
            mask=mask,
            reward=rewards,
            outcome=rewards,
            group=torch.zeros(len(traces), dtype=torch.int64),
            truncated=cut,
            terminated=~cut,
            turn=turn,
            horizon=horizon,
        )
        found = algorithm.with_advantages(experience).advantage
        return [row[: len(of)].tolist() for row, of in zip(found, turns, strict=True)]

    return credit


def settings(method: Method) -> dict[str, Any]:
    """Returns the settings of prime-rl that are part of the method, by their dotted names.

    Raises:
        BridgeError: as in `advantage`.
    """
    name, algorithm = named(method)
    HOST.refuse(name, algorithm)
    return {
        "orchestrator.train.source.group_size": algorithm.sampling.settings()["group"],
        # The mean is over all decided tokens, including those of advantage 0.
        "orchestrator.train.filter_zero_advantages": False,
    }
