"""What another trainer hands over, and the refusal of methods that need more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from polopt.algorithm import Algorithm
from polopt.errors import UserError
from polopt.part import Part, default_of, settings_of, to_plain
from polopt.part_names import name_of
from polopt.sampling import Rollouts


class BridgeError(UserError, ValueError):
    """A method cannot run in another trainer. The message names the parts, what they need, and the fix."""


@dataclasses.dataclass(frozen=True)
class TrainerCapabilities:
    """A trainer that parts are carried into.

    name: as people say it. judges: what reward, credit and select can read there, fields of `Experience`. learns: what
    the objective can read. says: what the policy tells it beside `logp`, fields of `Evaluation`. sampling: the settings
    of `sampling.Rollouts` that are honoured there. surveys: whether an objective can have a statistic of the whole
    optimiser batch under the current policy. selects: whether rows or decisions may be left out after credit. follows:
    whether the reference can follow the policy. remembers: whether what parts keep from batch to batch is kept there,
    in one place and in the trainer's checkpoints.
    """

    name: str
    advantage_fields: frozenset[str]
    loss_fields: frozenset[str]
    policy_outputs: frozenset[str] = frozenset()
    sampling: frozenset[str] = frozenset({"group", "support"})
    full_batch: bool = False
    selects: bool = True
    moves_reference: bool = False
    keeps_state: bool = True

    def refusals(self, algorithm: Algorithm) -> list[str]:
        """Why the algorithm cannot run there, a sentence each; empty if it can."""
        return list(dict.fromkeys(self._refusals(algorithm)))

    def condition(self, algorithm: Algorithm) -> str:
        """Of an algorithm that can run there: under which condition, in a few words; empty if under none."""
        return ""

    def check(self, name: str, algorithm: Algorithm) -> None:
        """Refuse, before anything runs, what the trainer cannot do.

        Raises:
            BridgeError: every reason.
        """
        if reasons := self.refusals(algorithm):
            raise BridgeError(
                f"{name} cannot run in {self.name}: {'; '.join(reasons)}. Take another method, change the part with "
                "algorithm.but(...), or train it in polopt's own loop"
            )

    def _refusals(self, algorithm: Algorithm) -> Iterator[str]:
        yield from self._sampled(algorithm.sampling)
        given = self.advantage_fields | algorithm.reward.all_writes | algorithm.credit.all_writes
        for room in (algorithm.reward, algorithm.credit, *algorithm.select):
            yield from _lacking(room.parts(), "reads", given)
        if len(algorithm.select) and not self.selects:
            yield f"{algorithm.select[0]!r} leaves out rows after credit, for which there is no place"
        objective = algorithm.objective
        yield from _lacking(objective.parts(), "reads", self.loss_fields | algorithm.all_writes)
        yield from _lacking(objective.parts(), "policy_outputs", self.policy_outputs | {"logp"})
        if objective.required_full_batch_outputs and not self.full_batch:
            yield f"{objective!r} needs a statistic of the whole optimiser batch under the current policy"
        for part in objective.parts():
            if part.binds == "group":
                yield f"{name_of(type(part))} compares the rows of a group, which {self.name}'s micro-batches may part"
        if algorithm.teacher is not None:
            yield f"{algorithm.teacher!r} asks the policy about its own decisions again"
        if algorithm.reference_tau != 0.0 and not self.moves_reference:
            yield "its reference follows the policy"
        for part in () if self.keeps_state else algorithm.parts():
            if type(part).on_step is not Part.on_step or any(True for _ in part.buffers(recurse=False)):
                yield f"{name_of(type(part))} remembers earlier batches, for which {self.name} has no place"

    def _sampled(self, sampling: Part) -> Iterator[str]:
        if type(sampling) is not Rollouts:
            yield f"{name_of(type(sampling))} decides what is sampled, which {self.name} does itself"
            return
        for field in settings_of(Rollouts):
            value = getattr(sampling, field.name)
            if field.name not in self.sampling and to_plain(value) != to_plain(default_of(field)):
                yield f"sampling.{field.name} = {value!r} decides what is sampled, which {self.name} does itself"


def _lacking(parts: Iterable[Part], kind: str, given: frozenset[str]) -> Iterator[str]:
    for part in parts:
        if absent := sorted(getattr(part, kind) - given):
            yield f"{name_of(type(part))} needs {', '.join(absent)}"
