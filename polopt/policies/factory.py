"""Construction of a small, randomly initialised language policy with a tokenizer made from texts."""

from __future__ import annotations

import contextlib
import difflib
import os
import string
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from polopt.config import ConfigError
from polopt.names import nearest
from polopt.policies.language import LanguagePolicy
from polopt.policies.tokenizer import make_tokenizer

FROM_TOKENIZER = {"vocab_size", "bos_token_id", "eos_token_id", "pad_token_id"}


def new_policy(
    config: Mapping[str, Any],
    texts: Iterable[tuple[str, str, str]],
    *,
    seed: int,
    dtype: str,
    words: float = 0.08,
    **ways: Any,
) -> LanguagePolicy:
    """Builds a randomly initialised policy of the `transformers` architecture `config["model_type"]`.

    texts: (kind, prompt, answer) examples from which the tokenizer is made. The vocabulary's size and special tokens
        come from the tokenizer. words: the share of a kind's texts in which a word is one token.
    ways: the keywords of `LanguagePolicy`.

    Raises:
        ConfigError: no model_type, one that transformers does not have or has another tokenizer for, or a field that
            its config does not have (which transformers itself would ignore), or values that make no model.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

    settings = dict(config)
    kind = settings.pop("model_type", None)
    if kind is None:
        raise ConfigError("policy.config.model_type is missing; name an architecture, as in {model_type: llama}")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        close = difflib.get_close_matches(str(kind), list(CONFIG_MAPPING), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"policy.config.model_type = {kind!r:.60} is no architecture of transformers{hint}")
    settings = {str(key): value for key, value in settings.items()}
    plain = AutoConfig.for_model(kind)
    known = {*plain.to_dict(), *plain.attribute_map, "attn_implementation"} - FROM_TOKENIZER
    for key in settings:
        if key not in known:
            raise ConfigError(f"policy.config.{key} is not a setting of {kind}{nearest(key, known)}")
    tokenizer = make_tokenizer(texts, word=words)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    with _refused(kind):
        full = AutoConfig.for_model(kind, **settings, vocab_size=len(tokenizer), **ids)
        _check_size(full, dtype)
    if not _is_read_back(full, tokenizer):
        raise ConfigError(
            f"policy.config.model_type = {kind!r}: transformers reads a folder of this architecture with a "
            "tokenizer of its own, which makes other ids of a text than the one that is made from the tasks; take "
            "another architecture, as llama or qwen3, or set policy.model"
        )
    # Created on the CPU, so that other devices' random states stay unchanged.
    with torch.random.fork_rng(devices=[]), _refused(kind):
        torch.default_generator.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(full, dtype=getattr(torch, dtype))
        with torch.no_grad():
            training = model.training
            model.eval()(input_ids=torch.zeros(1, 2, dtype=torch.long))  # some settings fail only in the forward pass
            model.train(training)
    return LanguagePolicy(model, tokenizer, **ways)


@contextlib.contextmanager
def _refused(kind: str) -> Iterator[None]:
    """Converts every error of transformers and torch in the context to a ConfigError on the architecture's settings."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"policy.config makes no {kind} model: {type(error).__name__}: {reason:.240}; look the fields up in "
            f"transformers' config of {kind}"
        ) from error


def _check_size(config: Any, dtype: str) -> None:
    """Raises an error for a model whose weights alone exceed this machine's memory, computed on the meta device."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise ConfigError(
            f"policy.config makes a model with {size / 1e9:,.0f} GB of weights, and this machine has "
            f"{memory / 1e9:,.0f} GB of memory; make it smaller"
        )


def _is_read_back(config: Any, tokenizer: Any) -> bool:
    """Returns True if a saved tokenizer is loaded unchanged, tested by loading it.

    For some architectures transformers selects the tokenizer by the model's name instead.
    """
    from transformers import AutoTokenizer

    text = string.printable + "".join(tokenizer.all_special_tokens)
    with tempfile.TemporaryDirectory(prefix="polopt-tokenizer-") as folder:
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return bool(AutoTokenizer.from_pretrained(folder)(text)["input_ids"] == tokenizer(text)["input_ids"])
