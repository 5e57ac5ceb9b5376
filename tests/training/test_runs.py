"""Whole runs: what they leave behind, that evaluation is pure, and that resuming is an equality."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import GUESS, Stop, StopAt, digits, lines, outcome, policy, recipe, training_of

from polopt.support import Support
from polopt.training import files
from polopt.training.episode_player import EpisodePlayer
from polopt.training.evaluate import evaluate
from polopt.training.launch import create, resume, train
from polopt.training.run import Run, RunError

# Two stages, several steps per batch, a reference policy, and a baseline that remembers.
FULL: dict[str, Any] = {
    "stages": {
        "warmup": {"method": "sft", "steps": 5, "rows": 8, "optimiser": {"lr": 0.01}},
        "rl": {
            "method": {"name": "grpo", "kl": 0.1},
            "but": {
                "credit.baseline": {"part": "credit.MovingAverage"},
                "credit.scale": None,
            },
            "steps": 7,
            "rows": 8,
            "group": 4,
            "epochs": 2,
            "minibatches": 2,
            "micro_rows": 3,
            "optimiser": {"lr": 0.005, "decay": "cosine", "warmup": 2},
        },
    },
    "evaluation": {"problems": 8, "quick": 4, "every": 3},
}


LONG: dict[str, Any] = FULL | {
    "stages": {
        "warmup": FULL["stages"]["warmup"] | {"steps": 12},
        "rl": FULL["stages"]["rl"] | {"steps": 50},
    },
    "evaluation": {"problems": 8, "quick": 4, "every": 7},
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(recipe(**FULL), folder)
    return outcome(folder)


def test_checkpointing_changes_memory_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a new policy and of a loaded one: every layer is checkpointed and the run ends with the same bytes."""
    from polopt.policies import checkpointing

    again, checkpoint = [], checkpointing.checkpoint
    monkeypatch.setattr(checkpointing, "checkpoint", lambda *a, **k: (again.append(1), checkpoint(*a, **k))[1])
    small = {"stages": {"rl": {"method": "grpo", "steps": 2, "rows": 8, "group": 4, "micro_rows": 4}}}
    for name, source in [("new", recipe().policy.config), ("loaded", str(tmp_path / "new-False/run/policy"))]:
        found = []
        for keeps in (False, True):
            settings = {("config" if name == "new" else "model"): source, "checkpointing": keeps}
            again.clear()
            train(recipe(**small, policy=settings), tmp_path / f"{name}-{keeps}" / "run")
            found.append(outcome(tmp_path / f"{name}-{keeps}" / "run"))
            assert bool(again) == keeps
        assert found[0] == found[1]


def test_what_a_run_leaves_behind(undisturbed: dict[str, Any]) -> None:
    metrics = undisturbed["metrics"]
    assert [m["step"] for m in metrics] == list(range(12))
    assert [(m["stage"], m["stage_step"]) for m in metrics] == [("warmup", i) for i in range(5)] + [
        ("rl", i) for i in range(7)
    ]
    assert all(m["rows"] == 8 for m in metrics)
    assert [m["lr"] for m in metrics[5:8]] == pytest.approx([0.0025, 0.005, 0.005])
    assert undisturbed["position"] == {"step": 12, "stage": "rl", "stage_step": 7, "position": 14}
    when = [(e["step"], e["stage"], e["when"], e["problems"]) for e in undisturbed["evaluations"]]
    assert when == [
        (3, "warmup", "during", 4),
        (5, "rl", "before", 8),
        (8, "rl", "during", 4),
        (11, "rl", "during", 4),
        (12, "rl", "after", 8),
    ]
    assert {s["when"] for s in undisturbed["samples"]} == {"before", "after"}
    assert metrics[-1]["ReferenceKL"] > 0


@pytest.mark.parametrize("at", [0, 4, 5, 8, 11])
def test_resuming_is_an_equality(at: int, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """Stopped before any checkpoint, at a stage's last and first step, between checkpoints, at the very end."""
    with pytest.raises(Stop):
        train(recipe(**FULL), tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_a_finished_run_resumes_to_itself(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    train(recipe(**FULL), tmp_path / "run")
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed
    assert json.loads((tmp_path / "run" / "run.json").read_text())["finished"]


def test_a_recipe_object_holds_no_state(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """The same object twice: what the first run's baseline learnt is not the second's."""
    same = recipe(**FULL)
    train(same, tmp_path / "first")
    train(same, tmp_path / "second")
    assert outcome(tmp_path / "first") == outcome(tmp_path / "second") == undisturbed


def test_another_seed_is_another_run(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    train(recipe(**FULL, seed=1), tmp_path / "run")
    assert outcome(tmp_path / "run")["metrics"] != undisturbed["metrics"]


def forked(work: Callable[[], Any], kill_after: float | None = None, growing: Path | None = None) -> int:
    """Run `work` in a child process; its wait status. With `kill_after` it gets SIGKILL that many seconds after its
    beginning, or after this file has grown."""
    size = growing.stat().st_size if growing is not None and growing.exists() else 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    while growing is not None and not (growing.exists() and growing.stat().st_size > size):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.002)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def start_or_resume(folder: Path) -> Any:
    return resume(folder) if (folder / "recipe.yaml").exists() else train(recipe(**LONG), folder)


def die_at(calls: int) -> None:
    """From here on, kill this process at the `calls`-th operation on files that makes a checkpoint."""
    left = [calls]

    def deadly(operation: Callable[..., Any], half: Callable[..., Any] | None = None) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                if half is not None:
                    half(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*args, **kwargs)

        return wrapped

    files.save_file = deadly(files.save_file, lambda _, path: Path(path).write_bytes(b"half a file"))
    files.sync = deadly(files.sync)
    shutil.rmtree = deadly(shutil.rmtree, lambda path, **_: (Path(path) / "state.safetensors").unlink(missing_ok=True))
    Path.rename = deadly(Path.rename)  # type: ignore[method-assign]


def test_killed_at_any_instant(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """SIGKILL at random instants and inside the writing of checkpoints: the same bytes in the end.

    `undisturbed` is asked for so that whatever a run imports is there before this process forks.
    """
    whole, folder, clock = tmp_path / "whole", tmp_path / "run", random.Random(0)
    seconds = []
    for _ in range(2):  # the second time there is nothing left to do but to get ready
        start = time.perf_counter()
        assert forked(lambda: start_or_resume(whole)) == 0
        seconds.append(time.perf_counter() - start)
    ready, step = seconds[1], (seconds[0] - seconds[1]) / 62
    kills, inside, lengths = 0, 0, []
    while kills < 28:
        if kills % 2:  # the files of one checkpoint are about a dozen operations
            calls = clock.randrange(1, 20)

            def work(calls: int = calls) -> None:
                die_at(calls)
                start_or_resume(folder)

            status = forked(work)
        elif kills % 8:  # in the steps after the next
            status = forked(lambda: start_or_resume(folder), clock.uniform(0, 4 * step), folder / "metrics.jsonl")
        else:
            status = forked(lambda: start_or_resume(folder), clock.uniform(0.5 * ready, ready))
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL, "the child failed by itself"
        inside += kills % 2
        kills += 1
        lengths.append(len(Run(folder).read("metrics")))
    assert forked(lambda: start_or_resume(folder)) == 0
    assert kills >= 20
    assert inside >= 8
    assert len(set(lengths)) >= 8  # they were spread over the run
    assert any(later < earlier for earlier, later in itertools.pairwise(lengths))  # and cost steps, done again
    assert outcome(folder) == outcome(whole)


def test_a_torn_checkpoint_and_torn_logs_are_ignored(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    with pytest.raises(Stop):
        train(recipe(**FULL), tmp_path / "run", watchers=(StopAt(8),))
    draft = tmp_path / "run" / "checkpoints" / ".draft-123"
    draft.mkdir()
    (draft / "state.safetensors").write_bytes(b"torn")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "los')
    assert [m["step"] for m in Run(tmp_path / "run").read("metrics")] == list(range(9))
    resume(tmp_path / "run")
    assert not draft.exists()
    assert outcome(tmp_path / "run") == undisturbed
    kept = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["00000011", "00000012"]


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(recipe(), tmp_path, watchers=(StopAt(0),))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(RunError, match="holds a run of another recipe: seed 0 -> 1; name another folder"):
        train(recipe(seed=1), tmp_path)
    with pytest.raises(RunError, match="holds a run already"):
        create(recipe(), tmp_path)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    with pytest.raises(RunError, match="is not a run"):
        resume(tmp_path / "nowhere")


def test_any_text_survives_the_logs(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "seed: 0\n", {})
    records = [{"text": "a\u2028b\u0085c\x0b\nd"}, {"text": "é"}]
    for record in records:
        run.log("samples", record)
    assert run.read("samples") == records
    assert run.read("metrics") == []


def numbers() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())]


def test_evaluation_is_pure(tmp_path: Path) -> None:
    """F11: modes, random numbers, baselines, clocks and weights are the same before and after."""
    training = training_of(recipe(**FULL), Run.create(tmp_path, "", {}))
    made = training.domain.policy
    for mode in (True, False):
        made.train(mode)
        modes = {name: m.training for name, m in made.named_modules()}
        weights = {k: v.clone() for k, v in made.state_dict().items()}
        state = [training.domain.sampling.get_state().tolist(), training.shuffling.get_state().tolist(), numbers()]
        buffers = {n: {k: v.tolist() for k, v in a.state_dict().items()} for n, a in training.domain.algorithms.items()}
        training._evaluate("rl", "before", 8)
        assert {name: m.training for name, m in made.named_modules()} == modes
        assert all(torch.equal(v, weights[k]) for k, v in made.state_dict().items())
        assert [
            training.domain.sampling.get_state().tolist(),
            training.shuffling.get_state().tolist(),
            numbers(),
        ] == state
        assert buffers == {
            n: {k: v.tolist() for k, v in a.state_dict().items()} for n, a in training.domain.algorithms.items()
        }
        assert all(p.grad is None for p in made.parameters())


def test_evaluating_more_often_changes_no_weight(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    evaluation = {"problems": 8, "quick": 3, "every": 1, "samples": 2, "k": [2]}
    train(recipe(**(FULL | {"evaluation": evaluation})), tmp_path / "run")
    often = outcome(tmp_path / "run")
    assert len(often["evaluations"]) > len(undisturbed["evaluations"])
    for key in ("policy", "state", "metrics", "position"):
        assert often[key] == undisturbed[key]


def test_accuracy_by_hand() -> None:
    made = policy("float32")
    bias = torch.zeros(len(made.tokenizer))
    bias[made.tokenizer.convert_tokens_to_ids([*"02468"])] = 6.0
    bias[made.tokenizer.eos_token_id] = 7.5
    made.model.lm_head.bias = torch.nn.Parameter(bias)
    heldout = digits(10, 0).heldout
    tasks = [heldout[i] for i in range(20)]
    player = EpisodePlayer(made, heldout, 3)
    clock = dict(player.seconds)
    found = evaluate(player, tasks, samples=4, k=(2, 4), support=Support(temperature=1.2), seed=3)
    assert player.seconds == clock
    assert [row.task for row in found.rows] == [t for t in tasks for _ in range(4)]
    right = [sum(r.reward >= 1 for r in found.rows[i : i + 4]) for i in range(0, 80, 4)]
    assert len(set(right)) > 2
    assert found.overall[1].estimate == pytest.approx(sum(right) / 80)
    # At least one right among two of four: all pairs but those of two wrong ones.
    pairs = [1 - (4 - c) * (3 - c) / 12 for c in right]
    assert found.overall[2].estimate == pytest.approx(sum(pairs) / 20)
    assert found.overall[4].estimate == pytest.approx(sum(c > 0 for c in right) / 20)
    assert found.kinds["digit"] == (found.overall[1], 20)
    again = evaluate(player, tasks, samples=4, k=(2, 4), support=Support(temperature=1.2), seed=3)
    assert again.record() == found.record()
    assert found.record()["length/mean"] == pytest.approx(sum(sum(r.decided) for r in found.rows) / 80)


def test_episodes_of_many_turns_are_learnt_from(tmp_path: Path) -> None:
    """Demonstrations, then RL on guessing a number: every number in the log is that of an episode."""
    config = {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 96,
        "initializer_range": 0.1,
    }
    stages = {
        "warmup": {"method": "sft", "steps": 50, "rows": 16, "optimiser": {"lr": 0.01, "warmup": 5}},
        "rl": {"method": {"name": "grpo", "kl": 0.0}, "steps": 12, "rows": 32, "group": 8, "optimiser": {"lr": 0.003}},
    }
    train(
        recipe(
            policy={"config": config}, tasks=GUESS, stages=stages, limit=4, evaluation={"problems": 10, "samples": 8}
        ),
        tmp_path / "run",
    )
    result = outcome(tmp_path / "run")
    warmup, rl = result["metrics"][:50], result["metrics"][50:]
    assert warmup[-1]["loss"] < 0.3 * warmup[0]["loss"]
    for record in rl:
        assert record["rows"] == 32
        assert record["outcome/mean"] == record["outcome/guess-number"]
        assert 0 <= record["outcome/mean"] * 32 == pytest.approx(round(record["outcome/mean"] * 32))
        assert record["length/max"] <= 3 * 4
        assert record.get("mismatch/max", 0) < 1e-3
    before, after = result["evaluations"][0], result["evaluations"][-1]
    assert (before["when"], after["when"]) == ("before", "after")
    assert before["pass@1"]["estimate"] > 0.3
    shown = result["samples"][0]
    assert len(shown["tokens"]) == len(shown["logp"]) == len(shown["decided"])


def test_rl_learns_what_pays(tmp_path: Path) -> None:
    """Demonstrations show any digit; only even ones pay in full. Chance is 0.5, and RL must leave it far behind."""
    stages = {
        "warmup": {"method": "sft", "steps": 60, "rows": 32, "optimiser": {"lr": 0.03, "warmup": 5}},
        "rl": {"method": {"name": "grpo", "kl": 0.0}, "steps": 40, "rows": 64, "group": 16, "optimiser": {"lr": 0.01}},
    }
    train(recipe(stages=stages, evaluation={"problems": 20, "samples": 16}, checkpoint=100), tmp_path / "run")
    before, after = lines(tmp_path / "run", "evaluations")
    assert 0.25 < before["pass@1"]["estimate"] < 0.7
    assert after["pass@1"]["estimate"] > 0.9
    rewards = [m["reward/mean"] for m in lines(tmp_path / "run", "metrics")[60:]]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.1
