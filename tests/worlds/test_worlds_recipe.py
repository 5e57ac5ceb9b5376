"""A world from a recipe's plain data."""

import json
from pathlib import Path

import pytest
import yaml

from polopt.worlds import Tasks, TaskSplit, build_tasks, parse_world


def first(tasks: Tasks) -> str:
    return tasks[0].prompt


def test_reasoning_gym() -> None:
    text = "{kind: reasoning-gym, datasets: {chain_sum: {max_terms: 2}, gcd: }, train: 50, heldout: 9}"
    split = build_tasks(yaml.safe_load(text), seed=4)
    assert (len(split.train), len(split.heldout)) == (50, 9)
    assert split.train.kinds == ["chain_sum", "gcd"]
    assert first(split.train) == first(build_tasks(yaml.safe_load(text), seed=4).train)
    assert first(split.train) != first(build_tasks(yaml.safe_load(text), seed=5).train)


def test_tasks_may_have_a_seed_of_their_own() -> None:
    """Whatever the seed of the run."""
    own = {"kind": "guess-number", "train": 5, "heldout": 2, "seed": 3}
    plain = {key: value for key, value in own.items() if key != "seed"}
    ids = lambda spec, seed: [task.id for task in (build_tasks(spec, seed=seed).train[i] for i in range(5))]  # noqa: E731
    assert ids(own, 1) == ids(own, 2) == ids(plain, 3) != ids(plain, 1)
    around = {"kind": "noisy", "of": own}
    assert ids(around, 1) == ids(own, 1)


def test_dataset(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"q": f"{i}?", "answer": str(i), "k": "odd"}) + "\n" for i in range(10)))
    spec = {"kind": "dataset", "path": str(path), "prompt": "q", "kind_field": "k", "heldout": 0.3}
    split = build_tasks({**spec, "verifier": {"verifier": "numeric", "tolerance": 1}}, seed=0)
    assert (len(split.train), len(split.heldout)) == (7, 3)
    assert split.heldout.kinds == ["odd"]
    task = split.train[0]
    episode = split.train.episode(task)
    episode.reset()
    assert episode.step(str(int(task.row["answer"]) + 1)).reward == 1


def test_guess_number() -> None:
    split = build_tasks({"kind": "guess-number", "high": 10, "turns": 4, "train": 5, "heldout": 2}, seed=0)
    assert (len(split.train), len(split.heldout)) == (5, 2)
    assert "from 1 to 10" in first(split.train)


OWN = """
from polopt.worlds import GuessNumber, TaskSplit

def split(high=9, *, seed):
    return GuessNumber.split(1, high, 3, train=4, heldout=2, seed=seed)

def wrong(seed):
    return [seed]
"""


def test_a_world_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    split = build_tasks({"kind": f"{path}:split", "high": 20}, seed=1)
    assert isinstance(split, TaskSplit)
    assert "from 1 to 20" in first(split.train)
    with pytest.raises(ValueError, match=r"world.hihg is not a setting of .*own.py:split; did you mean 'high'\?"):
        parse_world({"kind": f"{path}:split", "hihg": 20})
    with pytest.raises(ValueError, match="must return a TaskSplit, found list"):
        build_tasks({"kind": f"{path}:wrong"}, seed=1)
    with pytest.raises(ValueError, match=r"did you mean 'split'\?"):
        parse_world({"kind": f"{path}:splits"})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"kind": "reasoning-gim", "datasets": {}},
            r"world.kind = 'reasoning-gim' .*; did you mean 'reasoning-gym'\?",
        ),
        (
            {"datasets": {}},
            "world.kind is missing; give one of reasoning-gym, dataset, pairs, ranked, labelled, ",
        ),
        ({"kind": "reasoning-gym"}, "world.datasets is missing; add it"),
        (
            {"kind": "reasoning-gym", "dataset": {}},
            r"world.dataset is not a setting; did you mean 'datasets'\?",
        ),
        (
            {"kind": "reasoning-gym", "datasets": {"gcd": 3}},
            "world.datasets.gcd = 3: expected a valid dictionary",
        ),
        ({"kind": "reasoning-gym", "datasets": {}, "train": 0}, "world.train = 0: expected greater than or equal to 1"),
        (
            {"kind": "dataset", "path": "x", "heldout": [1]},
            r"world.heldout = \[1\]: expected .* number or .* string",
        ),
        ({"kind": "guess-number", "turns": "few"}, "world.turns = 'few': expected a valid integer"),
        ("guess-number", "world.kind is missing"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(spec: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_world(spec)  # type: ignore[arg-type]
