"""Tiny random models of several architectures, and what transformers itself says of a row."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor

from polopt.experience import Experience
from polopt.policies.rollout_record import Sampled
from polopt.support import Support

transformers.logging.set_verbosity_error()

VOCABULARY = 13
STOP = 2
BASE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": STOP,
    "pad_token_id": 0,
}
# Windows of 6 are shorter than the rows; the cap on gemma2's logits is low enough to bend them.
OWN: dict[str, dict[str, Any]] = {
    "gpt2": {"n_positions": 64},
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral-whole": {"sliding_window": None},
    "mistral": {"sliding_window": 6},
    "gemma2": {"sliding_window": 6, "query_pre_attn_scalar": 8, "final_logit_softcapping": 2.0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 2, "window_size": 6},
    "bloom": {},
    "granite": {"logits_scaling": 3.0},
    "mamba": {},
}


def tiny(kind: str, dtype: torch.dtype = torch.float64, *, seed: int = 0, spread: float = 0.4, **settings: Any) -> Any:
    """A model whose weights have standard deviation `spread`: wide enough that its choices differ in likelihood."""
    settings = {"vocab_size": VOCABULARY, "initializer_range": spread, **BASE, **OWN[kind], **settings}
    config = transformers.AutoConfig.for_model(kind.partition("-")[0], **settings)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    if dtype == torch.float64:
        for module in model.modules():
            if hasattr(module, "variance_epsilon"):
                module.forward = functools.partial(_rms_norm, module)
    return model


def _rms_norm(module: Any, x: Tensor) -> Tensor:
    """In float64 all through, where transformers would pass through float32."""
    return module.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon)


def full_logits(model: Any, ids: Sequence[int]) -> Tensor:
    """[T, V] from one forward pass of one unpadded row: row t is what stands after token t."""
    logits = model(torch.tensor([list(ids)]), use_cache=False).logits[0]
    return logits if logits.dtype == torch.float64 else logits.float()


def slow_choices(logits: Sequence[float], support: Support) -> dict[int, float]:
    """choice -> probability over the support, by sorting and adding up in plain Python."""
    scaled = [x / support.temperature for x in logits]
    order = sorted(range(len(scaled)), key=lambda i: -scaled[i])
    if support.top_k:
        order = order[: support.top_k]
    top = scaled[order[0]]
    mass = {i: math.exp(scaled[i] - top) for i in order}
    whole = math.fsum(mass.values())
    kept, reached = [], 0.0
    for i in order:
        kept.append(i)
        reached += mass[i] / whole
        if reached >= support.top_p:
            break
    left = math.fsum(mass[i] for i in kept)
    return {i: mass[i] / left for i in kept}


def as_experience(contexts: Sequence[Sequence[int]], answers: Sequence[Sampled], support: Support) -> Experience:
    """Sampled answers behind their contexts, padded on the right."""
    group = len(answers) // len(contexts)
    rows = [list(contexts[i // group]) + a.tokens for i, a in enumerate(answers)]
    B, T = len(rows), max(map(len, rows))
    tokens = torch.full((B, T), -1)
    mask = torch.zeros(B, T, dtype=torch.bool)
    logp, entropy = torch.zeros(B, T, dtype=torch.float64), torch.zeros(B, T, dtype=torch.float64)
    kept = torch.full((B, T, VOCABULARY), -1)
    for b, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        start = len(row) - len(answer.tokens)
        tokens[b, : len(row)] = torch.tensor(row)
        mask[b, start : len(row)] = True
        logp[b, start : len(row)] = torch.tensor(answer.logp, dtype=torch.float64)
        entropy[b, start : len(row)] = torch.tensor(answer.entropy, dtype=torch.float64)
        for t, ids in enumerate(answer.kept or []):
            kept[b, start + t, : len(ids)] = ids
    extras = {"tokens": tokens} | ({"kept": kept} if support.truncated else {})
    for name in answers[0].noted:
        values = torch.zeros(B, T, dtype=torch.float64)
        for b, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            values[b, len(row) - len(answer.tokens) : len(row)] = torch.tensor(answer.noted[name], dtype=torch.float64)
        extras[name] = values
    return Experience(mask=mask, rollout_logp=logp, entropy=entropy, support=support, extras=extras)
