"""Checks of the policies that a stage names against the fields that its method reads."""

from __future__ import annotations

import dataclasses
import re

from polopt.algorithm import Algorithm
from polopt.capabilities import Capabilities
from polopt.config import ConfigError
from polopt.fields import policy_field
from polopt.teachers import TEACHER_FIELDS
from polopt.training.specs import StageSpec
from polopt.training.weight_specs import ModelPolicy


def with_policies(stage: str, spec: StageSpec, algorithm: Algorithm, capabilities: Capabilities) -> Capabilities:
    """Returns the capabilities of a loop, with the fields that a stage's named policies fill in.

    Raises:
        ConfigError: a part reads a policy that the stage does not name; the stage names one that no part reads, or
            whose field is filled in already; a reference that follows the policy is of another architecture.
    """
    named = {policy_field(name): name for name in spec.policies}
    missing = [lack for lack in capabilities.lacking(algorithm) if lack.kind == "field"]
    for part, field in sorted((lack.part, lack.name) for lack in missing if lack.name not in TEACHER_FIELDS):
        if (found := re.fullmatch(r"extras\.([a-z][a-z0-9_]*)_logp", field)) and field not in named:
            raise ConfigError(
                f"stages.{stage}: {part} reads {field}, and the stage names no policy {found[1]}; set "
                f"stages.{stage}.policies: {{{found[1]}: {{stage: NAME}}}}, or another anchor"
            )
    absent = {lack.name for lack in missing}
    for field, name in named.items():
        where = f"stages.{stage}.policies.{name}"
        if field not in algorithm.required_fields:
            raise ConfigError(
                f"{where}: no part of the method reads {field}; leave the policy out, or set the anchor of a part to "
                f"{name}, as stages.{stage}.but: {{objective.implicit.anchor: {name}}}"
            )
        if name != "reference" and field not in absent:
            raise ConfigError(f"{where}: {field} is another number already; give the policy another name")
    if isinstance(spec.policies.get("reference"), ModelPolicy) and algorithm.reference_tau != 0.0:
        raise ConfigError(
            f"stages.{stage}.policies.reference: reference_tau moves the reference towards the policy, which a model "
            "of its own cannot follow; set reference_tau to 0, or name weights"
        )
    return dataclasses.replace(
        capabilities,
        advantage_fields=capabilities.advantage_fields | named.keys(),
        loss_fields=capabilities.loss_fields | named.keys(),
    )
