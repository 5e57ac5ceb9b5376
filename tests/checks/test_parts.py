"""Parts with one mistake each, the lab's numbers, and where a part stands."""

from __future__ import annotations

import functools

import pytest
import test_battery
import test_battery_can_fail
import torch
import wrong_parts as wrong
from pasted import error_of

import polopt as po
from polopt import checks, credit, features, objectives
from polopt.checks.placement import places
from polopt.checks.sample_batches import outcome_batch
from polopt.part import Part

WRONG = {repr(part): (check, part) for check, part in test_battery_can_fail.REJECTED}


@functools.cache
def report(name: str):
    (found,) = checks.check(WRONG[name][1], lab=False)
    return found


@pytest.mark.parametrize("name", WRONG)
def test_the_report_agrees_with_the_battery(name):
    """What the battery rejects breaks in the report; but a stopped gradient is named for what it is."""
    check, part = WRONG[name]
    found = {f.title: f.verdict for f in report(name).findings}
    if isinstance(part, wrong.HalfAgain):
        assert found[check.title] == "choice"  # half of a half
    elif check.name == "objective_gradient":
        assert found[check.title] == "choice"
    else:
        assert found[check.title] == "breaks"


@pytest.mark.parametrize("name", WRONG)
def test_examples_fail_when_pasted(name):
    for finding in report(name).breaks:
        error = error_of(finding.example)
        if "raises" in finding.said:
            assert error is not None
            assert type(error).__name__ in finding.said
        else:
            assert isinstance(error, AssertionError), f"{finding.title}: {error!r}\n{finding.example}"


GOOD = [
    objectives.Clip(high=0.28),
    objectives.SequenceRatio(),
    objectives.TruncatedImportance(cap=1.05),
    objectives.SequenceMean(),
    objectives.ReferenceKL(),
    features.IsCorrect(),
    credit.LeaveOneOut(),
    credit.GroupStd(),
    features.WholeBatch(),
    features.DecisionCount(),
    credit.GAE(gamma=0.9),
    po.rewards.OverlongPenalty(),
    po.sampling.TopK(),
    po.sampling.MixedGroups(),
]


@pytest.mark.parametrize("part", GOOD, ids=repr)
def test_polopts_own_parts_break_nothing(part):
    (found,) = checks.check(part, lab=False)
    assert found.breaks == []
    assert len(found.findings) >= 8


def test_every_kind_of_row_finds_its_place():
    """Whatever stands in a table of the battery can be checked, with the checks of that table."""
    for rows, battery in test_battery.BATCH_KINDS:
        for row in rows.values():
            (place,) = places(row.part)
            assert [c.name for c in place.battery] == [c.name for c in battery]


def test_an_algorithm_is_checked_part_by_part():
    found = checks.check(po.method("dapo"), "dapo", lab=False)
    assert [r.kind for r in found] == ["objective", "credit", "reward", "selection"]
    assert not any(r.breaks for r in found)


def test_a_part_gets_the_batches_that_it_can_read():
    """bnpo's rewards must lie in [0, 1]; the guard of a Gaussian policy reads its means."""
    objective, scaled, *_ = checks.check(po.method("bnpo"), lab=False)
    assert {f.verdict for f in scaled.findings} == {"holds"}
    assert not objective.refused
    (guarded,) = checks.check(po.methods.grpo_guard.GRPOGuardRatio(), lab=False)
    assert not guarded.breaks


class Needy(po.credit.Credit):
    reads = frozenset({"extras.weather"})

    def forward(self, experience):
        return torch.where(experience.mask, experience.extras["weather"][:, None], 0)


def weather(seed: int = 0, clean: bool = False):
    batch = outcome_batch(seed, clean)
    return batch.replace(extras={"weather": torch.arange(len(batch.mask)).double()})


def test_what_the_batches_lack_is_named_and_can_be_given():
    with pytest.raises(ValueError, match=r"needs extras\.weather, which the batches .* --batch file\.py:function"):
        checks.check(Needy(), lab=False)
    (found,) = checks.check(Needy(), lab=False, batch=weather)
    assert not found.breaks
    refused = checks.check(po.method("grpo").but(credit=Needy()), lab=False)[1]
    assert "extras.weather" in refused.refused


class Loop(Part):
    def forward(self):
        return 0


def test_a_kind_without_a_battery_is_refused():
    with pytest.raises(ValueError, match="Loop is no kind of part that can be checked: expected an algorithm"):
        checks.check(Loop())


@pytest.mark.usefixtures("shapes_unchecked")
class TestLab:
    def test_a_baseline_that_holds_the_row_itself_shrinks_the_gradient(self, monkeypatch):
        """By 1 - 1/n, in groups of 3 all of which are listed; leaving the row out it does not."""
        monkeypatch.setattr("polopt.checks.lab.BATCHES", 4)  # of the sampled ones
        for baseline, scale in ((credit.GroupMean(), 2 / 3), (credit.LeaveOneOut(), 1.0)):
            (found,) = checks.check(baseline)
            digits = found.lab[0]
            assert digits.scale == pytest.approx(scale, abs=1e-12)
            assert digits.left < 1e-10
            assert digits.left_se == digits.variance_se == 0

    def test_a_sum_is_unbiased_and_a_mean_of_rows_is_not(self):
        """On answers of 1, 4 and 16 tokens, against sampling error."""
        (summed,) = checks.check(objectives.SequenceSum(length=1))
        (mean,) = checks.check(objectives.SequenceMean())
        assert summed.lab[1].left < 3 * summed.lab[1].left_se
        assert mean.lab[1].left > 10 * mean.lab[1].left_se

    def test_a_plain_loss_is_measured_as_the_part_that_it_is(self, monkeypatch):
        """The same numbers for a formula written as a function and as parts."""
        monkeypatch.setattr("polopt.checks.lab.BATCHES", 40)
        from wrong_losses import summed

        (function,) = checks.check(summed)
        (part,) = checks.check(
            objectives.Surrogate(trust=objectives.PolicyGradient(), aggregate=objectives.SequenceSum(length=1))
        )
        # The function sums over the batch, the part over rows: 3 rows of one listed group, 16 of a sampled batch.
        for one, other, rows in zip(function.lab, part.lab, (3, 16, 16), strict=True):
            assert one.scale == pytest.approx(rows * other.scale)
            assert one.left == pytest.approx(other.left, abs=1e-10)
            assert one.variance == pytest.approx(other.variance)

    def test_why_there_are_no_numbers(self):
        (reward_by_turn,) = checks.check(features.TurnCount())
        assert reward_by_turn.lab == "the lab's problems have no turn"
        assert "demonstrations" in checks.check(po.method("sft"))[0].lab
