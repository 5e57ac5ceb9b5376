"""Outputs of networks beside the policy, by name."""

from __future__ import annotations

import dataclasses
import re

NAME = re.compile(
    r"extras\.network\.(?P<network>[a-z][a-z0-9_]*)(?P<target>\.target)?(?P<next>\.next)?"
    r"(?:\.(?P<action>policy_target|policy)(?:~(?P<noise>[0-9.e-]+),(?P<clip>[0-9.e-]+))?)?"
)
# Outputs of the policy itself at the action that it proposes: the action and its log-probability.
PROPOSAL = frozenset({"action", "logp"})
# The policy itself, as a network of the values of its choices.
POLICY = "policy"


@dataclasses.dataclass(frozen=True)
class Proposal:
    """An action of the policy at a state, reparameterised: a differentiable function of its parameters.

    target: of the policy's target copy. noise, clip: standard deviation and limit of Gaussian noise that is added, in
    half widths of the actions' bounds; the sum is kept within the bounds.
    """

    target: bool = False
    noise: float = 0.0
    clip: float = 0.5

    @property
    def name(self) -> str:
        noise = f"~{self.noise!r},{self.clip!r}" if self.noise else ""
        return f"{'policy_target' if self.target else 'policy'}{noise}"


@dataclasses.dataclass(frozen=True)
class NetworkOutput:
    """An output of a network at each decision of a batch.

    network: its name among the algorithm's networks, or `policy`, of a policy whose head gives the values of choices;
        or `action` or `logp`, of a proposal itself; `action` of no proposal is the logged one. Actions are scaled from
        their bounds to [-1, 1].
    target: of its target copy. next: at the state after the decision in place of the one before it.
    proposal: at an action of the policy in place of the logged one.
    """

    network: str
    target: bool = False
    next: bool = False
    proposal: Proposal | None = None

    @property
    def name(self) -> str:
        """The name among `Part.policy_outputs`: the key in `Evaluation.extras`, of the output [B, T, ...], after
        `extras.`."""
        action = "" if self.proposal is None else f".{self.proposal.name}"
        target, state = ".target" if self.target else "", ".next" if self.next else ""
        return f"extras.network.{self.network}{target}{state}{action}"


def output_of(name: str) -> NetworkOutput | None:
    """Inverse of `NetworkOutput.name`; None for any other name."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    proposal = None
    if found["action"] is not None:
        noise = {} if found["noise"] is None else {"noise": float(found["noise"]), "clip": float(found["clip"])}
        proposal = Proposal(target=found["action"] == "policy_target", **noise)
    return NetworkOutput(found["network"], found["target"] is not None, found["next"] is not None, proposal)
