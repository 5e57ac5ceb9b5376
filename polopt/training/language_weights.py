"""The weights of other language models: of finished runs, checked against the policy that they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from polopt.config import ConfigError
from polopt.policies.adapter import fingerprint, is_adapted, require
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import load_policy
from polopt.training.reference_policy import parameters_of
from polopt.training.run import Run, finished_run

# Settings of a model that its forward pass does not depend on.
NOTES = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache"}


def weights_of_run(policy: LanguagePolicy, run: str, where: str) -> dict[str, Tensor]:
    """Returns the parameters of a finished run's policy, by their names in `policy`: those of its adapter, if that is
    what `policy` trains. where: the setting that names the run.

    Raises:
        ConfigError: there is no such run, or its model, tokenizer or adapter is another one.
    """
    folder = finished_run(run, where, "language")
    if is_adapted(policy.model):
        return _adapter_of_run(policy, folder, where)
    other = LanguagePolicy.load(folder / "policy", dtype="auto")
    check_tokenizer(policy, other, f"{where}: {run}")
    here, there = (_architecture(each) for each in (policy, other))
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            raise ConfigError(
                f"{where}: {run} holds a policy of another architecture, {name} is {there.get(name)!r:.60} there and "
                f"{here.get(name)!r:.60} here; name a run of this one"
            )
    return parameters_of(other)


def check_tokenizer(policy: LanguagePolicy, other: LanguagePolicy, where: str) -> None:
    """Checks that another model reads and writes the policy's tokens.

    Raises:
        ConfigError: the first token that differs.
    """
    here, there = (each.tokenizer.get_vocab() for each in (policy, other))
    if here != there:
        token = min((text for text in here.keys() | there.keys() if here.get(text) != there.get(text)), key=str)
        raise ConfigError(
            f"{where} has another tokenizer: token {token!r:.40} is {there.get(token)} there and {here.get(token)} in "
            "the policy's; name a model with the policy's own"
        )


def _architecture(policy: LanguagePolicy) -> dict[str, Any]:
    found: dict[str, Any] = policy.model.config.to_dict()
    return {name: value for name, value in found.items() if name not in NOTES and not name.endswith("_token_id")}


def _adapter_of_run(policy: LanguagePolicy, folder: Path, where: str) -> dict[str, Tensor]:
    if not (folder / "adapter").is_dir():
        raise ConfigError(
            f"{where}: {folder} trained a whole model, and this recipe trains an adapter; name a run with one, or set "
            f"policy.model: {folder / 'policy'}"
        )
    base = fingerprint({n: p for n, p in policy.named_parameters() if n in policy.fixed})
    if Run.open(folder).about.get("base", base) != base:
        raise ConfigError(f"{where}: {folder} trained an adapter of another base; name a run on this recipe's")
    peft, frozen_copy = require(), policy.frozen()
    tensors = peft.load_peft_weights(str(folder / "adapter"), device="cpu")
    own = parameters_of(frozen_copy)
    misfit = f"{where}: the adapter in {folder} has other factors than this recipe's; give both the same settings"
    if len(tensors) != sum("lora_" in name for name in own):
        raise ConfigError(misfit)
    try:
        peft.set_peft_model_state_dict(frozen_copy.model, tensors)
    except RuntimeError:
        raise ConfigError(misfit) from None
    return {name: value for name, value in own.items() if "lora_" in name}


def model_policy(policy: LanguagePolicy, name: str, where: str, *, dtype: str) -> LanguagePolicy:
    """Returns a frozen model that reads and writes the policy's tokens. where: the setting that names it.

    Raises:
        ConfigError: as `load_policy`; its tokenizer is another one, or it reads fewer tokens than the policy.
    """
    other = load_policy(name, dtype=dtype, where=f"{where}.model = {name!r}", compute=policy.compute)
    check_tokenizer(policy, other, f"{where}: {name}")
    here, there = policy.context_length, other.context_length
    if there is not None and (here is None or there < here):
        raise ConfigError(
            f"{where}: {name} reads {there} tokens, and the policy {here or 'any number'}; name a model that reads as "
            "many"
        )
    return other.requires_grad_(False).to(policy.device)
