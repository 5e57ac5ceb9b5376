"""The origin of a run: the files that its recipe names, their content, and the folder where relative paths begin."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

import polopt
from polopt import catalogue
from polopt.errors import PoloptWarning, RunError
from polopt.training import files
from polopt.training import recipe as recipes
from polopt.training.environment import cores, environment
from polopt.training.recipe import Recipe
from polopt.training.run import Run

# The folder of a run with copies of the code, and of small data, that its recipe names.
COPIES = "code"
# Bytes up to which a data file is copied; code always is.
COPIED = 8 * 2**20
# Bytes from which a file whose size and time of change are those recorded is taken as unchanged.
LARGE = 64 * 2**20
# Endings of the files that a policy's or adapter's folder is read from.
MODEL_FILES = {".json", ".safetensors", ".bin", ".gguf", ".model", ".txt", ".py", ".jinja"}
# Settings that name a folder of a model.
FOLDERS = ("model", "adapter", "weights")
# Versions that results depend on to the bit; of others a change is only reported.
DECISIVE = ("polopt", "torch", "transformers", "reasoning-gym")
REPORTED = ("python", "numpy", "commit")


@dataclasses.dataclass(frozen=True)
class NamedFile:
    """A file that a setting of the recipe names. named: as it was typed, without a function's name behind it.
    kind: a module is named by its import name, a model by its folder, code and data by their paths."""

    setting: str
    kind: Literal["code", "module", "model", "data"]
    named: str
    path: Path


def named_files(recipe: Any, base: Path) -> list[NamedFile]:
    """Returns the files that a recipe, as plain data, names: Python files and modules of code, data files, and what is
    in the folders of models. Relative paths begin in `base`. Files and modules of installed packages are left out."""
    found: dict[Path, NamedFile] = {}
    for setting, value in _texts(recipe, ""):
        for file in _files_of(setting, value, base):
            found.setdefault(file.path, file)
    return list(found.values())


def _texts(value: Any, setting: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield setting, value
    items: Any = value.items() if isinstance(value, Mapping) else ()
    items = enumerate(value) if isinstance(value, (list, tuple)) else items
    for key, inner in items:
        yield from _texts(inner, f"{setting}.{key}" if setting else str(key))


def _files_of(setting: str, value: str, base: Path) -> Iterator[NamedFile]:
    key = setting.rpartition(".")[2]
    if code := re.fullmatch(r"(.+\.py):\w+", value):
        if (base / code[1]).is_file():
            yield NamedFile(setting, "code", code[1], (base / code[1]).resolve())
    elif module := re.fullmatch(r"([A-Za-z_][\w.]*):[\w.]+", value):
        file = getattr(sys.modules.get(module[1]), "__file__", None)
        if file is not None and not _installed(Path(file)):
            yield NamedFile(setting, "module", module[1], Path(file).resolve())
    elif "\n" not in value and 0 < len(value) < 1000 and key != "cache":  # a cache is written to
        path = base / value
        named = [value] if key in FOLDERS else [f"{value}/policy", f"{value}/adapter"] if key == "run" else []
        models = [name for name in named if (base / name).is_dir()]
        if models:
            read = [(n, p) for n in models for p in sorted((base / n).iterdir()) if p.suffix in MODEL_FILES]
            yield from (NamedFile(setting, "model", name, p.absolute()) for name, p in read if p.is_file())
        elif set(value) & set("./\\") and path.is_file():
            yield NamedFile(setting, "data", value, path.resolve())


def _installed(file: Path) -> bool:
    places = {*sysconfig.get_paths().values(), str(Path(polopt.__file__).parent)}
    return any(file.resolve().is_relative_to(Path(place).resolve()) for place in places)


def about_run(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Returns run.json's content for a new run; copies the code that its recipe names into `folder`."""
    return {
        **record(recipe.to_yaml(), folder),
        "threads": recipe.threads or torch.get_num_threads(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": recipes.name_of_method(recipe.stages[recipe.main_stage].method),
        "citation": _citations(recipe),
        "main_stage": recipe.main_stage,
        "best_by": recipe.checkpoint.best or recipe.estimates[0],
        "finished": False,
    }


def _citations(recipe: Recipe) -> list[str]:
    """Returns BibTeX of the published methods that the stages use."""
    names = [m if isinstance(m, str) else m["name"] for m in (s.method for s in recipe.stages.values())]
    return [catalogue.cite([name]) for name in dict.fromkeys(names) if ":" not in name]


def record(text: str, folder: Path) -> dict[str, Any]:
    """Returns what run.json holds of a run's beginning: environment, recipe, the folder where its relative paths begin
    (the working directory), and the files that it names. Copies code and small data files into `folder`/code."""
    base = Path.cwd()
    return {
        **environment(),
        "recipe": text,
        "recipe_sha256": files.digest_of(text),
        "directory": str(base),
        "files": [_recorded(file, folder) for file in named_files(yaml.safe_load(text), base)],
    }


def _recorded(file: NamedFile, folder: Path) -> dict[str, Any]:
    found = file.path.stat()
    sha256 = _digest(file.path, found.st_size, found.st_mtime_ns) if found.st_size >= LARGE else files.digest(file.path)
    copy: Path | None = None
    if file.kind in ("code", "module") or (file.kind == "data" and found.st_size <= COPIED):
        copy = Path(COPIES) / file.path.name
        if (folder / copy).exists() and files.digest(folder / copy) != sha256:
            copy = Path(COPIES) / f"{sha256[:8]}-{file.path.name}"
        (folder / COPIES).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, folder / copy)
    return {
        "setting": file.setting,
        "kind": file.kind,
        "named": file.named,
        "path": str(file.path),
        "sha256": sha256,
        "bytes": found.st_size,
        "modified": found.st_mtime_ns,
        "copy": None if copy is None else copy.as_posix(),
    }


@functools.cache
def _digest(path: Path, size: int, modified: int) -> str:
    """Returns the sha256 of a large file, computed once for each of its versions: a comparison's runs share it."""
    return files.digest(path)


def base_of(about: Mapping[str, Any]) -> Path:
    """Returns the folder where relative paths of a run's recipe begin: the one that it began in; if not all of the
    files are there, the present one if they are there; else the former, if it is there."""
    start_folder, here = Path(about.get("directory", ".")).absolute(), Path.cwd()
    relative = [e["named"] for e in about.get("files", ()) if e["kind"] != "module"]
    for base in (start_folder, here):
        if base.is_dir() and all((base / name).exists() for name in relative):
            return base
    return start_folder if start_folder.is_dir() else here


def _place(entry: Mapping[str, Any], base: Path) -> Path:
    """Returns the path at which a recorded file is looked for."""
    if entry["kind"] == "module":
        return Path(entry["path"])
    place = base / entry["named"]  # an absolute name stays what it is
    return place / Path(entry["path"]).name if entry["kind"] == "model" else place


@contextlib.contextmanager
def at_base(run: Run) -> Iterator[Path]:
    """Enters, for the length of the block, the folder where relative paths of the run's recipe begin."""
    base = base_of(run.about)
    with contextlib.ExitStack() as stack:
        if base != Path.cwd():
            stack.enter_context(contextlib.chdir(base))
        if str(base) not in sys.path:
            sys.path.append(str(base))
            stack.callback(sys.path.remove, str(base))
        yield base


@contextlib.contextmanager
def entered(run: Run) -> Iterator[Recipe]:
    """Opens the recipe of a run, inside the folder where its relative paths begin, whatever the working directory is.

    A file that is gone is replaced by its copy in the run folder, with a warning.

    Raises:
        ConfigError: the recipe cannot be read, or names something that is gone and of which there is no copy.
    """
    run = type(run)(run.folder.absolute())
    with at_base(run) as base:
        missing = _missing(run, run.about, base)
        if not missing:
            yield recipes.load(run.recipe)
            return
        listed = ", ".join(f"{name} -> {copy}" for name, copy in missing.items())
        sentence = f"files that the recipe of {run.folder} names are gone, and their copies are used: {listed}"
        warnings.warn(sentence, PoloptWarning, stacklevel=3)
        data = _replaced(yaml.safe_load(run.recipe.read_text(encoding="utf-8")), missing)
        yield recipes.recipe_of(data, run.recipe.name)


def _missing(run: Run, about: Mapping[str, Any], base: Path) -> dict[str, str]:
    """Maps the typed name of each file that is not in its place any more to its copy."""
    entries = [e for e in about.get("files", ()) if e["copy"] and not _place(e, base).is_file()]
    copies = {e["named"]: run.folder / e["copy"] for e in entries}
    return {named: str(copy) for named, copy in copies.items() if copy.is_file()}


def _replaced(value: Any, missing: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(inner, missing) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, missing) for inner in value]
    if isinstance(value, str):
        named, colon, name = value.rpartition(":")
        if colon and named in missing:
            return f"{missing[named]}:{name}"
        return missing.get(value, value)
    return value


def check(run: Run) -> list[str]:
    """Returns the changes since a run began that keep it from going on to the same bits, each as part of a sentence,
    old -> new. Warns of changes that may only matter: another processor, Python, NumPy or commit, fewer cores."""
    about = run.about
    if "recipe" not in about:
        return ["run.json does not record what the run began with"]
    now = environment()
    changed = [f"{n} {about[n]} -> {now[n]}" for n in DECISIVE if about.get(n) != now[n] and _used(n, about)]
    changed += _recipe_changes(run, about)
    base = base_of(about)
    changed += [sentence for entry in about["files"] if (sentence := _file_change(run, entry, base))]
    minor = [f"{name} {about.get(name)} -> {now[name]}" for name in REPORTED if about.get(name) != now[name]]
    was, machine = about.get("machine", {}), now["machine"]
    minor += [f"processor {was.get('cpu')} -> {machine['cpu']}"] if was.get("cpu") != machine["cpu"] else []
    if about.get("threads", 1) > cores():
        minor.append(f"{about['threads']} threads on {cores()} cores")
    if minor:
        warnings.warn(
            f"{run.folder} goes on in another environment than it began in, and may round differently: "
            f"{', '.join(minor)}",
            PoloptWarning,
            stacklevel=3,
        )
    return changed


def _used(package: str, about: Mapping[str, Any]) -> bool:
    return package != "reasoning-gym" or "reasoning-gym" in about["recipe"]


def _recipe_changes(run: Run, about: Mapping[str, Any]) -> list[str]:
    text = run.recipe.read_text(encoding="utf-8", errors="replace")
    if text in (about["recipe"], about.get("recipe_before")):
        return []
    try:
        found = changed_settings(yaml.safe_load(about["recipe"]), yaml.safe_load(text))
    except yaml.YAMLError:
        return ["recipe.yaml is not YAML any more"]
    return [f"recipe.yaml: {shown(*each)}" for each in found] or ["recipe.yaml is written differently"]


def _file_change(run: Run, entry: Mapping[str, Any], base: Path) -> str | None:
    path, what = _place(entry, base), f"{entry['setting']} = {entry['named']}"
    if not path.is_file():
        if entry["copy"] is None or not (run.folder / entry["copy"]).is_file():
            return f"{what}: {path} is gone"
        path = run.folder / entry["copy"]
    found = path.stat()
    if found.st_size >= LARGE and (found.st_size, found.st_mtime_ns) == (entry["bytes"], entry["modified"]):
        return None
    if (sha256 := files.digest(path)) != entry["sha256"]:
        return f"{what}: {path} holds other bytes, sha256 {entry['sha256'][:12]} -> {sha256[:12]}"
    return None


def require_unchanged(run: Run, *, anyway: bool = False) -> list[str]:
    """Checks that a run goes on as it began. Returns the changes, if it goes on `anyway`.

    Raises:
        RunError: something has changed; the first few things, old -> new.
    """
    changed = check(run)
    if changed and not anyway:
        more = f"; and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise RunError(
            f"{run.folder} would not go on as it began: {'; '.join(changed[:3])}{more}; put that back, or continue "
            "with --anyway (in Python anyway=True), with other results than it would have had"
        )
    return changed


def accept(run: Run, changed: Sequence[str]) -> dict[str, Any]:
    """Returns the additions to run.json with which a run goes on from its last checkpoint in spite of changes: the
    present state is recorded as its beginning, and the changes are noted. To be called inside `entered`."""
    about = run.about
    present = record(run.recipe.read_text(encoding="utf-8"), run.folder)
    there = {entry["named"] for entry in present["files"]}
    # The entries of missing files, and their copies, stay.
    present["files"] += [entry for entry in about.get("files", ()) if entry["named"] not in there]
    return present | {"anyway": [*about.get("anyway", []), {"step": run.checkpoint, "changed": list(changed)}]}


def changed_settings(old: Any, new: Any, setting: str = "") -> list[tuple[str, Any, Any]]:
    """Returns (setting, old value, new value) wherever two recipes, as plain data, differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [*old, *(key for key in new if key not in old)]
        inner = ((f"{setting}.{key}" if setting else str(key), old.get(key), new.get(key)) for key in keys)
        return [found for name, left, right in inner for found in changed_settings(left, right, name)]
    return [] if old == new else [(setting or "recipe", old, new)]


def shown(setting: str, old: Any, new: Any) -> str:
    """Returns a change as `stages.rl.steps 60 -> 80`."""
    texts = ["null" if value is None else str(value) for value in (old, new)]
    left, right = (text if len(text) <= 60 else text[:57] + "..." for text in texts)
    return f"{setting} {left} -> {right}"
