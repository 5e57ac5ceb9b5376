"""Whole runs of control policies: what is learned from, resuming, comparing, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from command import flat, polopt
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from tiny_runs import Stop, StopAt, lines

from polopt import compiled_steps
from polopt.config import ConfigError
from polopt.policies.network import NetworkPolicy
from polopt.training import recipe as recipes
from polopt.training.control.domain import ControlDomain
from polopt.training.control.recipe import ControlRecipe
from polopt.training.launch import resume, train
from polopt.training.learner import Learner

SMALL = {
    "threads": 1,
    "policy.hidden": [8],
    "stages.rl.steps": 4,
    "stages.rl.rows": 4,
    "stages.rl.epochs": 2,
    "stages.rl.minibatches": 2,
    "stages.rl.but.sampling": {"part": "sampling.Fragments", "steps": 16},
    "evaluation.problems": 3,
    "evaluation.quick": 2,
    "evaluation.every": 2,
    "checkpoint": 2,
}


def recipe(**changes: Any) -> ControlRecipe:
    return ControlRecipe.require(recipes.load("cartpole", SMALL | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("control") / "run"
    train(recipe(), folder)
    return folder


def left_by(folder: Path) -> dict[str, Any]:
    """What a run leaves behind that is not a clock time."""
    last = max(p for p in (folder / "checkpoints").iterdir() if p.name.isdigit())
    files = {"policy": folder / "policy" / "model.safetensors", "state": last / "state.safetensors"}
    logs = {name: lines(folder, name) for name in ("metrics", "evaluations", "rollouts")}
    return {**{name: path.read_bytes() for name, path in files.items()}, **logs}


def opened(made: ControlRecipe) -> tuple[ControlDomain, Learner, Any]:
    """The domain in float64, its learner, and a credited batch."""
    domain = ControlDomain(made)
    algorithm, stage = domain.algorithms["rl"], made.stages["rl"]
    batch = algorithm.sampling(domain.source("rl"))
    domain.policy.double()
    doubled = {k: v.double() if v.is_floating_point() else v for k, v in batch.extras.items()}
    batch = batch.replace(rollout_logp=batch.rollout_logp.double(), reward=batch.reward.double(), extras=doubled)
    learner = Learner(domain.policy, algorithm, stage, torch.Generator().manual_seed(0))
    batch = learner.assess(batch, algorithm.active_fields("reads"), {})
    return domain, learner, algorithm.with_advantages(batch)


def slopes(policy: NetworkPolicy) -> list[torch.Tensor]:
    return [p.grad.clone() for p in policy.parameters() if p.grad is not None]


def test_ppo_by_hand() -> None:
    """Loss and gradient of a batch, decision by decision: clipped ratio, lambda-return, entropy."""
    ppo = {"name": "ppo", "gamma": 0.9, "lam": 0.7, "kl": 0.0, "entropy": 0.05, "value": 0.3, "value_clip": None}
    domain, _, batch = opened(recipe(**{"stages.rl.method": ppo}))
    policy, algorithm = domain.policy, domain.algorithms["rl"]
    with torch.no_grad():
        for parameter in policy.parameters():  # off policy, so that some ratios are clipped
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    mask, terms = batch.mask, []
    advantage, target = torch.zeros_like(batch.value), torch.zeros_like(batch.value)
    for i in range(len(batch)):
        carry, ahead = 0.0, float(batch.final_value[i, -1])
        for t in reversed(mask[i].nonzero().flatten().tolist()):
            if batch.terminated[i, t]:
                carry, ahead = 0.0, 0.0
            elif batch.truncated[i, t] or t == mask.shape[1] - 1:
                carry, ahead = 0.0, float(batch.final_value[i, t])
            value = float(batch.value[i, t])
            carry = float(batch.reward[i, t]) + 0.9 * ahead - value + 0.9 * 0.7 * carry
            ahead, advantage[i, t], target[i, t] = value, carry, carry + value
    seen = advantage[mask]
    advantage = (advantage - seen.mean()) / (seen.std() + 1e-8)
    clipped = 0
    for i, t in mask.nonzero().tolist():
        state = batch.extras["observation"][i, t]
        law = torch.distributions.Categorical(logits=policy.actor(state))
        ratio = (law.log_prob(batch.extras["action"][i, t]) - batch.rollout_logp[i, t]).exp()
        clipped += bool((ratio - 1).abs() > 0.2)
        gain = torch.minimum(ratio * advantage[i, t], ratio.clamp(0.8, 1.2) * advantage[i, t])
        critic = 0.5 * (policy.critic(state)[0] - target[i, t]).square()
        terms.append(-gain + 0.3 * critic - 0.05 * law.entropy())
    assert 0 < clipped < len(terms)
    expected = torch.stack(terms).mean()
    said = policy.evaluate(batch, algorithm.objective.required_outputs)
    loss = algorithm.objective(batch, said).loss
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-7)
    ours = torch.autograd.grad(loss, list(policy.parameters()))
    for a, b in zip(ours, torch.autograd.grad(expected, list(policy.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    domain.close()


def test_micro_batches_add_up() -> None:
    found = []
    for rows in (4, 3, 1):
        once = {"stages.rl.epochs": 1, "stages.rl.minibatches": 1, "stages.rl.micro_rows": rows}
        domain, learner, batch = opened(recipe(**once))
        learner.stepper.step = lambda *_, **__: None  # type: ignore[method-assign]
        learner.update(batch, 0)
        found.append(slopes(domain.policy))
        domain.close()
    assert found[0]
    assert all(slope.abs().max() > 0 for slope in found[0][:2])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_killed_and_resumed_it_is_the_same_run(tmp_path: Path, finished: Path, at: int) -> None:
    with pytest.raises(Stop):
        train(recipe(), tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert left_by(tmp_path / "run") == left_by(finished)


def test_continuous_actions(tmp_path: Path) -> None:
    train(recipe(**{"environment": {"id": "Pendulum-v1"}, "stages.rl.steps": 2}), tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert records[-1]["return"]["estimate"] < 0
    assert NetworkPolicy.load(tmp_path / "run" / "policy").log_std is not None


@pytest.mark.parametrize("head", ["squashed_gaussian", "beta"])
def test_a_run_with_another_head_and_a_normaliser_goes_on(tmp_path: Path, head: str) -> None:
    made = recipe(**{"environment": {"id": "Pendulum-v1"}, "policy.head": head, "policy.normalise": True})
    whole = left_by(train(made, tmp_path / "whole").folder)
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == whole
    policy = NetworkPolicy.load(tmp_path / "run" / "policy")
    assert policy.head.name == head
    assert policy.normaliser is not None
    assert policy.normaliser.count == 4 * 4 * 16  # steps, rows, decisions: no episode ends so early


def test_a_run_whose_steps_are_traced_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With compiled: true, but for the compiler, which would take most of a minute."""
    made, compiled = recipe(compiled=True), []
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: compiled.append(graph) or graph)
    whole = left_by(train(made, tmp_path / "whole").folder)
    assert len(compiled) == 2  # a decision and a minibatch
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == whole


def test_two_methods_are_compared_in_returns(tmp_path: Path) -> None:
    changes = [("--set", f"{k}={json.dumps(v)}") for k, v in {**SMALL, "stages.rl.steps": 2}.items()]
    other = "{name: ppo, kl: 0.0, gamma: 0.5, value_clip: null}"
    first = "{name: ppo, kl: 0.0, value_clip: null}"
    options = ["--seeds", 2, "--recipe", "cartpole", "--run", tmp_path / "c", *(x for pair in changes for x in pair)]
    result = polopt("compare", first, other, *options)
    assert result.exit_code == 0, result.output
    finals = []
    for folder in sorted((tmp_path / "c").glob("*-seed-*")):
        last = json.loads((folder / "evaluations.jsonl").read_text().splitlines()[-1])
        finals.append(last["return"]["estimate"])
        assert f"{last['return']['estimate']:.1f}" in result.output
    assert len(finals) == 4
    written = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert sorted(x for m in written["methods"] for x in m["final"]) == sorted(finals)
    assert written["unit"] == "return"
    page = (tmp_path / "c" / "report.html").read_text()
    body = page[page.index("<body") :].partition("<script")[0]
    for text in (result.output, body):
        assert "eturn" in text
        assert "ccuracy" not in text
        assert "points" not in text
    assert "Held-out return while training" in page
    assert "Held-out accuracy" not in page
    assert "held-out accuracy" not in page


def test_a_run_is_evaluated_in_returns(finished: Path) -> None:
    found = json.loads(polopt("evaluate", finished, "--problems", 3, "--json").stdout)
    assert found["problems"] == len(found["returns"]) == 3
    assert found["return"]["estimate"] == pytest.approx(sum(found["returns"]) / 3)
    assert "mean return" in flat(polopt("evaluate", finished, "--problems", 3).output)
    refused = polopt("evaluate", finished, "--k", "1,2")
    assert refused.exit_code != 0
    assert "a control policy is evaluated in whole episodes" in flat(refused.output)


@pytest.mark.parametrize("command", ["chat", "export", "plan"])
def test_commands_for_language_policies(finished: Path, command: str) -> None:
    result = polopt(command, "cartpole" if command == "plan" else finished)
    assert result.exit_code not in (0, None), result.output
    assert "Traceback" not in result.output
    assert "kind language" in flat(result.output)
    assert "found control" in flat(result.output)
    assert len(flat(result.output)) < 400


class Odd(gymnasium.Env[Any, Any]):
    """An environment whose spaces are settings."""

    def __init__(self, observed: Any = None, decided: Any = None) -> None:
        self.observation_space = observed or Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = decided or Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.fixture
def odd() -> Iterator[None]:
    spaces = {"OddSeen-v0": {"observed": Dict({"a": Discrete(2)})}, "OddActs-v0": {"decided": MultiDiscrete([2, 3])}}
    for name, settings in spaces.items():
        gymnasium.register(name, entry_point=Odd, kwargs=settings)
    yield
    for name in spaces:
        del gymnasium.registry[name]


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"environment": {"id": "CartPoole-v1"}}, r"environment.id = 'CartPoole-v1' cannot be made: .*CartPole"),
        ({"environment": {"id": "CartPole-v1", "settings": {"gravity": 3}}}, r"CartPole-v1' cannot be made: .*gravity"),
        ({"environment": {"id": "OddSeen-v0"}}, r"'OddSeen-v0': observations must be a Box, or a Dict .* found Dict"),
        ({"environment": {"id": "OddActs-v0"}}, r"'OddActs-v0': actions must be Discrete or a Box, found MultiDisc"),
        (
            {"stages.rl": {"method": "grpo", "steps": 1, "rows": 64}},
            r"stages.rl: sampling.Rollouts samples answers to tasks, .* set",
        ),
        ({"stages.rl.but.credit": {"part": "methods.score.TurnAdvantage"}}, r"TurnAdvantage needs .*turn"),
        ({"stages.rl.but.credit": {"part": "credit.RelativeAdvantage"}}, r"ValueLoss needs value_target"),
        ({"policy.head": "beta"}, r"policy.head = 'beta' does not fit the environment's actions, 2 choices"),
        ({"stages.rl.row": 3}, r"stages.rl.row.*rows"),
        ({"limits": 3}, r"limits"),
        ({"evaluation.problem": 3}, r"evaluation.problem.*problems"),
        ({"environments": {"id": "x"}}, r"environments.*environment"),
    ],
)
def test_refused_before_anything_is_made(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        train(recipe(**changes), tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_no_cluster_and_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="a recipe of kind control has no workers on a cluster"):
        train(recipe(), tmp_path / "run", address="auto")
    from polopt.training.control.domain import open_domain
    from polopt.training.process_group import ProcessGroup

    team = ProcessGroup()
    team.size = 2
    with (
        pytest.raises(ConfigError, match="control train in one process, and torchrun started 2"),
        open_domain(recipe(), team, None),
    ):
        pass


def test_without_gymnasium(tmp_path: Path) -> None:
    """polopt, its recipes and language runs work; a control run is refused with what to install."""
    program = f"""
import sys
sys.modules["gymnasium"] = None
import polopt
from typer.testing import CliRunner
from polopt.cli.app import app
shown = CliRunner().invoke(app, ["recipes"])
assert shown.exit_code == 0 and "cartpole" in shown.output, shown.output
made = CliRunner().invoke(app, ["train", "smoke", "--dry-run", "--run", {str(tmp_path / "a")!r}])
assert made.exit_code == 0, made.output
refused = CliRunner().invoke(app, ["train", "cartpole", "--run", {str(tmp_path / "b")!r}])
assert refused.exit_code not in (0, None)
print(" ".join(refused.output.split()))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert "pip install 'polopt[control]'" in found.stdout
    assert "Traceback" not in found.stdout
    assert not (tmp_path / "b").exists()
