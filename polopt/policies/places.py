"""Locations of a model: a folder, a GGUF file, a file of an installed package, or the hub."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.util
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.packages import path_of

GGUF = ".gguf"


@dataclasses.dataclass(frozen=True)
class ModelPlace:
    """The location of a model.

    name: a folder, or a name of the hub.
    gguf: the file in it that holds the whole model, None where the folder has the Hugging Face format.
    """

    name: str
    gguf: str | None = None

    @property
    def how(self) -> dict[str, str]:
        """Arguments of transformers' `from_pretrained` besides the name."""
        return {} if self.gguf is None else {"gguf_file": self.gguf}


def place_of(name: str | Path, where: str = "the model") -> ModelPlace:
    """Returns the location that a name refers to; a name without a local file may be a name of the hub.

    A folder with one GGUF file and no config.json refers to that file.

    where: the setting, for messages.

    Raises:
        ConfigError: as for `path_of`; no such file, a file that is no GGUF file, or a folder with several of them.
    """
    path = path_of(name, where)
    if path.is_file():
        _check_gguf(path, where)
        return ModelPlace(str(path.parent), path.name)
    if path.suffix == GGUF:
        raise ConfigError(f"{where}: there is no file {path}; correct the path")
    if path.is_dir() and not any((path / f).is_file() for f in ("config.json", "adapter_config.json")):
        found = sorted(file for file in path.glob(f"*{GGUF}") if file.is_file())
        if len(found) > 1:
            raise ConfigError(
                f"{where} is a folder with {len(found)} GGUF files, {', '.join(f.name for f in found[:4])}; name one "
                f"of them, as {path / found[0].name}"
            )
        if not found:
            raise ConfigError(f"{where} is a folder with neither a config.json nor a GGUF file, so it holds no model")
        _check_gguf(found[0], where)
        return ModelPlace(str(path), found[0].name)
    return ModelPlace(str(name))


def config_at(place: ModelPlace) -> Any:
    """Returns the `transformers` config of the model at a location; that of a GGUF file is cached, as reading one takes
    seconds."""
    from transformers import AutoConfig

    if place.gguf is None:
        return AutoConfig.from_pretrained(place.name)
    file = Path(place.name) / place.gguf
    return copy.deepcopy(_config_in(file, file.stat().st_mtime_ns))


@functools.lru_cache(maxsize=4)
def _config_in(file: Path, changed: int) -> Any:
    """Reads the config of a GGUF file.

    changed: the file's modification time, as a part of the cache's key.
    """
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(str(file.parent), gguf_file=file.name)


def model_at(place: ModelPlace, **kwargs: Any) -> Any:
    """Returns the causal language model at a location, the weights of a GGUF file unpacked, as training needs them.

    kwargs: passed to `from_pretrained`.
    """
    import transformers

    load = transformers.AutoModelForCausalLM.from_pretrained
    if place.gguf is None:
        return load(place.name, **kwargs)
    # From 5.17 on transformers keeps the file's blocks where it can, and refuses to save a model that came from them.
    packing = getattr(transformers, "GgufConfig", None)
    unpacked = {} if packing is None else {"quantization_config": packing(dequantize=True)}
    model = load(place.name, **place.how, **unpacked, config=config_at(place), **kwargs)
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        quantizer.remove_quantization_config(model)
    return model


def _check_gguf(path: Path, where: str) -> None:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ConfigError(
            f"{where}: {path.name} is no GGUF file; name one, or the folder with the model's config.json and weights"
        )
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{where}: a GGUF file needs {' and '.join(missing)}: pip install polopt[gguf]")


def name_special_tokens(tokenizer: Any, config: Any) -> None:
    """Sets the special tokens of a tokenizer read from a GGUF file by the file's ids.

    transformers 5 also uses the beginning-of-sequence token as the end-of-sequence token otherwise.
    """
    for name in ("bos_token", "eos_token"):
        number = getattr(config, f"{name}_id", None)
        if isinstance(number, int):
            setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(number))
