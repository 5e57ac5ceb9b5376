"""A causal language model as a policy: a decision is a token."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.experience import Evaluation, Experience
from polopt.policies.checkpointing import checkpoint_layers
from polopt.policies.decoder import Decoder, as_made
from polopt.policies.packing import pack
from polopt.policies.vocabulary import REDUCTIONS, score, score_logits


class LanguagePolicy(nn.Module):
    """Any `transformers` causal LM with its tokenizer, and optionally a critic on its hidden states.

    A row of experience is a whole episode: prompt, answers and whatever the world said in between, as
    `extras["tokens"]` [B, T] with -1 on padding. `mask` is True at tokens that the policy chose, so prompt
    and observation tokens are read but never trained. Log-probabilities are float32 (or wider), whatever the
    model computes in.

    The model stays in evaluation mode: dropout would make the sampler and the learner two policies.
    critic: a linear value head, zero at the start, that shares the model's trunk.
    checkpointing: layers keep only their inputs for the backward pass, which computes the rest again.
    compute: the precision of the arithmetic, None for the weights' own. Weights, gradients and what an optimiser
    remembers keep theirs: in bfloat16, steps below 1/256 of a weight would be lost.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        critic: bool = False,
        checkpointing: bool = False,
        compute: torch.dtype | None = None,
    ) -> None:
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
        self._decoder = Decoder.of(model)
        self._plain_head = self._decoder is not None or _has_plain_head(model)
        if checkpointing:
            checkpoint_layers(model)
        self.compute = compute
        if self._decoder is not None:
            self._decoder.checkpointing, self._decoder.compute = checkpointing, compute

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        critic: bool = False,
        checkpointing: bool = False,
        compute: torch.dtype | None = None,
        **kwargs: Any,
    ) -> Self:
        """From a local folder or a hub name; `kwargs` go to `AutoModelForCausalLM.from_pretrained`."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(name, **kwargs)
        tokenizer = AutoTokenizer.from_pretrained(name)
        return cls(model, tokenizer, critic=critic, checkpointing=checkpointing, compute=compute)

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
    def decoder(self) -> Decoder | None:
        """None where transformers' own forward pass is used: for architectures that are not written out, and for a
        model that an adapter or a hook has changed since the policy was made."""
        return self._decoder if self._decoder is not None and as_made(self.model) else None

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

    def arithmetic(self) -> contextlib.AbstractContextManager[Any]:
        """Inside, transformers' own forward pass computes in the policy's precision; the decoder always does."""
        if self.decoder is not None or self.compute in (None, self.model.dtype):
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute)

    def frozen(self) -> Self:
        """A copy without gradient: the reference of a KL term."""
        return copy.deepcopy(self).requires_grad_(False)

    def evaluate(self, experience: Experience, needs: Iterable[str] = ()) -> Evaluation:
        """What this policy says of the batch's decisions, over the batch's support.

        needs: any of "entropy", "logits", "value", and "extras.<name>" for the names in `vocabulary.REDUCTIONS`. Only
        the hidden states of decisions meet the vocabulary.
        Positions outside the mask hold 0 and carry no gradient.

        Raises:
            ExperienceError: no `extras["tokens"]`; or a truncated support without `extras["kept"]`, or temperatures
                that follow the entropy without `extras["temperature"]`.
            ValueError: a decision that is padding, or that has padding or nothing before it; a temperature that is
                not positive.
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
        asks_value = "value" in needs and self.critic is not None
        # The decision at t is taken on the hidden state at t - 1; the last value is that after the last decision.
        rows, columns = row, column - 1
        if asks_value:
            every = torch.arange(len(mask), device=mask.device)
            last = torch.where(mask, torch.arange(mask.shape[1], device=mask.device), 0).amax(1)
            rows, columns = torch.cat([rows, every]), torch.cat([columns, last])
        hidden, logits_of = self._read(tokens, _begun(experience), rows, columns)
        n, chosen = len(row), tokens[row, column]
        kept = experience.extras["kept"][row, column] if experience.support.truncated else None
        temperature = experience.temperatures
        if isinstance(temperature, Tensor):
            temperature = temperature[row, column]
            if not (temperature > 0).all():
                raise ValueError('LanguagePolicy.evaluate: extras["temperature"] must be > 0 at every decision')

        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(*mask.shape, *values.shape[1:]).index_put((row, column), values)

        asked: dict[str, Any] = {}
        also: dict[str, Any] = {
            "entropy": "entropy" in needs,
            "reductions": [name for name in REDUCTIONS if f"extras.{name}" in needs],
        }
        if self._plain_head and "logits" not in needs:
            head = self.model.get_output_embeddings()
            said = score(hidden[:n], head, chosen, kept, temperature, **also)
        else:
            logits = ops.heated(ops.wide(logits_of(n)), temperature)
            said = score_logits(logits, chosen, kept, **also)
            asked |= {"logits": spread(logits)} if "logits" in needs else {}
        if said.entropy is not None:
            asked["entropy"] = spread(said.entropy)
        if asks_value:
            value = self._value(hidden)
            asked |= {"value": spread(value[:n]), "final_value": value[n:]}
        extras = {name: spread(values) for name, values in said.reduced.items()}
        return Evaluation(logp=spread(said.logp), support=experience.support, extras=extras, **asked)

    def _value(self, hidden: Tensor) -> Tensor:
        assert self.critic is not None
        return self.critic(hidden.to(self.critic.weight.dtype)).squeeze(-1)

    def _read(
        self, tokens: Tensor, begun: Tensor, rows: Tensor, columns: Tensor
    ) -> tuple[Tensor, Callable[[int], Tensor]]:
        """Hidden states [M, d] at (rows, columns), and a function that gives the logits at the first n of them. begun:
        [B, T] True at a row's first answer, at the latest."""
        tokens, columns, first = _from_column_0(tokens, columns, rows)
        decoder = self.decoder
        if decoder is not None and len(rows):  # an empty list of tokens has no shape to attend in
            end = columns.new_zeros(len(tokens)).scatter_reduce(0, rows, columns + 1, "amax")
            prompt = torch.where(begun.any(1), begun.int().argmax(1) - first, 0)
            packed = pack(tokens, prompt, end, decoder.dtype)
            hidden = decoder.read(packed, packed.where[rows, columns])
            head = decoder.head()
            return hidden, lambda n: head(hidden[:n])
        # Padding on the right cannot be seen by what stands before it. Any id does for it; transformers would warn
        # about the tokenizer's own.
        width = int(columns.max()) + 1 if len(columns) else 1
        tokens = tokens[:, :width]
        arguments: dict[str, Any] = {
            "input_ids": torch.where(tokens >= 0, tokens, tokens.amax().clamp(min=0)),
            "use_cache": False,
        }
        with self.arithmetic():
            if self._plain_head:
                hidden = self.model.base_model(**arguments).last_hidden_state[rows, columns]
                return hidden, lambda n: self.model.get_output_embeddings()(hidden[:n])
            output = self.model(**arguments, output_hidden_states=True)
        return output.hidden_states[-1][rows, columns], lambda n: output.logits[rows[:n], columns[:n]]


def _begun(experience: Experience) -> Tensor:
    """[B, T] the decisions, and those that a selection has left out as far as `turn` knows them: a row's prompt ends
    before all of them, and only prompts are what rows share."""
    if experience.turn is None:
        return experience.mask
    return experience.mask | ((experience.turn >= 0) & (experience.turn[:, :1] < 0))


def _from_column_0(tokens: Tensor, columns: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [B, T] with padding on the left moved to the right, the columns to match, and where rows began."""
    real = tokens >= 0
    first = torch.where(real.any(1), real.int().argmax(1), 0)
    if not first.any():
        return tokens, columns, first
    source = torch.arange(tokens.shape[1], device=tokens.device) + first[:, None]
    inside = source < tokens.shape[1]
    moved = torch.where(inside, tokens.gather(1, source.clamp(max=tokens.shape[1] - 1)), -1)
    return moved, columns - first[rows], first


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
