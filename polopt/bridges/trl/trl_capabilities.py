"""The capabilities of TRL's GRPOTrainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from polopt.bridges.capabilities import TrainerCapabilities
from polopt.fields import OLD
from polopt.policies.vocabulary import REDUCTIONS

# Prefix of a reward function's signals other than the reward.
SIGNAL = "extras.signal_"

_BATCH = frozenset(
    {"rollout_logp", "old_logp", "ref_logp", "entropy", "value", "final_value", "reward", "outcome", "advantage"}
    | {"terminated", "truncated", "group", "turn"}
    | {"extras.tokens", "extras.turn_state", "extras.answer", "extras.task", "extras.prompt_logp"}
)

# `extras.kind` and `extras.signal_<name>` come with the data set and the reward functions: see `host_of`.
HOST = TrainerCapabilities(
    name="TRL",
    advantage_fields=_BATCH,
    loss_fields=_BATCH | {OLD + name for name in REDUCTIONS},
    policy_outputs=frozenset({"entropy", "value"} | {f"extras.{name}" for name in REDUCTIONS}),
    sampling_settings=frozenset({"group", "support", "select", "refills"}),
    full_batch=True,
    selects=True,
    moves_reference=False,
)


def host_of(rewards: Iterable[str] = (), columns: Iterable[str] = ()) -> TrainerCapabilities:
    """Returns TRL's capabilities with these reward functions, by name, and a data set of these columns.

    The result of the reward function `name` is `extras.signal_<name>`; a column `kind` is `extras.kind`.
    """
    more = {SIGNAL + name.removeprefix("signal_") for name in rewards}
    more |= {"extras.kind"} & {f"extras.{column}" for column in columns}
    return dataclasses.replace(HOST, advantage_fields=HOST.advantage_fields | more, loss_fields=HOST.loss_fields | more)
