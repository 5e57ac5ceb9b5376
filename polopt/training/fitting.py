"""Fits of preference models: from a recipe to a folder that a judge loads."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import yaml

from polopt.backends import (
    PreferenceFit,
    PreferenceModel,
    TextClassifier,
    TextScorer,
    fit_scorer,
    make_classifier,
    save_scorer,
)
from polopt.backends.preference_models import kind_of
from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.rewards import EnsembleJudge, Judge, LearnedJudge
from polopt.training import files, fit_results, origin
from polopt.training.environment import environment
from polopt.training.fit_data import FitPairs, check_lengths, read_pairs
from polopt.training.fit_recipe import FitRecipe
from polopt.training.fit_results import PreferenceResults
from polopt.training.lock import LOCK, OWNER, FolderLock

RECIPE, RESULTS, LOSSES = "fit.yaml", "results.json", "losses.jsonl"
# What is kept of a finished member until all are, and the origin of an unfinished fit.
MEMBER, ORIGIN = "member.json", "origin.json"


class FitWatcher(Protocol):
    """An observer that is called while models are fitted."""

    def begin(self, pairs: int, heldout: int, members: int, steps: int) -> None:
        """Called once, before the first member. pairs, heldout: their numbers. steps: of each member."""

    def stepped(self, member: int, step: int, loss: float) -> None:
        """Called after each step of a member; both count from 1. A member that was there has one call, of its last."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """A finished fit. folder: what it wrote. record: results.json."""

    folder: Path
    record: dict[str, Any]


def is_finished(recipe: FitRecipe, folder: Path) -> bool:
    """Returns whether a folder holds this fit.

    Raises:
        RunError: it holds another one, or other files.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return False
    if not (folder / RECIPE).is_file():
        raise RunError(f"{folder} has files and no fit; name another folder")
    there = yaml.safe_load((folder / RECIPE).read_text(encoding="utf-8"))
    found = origin.changed_settings(there, yaml.safe_load(recipe.to_yaml()))
    if found:
        listed = ", ".join(origin.shown(*each) for each in found[:3])
        raise RunError(f"{folder} holds a fit with other settings: {listed}; name another folder")
    recorded = json.loads((folder / RESULTS).read_text(encoding="utf-8"))["data"]
    now = _digests(recipe)
    if changed := [name for name, digest in recorded.items() if now.get(name) != digest]:
        raise RunError(f"{folder} holds a fit, and {', '.join(changed[:3])} has changed since; name another folder")
    return True


def fit(recipe: FitRecipe, folder: Path | str, *, watchers: tuple[FitWatcher, ...] = ()) -> Fit:
    """Fits a preference model, writes its folder and returns its results.

    The folder appears at the end, whole. Until then, what is done is kept beside it, in .NAME.draft: the same call
    continues with the members that are missing, and begins a member that was not finished anew. On CPU the same recipe
    gives the same bytes.

    Raises:
        ConfigError: the rows or the model cannot be used.
        RunError: the folder holds something else, or another process is fitting there.
    """
    folder = Path(folder).absolute()
    if is_finished(recipe, folder):
        return Fit(folder, json.loads((folder / RESULTS).read_text(encoding="utf-8")))
    model = recipe.preference_model()
    train, heldout = read_pairs(recipe)
    check_lengths(_scorer(recipe, model, 0)[0], train, heldout)
    draft = folder.with_name(f".{folder.name}.draft")
    draft.mkdir(parents=True, exist_ok=True)
    with FolderLock(draft).acquired():
        _prepare(recipe, draft)
        steps = math.ceil(recipe.passes * len(train) / recipe.rows)
        for watcher in watchers:
            watcher.begin(len(train), len(heldout), recipe.members, steps)
        place = [draft / f"member-{i + 1}" for i in range(recipe.members)]
        members = [
            _member(recipe, model, i, place[i], (train, heldout), steps, watchers) for i in range(recipe.members)
        ]
        record = _record(recipe, model, members, train, heldout)
        _finish(recipe, draft, folder, record, place, members)
    return Fit(folder, record)


def _prepare(recipe: FitRecipe, draft: Path) -> None:
    """Removes what an unfinished fit with other settings, rows or libraries left."""
    about = json.dumps({"recipe": recipe.to_yaml(), "data": _digests(recipe), **environment()}, sort_keys=True)
    path = draft / ORIGIN
    if path.is_file() and path.read_text(encoding="utf-8") == about:
        return
    for left in draft.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left.name not in (LOCK, OWNER):
            left.unlink()
    files.write_text(path, about)


def _digests(recipe: FitRecipe) -> dict[str, str]:
    """Returns the sha256 of each file that the recipe names: of the rows, and of a model's folder."""
    named = origin.named_files(yaml.safe_load(recipe.to_yaml()), Path.cwd())
    return {
        f"{file.named}/{file.path.name}" if file.kind == "model" else file.named: files.digest(file.path)
        for file in named
    }


def _scorer(recipe: FitRecipe, model: PreferenceModel, member: int) -> tuple[TextScorer | TextClassifier, bool]:
    """Returns a member's scorer before the fit, and whether its head, or all of it, is new."""
    seed = recipe.seed + member
    if recipe.model is None:
        return TextScorer(recipe.scorer_shape(), seed).to(getattr(torch, recipe.dtype)), True
    try:
        scorer, new = make_classifier(
            recipe.model,
            compares=model.compares,
            outputs=model.outputs,
            seed=seed,
            dtype=getattr(torch, recipe.dtype),
        )
    except ValueError as error:
        raise ConfigError(f"fit.model: {error}") from None
    return scorer, new


def _member(
    recipe: FitRecipe,
    model: PreferenceModel,
    member: int,
    place: Path,
    data: tuple[FitPairs, FitPairs],
    steps: int,
    watchers: tuple[FitWatcher, ...],
) -> dict[str, Any]:
    """Fits one member and writes its folder, unless it is there; returns its margins and record."""

    def watch(step: int, loss: float) -> None:
        for watcher in watchers:
            watcher.stepped(member + 1, step + 1, loss)

    if (place / MEMBER).is_file():
        found: dict[str, Any] = json.loads((place / MEMBER).read_text(encoding="utf-8"))
        watch(steps - 1, found["losses"][-1])
        return found
    train, heldout = data
    scorer, new = _scorer(recipe, model, member)
    scorer.to(recipe.device)
    start = time.perf_counter()
    losses = fit_scorer(
        scorer,
        train.pairs,
        steps=steps,
        rows=recipe.rows,
        micro_rows=recipe.chunk,
        rate=recipe.rate,
        decay=recipe.weight_decay,
        seed=recipe.seed + member,
        model=model,
        passes=True,
        max_grad_norm=recipe.max_grad_norm,
        watch=watch,
    )
    z = fit_results.margins(model, scorer, heldout, recipe.chunk)
    if not np.isfinite(z).all():
        raise ConfigError("fit: the scores are no finite numbers any more; lower --set lr=..., or take dtype float32")
    temperature = fit_results.results(z, model.link, heldout).temperature
    shutil.rmtree(place, ignore_errors=True)
    save_scorer(scorer, place, PreferenceFit(kind_of(model), temperature))
    written = {
        "seed": recipe.seed + member,
        "new_head": new,
        "margins": z.tolist(),
        "losses": losses,
        "seconds": time.perf_counter() - start,
    }
    files.write_text(place / MEMBER, json.dumps(written))
    return written


def _record(
    recipe: FitRecipe,
    model: PreferenceModel,
    members: list[dict[str, Any]],
    train: FitPairs,
    heldout: FitPairs,
) -> dict[str, Any]:
    """Returns the content of results.json."""
    z = np.array([member["margins"] for member in members])
    each = [fit_results.results(row, model.link, heldout) for row in z]
    pooled = each[0] if len(each) == 1 else _pooled(z, each, model.link, heldout)
    chances = fit_results.probability(z, model.link)
    return {
        "kind": kind_of(model),
        "preference": str(model),
        "model": recipe.model,
        "pairs": len(train),
        "prompts": len(set(train.prompts)),
        "heldout": pooled.record(),
        "disagreement": float(chances.std(0).mean()) if len(each) > 1 else None,
        "members": [
            {"seed": m["seed"], "new_head": m["new_head"], "loss": m["losses"][-1], "seconds": m["seconds"]}
            | {"heldout": one.record()}
            for m, one in zip(members, each, strict=True)
        ],
        "data": _digests(recipe),
        "environment": environment(),
    }


def _pooled(
    z: np.ndarray[Any, np.dtype[np.float64]], each: list[PreferenceResults], link: str, heldout: FitPairs
) -> PreferenceResults:
    """Returns the results of the mean of the members' calibrated margins."""
    temperatures = np.array([one.temperature for one in each])
    return fit_results.results((z / temperatures[:, None]).mean(0), link, heldout)


def _finish(
    recipe: FitRecipe,
    draft: Path,
    folder: Path,
    record: dict[str, Any],
    place: list[Path],
    members: list[dict[str, Any]],
) -> None:
    """Completes the draft and renames it to the folder."""
    lines = "".join(json.dumps(member["losses"]) + "\n" for member in members)
    (draft / LOSSES).write_text(lines, encoding="utf-8")
    for member in place:
        (member / MEMBER).unlink()
    if recipe.members == 1:
        for file in place[0].iterdir():
            file.rename(draft / file.name)
        place[0].rmdir()
    files.write_text(draft / RESULTS, json.dumps(record, indent=1) + "\n")
    files.write_text(draft / RECIPE, recipe.to_yaml())
    if folder.exists():
        folder.rmdir()  # it is empty
    files.publish(draft, folder)
    for left in (LOCK, OWNER, ORIGIN):
        (folder / left).unlink(missing_ok=True)


def judge_of(folder: Path | str) -> Judge:
    """Returns the judge of a fit's folder: a `LearnedJudge`, or an `EnsembleJudge` of several members.

    Raises:
        ValueError: there is none.
    """
    folder = Path(folder)
    members = sorted(folder.glob("member-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    if not members:
        return LearnedJudge(weights=str(folder))
    return EnsembleJudge(judges=[LearnedJudge(weights=str(member)) for member in members])
