"""Decisions of a policy by one compiled graph."""

from __future__ import annotations

from torch import Generator, Tensor

from polopt.compiled_steps import Columns, CompiledSteps
from polopt.policies.head import Action
from polopt.policies.network import NetworkPolicy


class CompiledActor:
    """A policy whose `act` is one compiled graph, with the same draws. `begin` finds its tensors, which may change in
    place from then on."""

    def __init__(self, policy: NetworkPolicy) -> None:
        self.device, self.head, self._policy = policy.device, policy.head, policy
        self._graphs = CompiledSteps(self._act, self._tensors)
        self._generator, self._greedy = Generator(), False

    def begin(self) -> None:
        """Finds the policy's tensors."""
        self._graphs.begin_batch()

    def act(
        self, observation: Tensor, generator: Generator, *, greedy: bool = False, legal: Tensor | None = None
    ) -> Action:
        """Samples an action for each observation, as `NetworkPolicy.act`."""
        self._generator, self._greedy = generator, greedy
        columns = {"observation": observation} if legal is None else {"observation": observation, "legal": legal}
        return self._graphs((generator, greedy), columns)

    def _act(self, columns: Columns) -> Action:
        seen, legal = columns["observation"], columns.get("legal")
        return self._policy.act(seen, self._generator, greedy=self._greedy, legal=legal)

    def _tensors(self) -> Columns:
        return dict((*self._policy.named_parameters(), *self._policy.named_buffers()))
