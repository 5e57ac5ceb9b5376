"""Processes that learn together, against one alone."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import teamwork
import torch
from safetensors.torch import load_file
from tiny_runs import MODEL, lines, outcome, recipe

from polopt.experience import Experience
from polopt.objectives import ReferenceKL
from polopt.training.partition import shares
from polopt.training.process_group import ProcessGroup
from polopt.training.run import Run

Server = subprocess.Popen[str]
HERE = Path(__file__).parent
# What is asked of so many processes: of four one has nothing to do, where policies have three groups of rows.
KINDS = {2: ("objectives", "whole", "pieces", "float32"), 4: ("whole", "pieces")}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A process that begins teams without importing anything anew."""
    command = [sys.executable, str(HERE / "teamwork.py"), "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.communicate(timeout=60)


def together(server: Server, processes: int, folder: Path, *work: object) -> None:
    """A team of forks of the server."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([processes, [str(folder), *map(str, work)]]) + "\n")
    server.stdin.flush()
    while not (line := server.stdout.readline()).startswith("["):
        assert line, "the server has ended"  # else a line of progress
    assert json.loads(line) == [0] * processes


def launched(processes: int, folder: Path, *work: object) -> None:
    """A team that torchrun begins."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    said = subprocess.run(
        [*launch, str(HERE / "teamwork.py"), str(folder), *map(str, work)],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert said.returncode == 0, said.stderr[-4000:]


@pytest.fixture(scope="module", params=KINDS)
def found(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What so many processes found."""
    folder = tmp_path_factory.mktemp("team")
    together(server, request.param, folder, "gradients", *KINDS[request.param])
    return torch.load(folder / "gradients.pt", weights_only=True)


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], rtol: float, atol: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(
            ours[name], value, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("found", [2], indirect=True)
def test_every_objective_has_the_gradient_of_the_whole(found: dict[str, Any]) -> None:
    alone = teamwork.of_objectives(ProcessGroup(), None)
    assert sum(any(g.abs().sum() > 0 for k, g in of.items() if k != "loss") for of in alone.values()) > 40
    ours = found["objectives"]
    assert ours.keys() == alone.keys()
    for name, theirs in alone.items():
        same(ours[name], theirs, rtol=1e-9, atol=1e-12)


@functools.cache
def gradients_alone(dtype: str) -> dict[str, dict[str, torch.Tensor]]:
    return teamwork.of_policies(ProcessGroup(), False, dtype)


@pytest.mark.parametrize(
    ("found", "kind", "dtype", "rtol", "atol"),
    [
        (2, "whole", "float64", 1e-8, 1e-11),
        (2, "pieces", "float64", 1e-8, 1e-11),
        (2, "float32", "float32", 1e-4, 1e-6),
        (4, "whole", "float64", 1e-8, 1e-11),
        (4, "pieces", "float64", 1e-8, 1e-11),
    ],
    indirect=["found"],
)
def test_language_policies_have_the_gradient_of_the_whole(
    found: dict[str, Any], kind: str, dtype: str, rtol: float, atol: float
) -> None:
    """Groups of 4, 1 and 3 rows: two processes have unlike shares, and of four one has nothing to do."""
    for name, theirs in gradients_alone(dtype).items():
        assert any(g.abs().max() > 1e-4 for k, g in theirs.items() if not k.startswith("weight")), name
        gradients = {k: v for k, v in theirs.items() if not k.startswith("weight")}
        same({k: found[kind][name][k] for k in gradients}, gradients, rtol, atol)
        if dtype == "float64":  # AdamW makes a step of a gradient that is nothing but float32's rounding
            for key in theirs.keys() - gradients.keys():
                torch.testing.assert_close(found[kind][name][key], theirs[key], rtol=0, atol=1e-6)


def test_shares_are_even_and_all_there_is() -> None:
    weights = [7, 0, 3, 3, 9, 1, 1, 4]
    found = shares(weights, 3)
    assert sorted(i for share in found for i in share.tolist()) == [0, 2, 3, 4, 5, 6, 7]
    loads = [sum(weights[i] for i in share.tolist()) for share in found]
    assert max(loads) == 10  # 28 in three shares of whole things: at best 10
    assert [len(share) for share in shares([5], 3)] == [1, 0, 0]


class Member(ProcessGroup):
    """One of several processes, which plans without asking the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_a_plan_counts_the_micro_batches_that_a_split_gives(size: int, rows: int) -> None:
    """Every row is one process's, groups are parted by neither, and a group of 4 is one pass where groups bind."""
    group = torch.tensor([0, 1, 0, 2, 0, 0, 1, 1])
    batch = Experience(mask=torch.ones(8, 3, dtype=torch.bool), group=group)
    active = torch.arange(8) != 6
    policy = torch.nn.Linear(1, 1)
    for binds, longest in (("row", rows), ("group", max(rows, 4))):
        found = [Member(rank, size).assign_rows(policy, batch, rows, active, binds) for rank in range(size)]
        assert torch.stack([mine for mine, _ in found]).sum(0).tolist() == active.int().tolist()
        for mine, passes in found:
            pieces = list(batch.split(rows, mine, binds))
            assert len(pieces) == passes
            assert all(len(piece) <= longest for piece in pieces)
            held = [set(piece.group.tolist()) for piece in pieces]
            assert binds == "row" or sum(map(len, held)) == len(set(group[mine].tolist()))


STAGES = {
    "warmup": {"method": "sft", "steps": 4, "rows": 8},
    "rl": {"method": {"name": "ppo"}, "steps": 6, "rows": 16, "group": 4, "minibatches": 2, "micro_rows": 3},
}


def begin(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    settings = recipe(stages=STAGES, checkpoint=2, **changes)
    (folder / "recipe.yaml").write_text(settings.to_yaml())
    return folder


def taken(folder: Path) -> list[int]:
    return [i for line in (folder / "taken.jsonl").read_text().splitlines() for i in json.loads(line)]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_goes_on_with_other_processes_and_the_same_tasks(server: Server, tmp_path: Path, parallel: str) -> None:
    """Two processes to the end; and from a checkpoint on with two, bit for bit, and with one. One alone takes the same
    tasks."""
    whole = begin(tmp_path / "whole", parallel=parallel, logging={"rollouts": 2})
    together(server, 2, whole, "train")
    rollouts = [(row["step"], row["group"]) for row in lines(whole / "run", "rollouts")]
    assert Counter(step for step, _ in rollouts) == {0: 8, 2: 8, 4: 16, 6: 16, 8: 16}, "those of both, once"
    assert Counter(group for step, group in rollouts if step == 4) == dict.fromkeys(range(4), 4)
    one = begin(tmp_path / "one", parallel=parallel, logging={"rollouts": 2})
    shutil.copytree(whole / "run", one / "run")
    for late in ("00000010", "policy", "report.html"):
        place = one / "run" / ("checkpoints" if late.isdigit() else "") / late
        shutil.rmtree(place, ignore_errors=True)
    assert Run(one / "run").checkpoint == 8
    again = tmp_path / "again"
    shutil.copytree(one, again)
    together(server, 2, again, "train")
    assert outcome(again / "run") == outcome(whole / "run")  # bit for bit
    teamwork.train(one, None)
    assert taken(one) == taken(again) == taken(whole)[-len(taken(one)) :]
    alone = begin(tmp_path / "alone", parallel=parallel)
    teamwork.train(alone, None)
    assert taken(alone) == taken(whole)
    assert [m["stage_step"] for m in lines(one / "run", "metrics")] == [*range(4), *range(6)]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_processes_hand_weights_and_data_from_stage_to_stage(server: Server, parallel: str, tmp_path: Path) -> None:
    """Stopped in the second round, they go on bit for bit; a stage that hardly learns ends with the mean it began
    with."""
    guided = {"objective.regularise": [ReferenceKL(anchor="guide"), ReferenceKL()]}
    mean = {"average": ["initial", {"stage": "sft"}]}
    stages = {
        "sft": {"method": "sft", "steps": 1, "rows": 8, "optimiser": {"lr": 0.03}},
        "search": {"method": "grpo", "but": guided, "steps": 1, "rows": 8, "group": 4, "writes": "found"}
        | {"policies": {"guide": mean, "reference": {"stage": "sft"}}},
        "learn": {"method": "sft", "steps": 1, "rows": 4, "start": mean, "data": {"stage": "search"}}
        | {"optimiser": {"lr": 1e-30}},
    }
    settings = {"policy": {"config": MODEL, "dtype": "float64"}, "checkpoint": 1, "rounds": 2, "parallel": parallel}
    for name in ("whole", "run"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text(recipe(stages=stages, **settings).to_yaml())
    together(server, 2, tmp_path / "whole", "train")
    together(server, 2, tmp_path / "run", "train", 4)
    together(server, 2, tmp_path / "run", "train")
    whole, again = tmp_path / "whole" / "run", tmp_path / "run" / "run"
    assert outcome(again) == outcome(whole)
    assert lines(whole, "written-found") == lines(again, "written-found")
    assert len(lines(whole, "written-found")) == 16
    names = ("initial", "end-sft.round-2", "policy/model")
    initial, end, last = (load_file(whole / f"{name}.safetensors") for name in names)
    assert any(not torch.equal(initial[name], end[name]) for name in end)
    for name, value in last.items():
        mean_of_both = (initial[f"model.{name}"] + end[f"model.{name}"]) / 2
        torch.testing.assert_close(value, mean_of_both, rtol=1e-14, atol=1e-14)


def test_several_learners_and_the_workers_of_one(tmp_path: Path) -> None:
    """Rollouts that one learner has from workers, a batch ahead, reach the other too: as one learner alone."""
    config = {"policy": {"config": MODEL, "dtype": "float64"}, "cluster": {"workers": 2, "ahead": 1}}
    both, alone = begin(tmp_path / "both", **config), begin(tmp_path / "alone", **config)
    launched(2, both, "cluster")
    teamwork.learners(alone, ProcessGroup())
    for ours, theirs in zip(lines(both / "run", "metrics"), lines(alone / "run", "metrics"), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours.keys() & {"rows", "tokens", "reward/mean", "loss", "grad_norm", "staleness/max"}:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-6, abs=1e-9), name
    assert lines(both / "run", "metrics")[-1]["staleness/max"] == 1
