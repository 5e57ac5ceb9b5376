"""Outputs of networks beside the policy, by name."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

NAME = re.compile(
    r"extras\.network\.(?P<network>[a-z][a-z0-9_]*)(?:%(?P<heads>\d+))?(?P<target>\.target)?(?P<next>\.next)?"
    r"(?:\.(?P<action>policy_target|policy|uniform|every|balance)(?P<after>@next)?"
    r"(?:~(?P<noise>[0-9.e-]+),(?P<clip>[0-9.e-]+))?(?:\*(?P<draws>\d+))?"
    r"(?:\^(?P<sequence>\d+),(?P<model>[a-z][a-z0-9_]*))?)?"
    r"(?:\.at_(?P<column>[a-z][a-z0-9_]*))?"
)
# Outputs of no network: a proposed action and its log-probability, what networks read of a state, and a balance that
# the policy chooses there.
PROPOSAL = frozenset({"action", "logp", "observation", "balance"})
# The policy itself, as a network of the values of its choices.
POLICY = "policy"


ProposedBy = Literal["policy", "uniform", "every", "balance"]
_LAWS: dict[str, ProposedBy] = {"uniform": "uniform", "every": "every", "balance": "balance"}


@dataclasses.dataclass(frozen=True)
class Proposal:
    """An action of the policy at a state, reparameterised: a differentiable function of its parameters.

    target: of the policy's target copy. noise, clip: standard deviation and limit of Gaussian noise that is added, in
    half widths of the actions' bounds; the sum is kept within the bounds.
    draws: actions at each state, K, without gradient, so that outputs are [B, T, K, ...]; 0 is one action and no such
    dimension. of: the policy's; "uniform" in the bounds of a vector, with their log-density; "every" choice, in order,
    once; or the policy's at a "balance" that it chooses, with the log-density and the gradient of the choice.
    after: whether the policy acts in the state after the decision, wherever the output is read.
    sequence: actions in turn after one look at the state, J, so that outputs are [B, T, J, ...]; 0 is one action and no
    such dimension. model: the network whose target copy says, without gradient, what state each of them leads to, at
    which the next one's outputs are read.
    """

    target: bool = False
    noise: float = 0.0
    clip: float = 0.5
    draws: int = 0
    of: ProposedBy = "policy"
    after: bool = False
    sequence: int = 0
    model: str = ""

    def __post_init__(self) -> None:
        if self.of == "balance" and (self.target or self.noise or self.draws or self.sequence):
            raise ValueError(
                "outputs.Proposal: an action at a chosen balance is one of the policy itself; leave out target, noise, "
                f"draws and sequence, found {self}"
            )

    @property
    def several(self) -> bool:
        """Tests whether outputs have a dimension of actions, [B, T, K, ...]."""
        return bool(self.draws or self.sequence) or self.of == "every"

    @property
    def learns(self) -> bool:
        """Tests whether the policy's gradient may flow through it, where it is made in the state before a decision."""
        return self.of in ("policy", "balance") and not (self.draws or self.target or self.after)

    @property
    def name(self) -> str:
        kind = "policy_target" if self.target else self.of
        noise = f"~{self.noise!r},{self.clip!r}" if self.noise else ""
        draws = f"*{self.draws}" if self.draws else ""
        sequence = f"^{self.sequence},{self.model}" if self.sequence else ""
        return f"{kind}{'@next' if self.after else ''}{noise}{draws}{sequence}"


@dataclasses.dataclass(frozen=True)
class NetworkOutput:
    """An output of a network at each decision of a batch.

    network: its name among the algorithm's networks, or `policy`, of a policy whose head gives the values of choices;
        or `action` or `logp`, of a proposal itself; `action` of no proposal is the logged one. Actions are scaled from
        their bounds to [-1, 1]. `observation` is the state as networks read it; `balance` one that the policy chooses
        there, without gradient.
    target: of its target copy. next: at the state after the decision in place of the one before it.
    proposal: at an action of the policy in place of the logged one.
    heads: so many of an ensemble's heads, drawn for each minibatch; None is all.
    column: at each of several actions in place of one, `extras.COLUMN` [B, T, K, A], scaled as they are; the output is
        [B, T, K, ...].
    """

    network: str
    target: bool = False
    next: bool = False
    proposal: Proposal | None = None
    heads: int | None = None
    column: str | None = None

    @property
    def name(self) -> str:
        """The name among `Part.policy_outputs`: the key in `Evaluation.extras`, of the output [B, T, ...], after
        `extras.`."""
        action = "" if self.proposal is None else f".{self.proposal.name}"
        target, state = ".target" if self.target else "", ".next" if self.next else ""
        heads = "" if self.heads is None else f"%{self.heads}"
        at = "" if self.column is None else f".at_{self.column}"
        return f"extras.network.{self.network}{heads}{target}{state}{action}{at}"


def output_of(name: str) -> NetworkOutput | None:
    """Inverse of `NetworkOutput.name`; None for any other name."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    proposal = None
    if found["action"] is not None:
        noise = {} if found["noise"] is None else {"noise": float(found["noise"]), "clip": float(found["clip"])}
        proposal = Proposal(
            target=found["action"] == "policy_target",
            **noise,
            draws=int(found["draws"] or 0),
            of=_LAWS.get(found["action"], "policy"),
            after=found["after"] is not None,
            sequence=int(found["sequence"] or 0),
            model=found["model"] or "",
        )
    heads = None if found["heads"] is None else int(found["heads"])
    ends = found["target"] is not None, found["next"] is not None
    return NetworkOutput(found["network"], *ends, proposal, heads, found["column"])
