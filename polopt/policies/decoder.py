"""The arithmetic of common decoder-only transformers on flat tokens, with the weights of a `transformers` model.

`transformers` builds, loads and saves the models. What is computed on every token of every step is written out
here: no padding, no mask where causality is enough, fused activations, and few enough operations a layer that a
small model is not slowed down by calling them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polopt import ops
from polopt.policies import products, recompute
from polopt.policies.checkpointing import recomputed
from polopt.policies.packing import Packed, pack
from polopt.policies.recompute import AS_IT_IS, Rowwise

Function = Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class LowRank:
    """What an adapter adds to a map: x -> scale up down x. down: [r, in], up: [out, r]."""

    down: Tensor
    up: Tensor
    scale: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype)) * self.scale

    def whole(self, dtype: torch.dtype) -> Tensor:
        """[out, in] what it adds to the weights."""
        return self.scale * (self.up.to(dtype) @ self.down.to(dtype))


@dataclasses.dataclass(frozen=True)
class Linear:
    """x -> the maps of x, one behind the other: weights [out, in], biases or None, adapters or None. They take x's
    precision."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    adapters: tuple[LowRank | None, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return self.joined(AS_IT_IS, x)

    def joined(self, before: Rowwise, *inputs: Tensor) -> Tensor:
        """[N, out] the maps of before(*inputs), one behind the other."""
        parts = self.each(before, *inputs)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def each(self, before: Rowwise, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The maps of before(*inputs), each by itself."""
        if not any(self.adapters):
            return recompute.linear(before, inputs, self.weights, self.biases)
        x = before(*inputs)
        parts = recompute.linear(AS_IT_IS, (x,), self.weights, self.biases)
        return tuple(y if a is None else y + a(x) for y, a in zip(parts, self.adapters, strict=True))

    def prepared(self, dtype: torch.dtype) -> Prepared:
        """The same for many calls with these weights and few rows, in one precision.

        Adapters become part of the weights, except in a precision that would round away what they add.
        """
        (weight,), (bias,), (adapter,) = (merged := self._merged(dtype)).weights, merged.biases, merged.adapters
        product = merged if adapter is not None else products.prepared(weight, bias)
        return Prepared(product, tuple(map(len, self.weights)))

    def _merged(self, dtype: torch.dtype) -> Linear:
        weights = [w.to(dtype) for w in self.weights]
        biases = [b if b is None else b.to(dtype) for b in self.biases]
        adapters = self.adapters
        if torch.finfo(dtype).bits >= 32:
            weights = [w if a is None else w + a.whole(dtype) for w, a in zip(weights, adapters, strict=True)]
            adapters = (None,) * len(adapters)
        if len(weights) == 1:
            return Linear(tuple(weights), tuple(biases), adapters)
        whole = [w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases, strict=True)]
        bias = None if biases == [None] * len(biases) else torch.cat(whole)
        return Linear((torch.cat(weights),), (bias,), (_beside(weights, adapters),))


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A `Linear` as one product, with the weights laid out beforehand where the processor's library would otherwise do
    so in every call. sizes: of what each of its maps returns."""

    product: Function
    sizes: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)

    def joined(self, before: Rowwise, *inputs: Tensor) -> Tensor:
        return self.product(before(*inputs))

    def each(self, before: Rowwise, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.joined(before, *inputs).split(self.sizes, -1)


def _beside(weights: list[Tensor], adapters: tuple[LowRank | None, ...]) -> LowRank | None:
    """One adapter of all the maps of one x."""
    if not any(adapters):
        return None
    nothing = [LowRank(w.new_zeros(0, w.shape[1]), w.new_zeros(len(w), 0), 1.0) for w in weights]
    each = [a or n for a, n in zip(adapters, nothing, strict=True)]
    dtype = weights[0].dtype
    up = torch.block_diag(*[(a.scale * a.up).to(dtype) for a in each])
    return LowRank(torch.cat([a.down.to(dtype) for a in each]), up, 1.0)


@dataclasses.dataclass(frozen=True)
class DecoderLayer:
    """h = x + out(attention(qkv(norm(x)))), then h + down(mix(up(norm(h)))).

    heads query heads share kv_heads key and value heads of `width`. query_norm, key_norm act on each head.
    """

    heads: int
    kv_heads: int
    width: int
    norm: Rowwise
    qkv: Linear | Prepared
    out: Linear | Prepared
    mlp_norm: Rowwise
    up: Linear | Prepared
    mix: Rowwise
    down: Linear | Prepared
    query_norm: Rowwise | None = None
    key_norm: Rowwise | None = None

    def project(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries [N, H, D], and keys and values [N, 2, K, D], of x [N, d]; rotation: [2, N, 1, D], the cosines
        and sines."""
        qkv, width = self.qkv.joined(self.norm, x), self.width
        if self.query_norm is not None and self.key_norm is not None:
            q, k, v = qkv.view(len(x), -1, width).split([self.heads, self.kv_heads, self.kv_heads], 1)
            qkv = torch.cat([self.query_norm(q), self.key_norm(k), v], 1).flatten(1)
        if rotation is not None:
            qkv = _rotated(qkv, rotation, self.heads + self.kv_heads)
        q, kv = qkv.view(len(x), -1, width).split([self.heads, 2 * self.kv_heads], 1)
        return q, kv.unflatten(1, (2, self.kv_heads))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """[N, d] the layer's output, from its input x [N, d] and attention's [N, H, D]."""
        h = _plus(self.out(attended.flatten(1)), x)
        return _plus(self.down.joined(self.mix, *self.up.each(self.mlp_norm, h)), h)

    def prepared(self, dtype: torch.dtype) -> DecoderLayer:
        """The same with all products `Linear.prepared`."""
        return dataclasses.replace(self, **{n: getattr(self, n).prepared(dtype) for n in ("qkv", "out", "up", "down")})


def _plus(made: Tensor, x: Tensor) -> Tensor:
    """made + x, in the place of what was just made if x is not wider."""
    return made.add_(x) if made.dtype == x.dtype else x + made


def _rotated(qkv: Tensor, rotation: Tensor, heads: int) -> Tensor:
    """qkv [N, heads' and others' numbers] with its first `heads` heads rotated, in place."""
    return _Rotated.apply(qkv, rotation, heads) if torch.is_grad_enabled() else _rotate(qkv, rotation, heads)


def _rotate(qkv: Tensor, rotation: Tensor, heads: int) -> Tensor:
    half = rotation.shape[-1] // 2
    cosine, sine = rotation[..., :half]
    x = qkv.view(len(qkv), -1, 2 * half)[:, :heads]
    a, b = x[..., :half], x[..., half:]  # not by chunk, whose views autograd does not let anybody write to
    old = a.clone()
    a.mul_(cosine).addcmul_(b, sine, value=-1)
    b.mul_(cosine).addcmul_(old, sine)
    return qkv


class _Rotated(torch.autograd.Function):
    """A rotation's gradient is rotated back."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, rotation: Tensor, heads: int) -> Tensor:
        ctx.mark_dirty(qkv)
        ctx.rotation, ctx.heads = rotation, heads
        return _rotate(qkv, rotation, heads)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.rotation
        return (
            _rotate(slope.clone(memory_format=torch.contiguous_format), torch.stack([cosine, -sine]), ctx.heads),
            None,
            None,
        )


def _gated(activation: Function, gate: Tensor, up: Tensor) -> Tensor:
    return activation(gate) * up


class Decoder:
    """Reads a model's weights where they are, so it follows every update of them.

    checkpointing: recompute each layer in the backward pass instead of keeping what is inside it. compute: the
    precision of products and of attention, None for the weights' own. What layers pass on, and normalise, stays in the
    weights' precision if that is wider.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.checkpointing = model, False
        self.compute: torch.dtype | None = None

    @classmethod
    def of(cls, model: Any) -> Decoder | None:
        """The decoder of a `transformers` causal LM, or None if the architecture is not one that is written
        out here, or the model says something else: it is tried on short prompts with two answers each."""
        family = FAMILIES.get(type(model).__name__)
        if family is None or not as_made(model) or not family.fits(model):
            return None
        decoder = family(model)
        return decoder if decoder._agrees() else None

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether the model has no option that this family's arithmetic leaves out."""
        raise NotImplementedError

    def embed(self, tokens: Tensor, position: Tensor) -> Tensor:
        """[N, d] of token ids and positions, [N] each."""
        raise NotImplementedError

    def rotations(self, positions: Tensor) -> Tensor | None:
        """[2, N, 1, D] cosines and sines of rotary positions [N], None for models with learned positions."""
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
        """The precision of what layers pass on."""
        return torch.promote_types(self.dtype, self.model.dtype)

    def computing(self, dtype: torch.dtype) -> Self:
        """The same weights in another precision of the arithmetic."""
        other = copy.copy(self)
        other.compute = dtype
        return other

    def head(self) -> Linear:
        """From hidden states to logits."""
        return _linear(self.model.get_output_embeddings())

    def read(self, packed: Packed, at: Tensor, inner: Collection[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """[M, d] normalised hidden states at the flat indices `at` [M], which may repeat; and what the layers of the
        numbers `inner`, from 1, pass on there, [M, d] each."""
        x = self.embed(packed.tokens, packed.position)
        rotation = self.rotations(packed.position)
        *layers, last = self.layers()
        run: Callable[..., Tensor] = recomputed if self.checkpointing else _once
        passed = {}
        for number, layer in enumerate(layers, start=1):
            x = run(_whole_layer, layer, packed, x, rotation)
            if number in inner:
                passed[number] = ops.take(x, at)
        x = run(_last_layer, last, packed, x, rotation, at)
        if len(layers) + 1 in inner:
            passed[len(layers) + 1] = x
        return self.final_norm()(x), passed

    @torch.no_grad()
    def _agrees(self) -> bool:
        model = self.model
        tokens = torch.tensor([[2, 1, 2, -1], [2, 1, 1, 2], [1, 2, 1, 1], [1, 2, 2, 1]], device=model.device)
        real = tokens >= 0
        packed = pack(tokens, prompt=torch.full((4,), 2), end=real.sum(1), dtype=self.dtype)
        head = model.get_output_embeddings()
        here = head(self.read(packed, packed.where[real])[0])
        there = model(input_ids=tokens.clamp(min=1), use_cache=False).logits[real]
        tolerance = 1e-4 if self.dtype in (torch.float32, torch.float64) else 5e-2
        return bool(((here - there).abs() <= tolerance * there.abs().max()).all())


def _once(layer: Callable[..., Tensor], *arguments: Any) -> Tensor:
    return layer(*arguments)


def _whole_layer(layer: DecoderLayer, packed: Packed, x: Tensor, rotation: Tensor | None) -> Tensor:
    return layer.finish(x, packed.attend(*layer.project(x, rotation)))


def _last_layer(layer: DecoderLayer, packed: Packed, x: Tensor, rotation: Tensor | None, at: Tensor) -> Tensor:
    """Only what is asked for passes through the layer's second half."""
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
    """Llama and its like: rotary positions, RMS normalisation, a gated MLP, shared key heads; Qwen3 also
    normalises queries and keys."""

    @staticmethod
    def fits(model: Any) -> bool:
        config = model.config
        kinds = getattr(config, "layer_types", None)
        full = set(kinds) == {"full_attention"} if kinds else getattr(config, "sliding_window", None) is None
        # Other kinds of rotary positions depend on how long the text is.
        return full and model.model.rotary_emb.rope_type not in ("dynamic", "longrope")

    def embed(self, tokens: Tensor, position: Tensor) -> Tensor:
        table = self.model.model.embed_tokens
        # transformers never trains the padding token's embedding, even where the token is part of a text.
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


def as_made(model: nn.Module) -> bool:
    """Whether every parameter sits in the kind of module that transformers put there or in a LoRA adapter of one, and
    no hook changes what a module says."""
    from transformers.pytorch_utils import Conv1D

    plain = {nn.Linear, nn.Embedding, nn.LayerNorm, Conv1D}
    for module in model.modules():
        if adapted(module) and not is_lora(module):
            return False
        owns = any(True for _ in module.parameters(recurse=False))
        if owns and type(module) not in plain and not type(module).__name__.endswith("RMSNorm"):
            return False
        if any(map(_changes, (*module._forward_hooks.values(), *module._forward_pre_hooks.values()))):
            return False
    return True


def adapted(module: nn.Module) -> bool:
    """Whether the module is PEFT's: it stands in another one's place, and answers for its `weight` without what it
    adds to it."""
    return type(module).__module__.startswith("peft.")


def is_lora(module: Any) -> bool:
    """Whether what PEFT's module says is base(x) + scale B A x (Hu et al. 2021, arXiv 2106.09685), of one adapter."""
    names: list[str] = list(getattr(module, "active_adapters", []))
    usual = len(names) == 1 and names[0] in getattr(module, "lora_A", ()) and type(module).__name__ == "Linear"
    if not usual or module.merged or module.disable_adapters or module.lora_variant:
        return False
    down, up = module.lora_A[names[0]], module.lora_B[names[0]]
    return type(down) is nn.Linear and type(up) is nn.Linear and up.bias is None


def adapter_of(module: Any) -> LowRank | None:
    """What a LoRA adapter adds to a module, None if the module has none."""
    if not adapted(module):
        return None
    (name,) = module.active_adapters
    return LowRank(module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name])


def _changes(hook: Any) -> bool:
    """transformers leaves hooks that only listen, from the first time on that somebody asks it for hidden states."""
    return getattr(hook, "__module__", None) != "transformers.utils.output_capturing"


def _linear(*modules: nn.Linear) -> Linear:
    return Linear(
        tuple(m.weight for m in modules), tuple(m.bias for m in modules), tuple(adapter_of(m) for m in modules)
    )


def _conv(module: Any) -> Linear:
    """GPT-2 stores weights as [in, out]."""
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


def _activation(module: nn.Module) -> Function:
    """`transformers` writes GELU's tanh form out in eight operations; here it is one."""
    if type(module).__name__ in ("NewGELUActivation", "GELUTanh", "FastGELUActivation"):
        return functools.partial(F.gelu, approximate="tanh")
    return F.silu if isinstance(module, nn.SiLU) or type(module).__name__ == "SiLUActivation" else module
