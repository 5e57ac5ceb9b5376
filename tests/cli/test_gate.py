"""polopt gate: a run's own counts against requirements, exit codes, the history, and bad files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import flat, lines, polopt
from scipy import stats

from polopt.metrics import MeasuredScore, Requirement, gate


@pytest.fixture
def run(trained: tuple[Path, str], tmp_path: Path) -> Path:
    """A finished run, in whose evaluation 11 of 12 problems are solved, all of the last kind."""
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    records = lines(folder, "evaluations")
    last = records[-1]
    assert last["when"] == "after"
    last["samples"] = 1
    for kind, solved in (("first", [1, 1, 1, 1, 1, 0]), ("last", [1] * 6)):
        last["kinds"][kind] |= {"solved": solved, "problems": 6}
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def write(folder: Path, *requirements: str) -> Path:
    file = folder / "requirements.yaml"
    file.write_text("requirements:\n" + "".join(f"  - {text}\n" for text in requirements) if requirements else "[]")
    return file


MET = "{attribute: reliability, metric: pass@1, op: '>=', threshold: 0.6}"
MISSED = "{attribute: fairness, metric: pass@1/last, op: '>=', threshold: 0.9}"
LONG = "{attribute: cost, metric: length/mean, op: '<=', threshold: 100, severity: low}"


def test_the_bound_decides_and_the_exit_code_says_so(run: Path, tmp_path: Path) -> None:
    met = polopt("gate", run, write(tmp_path, MET), "--json")
    assert met.exit_code == 0, met.output
    record = json.loads(met.stdout)
    assert record["verdict"] == "ship"
    assert record["results"][0]["bound"] == pytest.approx(stats.beta(11, 2).ppf(0.05))
    assert record["seed"] == 0
    missed = polopt("gate", run, write(tmp_path, MET, MISSED))
    assert missed.exit_code == 1
    text = flat(missed.output)
    for word in ("pass reliability pass@1 >= 0.6", "fail fairness pass@1/last >= 0.9", "Block: a requirement"):
        assert word in text
    assert f"{stats.beta(6, 1).ppf(0.05):.4g}" in text  # all six solved, and still no proof of 0.9


def test_what_has_no_interval_warns_where_its_severity_is_low(run: Path, tmp_path: Path) -> None:
    result = polopt("gate", run, write(tmp_path, LONG))
    assert result.exit_code == 0
    assert "length/mean has no interval" in flat(result.output)
    assert "Ship, with warnings" in result.output
    empty = polopt("gate", run, write(tmp_path))
    assert empty.exit_code == 0
    assert "there are no requirements, so that anything ships" in flat(empty.output)


def test_reports_are_added_compared_and_reproduced(run: Path, tmp_path: Path) -> None:
    polopt("gate", run, write(tmp_path, MET))
    first = (run / "gates.jsonl").read_text()
    same = polopt("gate", run, write(tmp_path, MET))
    assert "Nothing has changed since report 1." in same.output
    assert "Report 2 in" in same.output
    other = polopt("gate", run, write(tmp_path, MET, MISSED), "--against", 1)
    assert "Since report 1: fairness: pass@1/last >= 0.9: not asked -> fail (1)" in flat(other.output)
    history = (run / "gates.jsonl").read_text()
    assert history.startswith(first)
    records = [json.loads(line) for line in history.splitlines()]
    assert [record["verdict"] for record in records] == ["ship", "ship", "block"]
    for record in records:  # the record alone gives the verdict again
        asked = [Requirement.model_validate(result["requirement"]) for result in record["results"]]
        scores = {r.metric: MeasuredScore(**x["score"]) for r, x in zip(asked, record["results"], strict=True)}
        again = gate(asked, scores)
        assert again.verdict == record["verdict"]
        assert [r.bound for r in again.results] == [x["bound"] for x in record["results"]]
    assert polopt("gate", run, write(tmp_path, MET), "--against", 9).exit_code == 2


def test_what_other_commands_print_is_gated(run: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured.json"
    measured.write_text(
        json.dumps(
            {
                "values": {"estimate": 1.0, "weight": 2.0},
                "intervals": {"estimate": {"estimate": 1.0, "low": 0.8, "high": None, "level": 0.95, "n": 30}},
            }
        )
    )
    asked = "{attribute: value, metric: estimate, op: '>=', threshold: 0.82}"
    found = json.loads(polopt("gate", measured, write(tmp_path, asked), "--json").stdout)
    half = 0.2 / stats.t(29).ppf(0.975) * stats.t(29).ppf(0.95)
    assert found["results"][0]["bound"] == pytest.approx(1 - half)
    assert not (tmp_path / "gates.jsonl").exists()
    polopt("gate", measured, write(tmp_path, asked), "--history", tmp_path / "h.jsonl")
    assert len(lines(tmp_path, "h")) == 1
    evaluated = tmp_path / "evaluated.json"
    evaluated.write_text(polopt("evaluate", run, "--samples", 2, "--json").stdout)
    assert polopt("gate", evaluated, write(tmp_path, MET)).exit_code in (0, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- {attribute: a, metric: m, op: '>', threshold: 1}", "requirements.0.op = '>': expected '>=' or '<='"),
        ("- {attribute: a, metric: m, op: '>='}", "requirements.0.threshold is missing; add it"),
        ("- {attribute: a, metrc: m, op: '>=', threshold: 1}", "metrc is not a setting; did you mean 'metric'?"),
        ("- {attribute: a, metric: m, op: '>=', threshold: 1, expires: soon}", "requirements.0.expires = 'soon'"),
        ("requirement: []", "requirement is not a setting; did you mean 'requirements'?"),
        ("42", "expected settings by name, found 42"),
        ("- 42", "requirements.0 = 42"),
        ("[", "is not YAML"),
    ],
)
def test_a_bad_file_of_requirements_is_one_sentence(run: Path, tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "requirements.yaml").write_text(text)
    result = polopt("gate", run, tmp_path / "requirements.yaml")
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
    assert not (run / "gates.jsonl").exists()


def test_a_source_without_scores_is_refused(run: Path, tmp_path: Path) -> None:
    requirements = write(tmp_path, MET)
    for source, sentence in (
        (tmp_path / "none", "does not exist: give a run's folder, or a file of scores"),
        (tmp_path, "is not a run: it has no recipe.yaml"),
        (requirements, "holds no scores: give a run's folder"),
    ):
        result = polopt("gate", source, requirements)
        assert (result.exit_code, sentence in flat(result.stderr)) == (2, True), result.stderr
    (run / "evaluations.jsonl").write_text("")
    assert "has no evaluation of its end" in flat(polopt("gate", run, requirements).stderr)
    (run / "gates.jsonl").write_text("{}\n")
    assert polopt("gate", run, requirements).exit_code == 2
