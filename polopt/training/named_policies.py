"""The policies that a stage names, compared with those that its method reads."""

from __future__ import annotations

import re
from collections.abc import Iterable

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.fields import policy_field
from polopt.training.specs import StageSpec
from polopt.training.weight_specs import ModelPolicy


def check_policies(
    stage: str, spec: StageSpec, algorithm: Algorithm, missing: Iterable[tuple[str, Iterable[str]]]
) -> frozenset[str]:
    """Returns the fields that the policies which a stage names fill in. missing: parts, each with what it reads and
    nothing else fills in.

    Raises:
        ConfigError: a part reads a policy that the stage does not name; the stage names one that no part reads, or
            whose field is filled in already; a reference that follows the policy is of another architecture.
    """
    named = {policy_field(name): name for name in spec.policies}
    absent = set()
    for part, fields in missing:
        for field in sorted(fields):
            absent.add(field)
            if (found := re.fullmatch(r"extras\.([a-z][a-z0-9_]*)_logp", field)) and field not in named:
                raise ConfigError(
                    f"stages.{stage}: {part} reads {field}, and the stage names no policy {found[1]}; set "
                    f"stages.{stage}.policies: {{{found[1]}: {{stage: NAME}}}}, or another anchor"
                )
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
    return frozenset(named)
