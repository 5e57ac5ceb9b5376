"""The policy that a part compares the learner with."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.fields import policy_field
from polopt.part import Part
from polopt.part_names import name_of


def check_anchor(part: Part, anchor: str) -> None:
    """Checks the name of a policy.

    Raises:
        ValueError: it is no plain name.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", anchor):
        raise ValueError(
            f"{name_of(type(part))}: anchor must be reference, previous, sampler, old or the plain name of "
            f"a policy that the stage names, found {anchor!r:.60}"
        )


def anchor_logp(experience: Experience, anchor: str) -> Tensor:
    """Returns [B, T] the log-probabilities under the policy of this name; 0 where nothing was decided, if the name is
    one that the stage gave."""
    field = policy_field(anchor)
    if not field.startswith("extras."):
        found: Tensor = getattr(experience, field)
        return found
    return torch.where(experience.mask, experience.extras[field.removeprefix("extras.")], 0)
