"""The benchmark measures what it says: its arithmetic by hand, and each side on a tiny model."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import forked
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
    assert (shape.layers, shape.width, shape.queries) == (layers, d, d)


def test_floor_equals_a_token_by_token_count() -> None:
    """Every token counted on its own, in rows of equal length, where the floor is exact."""
    shape = Shape(matrix=100, head=30, total=150, layers=2, width=4, queries=12, prompt=3.0)
    prompts, rows, length = 2, 6, 5
    flops, cache = 0.0, 0.0
    # The mean context of n consecutive tokens is n / 2: sums of half-integers.
    for _ in range(prompts):
        flops += sum(2 * 100 + 4 * 2 * 12 * (i + 0.5) for i in range(3))
    for _ in range(rows):
        flops += sum((2 * 100 if i else 0) + 2 * 30 + 4 * 2 * 12 * (3 + i + 0.5) for i in range(length))
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
    found = table.about(Path(__file__).parents[2], threads=1)
    assert found["versions"]["torch"]
    assert len(found["commit"].split()[0]) >= 7


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """As on a GPU: bfloat16, checkpointing, answers that never stop, and a warm-up."""
    from benchmarks.gpu import QUICK, Session
    from benchmarks.language import Bench
    from benchmarks.random_model import make
    from polopt.worlds import build_tasks

    session = Session(Bench(tmp_path_factory.mktemp("gpu"), 1), QUICK, "cpu", 60.0, lambda results: None)
    spec = session.spec("tiny", QUICK.limit)
    make("tiny", build_tasks(spec.world, seed=1).train, Path(spec.model), device="cpu", dtype=spec.dtype)
    return dataclasses.replace(spec, threads=1, steps=2)


@pytest.mark.parametrize("side", ["polopt", "trl"])
def test_endless_answers_with_checkpointing(endless: Spec, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On both sides every row runs to the limit, no micro-batch is skipped and every layer is checkpointed."""
    import importlib

    import torch.utils.checkpoint

    from polopt.policies import checkpointing

    if side == "trl":
        pytest.importorskip("trl")
    calls, checkpoint = [], torch.utils.checkpoint.checkpoint

    def count(function: object, *args: object, **kwargs: object) -> object:
        calls.append(function)
        return checkpoint(function, *args, **kwargs)

    for place in (torch.utils.checkpoint, checkpointing, *_modules_with(checkpoint)):
        monkeypatch.setattr(place, "checkpoint", count)
    found = importlib.import_module(f"benchmarks.{side}_side").measure(endless)
    assert [step["tokens"] for step in found["steps"]] == [endless.rows * endless.limit] * 2
    assert endless.micro_rows is not None
    layers, micro_batches = 2, endless.rows // endless.micro_rows
    assert len(calls) == endless.steps * layers * micro_batches
    assert found["curve"] == []


def test_every_answer_is_paid_by_its_first_token() -> None:
    import torch

    from benchmarks.first_token import grpo
    from polopt import Experience

    tokens = torch.tensor([[7, 3, 500, 9], [7, 3, 250, -1], [7, 1000, 1, 2]])
    mask = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 0], [0, 1, 1, 1]]).bool()
    reward = grpo(kl=0.0).reward(Experience(mask=mask, extras={"tokens": tokens}))
    assert reward.tolist() == [0.5, 0.25, 1.0]


def _modules_with(checkpoint: object) -> list:
    import sys

    return [m for m in list(sys.modules.values()) if getattr(m, "__dict__", {}).get("checkpoint") is checkpoint]


def test_gpu_runs_end_to_end_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first measurement is a program of its own, the others are forks of this one, which begin sooner."""
    import json
    import runpy
    import sys
    from importlib.util import find_spec

    from benchmarks import gpu
    from benchmarks.language import Bench

    plain, modules = Bench.call, []

    def call(bench: Bench, module: str, order: object, timeout: float | None = None) -> dict:
        modules.append(module)
        if len(modules) == 1:
            return plain(bench, module, order, timeout)
        given, answer = bench.folder / "order.json", bench.folder / "answer.json"
        given.write_text(json.dumps(dataclasses.asdict(order) if dataclasses.is_dataclass(order) else order))
        monkeypatch.setattr(sys, "argv", [module, str(given), str(answer)])
        assert forked.alone(lambda: runpy.run_module(f"benchmarks.{module}", run_name="__main__")) == 0
        return json.loads(answer.read_text())

    monkeypatch.setattr(Bench, "call", call)
    asked = ["--device", "cpu", "--quick", "--threads", "1", "--output", str(tmp_path / "gpu")]
    monkeypatch.setattr(sys, "argv", ["gpu", *asked])
    gpu.main()
    assert len(set(modules)) == len(modules) == (4 if find_spec("trl") else 3)
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert [part["failed"] for part in found["parts"]] == [""] * len(found["parts"])
    sides = ["polopt", "trl"] if find_spec("trl") else ["polopt"]
    assert [run["side"] for run in found["models"]["tiny"]["runs"]] == sides
    text = (tmp_path / "gpu.md").read_text()
    for word in ("rollout, tokens/s", "learner, tokens/s", "bandwidth floor", "MFU", "TFLOP/s"):
        assert word in text
    assert "missing" not in text


class _Scripted:
    """A bench whose answers and failures are written down: (part of the model's folder, module, limit) -> what."""

    threads, folder = 1, Path("/nowhere")

    def __init__(self, failures: dict[tuple[str, str, int], Exception], sides: list[str]) -> None:
        self.failures, self.sides = failures, sides
        self.calls: list[tuple[str, str, int]] = []

    def call(self, module: str, order: object, timeout: float | None = None) -> dict:
        if module == "device":
            return {"flops": 1e12, "bandwidth": 1e9, "name": "NVIDIA H200", "cuda": "13"}
        if module == "random_model":
            return Shape(100, 30, 150, 2, 4, 12, 3.0).record()
        assert isinstance(order, Spec)
        key = (Path(order.model).name, module, order.limit)
        self.calls.append(key)
        if key in self.failures:
            raise self.failures[key]
        step = {"tokens": order.rows * order.limit, "longest": order.limit, "rollout": 2.0, "learn": 4.0, "whole": 7.0}
        return {"steps": [step], "gpu": {"allocated": 2**30, "reserved": 2**31, "held": 0}}


def _session(bench: _Scripted, seconds: float = 1000.0) -> tuple:
    from benchmarks.gpu import WHOLE, Session, markdown

    session = Session(bench, WHOLE, "cuda", seconds, lambda results: None)
    session.prepare()
    session.rounds(2, None)
    return session.results, markdown(session.results)


def test_what_is_too_much_for_trl_is_measured_on_both_at_a_quarter() -> None:
    import subprocess

    slow, full = subprocess.TimeoutExpired("trl", 3), SystemExit("...\ntorch.OutOfMemoryError: CUDA out of memory.")
    bench = _Scripted({("0.5B", "trl_side", 1024): slow, ("1.5B", "trl_side", 1024): full}, ["polopt", "trl"])
    _, text = _session(bench)
    first = [("polopt_side", 1024), ("trl_side", 1024), ("trl_side", 256), ("polopt_side", 256)]
    second = [("polopt_side", 1024), ("trl_side", 256), ("polopt_side", 256)]
    expected = [(name, *call) for half in (first, second) for name in ("0.5B", "1.5B") for call in half]
    assert bench.calls == expected
    for name in ("0.5B", "1.5B"):
        assert f"## {name}: 150 parameters, 1024 new tokens" in text
        assert f"## {name}: 150 parameters, 256 new tokens" in text
    assert "0.5B: trl, 1024 tokens: ended after" in text
    assert "1.5B: trl, 1024 tokens: torch.OutOfMemoryError: CUDA out of memory." in text


def test_one_side_that_fails_leaves_the_other() -> None:
    bench = _Scripted(
        {(n, "trl_side", 1024): SystemExit("No module named 'x'") for n in ("0.5B", "1.5B")}, ["polopt", "trl"]
    )
    _, text = _session(bench)
    assert [limit for *_, limit in bench.calls] == [1024] * 8
    assert text.count("| rollout, tokens/s | 131,072 | – | – |") == 2
    assert "No module named 'x'" in text


def test_nothing_is_begun_without_time() -> None:
    bench = _Scripted({}, ["polopt", "trl"])
    results, text = _session(bench, seconds=5.0)
    assert bench.calls == []
    assert all(part["failed"].startswith("not begun") for part in results["parts"])
    assert "ceilings: not begun" in text


def test_gpu_rates_by_hand() -> None:
    from benchmarks.gpu import rates

    shape = Shape(matrix=100, head=30, total=150, layers=2, width=4, queries=12, prompt=3.0)
    load = {"rows": 6, "group": 3}
    machine = {"flops": 1e5, "bandwidth": 1e4, "name": "NVIDIA H200", "cuda": "13"}
    step = {"tokens": 30, "longest": 5, "rollout": 2.0, "learn": 4.0, "whole": 7.0}
    run = {"steps": [step], "gpu": {"allocated": 3 * 2**30, "reserved": 4 * 2**30, "held": 0}}
    found = rates(run, {"load": load, "machine": machine}, shape)
    # 30 tokens behind 2 prompts of 3, in 6 rows of 5: contexts of 30 x 3 + 6 x 5² / 2 + 2 x 3² / 2.
    forward = 2 * 100 * (6 + 30 - 6) + 2 * 30 * 30 + 4 * 2 * 12 * (90 + 75 + 9)
    read = 2 * 130 * 5 + 2 * 2 * 2 * 4 * (90 + 75)
    assert (found["rollout"], found["learn"], found["step"], found["pass"]) == (15, 7.5, 7, 400)
    assert (found["allocated"], found["reserved"]) == (3, 4)
    assert found["mfu"] == pytest.approx(100 * 3 * forward / 4 / 1e5)
    assert found["mfu_sheet"] == pytest.approx(100 * 3 * forward / 4 / 989e12)
    assert found["bandwidth"] == pytest.approx(100 * read / 2 / 1e4)
    without = rates({**run, "gpu": None}, {"load": load, "machine": None}, shape)
    assert without.keys() == {"rollout", "learn", "whole", "step", "pass"}


def test_qwen2_has_the_published_number_of_parameters() -> None:
    """0.49 and 1.54 billion by the model cards, 151,936 of them rows of the vocabulary; queries share keys."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from benchmarks.random_model import QWEN2, SHAPES

    for name, billions, width, queries in [("0.5B", 0.49, 128, 896), ("1.5B", 1.54, 256, 1536)]:
        settings = {**QWEN2, **SHAPES[name]}
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
        shape = Shape.of(model, prompt=1.0)
        assert round(shape.total / 1e9, 2) == billions
        assert (shape.width, shape.queries) == (width, queries)
