"""A stage on pairs or labels, written out for TRL: the loss that is chosen, the rows, and what TRL makes of them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

import polopt as po
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.export import export
from polopt.bridges.export.trl_preferences import trl_loss
from polopt.objectives import HingeLink
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.training import recipe as recipes
from polopt.training.language_recipe import LanguageRecipe


def recipe(place: Path, method: str, rows: list[dict[str, Any]], kind: str) -> LanguageRecipe:
    place.mkdir()
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = {
        "policy": {"config": {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}},
        "tasks": {"kind": kind, "path": str(place / "rows.jsonl"), "heldout": 0.2},
        "limit": 12,
        "stages": {"main": {"method": method, "steps": 2, "rows": 16, "micro_rows": 8}},
    }
    (place / "recipe.yaml").write_text(yaml.safe_dump(data))
    return LanguageRecipe.require(recipes.load(place / "recipe.yaml"))


PAIRS = [{"prompt": f"{a}+1=", "chosen": str(a + 1), "rejected": str(a + 2)} for a in range(20)]
LABELS = [{"prompt": f"{a}+1=", "completion": str(a + a % 2), "label": bool(a % 2)} for a in range(20)]


def test_losses() -> None:
    dpo, kto = po.method("dpo", beta=0.3), po.method("kto", beta=0.2, desirable=1.3)
    assert trl_loss("dpo", dpo).settings == {"loss_type": ["sigmoid"], "beta": 0.3}
    assert trl_loss("", dpo.but(**{"objective.link": HingeLink()})).settings["loss_type"] == ["hinge"]
    ipo = po.method("ipo", tau=0.2).but(**{"objective.implicit.decisions": "mean"})
    assert trl_loss("ipo", ipo).settings == {"loss_type": ["ipo"], "beta": pytest.approx(0.2)}
    found = trl_loss("kto", kto)
    assert (found.trainer, found.settings["loss_type"], found.settings["desirable_weight"]) == ("KTO", "kto", 1.3)
    assert trl_loss("", po.method("kto", reference_point=False)).settings["loss_type"] == "apo_zero_unpaired"


@pytest.mark.parametrize("method", ["simpo", "orpo", "rpo-sft", "slic", "ipo", "tgdpo"])
def test_what_trl_computes_otherwise_is_refused(method: str) -> None:
    with pytest.raises(BridgeError, match=f"{method} cannot be written as TRL's script"):
        trl_loss(method, po.method(method))


@pytest.mark.parametrize("changes", [{"label_smoothing": 0.1}, {"reference_tau": 0.5}])
def test_settings_that_trl_lacks_are_refused(changes: dict[str, float]) -> None:
    algorithm = po.method("dpo", **changes) if "label_smoothing" in changes else po.method("dpo").but(**changes)
    with pytest.raises(BridgeError, match="cannot be written as TRL's script"):
        trl_loss("dpo", algorithm)


@pytest.mark.parametrize(("method", "rows", "kind"), [("dpo", PAIRS, "pairs"), ("kto", LABELS, "labelled")])
def test_trl_reads_the_tokens_that_polopt_learns_from(
    method: str, rows: list[dict[str, Any]], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = pytest.importorskip("trl", minversion="1.16")
    done = export(recipe(tmp_path / "a", method, rows, kind), "trl", tmp_path / "out")
    trainer_class, seen = {"dpo": trl.DPOTrainer, "kto": trl.KTOTrainer}[method], []
    monkeypatch.setattr(trainer_class, "train", lambda self: seen.append(self))
    runpy.run_path(str(done.folder / "train.py"), run_name="__main__")
    (trainer,) = seen
    assert trainer.args.max_steps == 2
    assert trainer.args.per_device_train_batch_size == (4 if method == "dpo" else 8)
    assert trainer.args.gradient_accumulation_steps == 2
    dialogue = Dialogue(LanguagePolicy.load(done.folder / "policy").tokenizer)
    lines = [json.loads(line) for line in (done.folder / "train.jsonl").read_text().splitlines()]
    assert len(lines) == 16 == len(trainer.train_dataset)
    for line, read in zip(lines, trainer.train_dataset, strict=True):
        said = {"chosen_ids": line.get("chosen"), "rejected_ids": line.get("rejected")}
        said = said if method == "dpo" else {"completion_ids": line["completion"]}
        for name, answer in said.items():
            assert read["prompt_ids"] == dialogue.opening(line["prompt"][-1]["content"])
            assert read[name] == dialogue.answer(answer[-1]["content"])
    if method == "kto":
        assert [line["label"] for line in lines] == [read["label"] for read in trainer.train_dataset]


def test_ranked_lists_have_no_trainer_there(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}", "completions": ["a", "b", "c"], "scores": [1, 0, 2]} for i in range(9)]
    with pytest.raises(BridgeError, match="has 3 answers, and TRL's DPOTrainer takes pairs of two"):
        export(recipe(tmp_path / "a", "dpo", rows, "ranked"), "trl", tmp_path / "out")
    assert not (tmp_path / "out").exists()
