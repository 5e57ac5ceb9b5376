"""Values and other functions of the hidden states of the model that TRL trains."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from polopt.bridges.capabilities import BridgeError
from polopt.policies.hidden_states import has_plain_head
from polopt.policies.vocabulary import score

NAME = "polopt_critic"


class HiddenStateHook:
    """Records the last hidden states of a model during TRL's passes for log-probabilities.

    critic: adds a linear value head, zero at the start, on the shared backbone, as polopt's own policies have. It is a
        module of the model, so that its optimiser, its processes and its gradient clipping are the model's, and is left
        out of the saved policy.
    names: of the `vocabulary.REDUCTIONS` that will be requested.

    Raises:
        BridgeError: reductions of a model whose head is not the output layer alone.
    """

    def __init__(self, model: Any, *, critic: bool, names: Collection[str]) -> None:
        self.inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.names = sorted(names)
        if names and not has_plain_head(self.inner):
            raise BridgeError(
                f"{type(self.inner).__name__} does more to hidden states than its output layer does, so its "
                f"{', '.join(self.names)} cannot be computed in TRL; take another method, or polopt's own loop"
            )
        self.critic = self._add_critic(model) if critic else None
        self._states: list[Tensor] | None = None
        self._values: list[Tensor] = []
        self.inner.base_model.register_forward_hook(self._record)
        if critic:
            model.register_forward_hook(self._value)

    def _add_critic(self, model: Any) -> nn.Linear:
        wide = torch.float64 if self.inner.dtype == torch.float64 else torch.float32
        critic = nn.Linear(self.inner.config.get_text_config().hidden_size, 1, device=self.inner.device, dtype=wide)
        nn.init.zeros_(critic.weight)
        nn.init.zeros_(critic.bias)
        setattr(model, NAME, critic)
        kept_out = getattr(model, "_keys_to_ignore_on_save", None) or ()
        model._keys_to_ignore_on_save = {*kept_out, *(f"{NAME}.{key}" for key in critic.state_dict())}
        return critic

    def _record(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if self._states is not None:
            self._states.append(output.last_hidden_state)

    def _value(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if self._states is not None and self.critic is not None:
            value = self.critic(self._states[-1].to(self.critic.weight.dtype)).squeeze(-1)
            self._values.append(value)
            # Data parallel finds the parameters with gradients from the graph of a model's outputs.
            output.log_probs = output.log_probs + value[:, :0].sum()

    def start(self) -> None:
        """Records hidden states from now on, until the next call of `evaluate`."""
        self._states, self._values = [], []

    def evaluate(self, ids: Tensor, decided: Tensor, temperature: float) -> dict[str, Any]:
        """Returns fields of an `Evaluation` for the last C columns of the recorded pass.

        ids: [b, C] the tokens in these columns.
        decided: [b, C] the mask of the policy's decisions; the fields are 0 elsewhere.
        """
        states, self._states = torch.cat(self._states or []), None
        # The decision at t is taken on the state at t - 1; the last value is that after the last decision.
        start = states.shape[1] - ids.shape[1] - 1
        fields: dict[str, Any] = {}
        if self.critic is not None:
            value = torch.cat(self._values)[:, start:]
            columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
            end = torch.where(decided, columns, 0).amax(1, keepdim=True)
            fields |= {"value": value[:, :-1], "final_value": value.gather(1, end).squeeze(1)}
        if self.names:
            head = self.inner.get_output_embeddings()
            values = score(states[:, start:-1][decided], head, ids[decided], None, temperature, self.names)
            spread = lambda x: x.new_zeros(ids.shape).masked_scatter(decided, x)  # noqa: E731
            fields["extras"] = {name: spread(values[name]) for name in self.names}
        return fields
