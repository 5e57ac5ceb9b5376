"""The arithmetic of common decoder-only transformers on flat tokens, with the weights of a `transformers` model.

`transformers` builds, loads and saves the models. The computation on every token of every step is implemented here: no
padding, no mask where causality is enough, fused activations, and few enough operations per layer that their overhead
does not slow down a small model.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polopt import ops
from polopt.policies.checkpointing import recomputed
from polopt.policies.decoder_layer import DecoderLayer
from polopt.policies.linear_maps import Function, Linear
from polopt.policies.model_modules import adapter_of, as_made
from polopt.policies.packing import Packed, pack
from polopt.policies.recompute import Rowwise


class Decoder:
    """The forward pass of a model, on the model's own weights, so that every update of them takes effect.

    checkpointing: recompute each layer in the backward pass instead of keeping its activations.
    compute: the precision of products and of attention, None for the weights' own. The residual stream and its
        normalisation stay in the weights' precision if that is wider.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.checkpointing = model, False
        self.compute: torch.dtype | None = None

    @classmethod
    def of(cls, model: Any) -> Decoder | None:
        """Returns the decoder of a `transformers` causal LM, or None if its architecture is not implemented here.

        The decoder is also None if its logits differ from the model's, which is tested on short prompts with two
        answers each.
        """
        family = FAMILIES.get(type(model).__name__)
        if family is None or not as_made(model) or not family.fits(model):
            return None
        decoder = family(model)
        return decoder if decoder._agrees() else None

    @staticmethod
    def fits(model: Any) -> bool:
        """Returns True if the model uses no option that this family's arithmetic lacks."""
        raise NotImplementedError

    def embed(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Returns embeddings [N, d] of token ids and positions, [N] each."""
        raise NotImplementedError

    def rotations(self, positions: Tensor) -> Tensor | None:
        """Returns cosines and sines [2, N, 1, D] of rotary positions [N], None for models with learned positions."""
        return None

    def layers(self) -> Iterator[DecoderLayer]:
        raise NotImplementedError

    def final_norm(self) -> Rowwise:
        raise NotImplementedError

    @property
    def dtype(self) -> torch.dtype:
        return self.compute or self.model.dtype

    @property
    def stream(self) -> torch.dtype:
        """The precision of the residual stream."""
        return torch.promote_types(self.dtype, self.model.dtype)

    def computing(self, dtype: torch.dtype) -> Self:
        """Returns a decoder with the same weights and another precision of the arithmetic."""
        other = copy.copy(self)
        other.compute = dtype
        return other

    def head(self) -> Linear:
        """Returns the linear map from hidden states to logits."""
        return _linear(self.model.get_output_embeddings())

    def read(self, packed: Packed, at: Tensor, inner: Collection[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """Returns the normalised hidden states [M, d] at the flat indices `at` [M], which may repeat, and outputs of
        inner layers.

        inner: numbers of the layers, from 1, whose outputs at these indices, [M, d] each, are returned too.
        """
        x = self.embed(packed.tokens, packed.position)
        rotation = self.rotations(packed.position)
        *layers, last = self.layers()
        run: Callable[..., Tensor] = recomputed if self.checkpointing else _once
        inner_outputs = {}
        for number, layer in enumerate(layers, start=1):
            x = run(_whole_layer, layer, packed, x, rotation)
            if number in inner:
                inner_outputs[number] = ops.take(x, at)
        x = run(_last_layer, last, packed, x, rotation, at)
        if len(layers) + 1 in inner:
            inner_outputs[len(layers) + 1] = x
        return self.final_norm()(x), inner_outputs

    @torch.no_grad()
    def _agrees(self) -> bool:
        model = self.model
        tokens = torch.tensor([[2, 1, 2, -1], [2, 1, 1, 2], [1, 2, 1, 1], [1, 2, 2, 1]], device=model.device)
        real = tokens >= 0
        packed = pack(tokens, prompt=torch.full((4,), 2), end=real.sum(1), dtype=self.dtype)
        head = model.get_output_embeddings()
        own_logits = head(self.read(packed, packed.where[real])[0])
        logits = model(input_ids=tokens.clamp(min=1), use_cache=False).logits[real]
        tolerance = 1e-4 if self.dtype in (torch.float32, torch.float64) else 5e-2
        return bool(((own_logits - logits).abs() <= tolerance * logits.abs().max()).all())


def _once(layer: Callable[..., Tensor], *arguments: Any) -> Tensor:
    return layer(*arguments)


def _whole_layer(layer: DecoderLayer, packed: Packed, x: Tensor, rotation: Tensor | None) -> Tensor:
    return layer.finish(x, packed.attend(*layer.project(x, rotation)))


def _last_layer(layer: DecoderLayer, packed: Packed, x: Tensor, rotation: Tensor | None, at: Tensor) -> Tensor:
    """Computes the layer's output at the indices `at` alone."""
    attended = packed.attend(*layer.project(x, rotation))
    return layer.finish(ops.take(x, at), ops.take(attended, at))


class Gpt2(Decoder):
    """GPT-2: learned positions, layer normalisation, one projection to queries, keys and values."""

    @staticmethod
    def fits(model: Any) -> bool:
        config = model.config
        usual = config.scale_attn_weights and not config.scale_attn_by_inverse_layer_idx
        return usual and not config.add_cross_attention and not config.reorder_and_upcast_attn

    def embed(self, tokens: Tensor, position: Tensor) -> Tensor:
        trunk = self.model.transformer
        return (F.embedding(tokens, trunk.wte.weight) + F.embedding(position, trunk.wpe.weight)).to(self.stream)

    def layers(self) -> Iterator[DecoderLayer]:
        heads = self.model.config.n_head
        for block in self.model.transformer.h:
            attention, mlp = block.attn, block.mlp
            yield DecoderLayer(
                heads=heads,
                kv_heads=heads,
                width=self.model.config.n_embd // heads,
                norm=_layer_norm(block.ln_1, self.dtype),
                qkv=_conv(attention.c_attn),
                out=_conv(attention.c_proj),
                mlp_norm=_layer_norm(block.ln_2, self.dtype),
                up=_conv(mlp.c_fc),
                mix=Rowwise(_activation(mlp.act)),
                down=_conv(mlp.c_proj),
            )

    def final_norm(self) -> Rowwise:
        return _layer_norm(self.model.transformer.ln_f, self.dtype)


class Llama(Decoder):
    """Llama and similar architectures: rotary positions, RMS normalisation, a gated MLP, grouped-query attention; Qwen3
    also normalises queries and keys."""

    @staticmethod
    def fits(model: Any) -> bool:
        config = model.config
        kinds = getattr(config, "layer_types", None)
        full = set(kinds) == {"full_attention"} if kinds else getattr(config, "sliding_window", None) is None
        # Other kinds of rotary positions depend on the length of the text.
        return full and model.model.rotary_emb.rope_type not in ("dynamic", "longrope")

    def embed(self, tokens: Tensor, position: Tensor) -> Tensor:
        table = self.model.model.embed_tokens
        # transformers gives the padding token's embedding no gradient, even where the token is part of a text.
        return F.embedding(tokens, table.weight, table.padding_idx).to(self.stream)

    def rotations(self, positions: Tensor) -> Tensor:
        like = self.model.model.embed_tokens.weight
        cosine, sine = self.model.model.rotary_emb(like, positions[None])
        return torch.stack([cosine[0], sine[0]])[:, :, None].to(self.dtype)

    def layers(self) -> Iterator[DecoderLayer]:
        config = self.model.config
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        for block in self.model.model.layers:
            attention, mlp = block.self_attn, block.mlp
            yield DecoderLayer(
                heads=heads,
                kv_heads=config.num_key_value_heads,
                width=width,
                norm=_rms_norm(block.input_layernorm, self.dtype),
                qkv=_linear(attention.q_proj, attention.k_proj, attention.v_proj),
                out=_linear(attention.o_proj),
                mlp_norm=_rms_norm(block.post_attention_layernorm, self.dtype),
                up=_linear(mlp.gate_proj, mlp.up_proj),
                mix=Rowwise(functools.partial(_gated, _activation(mlp.act_fn))),
                down=_linear(mlp.down_proj),
                query_norm=_rms_norm(attention.q_norm, self.dtype) if hasattr(attention, "q_norm") else None,
                key_norm=_rms_norm(attention.k_norm, self.dtype) if hasattr(attention, "k_norm") else None,
            )

    def final_norm(self) -> Rowwise:
        return _rms_norm(self.model.model.norm, self.dtype)


FAMILIES: dict[str, type[Decoder]] = {
    "GPT2LMHeadModel": Gpt2,
    "LlamaForCausalLM": Llama,
    "MistralForCausalLM": Llama,
    "Qwen2ForCausalLM": Llama,
    "Qwen3ForCausalLM": Llama,
}


def _linear(*modules: nn.Linear) -> Linear:
    return Linear(
        tuple(m.weight for m in modules), tuple(m.bias for m in modules), tuple(adapter_of(m) for m in modules)
    )


def _conv(module: Any) -> Linear:
    """Returns the linear map of a GPT-2 module, which stores weights as [in, out]."""
    return Linear((module.weight.t(),), (module.bias,), (adapter_of(module),))


def _layer_norm(module: nn.LayerNorm, dtype: torch.dtype) -> Rowwise:
    def function(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        shift = None if bias is None else bias.to(x.dtype)
        return F.layer_norm(x, weight.shape, weight.to(x.dtype), shift, eps).to(dtype)

    eps, parameters = module.eps, (module.weight,) if module.bias is None else (module.weight, module.bias)
    return Rowwise(function, parameters)


def _rms_norm(module: Any, dtype: torch.dtype) -> Rowwise:
    eps = module.variance_epsilon
    return Rowwise(lambda x, w: F.rms_norm(x, w.shape, w.to(x.dtype), eps).to(dtype), (module.weight,))


def _gated(activation: Function, gate: Tensor, up: Tensor) -> Tensor:
    return activation(gate) * up


def _activation(module: nn.Module) -> Function:
    """Returns the activation function; GELU's tanh form is one operation, where `transformers` uses eight."""
    if type(module).__name__ in ("NewGELUActivation", "GELUTanh", "FastGELUActivation"):
        return functools.partial(F.gelu, approximate="tanh")
    return F.silu if isinstance(module, nn.SiLU) or type(module).__name__ == "SiLUActivation" else module
