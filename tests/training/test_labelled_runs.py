"""Runs on labelled answers: what a batch holds, the held-out score, and exact resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import mannwhitneyu
from tiny_runs import Stop, StopAt, lines, outcome, recipe, training_of

from polopt.config import ConfigError
from polopt.training.episode_player import EpisodePlayer
from polopt.training.launch import resume, train
from polopt.training.learner import Learner
from polopt.training.run import Run
from polopt.training.source import LanguageSource

EVALUATION = {"problems": 18, "every": 2}
STAGE = {"method": {"name": "kto", "beta": 0.5}, "steps": 4, "rows": 12, "optimiser": {"lr": 0.03}}


def world(folder: Path, labels: int = 2) -> dict[str, Any]:
    rows = [{"prompt": f"{i} ", "completion": str((i + i % 2) % 10), "label": bool(i % labels == 1)} for i in range(60)]
    (folder / "labelled.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"kind": "labelled", "path": str(folder / "labelled.jsonl"), "heldout": 0.3}


def made(folder: Path, **changes: Any) -> Any:
    checkpoint = {"every": 2, "best": "label_auc"}
    return recipe(
        tasks=world(folder), limit=4, stages={"main": STAGE}, checkpoint=checkpoint, evaluation=EVALUATION, **changes
    )


def test_a_batch_and_its_mismatched_answers(tmp_path: Path) -> None:
    settings = made(tmp_path)
    domain = training_of(settings, Run.create(tmp_path / "run", settings.to_yaml(), {})).domain
    tasks = domain.splits["main"].train
    player = EpisodePlayer(domain.policy, tasks, 4)
    source = LanguageSource(player, rows=12, seed=0, generator=torch.Generator())
    batch = source.rated(6, mismatched=True)
    assert batch.extras["mismatched"].tolist() == [False] * 6 + [True] * 6
    assert batch.group.tolist() == [*range(6)] * 2
    own = [task.rated[0] for task in batch.extras["task"][:6]]
    said = batch.extras["answer"]
    assert said[:6] == [answer.text for answer in own]
    assert said[6:] == [own[i - 1].text for i in range(6)]
    assert batch.outcome.tolist() == [answer.score for answer in own] + [0.0] * 6
    with pytest.raises(ValueError, match="answers of other tasks need two tasks a batch"):
        source.rated(1, mismatched=True)


def test_the_present_policy_reads_only_the_answers_that_the_reference_point_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = made(tmp_path)
    training = training_of(settings, Run.create(tmp_path / "run", settings.to_yaml(), {}))
    domain = training.domain
    stage = settings.stages["main"]
    learner = Learner(domain.policy, stage.algorithm("main"), stage, torch.Generator())
    source = LanguageSource(
        EpisodePlayer(domain.policy, domain.splits["main"].train, 4), rows=12, seed=0, generator=torch.Generator()
    )
    batch = source.rated(6, mismatched=True)
    needs, read = learner.algorithm.active_fields("reads"), list[int]()
    evaluate = domain.policy.evaluate
    whole = evaluate(batch).logp.detach()

    def counted(experience: Any, *given: Any, **more: Any) -> Any:
        read.append(len(experience))
        return evaluate(experience, *given, **more)

    monkeypatch.setattr(domain.policy, "evaluate", counted)
    found = learner.assess(batch, needs, {}).old_logp
    assert read == [6]
    assert torch.equal(found[:6], torch.zeros_like(found[:6]))
    # Products of another number of rows round otherwise, in float32.
    torch.testing.assert_close(
        torch.where(batch.mask, found, 0)[6:], torch.where(batch.mask, whole, 0)[6:], rtol=1e-6, atol=1e-6
    )
    # A part that reads all rows has all of them.
    both = learner.algorithm.but(**{"objective.implicit.anchor": "old"})
    assert both.active_rows("old_logp", batch) is None


def test_the_score_is_the_area_under_the_curve(tmp_path: Path) -> None:
    settings = made(tmp_path)
    training = training_of(settings, Run.create(tmp_path / "run", settings.to_yaml(), {}))
    training.run()
    domain = training.domain
    score = domain.score("main", 18, 0)
    heldout = [domain.splits["main"].heldout[i] for i in range(18)]
    source = LanguageSource(
        EpisodePlayer(domain.policy, domain.splits["main"].heldout, 4), rows=18, seed=0, generator=torch.Generator()
    )
    batch = source._unsampled(source.player.rated(heldout))
    with torch.no_grad():
        logp = torch.where(batch.mask, domain.policy.evaluate(batch).logp, 0).sum(1) / batch.mask.sum(1)
    good = np.array([task.rated[0].score > 0 for task in heldout])
    values = logp.numpy()
    area = mannwhitneyu(values[good], values[~good]).statistic / good.sum() / (~good).sum()
    assert score.auc.estimate == pytest.approx(area, abs=1e-9)
    records = lines(tmp_path / "run", "evaluations")
    assert next(record["when"] for record in records if "label_auc" in record) == "before"
    metrics = lines(tmp_path / "run", "metrics")[-1]
    assert {"labels/accuracy", "labels/margin", "labels/reference_point"} <= metrics.keys()


def test_a_run_that_is_stopped_goes_on_exactly(tmp_path: Path) -> None:
    settings = made(tmp_path)
    train(settings, tmp_path / "through")
    with pytest.raises(Stop):
        train(settings, tmp_path / "stopped", watchers=(StopAt(3),))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "through") == outcome(tmp_path / "stopped")


def test_one_label_alone_is_refused(tmp_path: Path) -> None:
    world(tmp_path)
    rows = [{"prompt": f"{i} ", "completion": "1", "label": True} for i in range(60)]
    (tmp_path / "labelled.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = recipe(
        tasks={"kind": "labelled", "path": str(tmp_path / "labelled.jsonl"), "heldout": 0.3},
        limit=4,
        stages={"main": STAGE},
    )
    with pytest.raises(ConfigError, match="the 8 held-out answers all have the label 1"):
        training_of(settings, Run.create(tmp_path / "run", settings.to_yaml(), {})).run()
