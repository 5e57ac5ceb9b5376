"""Compiled passes of networks beside a policy: the eager ones, with the same draws and the tensors of now."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from test_control_runs import Stop, StopAt, left_by
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.catalogue import part
from polopt.config import ConfigError
from polopt.errors import UserError
from polopt.experience import Experience
from polopt.gradient_passes import GradientPass, GradientPasses, columns_of
from polopt.sampling import Fragments
from polopt.training import recipe as recipes
from polopt.training.control.domain import ControlDomain
from polopt.training.control.recipe import ControlRecipe
from polopt.training.flat_updates import check_compiled
from polopt.training.launch import resume, train
from polopt.training.learner import Learner
from polopt.training.specs import StageSpec

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


class StepByStep(GradientPasses):
    """Passes that count as compiled and are evaluated eagerly."""

    def __call__(self, name: Any, loss: Any, parameters: Sequence[nn.Parameter], batch: Experience) -> GradientPass:
        value, found = loss(batch)
        return GradientPass(torch.autograd.grad(value, parameters, allow_unused=True), value.detach(), found)


def left(name: str, eager: bool, folder: Path) -> tuple[list[Tensor], list[dict[str, float]]]:
    """Returns all weights and the metrics of two updates."""
    recipe = made(name, compiled=True)
    domain = ControlDomain(recipe)
    domain.use_folder(folder)
    algorithm, source = domain.algorithms["rl"], domain.source("rl")
    learner = Learner(domain.policy, algorithm, recipe.stages["rl"], torch.Generator().manual_seed(3))
    if eager:
        learner.networks.passes.__class__ = StepByStep
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
def test_traced_passes_are_the_eager_ones(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same draws in the same order, over steps that change every network and its copy."""
    monkeypatch.setattr(torch, "compile", lambda graph, **_: graph)
    assert_alike(name, tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_passes_are_the_eager_ones(tmp_path: Path) -> None:
    assert_alike("td3", tmp_path)


def test_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with one graph for each network that learns and one for the policy."""
    graphs: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda graph, **_: graphs.append(graph) or graph)
    whole = left_by(train(made("sac", compiled=True), tmp_path / "whole").folder)
    assert len(graphs) == 3
    with pytest.raises(Stop):
        train(made("sac", compiled=True), tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == whole


class Noisy(nn.Module):
    """w x plus noise of a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.unused = nn.Parameter(torch.ones(3))
        self.generator = torch.Generator().manual_seed(5)

    def forward(self, batch: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        noise = torch.randn(2, generator=self.generator)
        order = torch.randperm(2, generator=self.generator)
        return ((self.w[order] + noise) * batch.outcome[:, None]).sum(), {"noise": noise, "order": order}


def noisy(monkeypatch: pytest.MonkeyPatch) -> tuple[Noisy, GradientPasses, Experience]:
    monkeypatch.setattr(torch, "compile", lambda graph, **_: graph)
    module = Noisy()
    passes = GradientPasses({"it": module}, compiled=True)
    passes.begin_batch()
    mask = torch.ones(3, 1, dtype=torch.bool)
    return module, passes, Experience(mask=mask, outcome=torch.tensor([1.0, 2.0, 4.0]))


def test_draws_are_new_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the graph leaves the generator where it was, and each run moves it as an eager pass does."""
    module, passes, batch = noisy(monkeypatch)
    expected = torch.Generator().manual_seed(5)
    for _ in range(3):
        found = passes("it", module, [module.w, module.unused], batch)
        noise, order = torch.randn(2, generator=expected), torch.randperm(2, generator=expected)
        assert found.found["noise"].equal(noise)
        assert found.found["order"].equal(order)
        assert float(found.loss) == pytest.approx(7 * float(module.w.detach().sum() + noise.sum()))
        assert found.gradients[1] is None
        assert found.gradients[0] is not None
        assert found.gradients[0].tolist() == [7.0, 7.0]
    assert torch.equal(module.generator.get_state(), expected.get_state())


def test_changed_tensors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in place at once, and other tensors from the next batch on; a minibatch of another shape has its graph."""
    module, passes, batch = noisy(monkeypatch)

    def less_noise(batch: Experience) -> float:
        found = passes("it", module, [module.w], batch)
        return float(found.loss - float(batch.outcome.sum()) * found.found["noise"].sum())

    assert less_noise(batch) == pytest.approx(35)
    with torch.no_grad():
        module.w.add_(1)
    assert less_noise(batch) == pytest.approx(49)
    assert less_noise(batch[torch.tensor([0, 1])]) == pytest.approx(21)
    module.w = nn.Parameter(torch.zeros(2))
    passes.begin_batch()
    assert less_noise(batch) == pytest.approx(0, abs=1e-6)


def test_draws_whose_chances_depend_on_the_minibatch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module, passes, batch = noisy(monkeypatch)

    def loss(batch: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.multinomial(batch.outcome, 1, generator=module.generator) * module.w.sum(), {}

    with pytest.raises(UserError, match=r"torch.multinomial, whose chances depend on the minibatch; set compiled"):
        passes("other", loss, [module.w], batch)


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
