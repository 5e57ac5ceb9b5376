"""Fits of preference models: the same bytes from one seed, a fit that was killed, what is refused, and what the results
are."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polopt.backends import BradleyTerry, load_preference, load_scorer
from polopt.config import ConfigError
from polopt.errors import PoloptWarning, RunError
from polopt.rewards import EnsembleJudge, LearnedJudge
from polopt.training import fit_results, fitting
from polopt.training.fit_data import read_pairs
from polopt.training.fit_recipe import fit_recipe

SMALL: dict[str, Any] = {"shape": {"width": 8, "layers": 0}, "epochs": 3.0, "rows": 16}


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def sums(count: int = 60, seed: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Pairs whose preferred answer is a number; of every fifth pair it is not."""
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        answers = [f"It is {draw.randrange(10)}.", draw.choice(["Who knows.", "It depends on many things.", "No."])]
        chosen, rejected = answers if i % 5 else answers[::-1]
        rows.append({"prompt": f"{i // 2} + 1?", "chosen": chosen, "rejected": rejected, **more})
    return rows


def contents(folder: Path) -> dict[str, Any]:
    """All files of a fit, without the time that it took and the machine."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "results.json":
            record = json.loads(path.read_text())
            for member in record["members"]:
                member.pop("seconds")
            found[path.name] = record
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


class Stopped(Exception):
    pass


class StopAt:
    """A watcher that ends the fit after a step of a member, and notes which steps there were."""

    def __init__(self, member: int = 0, step: int = 0) -> None:
        self.at, self.seen = (member, step), list[tuple[int, int]]()

    def begin(self, pairs: int, heldout: int, members: int, steps: int) -> None:
        self.steps = steps

    def stepped(self, member: int, step: int, loss: float) -> None:
        self.seen.append((member, step))
        if (member, step) == self.at:
            raise Stopped


def test_one_seed_is_the_same_bytes_and_another_is_not(tmp_path: Path) -> None:
    data = written(tmp_path / "pairs.jsonl", sums())
    one, two, other = (
        fitting.fit(fit_recipe(data, seed=seed, **SMALL), tmp_path / name).folder
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    )
    assert contents(one) == contents(two)
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_a_killed_fit_keeps_its_members_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    data = written(tmp_path / "pairs.jsonl", sums())
    recipe = fit_recipe(data, members=3, preference="preference", **SMALL)
    whole = fitting.fit(recipe, tmp_path / "whole").folder
    stop = StopAt(member=2, step=3)
    with pytest.raises(Stopped):
        fitting.fit(recipe, tmp_path / "killed", watchers=(stop,))
    assert not (tmp_path / "killed").exists()
    again = StopAt()
    killed = fitting.fit(recipe, tmp_path / "killed", watchers=(again,)).folder
    assert [seen for seen in again.seen if seen[0] == 1] == [(1, again.steps)]  # it was there
    assert [step for member, step in again.seen if member == 2] == list(range(1, again.steps + 1))
    assert contents(killed) == contents(whole)
    weights = [(whole / f"member-{i}" / "model.safetensors").read_bytes() for i in (1, 2, 3)]
    assert len(set(weights)) == 3


def test_what_an_unfinished_fit_with_other_settings_left_is_not_used(tmp_path: Path) -> None:
    data = written(tmp_path / "pairs.jsonl", sums())
    with pytest.raises(Stopped):
        fitting.fit(fit_recipe(data, members=2, seed=5, **SMALL), tmp_path / "run", watchers=(StopAt(2, 1),))
    watcher = StopAt()
    found = fitting.fit(fit_recipe(data, members=2, seed=6, **SMALL), tmp_path / "run", watchers=(watcher,))
    assert (1, 1) in watcher.seen
    assert contents(found.folder) == contents(
        fitting.fit(fit_recipe(data, members=2, seed=6, **SMALL), tmp_path / "alone").folder
    )


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    data = written(tmp_path / "pairs.jsonl", sums())
    fitting.fit(fit_recipe(data, **SMALL), tmp_path / "run")
    assert fitting.is_finished(fit_recipe(data, **SMALL), tmp_path / "run")
    with pytest.raises(RunError, match=r"holds a fit with other settings: seed 0 -> 1; name another folder"):
        fitting.fit(fit_recipe(data, seed=1, **SMALL), tmp_path / "run")
    written(tmp_path / "pairs.jsonl", sums(seed=3))
    with pytest.raises(RunError, match=r"holds a fit, and .*pairs.jsonl has changed since"):
        fitting.fit(fit_recipe(data, **SMALL), tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="has files and no fit"):
        fitting.fit(fit_recipe(data, **SMALL), tmp_path / "other")


class TestRows:
    def test_no_prompt_is_on_both_sides(self, tmp_path: Path) -> None:
        data = written(tmp_path / "pairs.jsonl", sums())
        train, heldout = read_pairs(fit_recipe(data, heldout=0.3, **SMALL))
        assert not set(train.prompts) & set(heldout.prompts)
        assert (len(train), len(heldout)) == (42, 18)
        second = written(tmp_path / "second.jsonl", sums(10))
        with pytest.warns(PoloptWarning, match="left 10 of 60 rows out of training"):
            train, heldout = read_pairs(fit_recipe(data, heldout=second, **SMALL))
        assert (len(train), len(heldout)) == (50, 10)

    def test_lists_are_pairs_of_every_two_scores(self, tmp_path: Path) -> None:
        rows = [{"prompt": f"{i}?", "completions": ["a", "b", "c", "d"], "scores": [1, 3, 2, 2]} for i in range(4)]
        train, heldout = read_pairs(fit_recipe(written(tmp_path / "lists.jsonl", rows), heldout=0.25, **SMALL))
        assert (len(train), len(heldout)) == (15, 5)
        found = set(zip(heldout.pairs.better, heldout.pairs.worse, strict=True))
        assert found == {("b", "c"), ("b", "d"), ("b", "a"), ("c", "a"), ("d", "a")}

    def test_bad_rows_are_named_by_their_lines(self, tmp_path: Path) -> None:
        rows = sums(8, margin=1.0, votes=0.8, first=True)
        rows[2] |= {"margin": "much"}
        rows[5] |= {"votes": 0.0}
        rows[6] |= {"first": "perhaps"}
        data = written(tmp_path / "pairs.jsonl", rows)
        sentences = {
            "margin": r"line 3: field 'margin' must be a finite number, found \"much\"",
            "probability": r"line 6: field 'votes' must be a probability in \(0, 1\], found 0.0",
            "position": r"line 7: field 'first' must be true or false, found \"perhaps\"",
        }
        for name, field in (("margin", "margin"), ("probability", "votes"), ("position", "first")):
            with pytest.raises(ConfigError, match=sentences[name]):
                fitting.fit(fit_recipe(data, heldout=0.3, **{name: field}, **SMALL), tmp_path / "run")
        del rows[3]["rejected"]
        with pytest.raises(ConfigError, match="line 4: field 'rejected' is missing"):
            fitting.fit(fit_recipe(written(tmp_path / "pairs.jsonl", rows), **SMALL), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_what_is_not_read_is_said(self, tmp_path: Path) -> None:
        data = written(tmp_path / "pairs.jsonl", sums(8, margin=0.5))
        with pytest.warns(PoloptWarning, match="have a field 'margin', which is not read; --margin margin takes it"):
            read_pairs(fit_recipe(data, **SMALL))
        long = sums(8)
        long[1]["chosen"] = "x" * 600
        with pytest.warns(PoloptWarning, match="line 2: the scorer reads the last 512 bytes of a prompt"):
            fitting.fit(fit_recipe(written(tmp_path / "long.jsonl", long), **SMALL), tmp_path / "run")

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"preference": "bradley"}, "fit.preference: there is no kind 'bradley'; did you mean 'bradley-terry'"),
            (
                {"preference": {"name": "gaussian", "link": "cauchy"}},
                "fit.preference: backends.GaussianReward: setting 'link'",
            ),
            ({"changes": {"preference.label_smoothing": 0.7}}, r"label_smoothing must be in \[0, 0.5\], found 0.7"),
            ({"shape": {"widht": 8}}, "fit.shape.widht is not a setting; did you mean 'width'"),
            ({"shape": {"width": 8}, "model": "x"}, "fit.shape is that of a TextScorer"),
            ({"members": 0}, "fit.members = 0"),
            ({"changes": {"lrate": 1}}, "fit.lrate is not a setting"),
        ],
    )
    def test_settings_are_checked_first(self, tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ConfigError, match=sentence):
            fit_recipe(written(tmp_path / "pairs.jsonl", sums(8)), **settings)

    def test_single_answers_are_no_pairs(self, tmp_path: Path) -> None:
        data = written(tmp_path / "labels.jsonl", [{"prompt": "a", "completion": "b", "label": True}] * 3)
        with pytest.raises(ConfigError, match="are those of kind labelled; a preference model is fitted to pairs"):
            fit_recipe(data)


class TestResults:
    def test_the_numbers_by_hand(self, tmp_path: Path) -> None:
        rows = sums(20, votes=0.75)
        for i, row in enumerate(rows):
            row["first"] = bool(i % 2)
        data = written(tmp_path / "pairs.jsonl", rows)
        recipe = fit_recipe(data, heldout=0.5, probability="votes", position="first", **SMALL)
        folder = fitting.fit(recipe, tmp_path / "run").folder
        record = json.loads((folder / "results.json").read_text())["heldout"]
        _, heldout = read_pairs(recipe)
        scorer = load_scorer(folder)
        z = [
            (scorer([p], [a]) - scorer([p], [b])).item()
            for p, a, b in zip(heldout.pairs.prompts, heldout.pairs.better, heldout.pairs.worse, strict=True)
        ]
        agrees = [0.75 if each > 0 else 0.25 for each in z]
        prompts: dict[str, list[float]] = {}
        for prompt, value in zip(heldout.prompts, agrees, strict=True):
            prompts.setdefault(prompt, []).append(value)
        means = [sum(x) / len(x) for x in prompts.values()]
        assert record["accuracy"]["estimate"] == pytest.approx(sum(means) / len(means))
        assert record["accuracy"]["n"] == record["prompts"] == len(means) == 5
        chance = [1 / (1 + math.exp(-each)) for each in z]
        wanted = -sum(0.75 * math.log(p) + 0.25 * math.log(1 - p) for p in chance) / len(chance)
        assert record["log_loss"] == pytest.approx(wanted, rel=1e-5)
        first = [a for a, is_first in zip(agrees, heldout.first, strict=True) if is_first]
        assert record["shown_first"]["estimate"] == pytest.approx(sum(first) / len(first))
        lengths = [len(a) > len(b) for a, b in zip(heldout.pairs.better, heldout.pairs.worse, strict=True)]
        longer: dict[str, list[float]] = {}
        for prompt, value, is_longer in zip(heldout.prompts, agrees, lengths, strict=True):
            longer.setdefault(prompt, []).extend([value] if is_longer else [])
        parts = [sum(x) / len(x) for x in longer.values() if x]
        assert record["longer"]["estimate"] == pytest.approx(sum(parts) / len(parts))

    def test_a_model_that_is_too_sure_is_brought_back(self, tmp_path: Path) -> None:
        """Margins of four times the true log-odds: the temperature is 4, and halves of the prompts agree on it."""
        draw = torch.Generator().manual_seed(0)
        truth = torch.randn(4000, generator=draw).double()
        won = torch.rand(4000, generator=draw) < truth.sigmoid()
        rows = [{"prompt": f"{i}", "chosen": "a", "rejected": "b"} for i in range(4000)]
        _, heldout = read_pairs(fit_recipe(written(tmp_path / "p.jsonl", rows), heldout=0.99, **SMALL))
        n = len(heldout)
        z = (4 * torch.where(won, truth, -truth))[:n].numpy()
        found = fit_results.results(z, "logistic", heldout)
        assert found.temperature == pytest.approx(4.0, rel=0.1)
        assert found.calibrated is not None
        assert found.calibrated["log_loss"] < found.log_loss - 0.3
        assert found.calibrated["calibration_error"] < 0.03 < 0.15 < found.calibration_error
        right = fit_results.results(abs(z), "logistic", heldout)
        assert right.temperature == 1.0  # none is wrong, and the best one would be 0
        assert right.shown_first is None

    def test_each_half_of_the_prompts_has_the_temperature_of_the_other(self) -> None:
        """Margins of 2, right in 9 of 10 pairs of one half and in 6 of 10 of the other: temperatures in closed form."""
        z = np.array([2.0] * 9 + [-2.0] + [2.0] * 6 + [-2.0] * 4)
        found = fit_results.cross_calibrated(z, "logistic", np.ones(20), ["a"] * 10 + ["b"] * 10)
        assert found is not None
        # A half is predicted to be right as often as the other one is.
        wanted = -(9 * math.log(0.6) + math.log(0.4) + 6 * math.log(0.9) + 4 * math.log(0.1)) / 20
        assert found["log_loss"] == pytest.approx(wanted, rel=1e-9)
        assert found["calibration_error"] == pytest.approx(0.3, rel=1e-9)
        assert fit_results.cross_calibrated(z, "logistic", np.ones(20), ["a"] * 20) is None

    def test_the_folder_judges_in_calibrated_units(self, tmp_path: Path) -> None:
        data = written(tmp_path / "pairs.jsonl", sums())
        found = {}
        for kind in ("bradley-terry", "preference", "gaussian"):
            folder = fitting.fit(fit_recipe(data, heldout=0.4, preference=kind, **SMALL), tmp_path / kind).folder
            fit, scorer, judge = load_preference(folder), load_scorer(folder), LearnedJudge(weights=str(folder))
            assert fit is not None
            assert fit.kind == kind
            assert fit.temperature not in (1e-4, 1.0)
            prompts, answers, others = ["1 + 1?"] * 2, ["It is 2.", "No."], ["No.", "Who knows."]
            raw = scorer(prompts, answers, others if judge.compares else None).double()
            found[kind] = judge(prompts, answers, others)
            wanted = {
                "bradley-terry": raw / fit.temperature,
                "preference": torch.sigmoid(raw / fit.temperature),
                "gaussian": raw[:, 0] if raw.ndim == 2 else raw,
            }[kind]
            torch.testing.assert_close(found[kind].scores, wanted, rtol=1e-5, atol=1e-6)
        stds = torch.tensor([row["std"] for row in found["gaussian"].details])
        gaussian = load_preference(tmp_path / "gaussian")
        assert gaussian is not None
        wanted = gaussian.temperature * torch.nn.functional.softplus(
            load_scorer(tmp_path / "gaussian")(prompts, answers)[:, 1]
        )
        torch.testing.assert_close(stds, wanted, rtol=1e-4, atol=1e-6)

    def test_an_ensemble_is_a_judge(self, tmp_path: Path) -> None:
        data = written(tmp_path / "pairs.jsonl", sums())
        found = fitting.fit(fit_recipe(data, members=2, **SMALL), tmp_path / "run")
        judge = fitting.judge_of(found.folder)
        assert isinstance(judge, EnsembleJudge)
        prompts, answers = ["1 + 1?"], ["It is 2."]
        each = [LearnedJudge(weights=str(found.folder / f"member-{i}"))(prompts, answers).scores for i in (1, 2)]
        torch.testing.assert_close(judge(prompts, answers).scores, (each[0] + each[1]) / 2)
        assert found.record["disagreement"] > 0
        assert [member["seed"] for member in found.record["members"]] == [0, 1]
        assert BradleyTerry().loss(*each).isfinite()
