"""Conversion of TRL's generation into one batch of experience, the same on every process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.bridges.trl.trl_capabilities import SIGNAL
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.support import Support
from polopt.tokens import observed_states
from polopt.worlds.protocol import Task

# Name in `extras` of the row's place in the generation, over all processes.
PLACE = "place"


class AllProcesses:
    """Gathers values of all processes: rows of the first process, then of the second, and so on."""

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator

    @property
    def count(self) -> int:
        return self.accelerator.num_processes

    def rows(self, values: Tensor) -> Tensor:
        """Gathers tensors [b, ...] of all processes as [B, ...]; columns beyond those of the widest process hold 0."""
        if self.count == 1:
            return values
        sent = values.int() if values.dtype == torch.bool else values
        if sent.ndim > 1:
            sent = self.accelerator.pad_across_processes(sent, dim=1, pad_index=0)
        return self.accelerator.gather(sent.contiguous()).to(values.dtype)

    def entries(self, values: Sequence[Any]) -> list[Any]:
        """Gathers sequences of any objects of all processes, in the order of `rows`."""
        if self.count == 1:
            return list(values)
        from accelerate.utils import gather_object

        return gather_object(list(values))

    def places(self, rows: int, device: torch.device) -> Tensor:
        """Returns the places [b] of this process's rows among those of all processes."""
        return torch.arange(rows, device=device) + rows * self.accelerator.process_index


@dataclasses.dataclass(frozen=True)
class ScoredGeneration:
    """A generation with its rewards.

    inputs: rows of the data set, of this process.
    prompts, completions: texts or messages, of this process.
    rewards: [B, F] of all processes, by reward function, NaN if a function returned none.
    """

    inputs: list[dict[str, Any]]
    prompts: list[Any]
    completions: list[Any]
    rewards: Tensor

    def outcome(self, weights: Tensor) -> Tensor:
        """Returns the weighted sum of a row's rewards that are not NaN, [B]; NaN if all are."""
        total = (self.rewards * weights.to(self.rewards)).nansum(1)
        return total.masked_fill(self.rewards.isnan().all(1), torch.nan)


def experience_of(
    output: Mapping[str, Any],
    scored: ScoredGeneration,
    evaluation: Evaluation | None,
    everyone: AllProcesses,
    needs: frozenset[str],
    *,
    names: Sequence[str],
    weights: Tensor,
    group: int,
    ends: Sequence[int],
    horizon: int,
    support: Support,
) -> Experience:
    """Returns all rows of a generation, with T columns of completion; of optional fields those in `needs`.

    output: TRL's output of a generation.
    scored: the generation's rewards.
    evaluation: the policy's evaluation of this process's rows before its update on them.
    everyone: all processes.
    names: of the reward functions.
    ends: ids that end an answer.
    """
    mask, rows = decided(output), everyone.rows
    ids, attended = output["completion_ids"], output["completion_mask"].bool()
    ended = (torch.isin(ids, ids.new_tensor(ends)) & last(attended)).any(1)
    outcome = scored.outcome(weights)
    fields: dict[str, Any] = {"reward": outcome, "outcome": outcome}
    fields |= {"terminated": rows(ended), "truncated": ~rows(ended)}
    everywhere = rows(mask)
    fields["group"] = torch.arange(len(everywhere), device=everywhere.device) // group
    if "turn" in needs:
        fields["turn"] = turns(everywhere)
    for name, value in _logps(output, evaluation).items():
        if value is not None:
            fields[name] = rows(value)
    extras: dict[str, Any] = {PLACE: torch.arange(len(everywhere), device=everywhere.device)}
    if evaluation is not None:
        extras |= {f"old_{name}": rows(value) for name, value in evaluation.extras.items()}
    if {"extras.tokens", "extras.turn_state"} & set(needs):
        extras["tokens"] = rows(ids.masked_fill(~attended, -1) + 1) - 1
    if "extras.turn_state" in needs:
        extras["turn_state"] = observed_states(extras["tokens"], turns(everywhere))
    if "extras.answer" in needs:
        extras["answer"] = everyone.entries([_text(c) for c in scored.completions])
    if "extras.task" in needs:
        extras["task"] = everyone.entries(
            [_task(*row_and_prompt) for row_and_prompt in zip(scored.inputs, scored.prompts, strict=True)]
        )
    if "extras.kind" in needs:
        extras["kind"] = everyone.entries([str(row["kind"]) for row in scored.inputs])
    for column, name in enumerate(names):
        if (signal := SIGNAL + name.removeprefix("signal_")) in needs:
            extras[signal.removeprefix("extras.")] = scored.rewards[:, column].nan_to_num(0.0)
    return Experience(mask=everywhere, support=support, horizon=horizon, extras=extras, **fields)


def decided(output: Mapping[str, Any]) -> Tensor:
    """Returns the mask [b, C] of the policy's decisions: completions without tool outputs and padding."""
    mask = output["completion_mask"].bool()
    return mask & output["tool_mask"].bool() if "tool_mask" in output else mask


def last(mask: Tensor) -> Tensor:
    """Returns the mask [b, C] of the last True of each row."""
    return mask & (mask.flip(1).cumsum(1).flip(1) == 1)


def turns(mask: Tensor) -> Tensor:
    """Returns the number [B, T] of each decision's turn, from 0; -1 elsewhere. Tool outputs separate turns."""
    begins = mask & ~F.pad(mask, (1, 0))[:, :-1]
    return (begins.cumsum(1) - 1).masked_fill(~mask, -1)


def _logps(output: Mapping[str, Any], evaluation: Evaluation | None) -> dict[str, Tensor | None]:
    """Returns log-probabilities of this process's rows: `rollout_logp` is the sampler's, `old_logp` the policy's own
    before its first update."""
    old = output.get("old_per_token_logps")
    old = evaluation.logp if old is None and evaluation is not None else old
    sampled = output.get("sampling_per_token_logps")
    if sampled is None:
        sampled = old
    elif old is not None:
        # Without a value of the engine the policy's own is taken.
        sampled = torch.where(sampled.isnan(), old, sampled)
    fields = {"rollout_logp": sampled, "old_logp": old, "ref_logp": output.get("ref_per_token_logps")}
    if evaluation is not None:
        fields |= {"entropy": evaluation.entropy, "value": evaluation.value, "final_value": evaluation.final_value}
    return fields


def _text(completion: Any) -> str:
    """Returns the answer: a completion, or the last message of a conversation."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1].get("content") or "")


def _task(row: Mapping[str, Any], prompt: Any) -> Task:
    text = prompt if isinstance(prompt, str) else str(prompt[-1].get("content") or "")
    solution = row.get("solution", row.get("answer"))
    return Task(
        id=str(row.get("id", text)),
        kind=str(row.get("kind", "")),
        prompt=text,
        solution=None if solution is None else str(solution),
        row={key: value for key, value in row.items() if key != "prompt"},
    )
