"""The frozen policies that an algorithm compares its policy with: reference, previous, and those that a stage names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.fields import POLICY_FIELDS
from polopt.policies.language import LanguagePolicy
from polopt.policies.network import NetworkPolicy
from polopt.policies.sharded import laid, whole


class References:
    """The reference policy, which is the policy of the stage's beginning and then follows the learner by the
    algorithm's `reference_tau`, and the policy of one batch earlier. Each is made only if the algorithm reads its
    log-probabilities.

    named: policies that the stage names, by the field of the batch that each fills in; one for `ref_logp` is the
    reference to begin with. policies: field -> policy, of all of them.
    """

    def __init__(
        self,
        policy: LanguagePolicy,
        algorithm: Algorithm,
        named: Mapping[str, LanguagePolicy] = MappingProxyType({}),
    ) -> None:
        self.policy, self.algorithm, self.named = policy, algorithm, named
        compared = sorted(set(POLICY_FIELDS.values()) & algorithm.required_fields)
        self.policies = {field: named[field] if field in named else policy.frozen() for field in compared}
        self.policies |= named

    def begin_update(self) -> None:
        """Copies the policy to the one of the next batch's past: called before the policy learns from a batch."""
        if "prev_logp" in self.policies:
            load_parameters(self.policies["prev_logp"], parameters_of(self.policy))

    def end_update(self) -> None:
        """Moves the reference towards the policy: called after the policy and the algorithm's counters have advanced by
        a batch."""
        if "ref_logp" in self.policies:
            current = self.policy.own_parameters()
            self.algorithm.update_reference(self.policies["ref_logp"].own_parameters().values(), current.values())

    @property
    def fixed(self) -> LanguagePolicy | None:
        """Returns the reference, if it never moves and is the policy as it was when the stage began."""
        return self.policies.get("ref_logp") if "ref_logp" not in self.named and not self._follows else None

    @property
    def _follows(self) -> bool:
        return self.algorithm.reference_tau != 0.0

    @property
    def _moving(self) -> dict[str, LanguagePolicy]:
        moves = {"ref_logp": self._follows, "prev_logp": True}
        return {field: policy for field, policy in self.policies.items() if moves.get(field, False)}

    def state(self) -> dict[str, Tensor]:
        """Returns the parameters of the policies that move, by name."""
        return {f"{field}.{k}": v for field, policy in self._moving.items() for k, v in parameters_of(policy).items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        for field, policy in self._moving.items():
            load_parameters(policy, {k.removeprefix(f"{field}."): v for k, v in tensors.items()})


def parameters_of(policy: LanguagePolicy | NetworkPolicy) -> dict[str, Tensor]:
    """Returns the parameters that can change, by name, tied ones once."""
    return {name: p.detach() for name, p in policy.own_parameters().items()}


def wholly(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns tensors as a file holds them: whole, on the CPU. Every process of a team must call it."""
    return {name: whole(value.detach()).cpu() for name, value in tensors.items()}


@torch.no_grad()
def load_parameters(policy: LanguagePolicy, tensors: Mapping[str, Tensor], *, partly: bool = False) -> None:
    """Copies parameters, named as by `parameters_of`, into a policy. partly: those that are not given stay."""
    for name, parameter in policy.own_parameters().items():
        if not partly or name in tensors:
            parameter.copy_(laid(tensors[name], parameter))
