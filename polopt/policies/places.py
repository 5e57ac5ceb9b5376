"""Where a model lies: in a folder, a GGUF file, a file of an installed package, or on the hub."""

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
    """name: a folder, or a name of the hub. gguf: the file in it that holds everything, None where the folder has the
    Hugging Face format."""

    name: str
    gguf: str | None = None

    @property
    def how(self) -> dict[str, str]:
        """What `from_pretrained` of transformers is told beside the name."""
        return {} if self.gguf is None else {"gguf_file": self.gguf}


def place_of(name: str | Path, where: str = "the model") -> ModelPlace:
    """The place that a name means; a name that is nothing here may be one of the hub. where: the setting, for messages.

    A folder with one GGUF file and no config.json means that file.

    Raises:
        ConfigError: as `path_of`; no such file, a file that is no GGUF file, or a folder with several of them.
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
    """The `transformers` config of the model in a place. That of a GGUF file is kept: reading one takes seconds."""
    from transformers import AutoConfig

    if place.gguf is None:
        return AutoConfig.from_pretrained(place.name)
    file = Path(place.name) / place.gguf
    return copy.deepcopy(_config_in(file, file.stat().st_mtime_ns))


@functools.lru_cache(maxsize=4)
def _config_in(file: Path, changed: int) -> Any:
    """changed: when the file was, as a key."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(str(file.parent), gguf_file=file.name)


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
    """Give a tokenizer that was read from a GGUF file the tokens that the file's ids mean: transformers 5 reads the one
    that begins a text as the one that ends it, too."""
    for name in ("bos_token", "eos_token"):
        number = getattr(config, f"{name}_id", None)
        if isinstance(number, int):
            setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(number))
