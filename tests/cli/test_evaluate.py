"""polopt evaluate: against the run's own numbers, and against counting by hand."""

import json
from pathlib import Path

import pytest
from command import flat, lines, polopt

from polopt.support import Support
from polopt.training.trained import evaluate_folder, load_policy


def test_it_counts_what_was_solved(trained: tuple[Path, str]) -> None:
    record = json.loads(polopt("evaluate", trained[0], "--samples", 4, "--k", "1,4", "--json").stdout)
    rows = evaluate_folder(trained[0], samples=4).rows
    solved = [[row.reward >= 1 for row in rows[i : i + 4]] for i in range(0, len(rows), 4)]
    assert record["problems"] == len(solved)
    assert record["pass@1"]["estimate"] == pytest.approx(sum(map(sum, solved)) / (4 * len(solved)))
    assert record["pass@4"]["estimate"] == pytest.approx(sum(map(any, solved)) / len(solved))
    assert record["pass@1"]["low"] <= record["pass@1"]["estimate"] <= record["pass@1"]["high"]
    assert sum(kind["problems"] for kind in record["kinds"].values()) == record["problems"]


def test_samples_are_as_many_as_k_asks_for(trained: tuple[Path, str]) -> None:
    record = json.loads(polopt("evaluate", trained[0], "--k", "1,2", "--problems", 5, "--json").stdout)
    assert (record["samples"], record["problems"]) == (2, 5)


def test_greedy_is_the_likeliest_answer(trained: tuple[Path, str]) -> None:
    first = json.loads(polopt("evaluate", trained[0], "--top-k", 1, "--seed", 1, "--json").stdout)
    second = json.loads(polopt("evaluate", trained[0], "--top-k", 1, "--seed", 2, "--json").stdout)
    assert first == second
    rows = evaluate_folder(trained[0], support=Support(top_k=1)).rows
    assert all(logp == 0 for row in rows for logp, decided in zip(row.logp, row.decided, strict=True) if decided)


def test_a_model_folder_needs_tasks(trained: tuple[Path, str], recipe: Path) -> None:
    model = trained[0] / "policy"
    refused = polopt("evaluate", model)
    assert refused.exit_code == 2
    assert "is a model without a recipe" in flat(refused.stderr)
    told = json.loads(polopt("evaluate", model, "--tasks", recipe, "--json").stdout)
    assert told == json.loads(polopt("evaluate", trained[0], "--json").stdout)


def test_the_table_shows_every_kind(trained: tuple[Path, str]) -> None:
    output = polopt("evaluate", trained[0], "--k", "1,2").output
    starts = [line.split()[0] for line in output.splitlines() if line.strip()]
    assert {"pass@1", "pass@2", "first", "last"} <= set(starts)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--k", "0"], "expected whole numbers from 1 up"),
        (["--k", "1,x"], "expected whole numbers from 1 up"),
        (["--k", "8", "--samples", "4"], "pass@8 needs samples >= 8, found 4"),
        (["--temperature", "0"], "temperature must be > 0 and finite, found 0.0; greedy is top_k=1"),
    ],
)
def test_a_mistake_gets_one_sentence(trained: tuple[Path, str], arguments: list[str], sentence: str) -> None:
    result = polopt("evaluate", trained[0], *arguments)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)


def test_a_folder_without_a_policy(tmp_path: Path) -> None:
    result = polopt("evaluate", tmp_path)
    assert result.exit_code == 2
    assert "holds no policy" in flat(result.stderr)
    (tmp_path / "recipe.yaml").write_text("seed: 0")
    assert "has not finished" in flat(polopt("evaluate", tmp_path).stderr)


def test_loaded_weights_are_the_trained_ones(trained: tuple[Path, str]) -> None:
    record = lines(trained[0], "samples")[-1]
    policy = load_policy(trained[0])
    assert policy.tokenizer.decode(policy.tokenizer(record["prompt"])["input_ids"], skip_special_tokens=True)
