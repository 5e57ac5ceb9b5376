"""A transformer as its costs see it: how many numbers of which kind, from its config alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from polopt.config import ConfigError
from polopt.names import nearest


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """L `layers` of `width` d: attention of H `heads`, which share K `kv_heads` of `head_width` D, and an MLP of
    `inner` f, with a gate or without.

    experts: parallel MLPs of a layer, of which each token meets `active`, chosen by a router; 1 and 1 for
    none. vocabulary: V. tied: whether the output layer is the embedding. positions: learned ones. qkv_bias, bias: of
    the attention's inputs, and of all other products. norm_bias: of the normalisations. head_norm: queries and keys
    have norms of their own. counted: parameters as counted on the model itself, where the config is not understood.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int
    vocabulary: int
    tied: bool
    gated: bool = True
    qkv_bias: bool = False
    bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    head_norm: bool = False
    positions: int = 0
    experts: int = 1
    active: int = 1
    counted: int | None = None

    @property
    def queries(self) -> int:
        """H D."""
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        """K D."""
        return self.kv_heads * self.head_width

    @property
    def attention_matrix(self) -> int:
        """Parameters of a layer's attention that every token meets: d (2 H D + 2 K D)."""
        return self.width * (2 * self.queries + 2 * self.keys)

    @property
    def expert(self) -> int:
        """Parameters of one MLP's products: 3 d f with a gate, else 2 d f."""
        return (3 if self.gated else 2) * self.width * self.inner

    @property
    def router(self) -> int:
        return self.width * self.experts if self.experts > 1 else 0

    @property
    def matrix(self) -> int:
        """Parameters of the layers' products that a token meets; of experts the active ones."""
        return self.layers * (self.attention_matrix + self.router + self.active * self.expert)

    @property
    def head(self) -> int:
        """V d."""
        return self.vocabulary * self.width

    @property
    def layer(self) -> int:
        """All parameters of one layer."""
        norm = 2 * self.width if self.norm_bias else self.width
        biases = (self.queries + 2 * self.keys) * self.qkv_bias + self.width * self.bias
        biases += ((2 if self.gated else 1) * self.inner + self.width) * self.mlp_bias
        norms = 2 * norm + 2 * self.head_width * self.head_norm
        return self.attention_matrix + self.router + self.experts * self.expert + biases + norms

    @property
    def parameters(self) -> int:
        """All of them, a tied output layer once: V d (twice if it is not tied) + positions + L layers + last norm."""
        if self.counted is not None:
            return self.counted
        norm = 2 * self.width if self.norm_bias else self.width
        tables = self.head * (1 if self.tied else 2) + self.positions * self.width
        return tables + self.layers * self.layer + norm

    def read_by(self, rows: float) -> float:
        """Numbers of the weights that one decoding pass over so many rows reads: the products and the output layer.

        Of E experts, n tokens that choose k each at random meet E (1 - (1 - k / E)^n).
        """
        met = self.experts * (1 - (1 - self.active / self.experts) ** rows) if self.experts > 1 else 1.0
        return self.layers * (self.attention_matrix + self.router + met * self.expert) + self.head


# What transformers takes where a config is silent: (bias of queries, keys and values; norms of heads; tied).
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"head_norm": True, "head_width": 128},
    "qwen3_moe": {"head_norm": True},
}


def shape_of(config: Mapping[str, Any], name: str = "") -> ModelShape:
    """Returns the shape of a `config.json`.

    Raises:
        ConfigError: an architecture that is not known here, or a size that is missing.
    """
    config = config.get("text_config") or config
    kind = config.get("model_type")
    try:
        if kind == "gpt2":
            return _gpt2(config, name or kind)
        if kind in _FAMILIES:
            return _llama(config, name or kind, dict(_FAMILIES[kind]))
    except KeyError as error:
        raise ConfigError(f"{name or 'the config'}: {error.args[0]} is missing") from None
    raise ConfigError(
        f"{name or 'the config'}: model_type = {kind!r} is none whose costs are known{nearest(str(kind), FAMILIES)}"
    )


FAMILIES = ("gpt2", *_FAMILIES)


def _gpt2(config: Mapping[str, Any], name: str) -> ModelShape:
    width, heads = config["n_embd"], config["n_head"]
    return ModelShape(
        name=name,
        layers=config["n_layer"],
        width=width,
        heads=heads,
        kv_heads=heads,
        head_width=width // heads,
        inner=config.get("n_inner") or 4 * width,
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", True),
        gated=False,
        qkv_bias=True,
        bias=True,
        mlp_bias=True,
        norm_bias=True,
        positions=config["n_positions"],
    )


def _llama(config: Mapping[str, Any], name: str, family: dict[str, Any]) -> ModelShape:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    sparse = config["model_type"] == "qwen3_moe"
    if sparse and (config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1):
        raise ConfigError(f"{name}: experts in some layers only are not known here; take a model with them in all")
    bias = bool(config.get("attention_bias", False))
    return ModelShape(
        name=name,
        layers=config["num_hidden_layers"],
        width=width,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_width=config.get("head_dim") or family.get("head_width") or width // heads,
        inner=config["moe_intermediate_size" if sparse else "intermediate_size"],
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        qkv_bias=bias or family.get("qkv_bias", False),
        bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        head_norm=family.get("head_norm", False),
        experts=_experts(config) if sparse else 1,
        active=config["num_experts_per_tok"] if sparse else 1,
    )


def _experts(config: Mapping[str, Any]) -> int:
    """The number has two names."""
    return config["num_experts"] if "num_experts" in config else config["num_local_experts"]
