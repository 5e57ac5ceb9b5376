"""Capabilities of training loops, and the comparison with an algorithm's requirements."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from polopt.algorithm import Algorithm
from polopt.errors import UserError
from polopt.fields import OLD
from polopt.layers import layer_of
from polopt.names import nearest
from polopt.outputs import output_of
from polopt.part import Part, default_of, settings_of, to_plain
from polopt.part_names import name_of
from polopt.sampling import Rollouts
from polopt.updates import UpdateRule

LackKind = Literal[
    "field",
    "output",
    "source",
    "sampling",
    "selection",
    "full_batch",
    "micro_batches",
    "teacher",
    "reference",
    "state",
    "networks",
    "update",
]
# Kind of lack -> the clause of a sentence that begins with the part; {names} are the missing names, {loop} the loop's.
CLAUSES: Mapping[str, str] = {
    "sampling": "decides what is sampled, which {loop} does itself",
    "selection": "leaves out rows after credit, for which there is no place",
    "full_batch": "needs a statistic of the whole optimiser batch under the current policy",
    "micro_batches": "compares the rows of a group, which {loop}'s micro-batches may part",
    "teacher": "evaluates the policy again on its own decisions",
    "reference": "is an average of the policy",
    "networks": "learns beside the policy, for which {loop} has no place",
    "update": "needs a loop whose {names} can be its own, and {loop} takes steps of AdamW; set update to AdamW",
    "state": "keeps state between batches, for which {loop} has no place",
}
# Clause for a lack without an entry.
NEEDS = "needs {names}"


class UnprovidedError(UserError, ValueError):
    """An algorithm needs a field or capability that a loop does not provide. The message names the part, the field and
    the fix."""


# What every loop provides, whatever the kind of policy.
CORE_FIELDS = frozenset(
    {"mask", "rollout_logp", "old_logp", "ref_logp", "prev_logp", "value", "reward", "outcome"}
    | {"terminated", "truncated", "group"}
)


@dataclasses.dataclass(frozen=True)
class Lack:
    """One requirement of an algorithm that a loop does not meet.

    part: the part with the requirement, as error messages name it.
    kind: the kind of requirement.
    name: of the field, output, capability or setting; "" for kinds without names.
    """

    part: str
    kind: LackKind
    name: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The fields, outputs and operations that a training loop provides to an algorithm. Every loop declares one, and
    rejects by it before training.

    name: of the loop in messages.
    advantage_fields: fields of `Experience` for all parts but the objective's: sampling, reward, credit, selection,
        teacher.
    loss_fields: those for the objective's.
    prefixes: fields whose names begin so are provided too.
    policy_outputs: fields of `Evaluation` besides `logp` that the policy computes.
    layers: whether it computes those of its inner layers (`layers.Layer.name`).
    old_outputs: whether every `extras.<name>` that the policy computes is also the field `extras.old_<name>`, from
        before the first update.
    source_capabilities: capabilities of its sources (`sampling.source_protocols`), and "rollouts".
    sampling_settings: settings of `sampling.Rollouts` that are honoured by a loop that samples itself; None for a loop
        that calls the algorithm's own sampling part.
    teaches: whether it computes the signals of an algorithm's teacher.
    full_batch: whether an objective can have a statistic of the whole optimiser batch under the current policy.
    keeps_groups: whether a micro-batch holds whole groups if the objective binds them.
    carries_fields: whether fields that other parts write into a batch reach the objective's parts.
    selects: whether rows or decisions may be left out after credit.
    moves_reference: whether the reference can be an average of the policy.
    keeps_state: whether the parts' state between batches is kept in one place and in checkpoints.
    networks: whether networks learn beside the policy, and the policy proposes actions to them.
    updates: what the loop has for update rules (`updates.UpdateRule.loop_capabilities`).
    clauses: clauses of error messages after the part, by the missing name, a prefix of names that ends in "_", or a
        kind, and "" for all else; {names}, {loop} and {nearest} are filled in. They extend `CLAUSES`.
    """

    name: str
    advantage_fields: frozenset[str]
    loss_fields: frozenset[str]
    prefixes: tuple[str, ...] = ()
    policy_outputs: frozenset[str] = frozenset()
    layers: bool = False
    old_outputs: bool = False
    source_capabilities: frozenset[str] = frozenset()
    sampling_settings: frozenset[str] | None = None
    teaches: bool = True
    full_batch: bool = True
    keeps_groups: bool = True
    carries_fields: bool = True
    selects: bool = True
    moves_reference: bool = True
    keeps_state: bool = True
    networks: bool = False
    updates: frozenset[str] = frozenset()
    clauses: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def lacking(self, algorithm: Algorithm) -> list[Lack]:
        """Returns the algorithm's requirements that the loop does not meet, part by part."""
        return list(dict.fromkeys(self._lacking(algorithm)))

    def sentences(self, lacks: Iterable[Lack]) -> list[str]:
        """Returns a sentence for each part and each clause about its lacks."""
        clauses: dict[tuple[str, str], list[str]] = {}
        for lack in lacks:
            clauses.setdefault((lack.part, self._clause(lack)), []).append(lack.name)
        return [self._sentence(part, clause, sorted(set(names))) for (part, clause), names in clauses.items()]

    def refusals(self, algorithm: Algorithm) -> list[str]:
        """Returns the reasons why the algorithm cannot run in this loop, a sentence each; empty if it can."""
        return self.sentences(self.lacking(algorithm))

    def check(self, algorithm: Algorithm) -> None:
        """Raises UnprovidedError if an algorithm needs a field or capability that the loop does not provide.

        Raises:
            UnprovidedError: naming the part, the missing field and the fix.
        """
        for sentence in self.refusals(algorithm):
            raise UnprovidedError(sentence)

    def computes(self, output: str) -> bool:
        """Returns True if the policy can be evaluated for this output."""
        if output_of(output) is not None:  # of a network, which is a lack of its own
            return True
        known = output == "logp" or output in self.policy_outputs
        return known or (self.layers and layer_of(output.removeprefix("extras.")) is not None)

    def has_field(self, field: str, known: frozenset[str]) -> bool:
        """Returns True if a batch has this field.

        known: the fields that it has by name.
        """
        if field in known or field.startswith(self.prefixes):
            return True
        return self.old_outputs and field.startswith(OLD) and self.computes("extras." + field.removeprefix(OLD))

    def _lacking(self, algorithm: Algorithm) -> Iterator[Lack]:
        if self.sampling_settings is not None:
            yield from self._unhonoured(algorithm.sampling, self.sampling_settings)
        learning = {id(part) for one in (algorithm.objective, *algorithm.networks) for part in one.parts()}
        sampling = {id(part) for part in algorithm.sampling.parts()} if self.sampling_settings is not None else set()
        written = frozenset[str]().union(*(part.writes for part in algorithm.parts() if id(part) not in sampling))
        if algorithm.teacher is not None and self.teaches:
            written |= algorithm.teacher.signals
        for part in algorithm.parts():
            if id(part) in learning:
                known = self.loss_fields | (written if self.carries_fields else frozenset())
            else:
                known = self.advantage_fields | written
            yield from self._of_part(part, known)
            if id(part) not in sampling:
                absent = capabilities_of(part, algorithm) - self.source_capabilities
                yield from (Lack(name_of(type(part)), "source", name) for name in sorted(absent))
        yield from self._of_loop(algorithm)

    def _of_part(self, part: Part, known: frozenset[str]) -> Iterator[Lack]:
        """Yields the fields and outputs that a part lacks, and its unmet requirements of micro-batches and
        checkpoints."""
        name = name_of(type(part))
        outputs = part.policy_outputs | (part.full_batch_outputs if self.full_batch else frozenset())
        yield from (Lack(name, "field", field) for field in sorted(part.reads) if not self.has_field(field, known))
        yield from (Lack(name, "output", output) for output in sorted(outputs) if not self.computes(output))
        if part.binds == "group" and not self.keeps_groups:
            yield Lack(name, "micro_batches")
        moves = type(part).on_step is not Part.on_step or any(True for _ in part.buffers(recurse=False))
        if moves and not self.keeps_state:
            yield Lack(name, "state")

    def _of_loop(self, algorithm: Algorithm) -> Iterator[Lack]:
        if len(algorithm.select) and not self.selects:
            yield Lack(repr(algorithm.select[0]), "selection")
        if algorithm.objective.required_full_batch_outputs and not self.full_batch:
            yield Lack(repr(algorithm.objective), "full_batch")
        if algorithm.teacher is not None and not self.teaches:
            yield Lack(repr(algorithm.teacher), "teacher")
        outputs = {output.network for name in algorithm.required_outputs if (output := output_of(name)) is not None}
        if (names := sorted(outputs | {network.name for network in algorithm.networks})) and not self.networks:
            yield Lack(f"its network {names[0]!r}", "networks")
        for rule in algorithm.update.parts():
            if isinstance(rule, UpdateRule):
                absent = sorted(rule.loop_capabilities - self.updates)
                yield from (Lack(name_of(type(rule)), "update", name) for name in absent)
        if algorithm.reference_tau != 0.0 and not self.moves_reference:
            yield Lack("its reference", "reference")

    def _unhonoured(self, sampling: Part, honoured: frozenset[str]) -> Iterator[Lack]:
        if type(sampling) is not Rollouts:
            yield Lack(name_of(type(sampling)), "sampling")
            return
        for field in settings_of(Rollouts):
            value = getattr(sampling, field.name)
            if field.name not in honoured and to_plain(value) != to_plain(default_of(field)):
                yield Lack(f"sampling.{field.name} = {value!r}", "sampling", field.name)

    def _clause(self, lack: Lack) -> str:
        beginnings = [key for key in self.clauses if key.endswith("_") and lack.name.startswith(key)]
        for key in (lack.name or lack.kind, *beginnings, lack.kind):
            if key in self.clauses:
                return self.clauses[key]
        return CLAUSES.get(lack.kind) or self.clauses.get("", NEEDS)

    def _sentence(self, part: str, clause: str, names: list[str]) -> str:
        text = clause.replace("{names}", ", ".join(names)).replace("{loop}", self.name)
        if "{nearest}" in text:
            similar = [known for known in self.advantage_fields if known[:8] == names[0][:8]]
            text = text.replace("{nearest}", nearest(names[0], similar))
        return f"{part} {text}"


def capabilities_of(part: Part, algorithm: Algorithm) -> frozenset[str]:
    """Returns the source capabilities that a part needs: its declared ones, and "rollouts" for a sampling part that
    samples answers to tasks."""
    found = part.source_capabilities
    if part is algorithm.sampling and algorithm.sampling.rollout_support is not None and "fragments" not in found:
        found = found | {"rollouts"}
    return found
