"""Compiled steps of a policy and of networks beside it: the eager ones, with the same draws and the tensors of now."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from test_control_runs import Stop, StopAt, left_by
from torch import Tensor, nn

from polopt import compiled_steps
from polopt.algorithm import Algorithm
from polopt.catalogue import part
from polopt.compiled_steps import Columns, CompiledSteps, columns_of
from polopt.config import ConfigError
from polopt.errors import UserError
from polopt.experience import Experience
from polopt.policies.densities import sample_dirichlet
from polopt.sampling import Fragments
from polopt.training import recipe as recipes
from polopt.training.control.domain import ControlDomain
from polopt.training.control.recipe import ControlRecipe
from polopt.training.flat_updates import check_compiled
from polopt.training.launch import resume, train
from polopt.training.learner import Learner
from polopt.training.specs import StageSpec
from polopt.updates import AdamW, PlainSettings

REPLAYED = {"start": 40, "batch": 64, "steps": 2}
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sac": ("Pendulum-v1", "squashed_gaussian", {"hidden": [8]}),
    "td3": ("Pendulum-v1", "deterministic", {"hidden": [8]}),
    "dqn": ("CartPole-v1", "action_values", {}),
}


def made(name: str, **changes: Any) -> ControlRecipe:
    world, head, settings = METHODS[name]
    method = {"name": name, **REPLAYED, **settings}
    return ControlRecipe.require(
        recipes.load(
            "pendulum",
            {
                "environment": {"id": world},
                "policy": {"hidden": [8], "activation": "relu", "head": head},
                "stages.rl.method": method,
                "stages.rl.minibatches": 4,
                "stages.rl.steps": 3,
                "stages.rl.rows": 4,
                "evaluation": {"problems": 2, "quick": 2, "every": 2},
                "checkpoint": 1,
                "threads": 1,
                **changes,
            },
        )
    )


def left(name: str, eager: bool, folder: Path) -> tuple[list[Tensor], list[dict[str, float]]]:
    """Returns all weights and the metrics of two updates."""
    recipe = made(name, compiled=True)
    domain = ControlDomain(recipe)
    domain.use_folder(folder)
    algorithm, source = domain.algorithms["rl"], domain.source("rl")
    learner = Learner(domain.policy, algorithm, recipe.stages["rl"], torch.Generator().manual_seed(3))
    if eager:
        learner.flat_updates.compiled = False
    records = []
    for step in range(2):
        records.append(learner.update(algorithm.with_advantages(algorithm.sampling(source)), step))
    domain.close()
    tensors = {**dict(domain.policy.named_parameters()), **learner.networks.weights()}
    return [value.detach().clone() for value in tensors.values()], records


def assert_alike(name: str, folder: Path) -> None:
    (own, records), (other, expected) = (left(name, eager, folder / str(eager)) for eager in (False, True))
    for a, b in zip(own, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for record, known in zip(records, expected, strict=True):
        assert record == pytest.approx(known, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["sac", "td3", "dqn"])
def test_traced_steps_are_the_eager_ones(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same draws in the same order, over steps that change every network and its copy."""
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graph)
    assert_alike(name, tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_steps_are_the_eager_ones(tmp_path: Path) -> None:
    assert_alike("sac", tmp_path)


def test_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with one graph for all that a minibatch changes, and one for a decision."""
    graphs: list[Any] = []
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graphs.append(graph) or graph)
    whole = left_by(train(made("sac", compiled=True), tmp_path / "whole").folder)
    assert len(graphs) == 2
    with pytest.raises(Stop):
        train(made("sac", compiled=True), tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == whole


class Noisy:
    """A step of w along its mean gradient of w[order] x, plus noise of a generator, by AdamW's rule for RATE."""

    def __init__(self) -> None:
        self.w = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.unused = nn.Parameter(torch.ones(3))
        self.generator = torch.Generator().manual_seed(5)
        self.stepper = AdamW().begin([self.w, self.unused], PlainSettings(lr=0.1, weight_decay=0.3))

    def step(self, columns: Columns) -> dict[str, Any]:
        noise = torch.randn(2, generator=self.generator)
        order = torch.randperm(2, generator=self.generator)
        loss = ((self.w[order] + noise) * columns["x"][:, None]).sum()
        gradients = torch.autograd.grad(loss, [self.w, self.unused], allow_unused=True)
        self.w.grad, self.unused.grad = gradients
        self.stepper.step(loss.detach())
        return {"found": [loss.detach(), noise, order], "gradients": gradients, "name": "it"}

    def tensors(self) -> Columns:
        return {"w": self.w, "unused": self.unused, **self.stepper.tensors()}


def noisy(monkeypatch: pytest.MonkeyPatch) -> tuple[Noisy, CompiledSteps[dict[str, Any]]]:
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graph)
    made = Noisy()
    steps = CompiledSteps(made.step, made.tensors)
    steps.begin_batch()
    return made, steps


COLUMNS = {"x": torch.tensor([1.0, 2.0, 4.0])}


def test_draws_are_new_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the graph leaves the generator and the tensors where they were; each run moves them as an eager step."""
    made, steps = noisy(monkeypatch)
    other = Noisy()
    for _ in range(3):
        found, expected = steps("it", COLUMNS), other.step(COLUMNS)
        for a, b in zip(found["found"], expected["found"], strict=True):
            torch.testing.assert_close(a, b)
        assert found["gradients"][0].tolist() == [7.0, 7.0]
        assert found["gradients"][1] is None
        assert found["name"] == "it"
        torch.testing.assert_close(made.w, other.w)
    assert torch.equal(made.generator.get_state(), other.generator.get_state())
    assert torch.equal(made.unused, torch.ones(3))
    assert float(made.stepper.state()["0.step"]) == 3


def test_the_rule_of_a_graph_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """AdamW with weight decay and a rate that changes; a step whose norm is not finite changes nothing."""
    made, steps = noisy(monkeypatch)
    w = made.w.detach().clone().requires_grad_()
    optimiser = torch.optim.AdamW([w], lr=0.1, weight_decay=0.3)
    for scale, rate in ((1.0, 0.1), (-3.0, 0.05), (float("inf"), 0.05), (0.5, 0.2)):
        made.stepper.set_lr(rate)
        found = steps("it", {"x": scale * COLUMNS["x"]})
        if scale != float("inf"):
            optimiser.param_groups[0]["lr"], w.grad = rate, found["gradients"][0]
            optimiser.step()
        torch.testing.assert_close(made.w, w)
    assert float(made.stepper.state()["0.step"]) == 3


def test_changed_tensors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes in place at once, and other tensors from the next batch on; columns of another shape have their graph."""
    made, steps = noisy(monkeypatch)
    made.stepper.set_lr(0.0)

    def less_noise(columns: Columns) -> float:
        loss, noise, _ = steps("it", columns)["found"]
        return float(loss - columns["x"].sum() * noise.sum())

    assert less_noise(COLUMNS) == pytest.approx(35)
    with torch.no_grad():
        made.w.add_(1)
    assert less_noise(COLUMNS) == pytest.approx(49)
    assert less_noise({"x": COLUMNS["x"][:2]}) == pytest.approx(21)
    made.w = nn.Parameter(torch.zeros(2))
    steps.begin_batch()
    assert less_noise(COLUMNS) == pytest.approx(0, abs=1e-5)


def test_draws_whose_chances_depend_on_the_columns_are_refused() -> None:
    made = Noisy()

    def step(columns: Columns) -> Tensor:
        return torch.multinomial(columns["x"], 1, generator=made.generator)

    steps = CompiledSteps(step, made.tensors)
    steps.begin_batch()
    with pytest.raises(UserError, match=r"torch.multinomial, whose chances depend on the minibatch; set compiled"):
        steps("it", COLUMNS)


def test_draws_by_a_law_are_refused_wherever_the_generator_stands() -> None:
    """A beta distribution's sample, whose generator is no keyword."""
    made = Noisy()
    steps = CompiledSteps(lambda columns: sample_dirichlet(columns["x"], made.generator), made.tensors)
    steps.begin_batch()
    with pytest.raises(UserError, match=r"torch._sample_dirichlet, whose chances depend on the minibatch"):
        steps("it", COLUMNS)


def test_columns_are_all_tensors_of_a_batch() -> None:
    mask = torch.ones(2, 1, dtype=torch.bool)
    batch = Experience(
        mask=mask, outcome=torch.zeros(2), extras={"observation": torch.zeros(2, 2, 3), "answer": ["a", "b"]}
    )
    assert {*columns_of(batch)} == {"mask", "outcome", "extras.observation"}


def test_a_loss_with_state_is_refused() -> None:
    term = {"part": "objectives.EntropyBonus", "coefficient": {"part": "schedules.Schedule", "knots": [[0, 0.1]]}}
    with pytest.raises(ConfigError, match="needs an objective without state, found Schedule"):
        ControlDomain(made("sac", compiled=True, **{"stages.rl.but": {"networks.0.objective.regularise": [term]}}))


def test_networks_that_learn_from_rows_of_several_decisions_are_refused() -> None:
    played = part("sac").but(sampling=Fragments())
    assert isinstance(played, Algorithm)
    with pytest.raises(ConfigError, match=r"learn from single decisions, as those of .* found Fragments; set"):
        check_compiled(played, StageSpec(method="sac", steps=1, rows=1), "stages.rl", "cpu")
