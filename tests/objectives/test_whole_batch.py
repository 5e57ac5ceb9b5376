"""Statistics of the whole optimiser batch: surveys, a micro-batch's own rows, routes, selection after credit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from batches import random_batch
from torch import Tensor

import polopt as po
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.masks import IsCorrect, IsDemonstration
from polopt.fields import ExperienceError
from polopt.objectives import Branch, BranchedObjective, PolicyGradient, SequenceMean, Surrogate, TokenMean, Weight
from polopt.sampling import Select


class RelativeEntropy(Weight):
    """The policy's entropy now, over its largest in the whole batch."""

    full_batch_outputs = frozenset({"entropy"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        whole = experience.full_batch
        return evaluation.entropy / torch.where(whole.mask, whole.full_batch_evaluation.entropy, 0).max()


OBJECTIVE = Surrogate(weights=[RelativeEntropy()])


def gradient(
    objective: po.objectives.Objective, pieces: Sequence[tuple[Experience, Tensor]], said: Evaluation
) -> Tensor:
    logp = said.logp.detach().requires_grad_()
    total = torch.zeros(())
    for piece, rows in pieces:
        part = Evaluation(logp=logp[rows], support=said.support, entropy=said.entropy[rows])
        total = total + objective(piece, part).loss
    return torch.autograd.grad(total, logp)[0]


def test_a_surveyed_batch_may_be_split() -> None:
    batch = random_batch(seed=3)
    said, every = batch.evaluation(), torch.arange(len(batch.mask))
    assert OBJECTIVE.required_outputs == {"entropy"}
    whole = gradient(OBJECTIVE, [(batch.experience, every)], said)
    surveyed = batch.experience.replace(full_batch_evaluation=said.detach())
    pieces = list(zip(surveyed.split(4), every.split(4), strict=True))
    torch.testing.assert_close(gradient(OBJECTIVE, pieces, said), whole, rtol=1e-12, atol=0)
    # With each piece surveyed alone, the weights would be others.
    alone = [(batch.experience[rows], rows) for rows in every.split(4)]
    assert not torch.allclose(gradient(OBJECTIVE, alone, said), whole)


def test_a_split_without_a_survey_is_refused() -> None:
    batch = random_batch()
    micro = next(iter(batch.experience.split(4)))
    with pytest.raises(ExperienceError, match=r"before experience.split, evaluate the policy on the whole and set"):
        OBJECTIVE(micro, batch.rows(torch.arange(4)).evaluation())


def test_a_micro_batch_finds_its_rows_of_the_whole() -> None:
    experience = random_batch().experience
    values = torch.arange(len(experience)) * 10
    only = torch.tensor([True, False, True, True, False, True, True, True, True])
    found = [piece.local_rows(values).tolist() for piece in experience.split(3, only=only)]
    assert found == [[0, 20, 30], [50, 60, 70], [80]]
    inner = [small.local_rows(values).tolist() for piece in experience.split(4) for small in piece.split(3)]
    assert inner == [[0, 10, 20], [30], [40, 50, 60], [70], [80]]
    assert experience.local_rows(values) is values
    piece = next(iter(experience.split(3)))[[1]]
    assert piece.full_batch is piece


def test_surveys_do_not_outlive_their_batch() -> None:
    batch = random_batch()
    surveyed = batch.experience.replace(full_batch_evaluation=batch.evaluation().detach())
    assert surveyed[:3].full_batch_evaluation is None
    assert surveyed.to(torch.float32).full_batch_evaluation is None


def test_routes_are_the_sum_of_losses_on_their_rows() -> None:
    batch = random_batch(seed=1)
    right = batch.experience.outcome >= 1
    assert 0 < right.sum() < len(right)
    mean, score = Surrogate(aggregate=TokenMean()), Surrogate(trust=PolicyGradient(), aggregate=SequenceMean())
    routed = BranchedObjective(
        routes=[
            Branch(objective=mean, rows=IsCorrect()),
            Branch(objective=score, rows=IsCorrect(invert=True), weight=0.3),
        ]
    )
    found = routed(batch.experience, batch.evaluation()).loss
    parts = [(mean, right, 1.0), (score, ~right, 0.3)]
    expected = sum(
        w * o(batch.experience[rows], batch.rows(rows.nonzero().flatten()).evaluation()).loss for o, rows, w in parts
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_a_route_that_leads_everywhere_is_its_objective() -> None:
    batch = random_batch(seed=2)
    whole = Surrogate()(batch.experience, batch.evaluation())
    for rows in (None, IsDemonstration(invert=True)):
        routed = BranchedObjective(routes=[Branch(objective=Surrogate(), rows=rows)])(
            batch.experience, batch.evaluation()
        )
        assert routed.loss == whole.loss
        assert routed.metrics == whole.metrics
    nothing = BranchedObjective(routes=[Branch(objective=Surrogate(), rows=IsDemonstration())])(
        batch.experience, batch.evaluation()
    )
    assert nothing.loss == 0


def test_metrics_of_two_routes_keep_apart() -> None:
    batch = random_batch()
    routed = BranchedObjective(routes=[Branch(objective=Surrogate(), rows=IsCorrect()), Branch(objective=Surrogate())])
    metrics = routed(batch.experience, batch.evaluation()).metrics
    assert {"ratio/mean", "ratio/mean/2", "clip_fraction", "clip_fraction/2"} <= set(metrics)


class Positive(Select):
    """Decisions of positive advantage."""

    reads = frozenset({"advantage"})

    def forward(self, experience: Experience) -> Experience:
        return experience.restrict(torch.where(experience.mask, experience.advantage, 0) > 0)


def test_selection_comes_after_credit_and_may_take_decisions_away() -> None:
    batch = random_batch(seed=1).replace(reward=None)
    plain = po.Algorithm()
    chosen = plain.but(select=[Positive()])
    credited, judged = plain.compute_advantages(batch.experience), chosen.compute_advantages(batch.experience)
    torch.testing.assert_close(judged.advantage, credited.advantage, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(judged.mask, credited.mask & (credited.advantage > 0))
    assert [path for path, *_ in po.diff(plain, chosen)] == ["select"]
