"""What a report remarks on: notices, intervals of changes, stages that learned nothing."""

import pytest
from report_reader import Reader, evaluated, written

from polopt.metrics import rate_change
from polopt.report import write_report
from polopt.report.run import read_run
from polopt.report.summary import notices


def test_notices_tell_what_a_careful_reader_would(tmp_path):
    evaluations = [evaluated(0, "before", [1, 0] * 10), evaluated(1, "after", [1, 1, 0, 0] * 5)]
    last = {"step": 1, "truncated": 0.4, "mismatch/ess": 0.3, "groups/signal": 0.1}
    words = Reader(write_report(written(tmp_path, evaluations, [last])).read_text()).words
    for notice in (
        "The interval of the change holds 0",
        "40% of the last completions",
        "effective sample size is 30%",
        "Only 10%",
    ):
        assert notice in words


def test_the_change_has_the_interval_of_its_pairs(tmp_path):
    before, after = [1] * 20 + [0] * 40, [1] * 18 + [0] * 2 + [1] * 20 + [0] * 20
    found = rate_change(before, after)
    evaluations = [evaluated(0, "before", before), evaluated(1, "after", after)]
    words = Reader(write_report(written(tmp_path, evaluations)).read_text()).words
    assert f"+30.0 +{100 * found.low:.1f} to +{100 * found.high:.1f}" in words.replace("+30.0+", "+30.0 +")
    assert "holds 0" not in words
    for record in evaluations:  # of a run that did not keep what each problem came to
        del record["kinds"]["digit"]["solved"]
    words = Reader(write_report(written(tmp_path, evaluations)).read_text()).words
    assert "+30.0" in words
    assert f"+{100 * found.low:.1f}" not in words


@pytest.mark.parametrize("stepped", [False, True])
def test_a_stage_without_an_optimiser_step_is_named(tmp_path, stepped):
    metrics = [{"step": 0, "stage": "warmup", "grad_norm": 1.0}]
    metrics += [{"step": i, "stage": "rl", "groups/signal": 0.0} for i in (1, 2)]
    if stepped:
        metrics.append({"step": 3, "stage": "rl", "grad_norm": 0.5})
    words = Reader(write_report(written(tmp_path, metrics=metrics)).read_text()).words
    assert ("No optimiser step was made in stage rl:" in words) == (not stepped)
    assert "stage warmup" not in words


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"groups/size_max": 1.0, "groups/mixed": 0.0}, "a group is one answer"),
        ({"groups/size_max": 4.0, "groups/mixed": 0.6}, "answers differ in outcome"),
        ({"groups/size_max": 4.0, "groups/mixed": 0.0}, "too easy or too hard"),
        ({"groups/size_max": 4.0, "groups/mixed": 0.0, "solved": 0.95}, "nearly every answer is right"),
    ],
)
def test_groups_without_signal_get_their_own_reason(tmp_path, numbers, reason):
    record = {"step": 0, "stage": "rl", "grad_norm": 1.0, "groups/signal": 0.0, **numbers}
    found = notices(read_run(written(tmp_path, metrics=[record])), None)
    (notice,) = [n for n in found if "had any signal" in n]
    assert reason in notice
    others = {"a group is one answer", "answers differ in outcome", "too easy or too hard", "nearly every answer"}
    assert sum(other in notice for other in others) == 1
