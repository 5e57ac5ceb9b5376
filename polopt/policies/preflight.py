"""Checks of models and tokenizers before training: unsuitable ones cause an error of one sentence."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.policies.places import config_at, place_of

# Seconds to wait for the hub's response on whether it has a model.
HUB_TIMEOUT_S = 5.0
# Length in tokens of the two texts of the causality test, and of their common prefix.
TRIED, SHARED = 8, 4
# Two messages for which a chat template must give different ids.
TEXTS = ("What is 1?", "What is 2?")
# A model counts as causal if a changed token moves the logits before it by less than this share of those after it.
MOVED = 1e-4


def load_policy(name: str, *, dtype: str, where: str | None = None, **ways: Any) -> LanguagePolicy:
    """Loads and checks the policy of a local folder or hub name.

    where: the setting that names it, for messages; policy.model if None.
    ways: the other keywords of `LanguagePolicy`.

    Raises:
        ConfigError: there is no such model, it cannot be loaded, or as for `check_policy`.
    """
    where = f"policy.model = {name!r}" if where is None else where
    place = _place(name, where)
    try:
        policy = LanguagePolicy.load(place, dtype=dtype, **ways)
    except Exception as error:  # transformers raises many kinds of errors for a faulty folder
        raise ConfigError(f"{where} cannot be loaded: {_line(error)}") from error
    check_policy(policy, where)
    return policy


def _place(name: str, where: str) -> str:
    """Returns the name or folder to load from, see `LanguagePolicy.load`.

    The hub is queried once with a time limit, as loading would retry for a long time.

    Raises:
        ConfigError: as for `place_of`; or the name is neither a file, a folder nor a model of the hub, or the hub
            cannot be reached and there is no cached copy.
    """
    if place_of(name, where).gguf is not None or Path(name).is_dir():
        return name
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        model_info(name, timeout=HUB_TIMEOUT_S)
    except HFValidationError:
        raise ConfigError(f"{where} is no folder here, and no name of the form owner/model; correct the path") from None
    except RepositoryNotFoundError:
        raise ConfigError(
            f"{where} is no folder here, and the hub has no such model, or shows it only to those who are logged in; "
            "correct the name, or log in"
        ) from None
    except Exception as error:
        try:
            return snapshot_download(name, local_files_only=True)
        except Exception:
            raise ConfigError(
                f"{where} is no folder here, its copy is not in the cache of downloaded models, and the hub cannot be "
                f"reached ({type(error).__name__}); correct the path, or download the model where there is a network"
            ) from error
    return name


def config_of(name: str) -> Any:
    """Returns the `transformers` config of a named model.

    Raises:
        ConfigError: there is no such model, or its config cannot be read.
    """
    where = f"policy.model = {name!r}"
    place = place_of(_place(name, where), where)
    try:
        return config_at(place)
    except Exception as error:  # as for loading
        raise ConfigError(f"{where} cannot be loaded: {_line(error)}") from error


def warn_of_precision(name: str, dtype: str) -> None:
    """Warns where a checkpoint is stored in another precision than `dtype`, for recipes that set no precision."""
    if place_of(name).gguf is not None:  # quantised to a few bits a weight, in which no training is expected
        return
    stored = str(getattr(config_of(name), "dtype", None))
    stored = stored.removeprefix("torch.")
    if stored not in (dtype, "None"):
        warnings.warn(
            f"policy.model = {name!r} is stored in {stored}; it is loaded, trained and saved in {dtype}, where small "
            f"optimiser steps are not rounded away: set policy.dtype: {stored} to keep its own precision and size, or "
            f"policy.dtype: {dtype} to have this without a warning",
            PoloptWarning,
            stacklevel=2,
        )


def check_policy(policy: LanguagePolicy, where: str) -> None:
    """Raises an error for a model or tokenizer that cannot be trained as a policy.

    where: the setting, for the message.

    Raises:
        ConfigError: one sentence with the problem found and the fix.
    """
    for check in (_check_vocabulary, _check_reading, _check_stop, _check_causal):
        check(policy, where)


def _check_vocabulary(policy: LanguagePolicy, where: str) -> None:
    rows, known = policy.model.get_input_embeddings().weight.shape[0], len(policy.tokenizer)
    if known > rows:
        raise ConfigError(
            f"{where}: its tokenizer has {known} tokens, and its embedding {rows} rows, so some texts have ids that "
            "the model does not have; call resize_token_embeddings(len(tokenizer)) on the model and save it, or put "
            "the model's own tokenizer in the folder"
        )


def _check_reading(policy: LanguagePolicy, where: str) -> None:
    dialogue = Dialogue(policy.tokenizer, policy.chat_template_kwargs)
    one, other = (_templated(functools.partial(dialogue.opening, text), where) for text in TEXTS)
    if not one or not policy.tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]:
        raise ConfigError(
            f"{where}: its tokenizer reads no text; is the tokenizer missing from the folder? Save it there with "
            "tokenizer.save_pretrained"
        )
    if one == other and policy.tokenizer.chat_template is not None:
        raise ConfigError(
            f"{where}: its chat template leaves the prompt out; correct chat_template.jinja (or chat_template "
            "in tokenizer_config.json) so that a user message's content is written"
        )


def check_turns(policy: LanguagePolicy, where: str) -> None:
    """Raises an error for a chat template that cannot continue after an answer, for tasks of several turns.

    Raises:
        ConfigError: the template raises an error, or leaves the next observation out.
    """
    dialogue, stop = Dialogue(policy.tokenizer, policy.chat_template_kwargs), min(policy.stop)
    one, other = (_templated(functools.partial(dialogue.reply, text, stop), where) for text in TEXTS)
    if one == other and policy.tokenizer.chat_template is not None:
        raise ConfigError(
            f"{where}: its chat template leaves out an answer, or what follows it, and the tasks have several turns; "
            "correct the template, or take tasks of one turn"
        )


def _templated(render: Callable[[], list[int]], where: str) -> list[int]:
    try:
        return render()
    except Exception as error:  # a template is third-party code
        raise ConfigError(
            f"{where}: its chat template raised {type(error).__name__}: {_line(error)}; correct chat_template.jinja "
            "(or chat_template in tokenizer_config.json), or remove it to have plain text"
        ) from error


def _check_stop(policy: LanguagePolicy, where: str) -> None:
    tokenizer, fix = policy.tokenizer, "set eos_token in tokenizer_config.json, as with tokenizer.eos_token = ..."
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"{where}: its tokenizer has no eos_token, so no answer can ever end; {fix}, and save it")
    if tokenizer.eos_token_id not in policy.stop:
        ends = ", ".join(map(repr, tokenizer.convert_ids_to_tokens(sorted(policy.stop))))
        warnings.warn(
            f"{where}: demonstrations end with the tokenizer's eos_token {tokenizer.eos_token!r}, and "
            f"generation_config ends answers with {ends}; name it in eos_token_id of generation_config.json as well",
            PoloptWarning,
            stacklevel=2,
        )


@torch.no_grad()
def _check_causal(policy: LanguagePolicy, where: str) -> None:
    """Compares logits of two texts with a common prefix: at the common tokens, a causal model's logits are the same."""
    model = policy.model
    length = min(TRIED, policy.context_length or TRIED)
    shared = min(SHARED, length - 1)
    size = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(length, device=model.device).expand(2, -1).clone() % size
    ids[1, shared:] = (ids[1, shared:] + 1) % size
    logits = model(input_ids=ids, use_cache=False).logits.double()
    if not logits.isfinite().all():
        raise ConfigError(f"{where}: its logits are not finite; its weights are damaged, or overflow in this dtype")
    moved = (logits[0] - logits[1]).abs()
    if moved[:shared].amax() > MOVED * moved[shared:].amax():
        raise ConfigError(
            f"{where}: {type(model).__name__} is no causal language model: what it predicts for a token depends on the "
            "tokens behind it; take a decoder, or set is_decoder: true in its config.json and train it as one first"
        )


def _line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
