"""Each check of the battery rejects a part that makes the mistake it looks for."""

from __future__ import annotations

import battery
import pytest
import rows_guards
import rows_metrics
import wrong_guards
import wrong_metrics
import wrong_parts as wrong
from battery import PartRow

from polopt.lab.measured import ranked
from polopt.objectives import Surrogate

REJECTED = [
    (battery.objective_split, Surrogate(aggregate=wrong.MicroBatchMean())),
    (battery.objective_split, Surrogate(weights=[wrong.MicroBatchStd()])),
    (battery.objective_split, wrong.AverageMetric()),
    (battery.objective_split, wrong.UndeclaredPairs()),
    (battery.objective_split, wrong.BatchPairs()),
    (battery.objective_padding, Surrogate(aggregate=wrong.PaddedMean())),
    (battery.objective_padding, Surrogate(weights=[wrong.ByColumn()])),
    (battery.objective_permutation, Surrogate(weights=[wrong.ByRow()])),
    (battery.objective_poison, wrong.Leaky()),
    (battery.objective_precision, Surrogate(weights=[wrong.Rounded()])),
    (battery.objective_gradient, Surrogate(trust=wrong.Detached())),
    (battery.objective_empty, Surrogate(aggregate=wrong.UnguardedMean())),
    (battery.objective_extremes, wrong.Unbounded()),
    (battery.credit_padding, wrong.OffMask()),
    (battery.credit_permutation, wrong.Contiguous()),
    (battery.credit_permutation, wrong.GroupNumber()),
    (battery.credit_poison, wrong.OffMask()),
    (battery.credit_no_gradient, wrong.WithGradient()),
    (battery.credit_precision, wrong.HalfCredit()),
    (battery.credit_empty, wrong.OffMask()),
    (battery.credit_equal, wrong.PlainScore()),
    (battery.credit_equal, wrong.PlainScore(eps=1e-6)),
    (battery.state_resumes, wrong.Forgetful()),
    (battery.copies_are_independent, wrong.Shared()),
    (battery.yaml_returns, wrong.Restless()),
    (battery.repr_builds, wrong.Misprinted()),
    (battery.reward_rows, wrong.BatchShare()),
    (battery.reward_rows, wrong.FirstComes()),
    (battery.reward_padding, wrong.FilledShare()),
    (battery.reward_poison, wrong.Everywhere()),
    (battery.reward_precision, wrong.HalfReward()),
    (battery.reward_empty, wrong.PerToken()),
    (battery.select_permutation, wrong.FirstRows()),
    (battery.select_rows, wrong.Shuffled()),
    (battery.select_rows, wrong.Invented()),
    (battery.select_again, wrong.HalfAgain()),
    (battery.select_padding, wrong.LongRows()),
    (battery.select_poison, wrong.Unmasked()),
    (battery.select_empty, wrong.Invented()),
]


REJECTED_GUARDS = [
    (battery.guard_brute_force, wrong_guards.TextIsANumber()),
    (battery.guard_narrowing, wrong_guards.Forgiving()),
    (battery.guard_narrowing, wrong_guards.WIDENING),
    (battery.guard_stateless, wrong_guards.Counting()),
    (battery.guard_refusals, wrong_guards.DefaultAllow()),
    (battery.guard_refusals, wrong_guards.Silent()),
    (battery.guard_yaml, wrong_guards.RestlessGuard()),
    (battery.guard_repr, wrong_guards.MisprintedGuard()),
]


@pytest.mark.parametrize(("check", "part"), REJECTED_GUARDS, ids=lambda x: getattr(x, "__name__", repr(x)[:40]))
def test_the_battery_rejects_guards(check, part):
    with pytest.raises(AssertionError):
        check(rows_guards.row(part))


REJECTED_METRICS = [
    (battery.metric_order, wrong_metrics.LaterCountsMore()),
    (battery.metric_duplicates, wrong_metrics.OneLess()),
    (battery.metric_units, wrong_metrics.ClippedRewards()),
    (battery.metric_coverage, wrong_metrics.NarrowInterval()),
    (battery.metric_coverage, wrong_metrics.WideInterval()),
    (battery.metric_yaml, wrong_metrics.RestlessMetric()),
    (battery.metric_repr, wrong_metrics.MisprintedMetric()),
]


@pytest.mark.parametrize(("check", "part"), REJECTED_METRICS, ids=lambda x: getattr(x, "__name__", repr(x)))
def test_the_battery_rejects_metrics(check, part):
    with pytest.raises(AssertionError):
        check(rows_metrics.row(part))


REJECTED_DATA_METRICS = [
    (battery.data_order, wrong_metrics.FirstPairTwice()),
    (battery.data_repeats, wrong_metrics.RandomPairs()),
]


@pytest.mark.parametrize(("check", "part"), REJECTED_DATA_METRICS, ids=lambda x: getattr(x, "__name__", repr(x)))
def test_the_battery_rejects_metrics_of_other_data(check, part):
    with pytest.raises(AssertionError):
        check(battery.DataRow(part, ranked))


@pytest.mark.parametrize(("check", "part"), REJECTED, ids=lambda x: getattr(x, "__name__", repr(x)))
def test_the_battery_rejects(check, part):
    with pytest.raises(AssertionError):
        check(PartRow(part, relative=True))


def test_every_check_is_shown_to_fail():
    checks = {*battery.OBJECTIVE, *battery.CREDIT, *battery.REWARD, *battery.SELECT, *battery.METRIC, *battery.GUARD}
    checks |= {*battery.DATA_METRIC}
    rejected = (*REJECTED, *REJECTED_METRICS, *REJECTED_DATA_METRICS, *REJECTED_GUARDS)
    assert {c.__name__ for c in checks} == {c.__name__ for c, _ in rejected}
