"""A causal language model as a policy: a decision is a token."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.experience import Evaluation, Experience
from polopt.policies.checkpointing import checkpoint_layers
from polopt.policies.packing import WIDEST, pack

At = Callable[[Tensor, Tensor], Tensor]


class LanguagePolicy(nn.Module):
    """Any `transformers` causal LM with its tokenizer, and optionally a critic on its hidden states.

    A row of experience is a whole episode: prompt, answers and whatever the world said in between, as
    `extras["tokens"]` [B, T] with -1 on padding. `mask` is True at tokens that the policy chose, so prompt
    and observation tokens are read but never trained. Log-probabilities are float32 (or wider), whatever the
    model computes in.

    The model stays in evaluation mode: dropout would make the sampler and the learner two policies.
    critic: a linear value head, zero at the start, that shares the model's trunk.
    checkpointing: layers keep only their inputs for the backward pass, which computes the rest again.
    """

    def __init__(self, model: Any, tokenizer: Any, *, critic: bool = False, checkpointing: bool = False) -> None:
        super().__init__()
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.critic: nn.Linear | None = None
        if critic:
            width = model.config.get_text_config().hidden_size
            precision = torch.float64 if model.dtype == torch.float64 else torch.float32
            self.critic = nn.Linear(width, 1, device=model.device, dtype=precision)
            nn.init.zeros_(self.critic.weight)
            nn.init.zeros_(self.critic.bias)
        self._plain_head = _has_plain_head(model)
        self._widest = _widest_pack(model)
        if checkpointing:
            checkpoint_layers(model)

    @classmethod
    def load(cls, name: str | Path, *, critic: bool = False, checkpointing: bool = False, **kwargs: Any) -> Self:
        """From a local folder or a hub name; `kwargs` go to `AutoModelForCausalLM.from_pretrained`."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(name, **kwargs)
        return cls(model, AutoTokenizer.from_pretrained(name), critic=critic, checkpointing=checkpointing)

    def save(self, folder: Path) -> None:
        """The model and tokenizer in the Hugging Face format."""
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def train(self, mode: bool = True) -> Self:
        """Keeps the model itself in evaluation mode; see the class."""
        super().train(mode)
        self.model.eval()
        return self

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def stop(self) -> frozenset[int]:
        """Ids that end an answer."""
        ids = self.model.generation_config.eos_token_id
        if ids is None:
            ids = self.tokenizer.eos_token_id
        return frozenset(i for i in (ids if isinstance(ids, list) else [ids]) if i is not None)

    def frozen(self) -> Self:
        """A copy without gradient: the reference of a KL term."""
        return copy.deepcopy(self).requires_grad_(False)

    def evaluate(self, experience: Experience, needs: Iterable[str] = ()) -> Evaluation:
        """What this policy says of the batch's decisions, over the batch's support.

        needs: any of "entropy", "logits", "value". Only the hidden states of decisions meet the vocabulary.
        Positions outside the mask hold 0 and carry no gradient.

        Raises:
            ExperienceError: no `extras["tokens"]`; or a truncated support without `extras["kept"]`.
            ValueError: a decision that is padding, or that has padding or nothing before it.
        """
        needs = frozenset(needs)
        wanted = {"extras.tokens"} | ({"extras.kept"} if experience.support.truncated else set())
        experience.require(wanted, by="LanguagePolicy.evaluate")
        tokens, mask = experience.extras["tokens"], experience.mask
        if mask[:, 0].any() or (mask & (tokens < 0)).any() or (mask[:, 1:] & (tokens[:, :-1] < 0)).any():
            raise ValueError(
                "LanguagePolicy.evaluate: every decision must be a token that stands right behind another one; "
                "found one that is padding, or that has padding or nothing before it"
            )
        row, column = mask.nonzero(as_tuple=True)
        # The decision at t is taken on the hidden state at t - 1.
        hidden_at, logits_at = self._read(tokens, mask)
        logits = logits_at(row, column - 1) / experience.support.temperature
        chosen = tokens[row, column]
        kept = experience.extras["kept"][row, column] if experience.support.truncated else None

        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(*mask.shape, *values.shape[1:]).index_put((row, column), values)

        asked: dict[str, Tensor] = {}
        if "entropy" in needs:
            asked["entropy"] = spread(_entropy(logits, kept))
        if "logits" in needs:
            asked["logits"] = spread(logits)
        if "value" in needs and self.critic is not None:
            asked["value"] = spread(self._value(hidden_at(row, column - 1)))
            rows = torch.arange(len(mask), device=mask.device)
            last = torch.where(mask, torch.arange(mask.shape[1], device=mask.device), 0).amax(1)
            asked["final_value"] = self._value(hidden_at(rows, last))
        return Evaluation(logp=spread(_chosen_logp(logits, chosen, kept)), support=experience.support, **asked)

    def _value(self, hidden: Tensor) -> Tensor:
        assert self.critic is not None
        return self.critic(hidden.to(self.critic.weight.dtype)).squeeze(-1)

    def _read(self, tokens: Tensor, mask: Tensor) -> tuple[At, At]:
        """Run the model; functions that give the hidden states, and the logits, at (rows, columns)."""
        width = int(mask.any(0).nonzero().max()) + 1 if mask.any() else 1
        tokens, mask = tokens[:, :width], mask[:, :width]
        real = tokens >= 0
        right_padded = not (real[:, 1:] & ~real[:, :-1]).any()
        packed = pack(tokens, mask, self.model.dtype, self._widest) if right_padded and self._widest else None
        arguments: dict[str, Any] = {"use_cache": False}
        if packed is not None:
            place = packed.place
            arguments |= {"input_ids": packed.tokens, "position_ids": packed.position, "attention_mask": packed.mask}
        else:
            place = lambda rows, columns: (rows, columns)  # noqa: E731
            # Any id does for padding; transformers would warn about the tokenizer's own.
            arguments["input_ids"] = torch.where(real, tokens, tokens.amax().clamp(min=0))
            # Padding on the right cannot be seen by what stands before it; anywhere else it must be masked.
            if not right_padded:
                arguments["attention_mask"] = real.long()
                arguments["position_ids"] = (real.cumsum(1) - 1).clamp(min=0)
        if self._plain_head:
            hidden = self.model.base_model(**arguments).last_hidden_state
            head = self.model.get_output_embeddings()
            return lambda r, c: hidden[place(r, c)], lambda r, c: ops.wide(head(hidden[place(r, c)]))
        output = self.model(**arguments, output_hidden_states=True)
        last, logits = output.hidden_states[-1], output.logits
        return lambda r, c: last[place(r, c)], lambda r, c: ops.wide(logits[place(r, c)])


def _chosen_logp(logits: Tensor, chosen: Tensor, kept: Tensor | None) -> Tensor:
    """[N] log-probability of the chosen ids among all choices, or among the kept ones ([N, K], -1 padding)."""
    picked = logits.gather(1, chosen[:, None]).squeeze(1)
    return picked - _among(logits, kept).logsumexp(-1)


def _among(logits: Tensor, kept: Tensor | None) -> Tensor:
    if kept is None:
        return logits
    return logits.gather(1, kept.clamp(min=0).long()).masked_fill(kept < 0, -torch.inf)


def _entropy(logits: Tensor, kept: Tensor | None) -> Tensor:
    return ops.entropy_of(_among(logits, kept).log_softmax(-1))


@torch.no_grad()
def _has_plain_head(model: Any) -> bool:
    """Whether logits are the output layer of the last hidden state and nothing more, so that only decisions
    need to meet the vocabulary. Some architectures cap or scale them: it is tried, not looked up, on hidden
    states so large that a cap shows whatever the weights are."""
    if model.base_model is model:
        return False
    seen: list[Tensor] = []

    def enlarge(module: nn.Module, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state * 1e3
        seen.append(output.last_hidden_state)
        return output

    head, hook = model.get_output_embeddings(), model.base_model.register_forward_hook(enlarge)
    try:
        logits = model(input_ids=torch.tensor([[2, 1]], device=model.device), use_cache=False).logits
    finally:
        hook.remove()
    return head is not None and len(seen) == 1 and torch.allclose(head(seen[0]), logits, rtol=1e-4, atol=1e-3)


def _widest_pack(model: Any) -> int:
    """How many tokens may stand in one pack; 0 if the model cannot read packs. A pack's mask takes the place of
    the model's own, so no pack may outgrow a window beyond which the model would not look."""
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size", "window_size")]
    return min([WIDEST, *(w for w in windows if isinstance(w, int))]) if _can_pack(model) else 0


@torch.no_grad()
def _can_pack(model: Any) -> bool:
    """Whether answers packed behind one prompt read as they do alone: not so for recurrent layers, or positions
    that are not given from outside. It is tried on answers of one and two tokens."""
    tokens = torch.tensor([[2, 1, 2, -1], [2, 1, 1, 2], [2, 1, 2, 1], [2, 1, 1, 1]], device=model.device)
    mask = torch.tensor([[False, False, True, True]], device=model.device).expand(4, 4) & (tokens >= 0)
    packed = pack(tokens, mask, model.dtype)
    assert packed is not None
    row, column = mask.nonzero(as_tuple=True)
    try:
        together = model(
            input_ids=packed.tokens, position_ids=packed.position, attention_mask=packed.mask, use_cache=False
        ).logits[packed.place(row, column)]
    except (ValueError, RuntimeError, TypeError):  # it takes no mask of four dimensions, or no positions
        return False
    alone = model(input_ids=tokens.clamp(min=1), use_cache=False).logits[row, column]
    return torch.allclose(together, alone, rtol=1e-3, atol=1e-4)
