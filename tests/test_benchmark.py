"""The benchmark measures what it says: its arithmetic by hand, and each side on a tiny model."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import table
from benchmarks.floors import Machine, Shape, floors
from benchmarks.spec import HERE, Spec, tiny

pytest.importorskip("transformers")
pytest.importorskip("reasoning_gym")


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    from benchmarks.prepare import speed_model
    from polopt.training import recipe as recipes

    laptop = recipes.load(changes={"tasks.train": 100, "tasks.heldout": 2})
    size = tiny(laptop.model_dump(mode="json"))
    folder = tmp_path_factory.mktemp("model")
    facts = speed_model(size, laptop, folder)
    assert abs(facts["length"] / size.length - 1) < 0.25
    tasks = {**laptop.tasks, "train": size.rows // size.group * size.steps, "heldout": 2}
    return Spec(
        model=str(folder),
        world={"kind": f"{HERE / 'world.py'}:speed", "tasks": tasks},
        rows=size.rows,
        group=size.group,
        limit=size.limit,
        steps=size.steps,
        minibatches=1,
        optimiser={"lr": 1e-6},
        threads=1,
        seed=1,
    )


def _plausible(found: dict, spec: Spec) -> None:
    assert len(found["steps"]) == spec.steps
    for step in found["steps"]:
        assert spec.rows <= step["tokens"] <= spec.rows * spec.limit
        assert 1 <= step["longest"] <= spec.limit
        assert 0 < step["rollout"] + step["learn"] < step["whole"]
        assert step["cpu"] > 0
    assert found["ready"] > 0


SPLITS = [{"minibatches": 1}, {"minibatches": 1, "micro_rows": 4}, {"minibatches": 2, "micro_rows": 4}]


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_polopt_side(spec: Spec, split: dict[str, int]) -> None:
    from benchmarks.polopt_side import measure

    spec = dataclasses.replace(spec, **split)
    _plausible(measure(spec), spec)


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_trl_side(spec: Spec, split: dict[str, int]) -> None:
    pytest.importorskip("trl")
    from benchmarks.trl_side import measure

    spec = dataclasses.replace(spec, **split)
    _plausible(measure(spec), spec)


def test_speed_world_pays_for_odd_lengths() -> None:
    from polopt.worlds import build_tasks

    world = {"kind": "reasoning-gym", "datasets": {"spell_backward": {"min_word_len": 3, "max_word_len": 3}}}
    tasks = build_tasks(
        {"kind": f"{HERE / 'world.py'}:speed", "tasks": {**world, "train": 3, "heldout": 2}}, seed=0
    ).train

    def reward(answer: str) -> float:
        episode = tasks.episode(tasks[0])
        episode.reset()
        return episode.step(answer).reward

    solution = tasks[0].solution
    assert solution is not None
    assert [reward("zz"), reward("z"), reward(solution)] == [0, 1, 1 + len(solution) % 2]


def test_shape_counts_gpt2_by_hand() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    d, layers, words, places = 8, 3, 11, 5
    model = GPT2LMHeadModel(GPT2Config(n_embd=d, n_layer=layers, n_head=2, vocab_size=words, n_positions=places))
    shape = Shape.of(model, prompt=2.0)
    assert shape.matrix == layers * 12 * d * d  # query, key, value, output: 4 d²; two of the MLP: 8 d²
    assert shape.head == words * d
    biases_and_norms = layers * (3 * d + d + 4 * d + d + 4 * d) + 2 * d
    assert shape.total == shape.matrix + shape.head + places * d + biases_and_norms
    assert (shape.layers, shape.width) == (layers, d)


def test_floor_equals_a_token_by_token_count() -> None:
    """Every token counted on its own, in rows of equal length, where the floor is exact."""
    shape = Shape(matrix=100, head=30, total=150, layers=2, width=4, prompt=3.0)
    prompts, rows, length = 2, 6, 5
    flops, cache = 0.0, 0.0
    # The mean context of n consecutive tokens is n / 2: sums of half-integers.
    for _ in range(prompts):
        flops += sum(2 * 100 + 4 * 2 * 4 * (i + 0.5) for i in range(3))
    for _ in range(rows):
        flops += sum((2 * 100 if i else 0) + 2 * 30 + 4 * 2 * 4 * (3 + i + 0.5) for i in range(length))
        cache += sum(4 * 2 * 2 * 4 * (3 + i + 0.5) for i in range(length))
    found = floors(shape, prompts, rows, {"tokens": rows * length, "longest": length}, Machine(flops=10, bandwidth=7))
    assert found["rollout"]["flops"] == pytest.approx(flops)
    assert found["rollout"]["bytes"] == pytest.approx(4 * 130 * length + cache)
    assert found["rollout"]["seconds"] == pytest.approx(max(flops / 10, (4 * 130 * length + cache) / 7))
    assert found["learn"]["seconds"] == pytest.approx(3 * flops / 10 + 28 * 150 / 7)


def test_ratio_and_first_time_at_the_target() -> None:
    assert table.ratio([(6, 2), (8, 2), (2, 2)], larger_is_better=True) == (3, 1, 4)
    assert table.ratio([(2, 6), (2, 8), (2, 2)], larger_is_better=False) == (3, 1, 4)
    run = {"curve": [(0.0, 0.5), (3.0, 0.79), (7.0, 0.8), (9.0, 0.7)]}
    assert table.reached(run, 0.8) == 7.0
    assert table.reached(run, 0.9) is None


def test_rates_leave_out_the_first_step() -> None:
    step = {"tokens": 10, "rollout": 2.0, "learn": 5.0, "whole": 10.0, "cpu": 4.0}
    run = {"steps": [{**step, "rollout": 1e9}, step, step], "peak": 5 * 2**20, "ready": 2 * 2**20}
    found = SimpleNamespace(**table.rates(run))
    assert (found.rollout, found.learn, found.whole, found.step) == (5.0, 2.0, 1.0, 10.0)
    assert (found.cpu, found.training, found.process) == (400.0, 3.0, 5.0)


def test_about_names_the_commit_and_versions() -> None:
    found = table.about(Path(__file__).parents[1], threads=1)
    assert found["versions"]["torch"]
    assert len(found["commit"].split()[0]) >= 7
