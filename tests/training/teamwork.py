"""What the processes of a team do in the tests: each writes nothing but the one that leads.

teamwork.py FOLDER gradients KINDS     of GRADIENTS: every objective, and language policies whole and in pieces
teamwork.py FOLDER train STEPS         a run to its end, or to where it is stopped, and the tasks that it took
teamwork.py FOLDER cluster             a run of several learners and the workers of one
teamwork.py serve                      begins such teams itself, see `serve`; otherwise `torchrun` does
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "policies"), str(TESTS / "training")]

import forked  # noqa: E402
from cluster_runs import HereCrew  # noqa: E402
from learners import ALGORITHMS, batch_of, learner_of, prepared, stopping  # noqa: E402
from tiny_runs import Stop, StopAt, training_of  # noqa: E402

import polopt as po  # noqa: E402
from polopt.evaluation import Evaluation  # noqa: E402
from polopt.experience import Experience  # noqa: E402
from polopt.policies.sharded import ShardedPolicy, whole  # noqa: E402
from polopt.training import launch  # noqa: E402
from polopt.training.learner import Learner  # noqa: E402
from polopt.training.process_group import ProcessGroup, assemble  # noqa: E402
from polopt.training.recipe import load  # noqa: E402
from polopt.training.run import ReadOnlyRun  # noqa: E402
from polopt.training.source import LanguageSource  # noqa: E402


class Leaves(nn.Module):
    """A policy whose parameters are what it says of each decision of one batch."""

    def __init__(self, leaves: dict[str, Tensor]) -> None:
        super().__init__()
        self.said = nn.ParameterDict({k.replace(".", "/"): nn.Parameter(v.detach().clone()) for k, v in leaves.items()})

    def evaluate(self, experience: Experience, needs: Any = (), *, top: int = 0) -> Evaluation:
        row = experience.extras["row"]
        said = {k.replace("/", "."): v[row] for k, v in self.said.items()}
        extras = {k.removeprefix("extras."): v for k, v in said.items() if k.startswith("extras.")}
        plain: dict[str, Any] = {k: v for k, v in said.items() if not k.startswith("extras.")}
        return Evaluation(support=experience.support, extras=extras, **plain)


def objectives() -> dict[str, Any]:
    """Every row of the battery that is an objective."""
    tables = [importlib.import_module(file.stem) for file in sorted(TESTS.glob("rows_*.py"))]
    return {name: row for table in tables for name, row in getattr(table, "OBJECTIVES", {}).items()}


def slopes(policy: Any) -> dict[str, Tensor]:
    return {n: whole(p.grad).detach().clone() for n, p in policy.named_parameters() if p.grad is not None}


def of_objectives(team: ProcessGroup, micro_rows: int | None) -> dict[str, dict[str, Tensor]]:
    """The gradient of every objective with respect to all that is said of a ragged batch, in float64."""
    found = {}
    for name, row in objectives().items():
        batch = row.batch(1)
        policy = Leaves(batch.leaves)
        learner = learner_of(policy, po.Algorithm(objective=row.part), micro_rows=micro_rows)  # type: ignore[arg-type]
        learner = Learner(policy, learner.algorithm, learner.stage, torch.Generator().manual_seed(0), team)
        record = learner.update(batch.experience, 0)
        found[name] = {**slopes(policy), "loss": torch.tensor(record.get("loss", 0.0), dtype=torch.float64)}
    return found


# Plain, with a reference, with a statistic of the whole, with sums over the vocabulary, with a critic, of pairs.
POLICIES = ("grpo", "kl", "draw", "vocabulary", "critic", "pairs")


def of_policies(team: ProcessGroup, pieces: bool, dtype: str) -> dict[str, dict[str, Tensor]]:
    """The last gradient, and the weights, after two batches of two steps on groups of unlike lengths; something is
    asked of the policy before."""
    found = {}
    for name in POLICIES:
        algorithm = ALGORITHMS[name]
        made = stopping(dtype, critic=name == "critic")
        batch = prepared(made, algorithm, batch_of(made))
        keep = torch.tensor([0, 1, 2, 3, 4, 8, 9, 10])  # groups of 4, 1 and 3
        policy = ShardedPolicy.of(made) if pieces else made
        learner = learner_of(policy, algorithm, micro_rows=2, minibatches=2)
        learner = Learner(policy, learner.algorithm, learner.stage, torch.Generator().manual_seed(0), team)
        batch = learner.assess(batch[keep], frozenset({"old_logp"}), {})
        for step in range(2):
            learner.update(batch, step)
        weights = {f"weight {n}": whole(p.detach()) for n, p in policy.named_parameters()}
        found[name] = {**slopes(policy), **weights}
    return found


GRADIENTS: dict[str, Callable[[ProcessGroup], dict[str, dict[str, Tensor]]]] = {
    "objectives": lambda team: of_objectives(team, 2),
    "whole": lambda team: of_policies(team, False, "float64"),
    "pieces": lambda team: of_policies(team, True, "float64"),
    "float32": lambda team: of_policies(team, False, "float32"),
}


def train(folder: Path, stop: int | None) -> None:
    """A run, begun or resumed, stopped after the step of that number; the tasks it took go to taken.jsonl."""
    take, taken = LanguageSource.take, []

    def noted(self: LanguageSource, count: int) -> Tensor:
        found = take(self, count)
        taken.append(found.tolist())
        return found

    LanguageSource.take = noted  # type: ignore[method-assign]
    watchers = () if stop is None else (StopAt(stop),)
    try:
        if (folder / "run" / "recipe.yaml").exists():
            launch.resume(folder / "run", watchers=watchers)
        else:
            launch.train(folder / "recipe.yaml", folder / "run", watchers=watchers)
    except Stop:
        pass
    if os.environ.get("RANK", "0") == "0":
        with (folder / "taken.jsonl").open("a") as file:
            file.writelines(json.dumps(numbers) + "\n" for numbers in taken)


def learners(folder: Path, team: ProcessGroup) -> None:
    """A run of several learners on rollouts that one of them has from workers."""
    made = load(folder / "recipe.yaml")
    run = launch.create(made, folder / "run") if team.is_main else ReadOnlyRun(folder / "run")
    crew: Any = HereCrew(made) if team.is_main else None
    training_of(made, run, (), team, crew).run()


def work(place: str, name: str, *more: str) -> None:
    """What one process of a team does."""
    if name == "gradients":
        team = assemble("cpu")
        results = {kind: GRADIENTS[kind](team) for kind in more}
        if team.is_main:
            torch.save(results, Path(place) / "gradients.pt")
    elif name == "cluster":
        learners(Path(place), assemble("cpu"))
    else:
        train(Path(place), int(more[0]) if more else None)


def serve() -> None:
    """Begin a team for each line of standard input, [processes, arguments], and answer with how its processes ended.
    They find imported what takes most of their time."""
    importlib.import_module("transformers.models.gpt2.modeling_gpt2")
    for line in sys.stdin:
        processes, arguments = json.loads(line)
        codes = forked.run(processes, functools.partial(work, *arguments))
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve() if sys.argv[1:] == ["serve"] else work(*sys.argv[1:])
