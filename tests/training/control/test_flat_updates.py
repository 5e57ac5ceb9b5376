"""Updates on single decisions: beside updates on rows, without waiting for the device, compiled and not."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import pytest
import torch
from test_control_runs import opened, recipe

from polopt import compiled_steps
from polopt.compiled_steps import batch_of
from polopt.config import ConfigError
from polopt.credit import GAE, WhitenedAdvantage
from polopt.experience import Experience
from polopt.objectives import (
    AuxiliaryLoss,
    Clip,
    EntropyBonus,
    ForwardKL,
    Objective,
    OldPolicyRatio,
    PolicyGradient,
    SamplerKL,
    SequenceMean,
    SequenceRatio,
    Surrogate,
    TokenRatio,
    Unclipped,
    ValueLoss,
)
from polopt.part import Part
from polopt.schedules import Schedule
from polopt.training import flat_updates
from polopt.training.control.domain import ControlDomain
from polopt.training.flat_updates import can_be_flat, flat
from polopt.training.learner import DivergenceError, Learner

PPO = {"name": "ppo", "gamma": 0.9, "lam": 0.7, "kl": 0.0, "entropy": 0.05, "value": 0.3, "value_clip": 0.1}
ONCE = {"stages.rl.method": PPO, "stages.rl.epochs": 1, "stages.rl.minibatches": 1}
FLAT: list[Objective] = [
    Surrogate(regularise=[ValueLoss(), EntropyBonus(), SamplerKL()]),
    Surrogate(ratio=OldPolicyRatio(), trust=Unclipped(), regularise=[ForwardKL(), ValueLoss(clip=None)]),
    Surrogate(ratio=None, trust=PolicyGradient()),
    AuxiliaryLoss(regularise=[ValueLoss(coefficient=Schedule(knots=[(0, 1.0)]))]),
]
BOUND: list[Objective] = [
    Surrogate(ratio=SequenceRatio()),
    Surrogate(aggregate=SequenceMean()),
    Surrogate(regularise=[ValueLoss()], ratio=SequenceRatio(token=TokenRatio())),
]


def credited(**changes: Any) -> tuple[ControlDomain, Learner, Experience]:
    """A float64 batch with several masked decisions, and a policy that has moved since."""
    settings = ONCE | changes | {"environment": {"id": "CartPole-v1", "settings": {"max_episode_steps": 6}}}
    domain, learner, batch = opened(recipe(**settings))
    assert not batch.mask.all()
    mask = batch.mask.clone()
    mask[0, :9] = False  # rows of several lengths
    batch = batch.replace(mask=mask)
    with torch.no_grad():
        for parameter in domain.policy.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    domain.close()
    old = domain.policy.evaluate(batch).logp.detach() + 0.1
    return domain, learner, batch.replace(old_logp=old)


def gradients(domain: ControlDomain, objective: Objective, batch: Experience) -> list[Any]:
    said = domain.policy.evaluate(batch, objective.required_outputs)
    loss = objective(batch, said)
    slopes = torch.autograd.grad(loss.loss, [*domain.policy.parameters()], allow_unused=True)
    return [loss.loss, *loss.metrics.values(), *(s for s in slopes if s is not None)]


@pytest.mark.parametrize("objective", FLAT, ids=str)
def test_a_loss_of_decisions_is_that_of_rows(objective: Objective) -> None:
    domain, learner, batch = credited()
    assert can_be_flat(domain.policy, objective, batch, learner.networks)
    single = batch_of(flat(batch, objective.active_fields("reads")), batch.support)
    assert single.mask.shape == (batch.mask.numel(), 1)
    for a, b in zip(gradients(domain, objective, batch), gradients(domain, objective, single), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("objective", BOUND, ids=str)
def test_a_loss_that_binds_decisions_stays_in_rows(objective: Objective) -> None:
    domain, learner, batch = credited()
    assert not can_be_flat(domain.policy, objective, batch, learner.networks)
    single = batch_of(flat(batch, objective.active_fields("reads")), batch.support)
    own, other = gradients(domain, objective, batch), gradients(domain, objective, single)
    assert any(not torch.allclose(a, b) for a, b in zip(own, other, strict=True))  # the reason


def test_the_declaration_is_not_inherited() -> None:
    class Other(Clip):
        pass

    assert (Clip.binds, Other.binds, Part.binds) == ("decision", "row", "row")
    assert Surrogate(trust=Other()).binding == "row"


def test_one_update_is_that_of_rows() -> None:
    """AdamW's step on the whole batch; with micro_rows the learner keeps rows."""
    found = []
    for rows in (None, 4):
        domain, learner, batch = credited(**{"stages.rl.micro_rows": rows})
        record = learner.update(batch, 0)
        found.append(([p.detach().clone() for p in domain.policy.parameters()], record))
    (ours, record), (theirs, other) = found
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
    shared = record.keys() & other.keys()
    assert {"loss", "grad_norm", "clip_fraction", "ratio/max", "mismatch/kl"} <= shared
    for name in shared - {"mismatch/ess"}:  # of rows there, of decisions here
        assert record[name] == pytest.approx(other[name], rel=1e-7), name


def test_minibatches_hold_every_decision_once_an_epoch() -> None:
    columns = {"mask": torch.ones(10, 1, dtype=torch.bool), "advantage": torch.arange(10.0)[:, None]}
    g = torch.Generator().manual_seed(0)
    found: dict[int, list[Any]] = {}
    for epoch, part in flat_updates._minibatches(columns, 3, 4, g):
        found.setdefault(epoch, []).append(part["advantage"][:, 0].tolist())
    orders = [[x for part in parts for x in part] for parts in found.values()]
    assert [sorted(order) for order in orders] == [[float(i) for i in range(10)]] * 3
    assert orders[0] != orders[1]
    assert [len(p) for p in found[0]] == [3, 3, 2, 2]


def test_a_gradient_that_is_not_finite_moves_nothing() -> None:
    domain, learner, batch = credited()
    before = [p.detach().clone() for p in domain.policy.parameters()]
    with torch.no_grad():
        domain.policy.critic[-1].bias[0] = before[-1][0] = torch.inf
    with pytest.raises(DivergenceError, match=r"norm is (nan|inf), and a step with it would destroy"):
        learner.update(batch, 0)
    for parameter, value in zip(domain.policy.parameters(), before, strict=True):
        assert torch.equal(parameter, value)


def test_nothing_waits_for_the_device_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of a tensor's numbers in Python: as many for 12 steps as for 2."""
    reads = [0]
    for name in ("item", "tolist", "__float__", "__int__", "__bool__", "__index__", "nonzero", "cpu", "numpy"):
        own = getattr(torch.Tensor, name)

        def counted(self: Any, *args: Any, own: Any = own, **kwargs: Any) -> Any:
            reads[0] += 1
            return own(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, counted)
    counts = []
    for minibatches in (2, 4):
        _, learner, batch = credited(**{"stages.rl.epochs": 3, "stages.rl.minibatches": minibatches})
        learner.noise.see = lambda *_: None  # type: ignore[method-assign]
        learner.noise.scale = lambda: None  # type: ignore[method-assign]
        reads[0] = 0
        learner.update(batch, 0)
        counts.append(reads[0])
    assert counts[0] == counts[1]
    assert counts[0] > 0


def twin(compiled: bool) -> tuple[list[torch.Tensor], dict[str, float]]:
    domain, learner, batch = credited(**{"stages.rl.epochs": 2, "stages.rl.minibatches": 2})
    learner.flat_updates.compiled = compiled
    record = learner.update(batch, 0)
    return [p.detach().clone() for p in domain.policy.parameters()], record


def assert_twins() -> None:
    (own, record), (other, expected) = twin(True), twin(False)
    for a, b in zip(own, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    assert record == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_the_traced_graph_is_the_eager_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graph)
    assert_twins()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_compiled_graph_is_the_eager_pass() -> None:
    assert_twins()


def test_a_frozen_part_and_a_normaliser_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics and weights that do not learn are inputs of the graph: later changes of them count."""
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graph)
    found = []
    for compiled in (True, False):
        changes = {"policy.normalise": True, "stages.rl.train": "actor"}
        domain, learner, batch = credited(**changes)
        learner.flat_updates.compiled = compiled
        learner.update(batch, 0)
        assert domain.policy.normaliser is not None
        domain.policy.normaliser.observe(batch.extras["observation"][:, 0])
        domain.policy.normaliser.advance()
        with torch.no_grad():
            domain.policy.critic[0].bias.add_(1.0)
        found.append(learner.update(batch, 0))
    assert found[0] == pytest.approx(found[1], rel=1e-7, abs=1e-12)


SCHEDULE = {"part": "schedules.Schedule", "knots": [[0, 0.1]]}


@pytest.mark.parametrize(
    ("but", "sentence"),
    [
        ({"objective.ratio": {"part": "objectives.SequenceRatio"}}, "needs a loss of single decisions, found Sequence"),
        (
            {"objective.aggregate": {"part": "objectives.SequenceMean"}},
            "needs a loss of single decisions, found SequenceMean; set",
        ),
        (
            {"objective.regularise.0.coefficient": SCHEDULE},
            "needs an objective without state, found Schedule; set compiled to f",
        ),
    ],
)
def test_what_cannot_be_compiled_is_refused(but: dict[str, Any], sentence: str) -> None:
    made = recipe(compiled=True)
    stage = made.stages["rl"].model_copy(update={"but": {**made.stages["rl"].but, **but}})
    with pytest.raises(ConfigError, match=f"stages.rl: compiled: true {sentence}"):
        ControlDomain(made.model_copy(update={"stages": {"rl": stage}}))


def test_divided_minibatches_are_not_compiled() -> None:
    with pytest.raises(ConfigError, match=r"stages.rl.micro_rows = 2: compiled: true evaluates whole minibatches"):
        ControlDomain(recipe(compiled=True, **{"stages.rl.micro_rows": 2}))


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"compiled: true needs a C\+\+ compiler, and g\+\+ is not found"):
        ControlDomain(recipe(compiled=True))


def test_credit_is_not_flat() -> None:
    """Advantages are computed on rows before any decision becomes a row of its own."""
    assert {GAE.binds, WhitenedAdvantage.binds} == {"row"}
    assert copy.deepcopy(FLAT[0]).binding == "decision"


@pytest.mark.parametrize(
    "changes",
    [{"stages.rl.but.update": {"part": "updates.RMSprop"}}, {"stages.rl.method": {"name": "trpo"}}],
    ids=["rmsprop", "trpo"],
)
def test_other_update_rules_are_traced(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """RMSprop's steps, and those of TRPO's critic after the natural gradient's step on the batch."""
    graphs: list[Any] = []
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graphs.append(graph) or graph)
    found = []
    for compiled in (True, False):
        domain, learner, batch = credited(**{"stages.rl.epochs": 2, **changes})
        learner.flat_updates.compiled = compiled
        records = [learner.update(batch, step) for step in range(2)]
        found.append(([p.detach().clone() for p in domain.policy.parameters()], records))
    (own, records), (other, expected) = found
    for a, b in zip(own, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    for record, known in zip(records, expected, strict=True):
        assert record == pytest.approx(known, rel=1e-6, abs=1e-10)
    assert len(graphs) == 1
