"""polopt measure."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from command import flat, polopt

PLAIN = ["episode", "step", "state", "action", "reward", "behaviour_probability", "target_probability"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """200 episodes of one decision in one state: action 1 pays 1 and noise, the target takes it four times in five."""
    draw = random.Random(0)
    lines = []
    for episode in range(200):
        action = int(draw.random() < 0.5)
        target = 0.8 if action else 0.2
        lines.append(
            json.dumps(dict(zip(PLAIN, [episode, 0, "s", action, action + draw.gauss(0, 1), 0.5, target], strict=True)))
        )
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    return tmp_path / "log.jsonl"


@pytest.mark.parametrize("slug", ["pdis", "wis", "doubly-robust"])
def test_a_log_is_measured(log: Path, slug: str) -> None:
    result = polopt("measure", slug, log, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    interval = found["intervals"]["estimate"]
    assert interval["low"] < 0.8 < interval["high"]
    assert interval["n"] == 200
    assert found["cautions"] == []
    text = flat(polopt("measure", slug, log).output)
    for word in ("estimate", "effective sample size", "largest weight", "mean return of the log"):
        assert word in text


def test_settings_and_columns(log: Path) -> None:
    log.write_text(log.read_text().replace("target_probability", "pi"))
    theirs = ["--column", "target_probability=pi"]
    result = polopt(
        "measure", "pdis", log, "--column", "target_probability=pi", "--set", "self_normalised=true", "--json"
    )
    assert result.exit_code == 0, result.output
    settings = ["--set", "model={part: metrics.TabularValues, ridge: 1}", *theirs]
    assert polopt("measure", "doubly-robust", log, *settings).exit_code == 0
    own = log.with_name("own.py")
    own.write_text(
        "from polopt.metrics import DirectMethod, Metric\n\ndef direct(gamma: float = 1.0) -> Metric:\n"
        "    return DirectMethod(gamma=gamma, resamples=5)\n"
    )
    assert polopt("measure", f"{own}:direct", log, *theirs).exit_code == 0


def test_a_weak_log_is_cautioned(log: Path) -> None:
    log.write_text("\n".join(log.read_text().splitlines()[:10]))
    output = flat(polopt("measure", "pdis", log).output)
    assert "Caution: the weights leave" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["grpo"], "'grpo' is an algorithm, expected a metric; run it as polopt train --method grpo"),
        (["pdiss"], "there is no method 'pdiss'; did you mean 'pdis'?"),
        (["pdis", "--set", "gama=1"], "has no setting 'gama'; did you mean 'gamma'?"),
        (["pdis", "--set", "gamma=2"], "gamma must be in [0, 1], found 2"),
        (["pdis", "--column", "reward"], "--column reward: expected name=column"),
        (["pdis", "--column", "reward=pay"], "column 'pay' is missing"),
        (["doubly-robust", "--set", "model={part: metrics.LoggedValues}"], "reads q, v of each decision"),
    ],
)
def test_mistakes_get_a_sentence(log: Path, arguments: list[str], sentence: str) -> None:
    result = polopt("measure", arguments[0], log, *arguments[1:])
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)


def test_a_file_that_is_not_there_or_not_a_log(tmp_path: Path) -> None:
    assert "does not exist" in flat(polopt("measure", "pdis", tmp_path / "no.jsonl").stderr)
    (tmp_path / "log.csv").write_text("episode,step\n1,0\n")
    result = polopt("measure", "pdis", tmp_path / "log.csv")
    assert result.exit_code == 2
    assert "line 2: column 'reward' is missing" in flat(result.stderr)


def test_pages_with_and_without_a_bound(log: Path, tmp_path: Path) -> None:
    """Of a log the page has numbers alone; of two rewards the plot of their regret."""
    page = tmp_path / "log.html"
    result = polopt("measure", "wis", log, "--html", page)
    assert result.exit_code == 0, result.output
    assert "effective sample size" in page.read_text()
    rewards = [
        {"state": s, "action": a, "next_state": t, "probability": 0.5, "reward": s + a, "other_reward": s - a + t}
        for s in range(2)
        for a in range(2)
        for t in range(2)
    ]
    table = tmp_path / "rewards.jsonl"
    table.write_text("\n".join(map(json.dumps, rewards)))
    result = polopt("measure", "starc", table, "--html", tmp_path / "starc.html")
    assert result.exit_code == 0, result.output
    assert "Report" in result.output
    assert "0 of 200" in (tmp_path / "starc.html").read_text()


def test_policies_of_one_log(log: Path, tmp_path: Path) -> None:
    """One that is better, one that the log cannot tell about, and their page."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:
        row["other"] = 0.01
    file, page = tmp_path / "policies.jsonl", tmp_path / "page.html"
    file.write_text("\n".join(map(json.dumps, rows)))
    given = [
        "--policy",
        "same=behaviour_probability",
        "--policy",
        "target=target_probability",
        "--policy",
        "other=other",
    ]
    found = json.loads(polopt("measure", "pdis", file, *given, "--json").stdout)
    assert found["policies"].keys() == {"same", "target"}
    same = found["policies"]["same"]
    assert same["gain"]["estimate"] == pytest.approx(0.0, abs=1e-12)
    assert not same["better"]
    assert "with probability" in found["refused"]["other"]
    own = json.loads(polopt("measure", "pdis", file, "--json").stdout)
    assert found["policies"]["target"]["values"] == own["values"]
    shown = polopt("measure", "pdis", file, *given, "--html", page)
    assert "other cannot be estimated" in flat(shown.output)
    assert "Which policy is better" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["pdis", "--policy", "a"], "expected name=column, as in --policy careful=careful_probability"),
        (["pdis", "--policy", "a=b", "--policy", "a=c"], "the name a is there twice"),
        (["starc", "--policy", "a=b"], "leave out --policy"),
        (["pdis", "--policy", "a=nowhere"], "column 'nowhere' is missing"),
    ],
)
def test_policies_that_cannot_be_measured(log: Path, given: list[str], message: str) -> None:
    result = polopt("measure", given[0], log, *given[1:])
    assert result.exit_code == 2
    assert message in flat(result.output)


def test_tables_take_the_place_of_the_list(tmp_path: Path) -> None:
    """Of trials: letters in the terminal, in JSON and on the page, in each with the same cells."""
    draw = random.Random(0)
    file = tmp_path / "trials.csv"
    rates = {"good": 0.95, "bad": 0.2}
    file.write_text("policy,success\n" + "\n".join(f"{p},{draw.random() < rates[p]}" for _ in range(40) for p in rates))
    page = tmp_path / "trials.html"
    result = polopt("measure", "lbm-evaluation", file, "--html", page)
    assert result.exit_code == 0, result.output
    found = json.loads(polopt("measure", "lbm-evaluation", file, "--json").stdout)
    policies, pairs = found["tables"]
    assert [row[1] for row in policies["rows"]] == ["a", "b"]
    for table in (policies, pairs):
        for cell in (cell for row in table["rows"] for cell in row):
            assert cell in result.output
            assert cell in page.read_text()
        assert flat(table["caption"]) in flat(result.output)
