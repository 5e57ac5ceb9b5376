"""Effects: a method against controls over seeds, each at its own best step size, by Student's paired interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from polopt.claim import Finding
from polopt.lab.effects import FIRST_TRIAL, Less, More, best_step_size, compared, effect
from polopt.lab.problems import decisive_tokens
from polopt.lab.progress import learned, raised, uneven


def found_of(method: float, control: float, noise: float = 0.1, **ways: Any) -> Finding:
    """An effect of two sides that are numbers, measured with noise of their own and noise that a seed shares."""

    @effect("s", kind="headline", method=lambda: method, controls={"parent": lambda: control}, **ways)
    def measure(side: float, *, seed: int) -> dict[str, float]:
        shared, own = np.random.default_rng(seed).normal(size=2)
        return {"score": side + shared + noise * own * (1 if side == method else -1), "spent": 10 * side}

    return measure.run()


def test_the_interval_is_student_s_of_paired_differences() -> None:
    found = found_of(2.0, 1.5, criteria=[More("score", by=0.2)])
    draws = np.array([np.random.default_rng(seed).normal(size=2) for seed in range(10)])
    method, control = 2 + draws[:, 0] + 0.1 * draws[:, 1], 1.5 + draws[:, 0] - 0.1 * draws[:, 1]
    ends = stats.ttest_rel(method, control).confidence_interval(0.95)
    key = "score minus parent"
    assert found.measured[key] == pytest.approx((method - control).mean())
    assert found.intervals[key] == pytest.approx((ends.low, ends.high))
    assert found.holds == (ends.low > 0.2) == True  # noqa: E712
    assert found.won == (int((method - control > 0.2).sum()), 10)
    assert found.measured["score"] == pytest.approx(method.mean())
    assert found.measured["score, parent"] == pytest.approx(control.mean())
    assert "spent" not in found.measured


def test_a_quotient_is_of_geometric_means() -> None:
    table = {
        "method": {"steps": np.array([2.0, 8.0, 4.0])},
        "parent": {"steps": np.array([8.0, 16.0, 16.0])},
    }
    found = compared(table, [Less("steps", times=0.45)])
    logs = np.log([0.25, 0.5, 0.25])
    half = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    assert found.measured["steps over parent"] == pytest.approx(math.exp(logs.mean()))
    assert found.intervals["steps over parent"] == pytest.approx(
        (math.exp(logs.mean() - half), math.exp(logs.mean() + half))
    )
    assert not found.holds  # the upper end is 0.55
    assert found.won == (2, 3)
    assert compared(table, [Less("steps", times=0.9)]).holds
    with pytest.raises(ValueError, match="'steps' must be positive"):
        compared({**table, "parent": {"steps": np.zeros(3)}}, [Less("steps", times=0.5)])


def test_a_control_in_the_methods_place_fails() -> None:
    for criterion in (More("score", by=0.01), More("score", times=1.01)):
        table = {name: {"score": np.array([1.0, 2.0, 1.5, 1.2])} for name in ("method", "parent")}
        assert not compared(table, [criterion]).holds
    assert not found_of(1.0, 1.0, criteria=[More("score", by=0.0)]).holds


def test_every_control_counts_and_every_criterion() -> None:
    table = {
        "method": {"score": np.array([2.0, 2.1, 2.2]), "cost": np.array([5.0, 5.0, 5.1])},
        "parent": {"score": np.array([1.0, 1.0, 1.1]), "cost": np.array([5.0, 5.0, 5.0])},
        "plain": {"score": np.array([2.0, 2.2, 2.2]), "cost": np.array([5.0, 5.0, 5.0])},
    }
    only = {name: table[name] for name in ("method", "parent")}
    assert compared(only, [More("score", by=0.5)]).holds
    assert not compared(table, [More("score", by=0.5)]).holds
    assert compared(only, [More("score", by=0.5), Less("cost", by=0.3)]).holds
    assert not compared(only, [More("score", by=0.5), Less("cost", by=-0.3)]).holds


def test_two_criteria_measure_the_runs_once() -> None:
    """Each of them finds what it would find alone, on the same runs; together they hold if both do."""
    seen: list[tuple[str, int, float]] = []

    def found(*criteria: More | Less) -> Finding:
        @effect(
            "s",
            kind="headline",
            method=lambda: "new",
            controls={"old": lambda: "old"},
            criteria=criteria,
            best=Less("steps", times=1.0),
            step_sizes=(1.0, 2.0, 4.0),
            seeds=5,
            trials=2,
        )
        def measure(side: str, *, seed: int, step_size: float) -> dict[str, float]:
            seen.append((side, seed, step_size))
            steps = (10 if side == "new" else 20) + abs(step_size - 2) + np.random.default_rng(seed).random()
            return {"steps": steps, "answers": steps * (3 if side == "new" else 1)}

        return measure.run()

    sooner, dearer = Less("steps", times=0.8), Less("answers", times=1.0)
    both = found(sooner, dearer)
    assert len(seen) == len(set(seen)) == 2 * (3 * 2 + 5)
    alone = [found(criterion) for criterion in (sooner, dearer)]
    assert [finding.holds for finding in (both, *alone)] == [False, True, False]
    for finding, key in zip(alone, ("steps over old", "answers over old"), strict=True):
        assert both.intervals[key] == finding.intervals[key]
        assert both.measured[key] == finding.measured[key]
        assert both.step_sizes == finding.step_sizes == {"method": 2.0, "old": 2.0}


def test_who_spends_more_does_not_win() -> None:
    assert found_of(2.0, 1.0, criteria=[More("score", by=0.2)]).holds
    spent = found_of(2.0, 1.0, criteria=[More("score", by=0.2)], budget="spent")
    assert not spent.holds
    assert "spent more spent than parent" in spent.note


def test_what_is_not_reached_is_said_and_does_not_hold() -> None:
    table = {"method": {"steps": np.array([1.0, math.nan, 1.0])}, "parent": {"steps": np.array([5.0, 5.0, 6.0])}}
    found = compared(table, [Less("steps", times=0.9)])
    assert not found.holds
    assert "steps was not reached on 1 seeds by method." in found.note
    assert found.measured["steps"] == 1.0


def test_each_side_has_its_best_step_size_on_other_seeds() -> None:
    seen: list[tuple[str, int, float]] = []

    @effect(
        "s",
        kind="headline",
        method=lambda: "new",
        controls={"old": lambda: "old"},
        criteria=[Less("steps", times=0.9)],
        step_sizes=(4.0, 1.0, 2.0),
        seeds=3,
        trials=2,
    )
    def measure(side: str, *, seed: int, step_size: float) -> dict[str, float]:
        seen.append((side, seed, step_size))
        best = {"new": 1.0, "old": 2.0}[side]
        never = step_size == 4.0
        return {"steps": math.nan if never else 10 + abs(step_size - best) + (side == "old") * 5 + 0.01 * seed % 1}

    found = measure.run()
    assert found.step_sizes == {"new": 1.0}.__class__(method=1.0, old=2.0)
    assert {seed for _, seed, _ in seen if seed >= FIRST_TRIAL} == {FIRST_TRIAL, FIRST_TRIAL + 1}
    compared_runs = {(side, size) for side, seed, size in seen if seed < FIRST_TRIAL}
    assert compared_runs == {("new", 1.0), ("old", 2.0)}
    assert found.holds
    assert "Best step size at an end of the grid: method." in found.note
    assert "step sizes 1, 2, 4" in found.criterion


def test_without_a_step_size_that_reaches_it_the_least_is_taken() -> None:
    assert best_step_size(lambda: 0, lambda side, **ways: {"x": math.nan}, (3.0, 1.0), More("x", by=1.0), 2) == 1.0
    assert best_step_size(lambda: 0, lambda side, **ways: {"x": 0.0}, (), More("x", by=1.0), 2) is None


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        ({"criteria": []}, "needs a control and a criterion"),
        ({"criteria": [More("score", by=-0.1)]}, "two equal sides would meet"),
        ({"criteria": [Less("score", times=1.1)]}, "two equal sides would meet"),
        ({"criteria": [More("score", by=0.1)], "seeds": 1}, "2 seeds at least, found 1"),
    ],
)
def test_what_shows_no_effect_is_refused(ways: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        found_of(1.0, 1.0, **ways)


def test_a_criterion_is_a_quotient_or_a_difference() -> None:
    with pytest.raises(ValueError, match="either times or by"):
        More("score")
    with pytest.raises(ValueError, match="times must be positive, found 0"):
        Less("score", times=0.0)


@pytest.mark.parametrize("features", [0, 64])
def test_uneven_tasks_begin_where_they_should(features: int) -> None:
    tree, policy = uneven(3, features=features)
    right = (tree.log_probabilities(policy).detach().exp() * tree.outcome).sum(1)
    logits = np.log(right / (1 - right))
    assert right[0].item() == pytest.approx(0.005)
    assert right[-1].item() == pytest.approx(0.9)
    assert np.diff(logits) == pytest.approx(np.full(15, float(logits[-1] - logits[0]) / 15))
    assert (tree.outcome.sum(1) == 1).all()


def test_learned_counts_what_was_spent() -> None:
    import polopt as po

    algorithm = po.method("grpo", group=8, kl=0.0)
    found = learned(algorithm, uneven(0), steps=3, step_size=8.0, seed=0, rows=4)
    assert (found["answers"], found["tokens"], found["steps"]) == (3 * 4 * 8, 3 * 4 * 8 * 3, 3)
    never = learned(algorithm, uneven(0), steps=2, step_size=0.0, seed=0, goal=0.99)
    assert math.isnan(never["answers"])
    tree, policy = uneven(0)
    assert never["success"] == never["mean success"] == pytest.approx(tree.value(policy).item())
    soon = learned(algorithm, uneven(0), steps=50, step_size=32.0, seed=0, goal=0.4)
    assert soon["success"] >= 0.4
    assert soon["steps"] < 50


def test_equal_sides_seldom_show_an_effect() -> None:
    """Of 600 comparisons of equal sides, each at the best of three step sizes that do nothing, 2.5 % hold by chance:
    step sizes are chosen on other seeds than those that count, so that choosing gives nothing away."""
    draws = np.random.default_rng(0)

    def shown() -> bool:
        @effect(
            "s",
            kind="headline",
            method=lambda: 0.0,
            controls={"parent": lambda: 0.0},
            criteria=[More("score", by=0.0)],
            step_sizes=(1.0, 2.0, 3.0),
        )
        def measure(side: float, *, seed: int, step_size: float) -> dict[str, float]:
            return {"score": side + draws.normal()}

        return measure.run().holds

    found = sum(shown() for _ in range(600))
    low, high = stats.binom(600, 0.025).interval(0.999)
    assert low <= found <= high


def test_raised_outcomes_change_no_gradient() -> None:
    tree, policy = uneven(1, tasks=4)
    higher, _ = raised((tree, policy), by=3.0)
    assert higher.value(policy).item() == pytest.approx(tree.value(policy).item() + 3)
    assert torch.allclose(higher.gradient(policy), tree.gradient(policy), atol=1e-12)


def test_one_token_decides() -> None:
    tree, policy = decisive_tokens(2, prompts=4, tokens=5)
    p = tree.log_probabilities(policy).detach().exp()
    assert (p * tree.outcome).sum(1).tolist() == pytest.approx([0.05] * 4)
    right = tree.outcome.bool()
    answers = torch.tensor(tree.answers)
    # Half of all answers are right, those that agree in one place, and no other place tells right from wrong.
    assert (right.sum(1) == 16).all()
    for prompt in range(4):
        agree = [answers[right[prompt], place].unique().numel() == 1 for place in range(5)]
        assert sum(agree) == 1


def test_a_teacher_without_anything_to_teach_leaves_a_linear_policy_alone() -> None:
    """Its parameters are no table of logits."""
    import polopt as po
    from polopt.lab import TreeSource, TreeTeacher
    from polopt.teachers import TEACHER_FIELDS

    tree, policy = decisive_tokens(0, prompts=2, tokens=3, success=1e-9)
    algorithm = po.method("sdpo")
    source = TreeSource(tree, policy, rows=16, needs=algorithm.required_fields)
    batch = algorithm.sampling(source)
    assert algorithm.teacher is not None
    taught = TreeTeacher(policy, algorithm.teacher).teach(batch, TEACHER_FIELDS)
    assert not taught.extras["has_teacher_signal"].any()
