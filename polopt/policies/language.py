"""A causal language model as a policy: a decision is a token."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.layers import Layer, LayerOutput
from polopt.policies.adapter import AdapterSpec, is_adapted, load_adapter, merged, merged_state, new_adapter
from polopt.policies.checkpointing import checkpoint_layers
from polopt.policies.decoder import Decoder
from polopt.policies.frozen import frozen_copy
from polopt.policies.hidden_states import Backbone, has_plain_head
from polopt.policies.model_modules import adapted, as_made
from polopt.policies.packing import pack
from polopt.policies.places import config_at, model_at, name_special_tokens, place_of
from polopt.policies.queries import Query, begun, by_position, from_column_0, layers_in, positions_read, query_at
from polopt.policies.vocabulary import REDUCTIONS, likeliest, likeliest_of, score, score_logits


class LanguagePolicy(nn.Module):
    """Any `transformers` causal LM with its tokenizer, and optionally a critic on its hidden states.

    A row of experience is a whole episode: prompt, answers and the observations in between, as `extras["tokens"]` [B,
    T] with -1 on padding. `mask` is True at tokens that the policy chose, so prompt and observation tokens are read but
    never trained. Log-probabilities are float32 (or wider), whatever precision the model computes in.

    The model stays in evaluation mode: dropout would make the sampler and the learner two policies.

    critic: a linear value head, initialised to zero, that shares the model's backbone.
    checkpointing: layers keep only their inputs for the backward pass, which computes the rest again.
    compute: the precision of the arithmetic, None for the weights' own. Weights, gradients and the optimiser's state
        keep their precision: in bfloat16, steps below 1/256 of a weight would be lost.
    chat_template_kwargs: arguments of the tokenizer's chat template besides the messages, see `Dialogue`.
    fixed: names of parameters that never change, the base of an adapter. Copies of the policy share them.
    """

    tags = frozenset({"head=transformer", "input=text"})

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        critic: bool = False,
        checkpointing: bool = False,
        compute: torch.dtype | None = None,
        chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.chat_template_kwargs = dict(chat_template_kwargs)
        self.critic: nn.Linear | None = None
        if critic:
            width = model.config.get_text_config().hidden_size
            self.critic = nn.Linear(width, 1, device=model.device, dtype=self.precision)
            nn.init.zeros_(self.critic.weight)
            nn.init.zeros_(self.critic.bias)
        self._decoder = Decoder.of(model)
        self.fixed: frozenset[str] = frozenset()
        self._had_plain_head = self._decoder is not None or has_plain_head(model)
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
        chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
        **kwargs: Any,
    ) -> Self:
        """Loads a policy from a folder, a GGUF file, a file of an installed package or a name of the hub, see
        `place_of`.

        kwargs: passed to `AutoModelForCausalLM.from_pretrained`.
        """
        from transformers import AutoTokenizer

        place = place_of(name)
        model = model_at(place, **kwargs)
        how = place.how if place.gguf is None else {**place.how, "config": config_at(place)}
        tokenizer = AutoTokenizer.from_pretrained(place.name, **how)
        if place.gguf is not None:
            name_special_tokens(tokenizer, model.config)
        ways: dict[str, Any] = {"critic": critic, "checkpointing": checkpointing, "compute": compute}
        return cls(model, tokenizer, chat_template_kwargs=chat_template_kwargs, **ways)

    def adapt(self, adapter: AdapterSpec | str, *, seed: int, base: str) -> None:
        """Freezes the model and adds an adapter: a new one, or one in PEFT's format from a folder.

        base: the model's name in PEFT's file.
        seed: seed of a new adapter's random factor.

        Raises:
            ConfigError: as for `new_adapter` and `load_adapter`.
        """
        if isinstance(adapter, str):
            load_adapter(self.model, adapter, base=base)
        else:
            new_adapter(self.model, adapter, seed=seed, base=base)
        self.fixed = frozenset(name for name, p in self.named_parameters() if not p.requires_grad)

    def named_block(self, block: str | None) -> dict[str, nn.Parameter]:
        """Returns the trainable parameters whose names contain `block`, by name; None for those of the input embedding.

        Raises:
            ValueError: there are none.
        """
        learning = {name: p for name, p in self.named_parameters() if p.requires_grad}
        if block is None:
            table = {id(p) for p in self.model.get_input_embeddings().parameters()}
            found = {name: p for name, p in learning.items() if id(p) in table}
            missing = "the policy's input embedding does not learn; name a block that does"
        else:
            found = {name: p for name, p in learning.items() if block in name}
            missing = f"no parameter's name contains {block!r}"
        if not found:
            raise ValueError(f"{missing}; there are {', '.join(sorted(learning)[:8])}, ...")
        return found

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Returns the parameters by name, tied ones once, without the `fixed` ones."""
        return {name: p for name, p in self.named_parameters() if name not in self.fixed}

    def weights(self, *, once: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Yields the model's weights by their names in the model, adapters merged; tied ones under all their names or
        `once`."""
        return merged(self.model, once=once)

    def save(self, folder: Path) -> None:
        """Saves the model and tokenizer in the Hugging Face format, with adapters merged into the model."""
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.model.save_pretrained(folder, state_dict=merged_state(self.model) if is_adapted(self.model) else None)
        self.tokenizer.save_pretrained(folder)

    def train(self, mode: bool = True) -> Self:
        """Sets the policy's mode and keeps the model itself in evaluation mode; see the class."""
        super().train(mode)
        self.model.eval()
        return self

    @property
    def decoder(self) -> Decoder | None:
        """The decoder, or None where transformers' own forward pass is used.

        That is so for architectures that are not implemented as decoders, and for a model that a hook, or an adapter
        other than plain LoRA, has changed since the policy was created.
        """
        return self._decoder if self._decoder is not None and as_made(self.model) else None

    @property
    def _plain_head(self) -> bool:
        """True if logits are the output layer's weights times hidden states, and nothing more."""
        return self._had_plain_head and not adapted(self.model.get_output_embeddings())

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def precision(self) -> torch.dtype:
        """The precision of the policy's outputs: float64 if its weights are, else float32."""
        return torch.float64 if self.model.dtype == torch.float64 else torch.float32

    @functools.cached_property
    def context_length(self) -> int | None:
        """The most tokens of a text that the model supports, rotary scaling included; None without a bound."""
        config = self.model.config.get_text_config()
        length: int | None = getattr(config, "max_position_embeddings", None)
        if length is None or length < 1:
            return None
        rope = getattr(config, "rope_parameters", None) or {}
        factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
        return max(length, int(factor * original)) if factor and original else length

    @property
    def stop(self) -> frozenset[int]:
        """Ids that end an answer."""
        ids = self.model.generation_config.eos_token_id
        if ids is None:
            ids = self.tokenizer.eos_token_id
        return frozenset(i for i in (ids if isinstance(ids, list) else [ids]) if i is not None)

    def arithmetic(self, dtype: torch.dtype | None = None) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which transformers' own forward pass computes in `dtype`, None for the policy's; a
        decoder always does."""
        dtype = dtype or self.compute
        if self.decoder is not None or dtype in (None, self.model.dtype):
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=dtype)

    def frozen(self) -> Self:
        """Returns a copy without gradient: the reference of a KL term."""
        return frozen_copy(self)

    def evaluate(self, experience: Experience, needs: Iterable[str] = (), *, top: int = 0) -> Evaluation:
        """Evaluates the policy on the batch's decisions, over the batch's support.

        needs: any of "entropy", "logits", "value"; and of the fields of `extras`, as "extras.<name>": `REDUCTIONS` [B,
            T]; outputs of inner layers' policies (`layers.Layer.name`) [B, T]; "candidate_logp" [B, T, C], the
            log-probabilities of the ids in the batch's `extras["candidates"]` [B, T, C]; "hidden" [B, T, d], the
            normalised hidden state from which each decision is predicted.
        top: if > 0, the candidates are that many ids, the likeliest under the policy, and `extras` holds "candidates"
            as well.

        Logits are computed at the hidden states of decisions alone. Positions outside the mask hold 0 (ids: -1) and
        carry no gradient.

        Raises:
            ExperienceError: no `extras["tokens"]`; a truncated support without `extras["kept"]`; temperatures that
                follow the entropy without `extras["temperature"]`; candidates that are needed and not given.
            ValueError: a decision that is padding, or that has padding or nothing before it; a temperature that is not
                positive; a layer that does not exist.
        """
        return Evaluation(support=experience.support, **self(experience, frozenset(needs), top))

    def forward(self, experience: Experience, needs: frozenset[str], top: int) -> dict[str, Any]:
        """Computes the fields of `evaluate` by name.

        A call of the module that returns tensors in a dictionary is visible to everything that hooks into either
        (sharding, profilers).
        """
        extras = {name.removeprefix("extras.") for name in needs if name.startswith("extras.")}
        layers, named = layers_in(extras), "candidate_logp" in extras and not top
        self._check(experience, layers, named=named)
        row, column = experience.mask.nonzero(as_tuple=True)
        needs_value = "value" in needs and self.critic is not None
        rows, columns = positions_read(experience.mask, row, column, final=needs_value)
        inner = {layer.at(self.depth) for layer in layers}
        hidden, inner_states, logits_of = self._read(
            experience.extras["tokens"], begun(experience), rows, columns, inner
        )
        n, names = len(row), frozenset((extras & REDUCTIONS.keys()) | ({"entropy"} & needs))
        query = query_at(experience, row, column, names=names, named=named, top=top)
        if self._plain_head and "logits" not in needs:
            outputs = self._from_states(hidden[:n], query)
        else:
            outputs = self._from_logits(logits_of(n), query)
        for layer, names_of_layer in layers.items():
            outputs |= self._of_layer(layer, inner_states[layer.at(self.depth)][:n], names_of_layer, query)
        if "hidden" in extras:
            outputs["hidden"] = hidden[:n]
        final = {}
        if needs_value:
            value = self._value(hidden)
            outputs["value"], final = value[:n], {"final_value": value[n:]}
        if "logits" not in needs:
            outputs.pop("logits", None)
        return {**by_position(outputs, experience.mask, row, column), **final}

    def _check(self, experience: Experience, layers: Collection[Layer], *, named: bool) -> None:
        """Checks the batch's fields, decisions and layers.

        named: whether the batch must contain the candidates.
        """
        required = {"extras.tokens"} | ({"extras.kept"} if experience.support.truncated else set())
        experience.require(required | ({"extras.candidates"} if named else set()), by="LanguagePolicy.evaluate")
        tokens, mask = experience.extras["tokens"], experience.mask
        if mask[:, 0].any() or (mask & (tokens < 0)).any() or (mask[:, 1:] & (tokens[:, :-1] < 0)).any():
            raise ValueError(
                "LanguagePolicy.evaluate: every decision must be a token that follows directly after another one; "
                "found one that is padding, or that has padding or nothing before it"
            )
        self._refuse(layers)

    def check_layers(self, needs: Iterable[str]) -> None:
        """Raises an error, before any evaluation, for needs of `evaluate` that name a layer whose policy cannot be
        computed.

        Raises:
            ValueError: the layer, and the reason.
        """
        self._refuse(layers_in(name.removeprefix("extras.") for name in needs))

    def _refuse(self, layers: Collection[Layer]) -> None:
        for layer in layers:
            if layer.at(self.depth) > self.depth:
                raise ValueError(f"layer {layer.number} was asked for, and the policy has layers 1 to {self.depth}")
            if not self._plain_head:
                raise ValueError(
                    f"{type(self.model).__name__} does more to hidden states than its output layer does, so its layers "
                    "have no policies; take a part that needs none"
                )
        if layers and self.decoder is None:
            _ = self._trunk

    def _from_states(self, hidden: Tensor, query: Query) -> dict[str, Tensor]:
        head = self.model.get_output_embeddings()
        candidates = likeliest(hidden, head, query.kept, query.top) if query.top else query.candidates
        outputs = score(hidden, head, query.chosen, query.kept, query.temperature, query.names, candidates)
        return outputs | ({"candidates": candidates} if query.top and candidates is not None else {})

    def _from_logits(self, logits: Tensor, query: Query) -> dict[str, Tensor]:
        logits = ops.heated(ops.wide(logits), query.temperature)
        candidates = likeliest_of(logits, query.kept, query.top) if query.top else query.candidates
        outputs = score_logits(logits, query.chosen, query.kept, query.names, candidates)
        return (
            outputs | {"logits": logits} | ({"candidates": candidates} if query.top and candidates is not None else {})
        )

    def _of_layer(
        self, layer: Layer, states: Tensor, requested: Collection[LayerOutput], query: Query
    ) -> dict[str, Tensor]:
        head, names = self.model.get_output_embeddings(), {"entropy"} & set(requested)
        states = self._norm(states) if layer.normed else states
        values = score(states, head, query.chosen, query.kept, query.temperature, names)
        return {layer.name(name): values[name] for name in requested}

    @property
    def depth(self) -> int:
        """Number of layers."""
        return self.model.config.get_text_config().num_hidden_layers

    @functools.cached_property
    def _trunk(self) -> Backbone:
        return Backbone(self.model)

    def _norm(self, states: Tensor) -> Tensor:
        """Applies the normalisation between the last layer and the output layer."""
        if self.decoder is not None:
            return self.decoder.final_norm()(states)
        with self.arithmetic():
            return self._trunk.norm(states)

    def _value(self, hidden: Tensor) -> Tensor:
        assert self.critic is not None
        return self.critic(hidden.to(self.critic.weight.dtype)).squeeze(-1)

    def _read(
        self, tokens: Tensor, started: Tensor, rows: Tensor, columns: Tensor, inner: Collection[int]
    ) -> tuple[Tensor, dict[int, Tensor], Callable[[int], Tensor]]:
        """Returns hidden states [M, d] at (rows, columns), outputs of the layers `inner` there, and a function of n
        that returns the logits at the first n of them.

        started: [B, T], True at the latest from a row's first answer on.
        """
        tokens, columns, first = from_column_0(tokens, columns, rows)
        decoder = self.decoder
        if decoder is not None and len(rows):  # an empty list of tokens has no shape to attend in
            end = columns.new_zeros(len(tokens)).scatter_reduce(0, rows, columns + 1, "amax")
            prompt = torch.where(started.any(1), started.int().argmax(1) - first, 0)
            packed = pack(tokens, prompt, end, decoder.dtype)
            hidden, inner_states = decoder.read(packed, packed.where[rows, columns], inner)
            head = decoder.head()
            return hidden, inner_states, lambda n: head(hidden[:n])
        # Padding on the right is invisible to the tokens before it, so any id will do; transformers would warn about
        # the tokenizer's own padding id.
        width = int(columns.max()) + 1 if len(columns) else 1
        tokens = tokens[:, :width]
        arguments: dict[str, Any] = {
            "input_ids": torch.where(tokens >= 0, tokens, tokens.amax().clamp(min=0)),
            "use_cache": False,
        }
        with self.arithmetic():
            if self._plain_head:
                not_recording: contextlib.AbstractContextManager[dict[int, Tensor]] = contextlib.nullcontext({})
                with self._trunk.recording(inner, rows, columns) if inner else not_recording as inner_states:
                    hidden = self.model.base_model(**arguments).last_hidden_state[rows, columns]
                return hidden, inner_states, lambda n: self.model.get_output_embeddings()(hidden[:n])
            output = self.model(**arguments, output_hidden_states=True)
        return output.hidden_states[-1][rows, columns], {}, lambda n: output.logits[rows[:n], columns[:n]]
