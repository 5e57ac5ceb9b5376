"""A network beside the policy, with its loss, its optimiser's step and its target copy."""

from __future__ import annotations

import re

from polopt.networks.critics import QNetwork
from polopt.networks.parts import Network
from polopt.objectives import Backup, Error, NetworkRegression, NextValue, Objective, SquaredError
from polopt.outputs import PROPOSAL
from polopt.part import Part
from polopt.updates import AdamW, UpdateRule


class LearnedNetwork(Part):
    """A network that takes a step on its own loss in each minibatch, before the policy does.

    name: what other parts call it.
    network: its architecture.
    objective: its loss; None for a network that learns with another one.
    together_with: names of networks that take a step on this one's loss, too.
    lr: of its optimiser at the beginning, from where it takes the course of the stage's; None takes that of the policy.
    update: how a gradient becomes its step, a rule of gradients alone; AdamW is Adam here, without weight decay.
    target_tau: the step of its target copy towards it, 0 to 1, where 1 copies; None if it has no target copy.
    target_every: minibatches between steps of the target copy.
    every: minibatches between steps of the network itself.
    frozen: whether it stays as it begins, as an earlier stage left it, and those together with it.
    """

    name: str
    network: Network
    objective: Objective | None
    together_with: tuple[str, ...] = ()
    lr: float | None = None
    target_tau: float | None = None
    target_every: int = 1
    every: int = 1
    frozen: bool = False
    update: UpdateRule = AdamW()

    def setup(self) -> None:
        if self.update.loop_capabilities - {"optimiser"}:
            raise ValueError(
                f"networks.LearnedNetwork: update must be a rule of gradients alone, as updates.RMSprop, found "
                f"{self.update!r:.80}"
            )
        if not re.fullmatch("[a-z][a-z0-9_]*", self.name) or self.name in PROPOSAL | {"policy"}:
            raise ValueError(
                f"networks.LearnedNetwork: name must be of small letters, digits and _, and not action, logp, "
                f"observation or policy, found {self.name!r:.40}"
            )
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"networks.LearnedNetwork: lr must be > 0, found {self.lr}")
        if self.target_tau is not None and not 0 < self.target_tau <= 1:
            raise ValueError(f"networks.LearnedNetwork: target_tau must be in (0, 1], found {self.target_tau}")
        if min(self.target_every, self.every) < 1:
            raise ValueError(
                f"networks.LearnedNetwork: target_every and every must be >= 1, found {self.target_every}, {self.every}"
            )


def critic(
    next_value: NextValue,
    *,
    gamma: float,
    tau: float,
    hidden: tuple[int, ...],
    every: int = 1,
    error: Error | None = None,
    policy_inputs: tuple[str, ...] = (),
) -> LearnedNetwork:
    """Returns two critics, named `critic`, that are regressed on r + gamma V(s').

    next_value: V(s'). tau: the step of their target copies. every: minibatches between such steps. error: of the
    difference, squared by default. policy_inputs: as in `QNetwork`.
    """
    target = Backup(gamma=gamma, next=next_value)
    loss = NetworkRegression(target=target, error=error or SquaredError())
    return LearnedNetwork(
        name="critic",
        network=QNetwork(hidden=hidden, policy_inputs=policy_inputs),
        objective=loss,
        target_tau=tau,
        target_every=every,
    )
