"""Budgets by predicted success: what they buy, what they remember, and what they reduce to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import polopt as po
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.abilities import OraclePredictor
from polopt.methods.v0 import PredictedAllocator
from polopt.methods.v0_5 import SequentialAllocator
from polopt.sampling import BaseRate, InContext, Predictor, Rollouts, TopPredicted
from polopt.sampling.allocation import allocate

RATES = [0.02, 0.1, 0.3, 0.5, 0.5, 0.7, 0.9, 0.98]
SEEN: list[tuple[list[str], list[float], list[str]]] = []


class Spy(Predictor):
    """Notes what it is shown and answers 1/2."""

    def forward(self, context_prompts: Sequence[str], context_scores: torch.Tensor, prompts: Sequence[str]) -> Any:
        SEEN.append((list(context_prompts), context_scores.tolist(), list(prompts)))
        return torch.full((len(prompts),), 0.5)


def source_of(rows: int, seed: int = 0, pays: float = 1.0) -> TreeSource:
    rate = torch.tensor(RATES, dtype=torch.float64)
    tree = TokenTree.bandit([[pays, 0.0]] * len(RATES))
    policy = TabularPolicy(tree).set_probabilities(torch.stack([rate, 1 - rate], 1))
    return TreeSource(tree, policy, rows=rows, seed=seed)


def told(rates: Sequence[float] = RATES) -> OraclePredictor:
    return OraclePredictor(rates=rates, vocabulary=2)


def by_task(batch: po.Experience) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for task, outcome in zip(batch.extras["index"].tolist(), batch.outcome.tolist(), strict=True):
        found.setdefault(task, []).append(outcome)
    return found


def same_batch(one: po.Experience, two: po.Experience) -> None:
    for name in ("outcome", "group", "rollout_logp", "mask"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert torch.equal(one.extras["index"], two.extras["index"])


def test_counts_are_those_of_the_knapsack() -> None:
    batch = Rollouts(group=8, budget=PredictedAllocator(predictor=told(), least=2, most=20))(source_of(64))
    counts = {task: len(rows) for task, rows in by_task(batch).items()}
    expected = allocate(torch.tensor(RATES, dtype=torch.float64), 64, 2, 20)
    # Ties are settled by the place in the batch, so tasks of one rate are compared together.
    assert {t: n for t, n in counts.items() if RATES[t] != 0.5} == {
        t: n for t, n in enumerate(expected.tolist()) if RATES[t] != 0.5
    }
    assert sum(counts.values()) == 64
    assert counts[2] > counts[7]
    assert batch.extras["predicted"].tolist() == [RATES[t] for t in batch.extras["index"].tolist()]


@pytest.mark.parametrize(
    "budget",
    [
        PredictedAllocator(predictor=told(), least=4, most=4),
        SequentialAllocator(predictor=told(), most=4),
        SequentialAllocator(predictor=told([0.0] * 8), cost=1.0),
    ],
)
def test_without_room_or_gain_it_is_the_even_budget(budget: po.sampling.RolloutAllocator) -> None:
    same_batch(Rollouts(group=4, budget=budget)(source_of(32)), Rollouts(group=4)(source_of(32)))


def goes_on(outcomes: Sequence[float], rate: float, cost: float) -> bool:
    """The paper's rule in plain Python, of values from -1 to 1."""
    k = len(outcomes)
    mean, prior = sum(2 * o - 1 for o in outcomes) / k, 2 * rate - 1
    apart = max(0.0, (mean - prior) ** 2 - 1 / k)
    return apart / (k * apart + 1) - apart / ((k + 1) * apart + 1) > cost


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pays", [1.0, 2.0])
def test_every_task_stops_where_the_rule_says(seed: int, pays: float) -> None:
    rates = [0.9, 0.1, 0.3, 0.9, 0.5, 0.1, 0.9, 0.2]
    part = SequentialAllocator(predictor=told(rates), most=9, cost=0.01, high=pays)
    batch = Rollouts(group=3, budget=part)(source_of(24, seed, pays))
    lengths = set()
    for task, paid in by_task(batch).items():
        outcomes = [x / pays for x in paid]
        n = len(outcomes)
        lengths.add(n)
        assert all(goes_on(outcomes[:k], rates[task], 0.01) for k in range(3, n))
        assert n == 9 or not goes_on(outcomes, rates[task], 0.01)
    assert 3 in lengths
    assert len(lengths) > 2
    assert torch.equal(batch.group, batch.group.sort().values)  # rows of a group stand together


def test_a_plainly_wrong_prior_buys_up_to_16_at_the_papers_cost() -> None:
    """1 / (k (k + 1)) falls below 0.0039 at 16."""
    one = TokenTree.bandit([[1.0, 0.0]])
    policy = TabularPolicy(one).set_probabilities(torch.tensor([1 - 1e-12, 1e-12], dtype=torch.float64))
    part = SequentialAllocator(predictor=OraclePredictor(rates=[0.0], vocabulary=2), most=100)
    batch = Rollouts(group=4, budget=part)(TreeSource(one, policy, rows=4))
    d = 4 - 1 / 16
    assert len(batch) == 16
    assert d / (15 * d - 15 / 15 + 1) > 0  # the rule itself is checked above
    assert goes_on([1.0] * 15, 0.0, 0.0039)
    assert not goes_on([1.0] * 16, 0.0, 0.0039)


def test_the_context_is_what_was_scored_before_and_no_more() -> None:
    SEEN.clear()
    sampling = Rollouts(group=4, budget=PredictedAllocator(predictor=Spy(), context=6, least=4, most=4))
    source = source_of(16)
    history: dict[str, float] = {}
    for batch_number in range(4):
        before = dict(history)
        batch = sampling(source)
        shown, scores, asked = SEEN[-1]
        assert dict(zip(shown, scores, strict=True)) == {k: before[k] for k in shown}
        assert len(shown) == min(6, len(before))
        if batch_number:
            assert set(latest) <= set(shown)  # the last batch's tasks come first
        outcomes = by_task(batch)
        latest = source.prompts(torch.tensor(sorted(outcomes)))
        history |= {p: sum(v) / 4 for p, (_, v) in zip(latest, sorted(outcomes.items()), strict=True)}
        assert sorted(asked) == sorted(latest)


def test_what_is_remembered_is_state_and_stands_still_in_evaluation() -> None:
    sampling, source = Rollouts(group=4, budget=PredictedAllocator(predictor=BaseRate())), source_of(32)
    sampling(source)
    state = {k: v.clone() for k, v in sampling.state_dict().items()}
    fresh = Rollouts(group=4, budget=PredictedAllocator(predictor=BaseRate()))
    fresh.load_state_dict(state)
    one, two = source_of(32, seed=5), source_of(32, seed=5)
    same_batch(fresh(one), sampling(two))
    fresh.load_state_dict(state)
    fresh.eval()(source)
    assert all(torch.equal(v, state[k]) for k, v in fresh.state_dict().items())


def test_the_predictor_learns_from_its_context_alone() -> None:
    """After some batches of a policy that solves half of the tasks, it tells them apart."""
    rate = torch.tensor([0.95] * 4 + [0.05] * 4, dtype=torch.float64)
    tree = TokenTree.bandit([[1.0, 0.0]] * 8)
    policy = TabularPolicy(tree).set_probabilities(torch.stack([rate, 1 - rate], 1))
    source = TreeSource(tree, policy, rows=64)
    sampling = Rollouts(group=8, budget=PredictedAllocator(predictor=InContext()))
    sampling(source)
    predicted = sampling(source).extras
    by = dict(zip(predicted["index"].tolist(), predicted["predicted"].tolist(), strict=True))
    assert min(by[t] for t in range(4)) > max(by[t] for t in range(4, 8)) + 0.2


def test_wrong_settings_and_outcomes_are_refused() -> None:
    with pytest.raises(ExperienceError, match=r"outcomes in \[0, 1\], found 0 to 3"):
        Rollouts(group=4, budget=SequentialAllocator(predictor=told()))(source_of(32, pays=3.0))
    with pytest.raises(ValueError, match="1 <= least <= most"):
        PredictedAllocator(least=5, most=4)
    with pytest.raises(ValueError, match="context >= 1 and low < high"):
        PredictedAllocator(low=1.0)
    with pytest.raises(ValueError, match="cost >= 0"):
        SequentialAllocator(cost=-1.0)
    with pytest.raises(ValueError, match="out of reach"):
        Rollouts(group=4, budget=PredictedAllocator(predictor=told(), least=5))(source_of(32))
    sampling = Rollouts(group=4, budget=PredictedAllocator(predictor=told()))
    sampling(source_of(32))
    tree = TokenTree.bandit([[1.0, 0.0]] * 3)
    with pytest.raises(ValueError, match="does not belong"):
        sampling(TreeSource(tree, TabularPolicy(tree), rows=12))


def test_rollouts_that_had_help_say_nothing_of_a_task() -> None:
    part = PredictedAllocator(predictor=told())
    sampling = Rollouts(group=8, budget=part)
    batch = sampling(source_of(64))
    before = {k: v.clone() for k, v in sampling.state_dict().items()}
    budget = sampling.budget
    helped = torch.arange(len(batch)) % 2 == 0
    shown = batch.replace(outcome=torch.ones_like(batch.outcome), extras={"given": helped.long()})
    budget.observe(shown[helped])
    assert all(torch.equal(v, before[k]) for k, v in sampling.state_dict().items())
    budget.observe(shown)
    tried = budget.tried.column("score")[batch.extras["index"][~helped].unique()]
    assert (tried == 1).all()


class TestPromising:
    def test_it_takes_the_best_of_those_that_come_next(self) -> None:
        source, twin = source_of(16, seed=4), source_of(16, seed=4)
        next_ones = twin.take(8).tolist()
        chosen = TopPredicted(predictor=told(), of=4)(source, 2).tolist()
        # Of all eight tasks 0.3 promises most, at 0.147; then the two of 0.5, at 0.125.
        assert sorted(next_ones) == list(range(8))
        assert [RATES[task] for task in chosen] == [0.3, 0.5]

    def test_variance_is_highest_in_the_middle(self) -> None:
        chosen = TopPredicted(predictor=told(), of=4, by="variance")(source_of(16), 2).tolist()
        assert [RATES[task] for task in chosen] == [0.5, 0.5]

    def test_the_best_of_one_is_the_next(self) -> None:
        plain = Rollouts(group=4)(source_of(32, seed=2))
        same_batch(Rollouts(group=4, choice=TopPredicted(predictor=told(), of=1))(source_of(32, seed=2)), plain)

    def test_it_learns_what_tasks_scored(self) -> None:
        SEEN.clear()
        sampling, source = Rollouts(group=4, choice=TopPredicted(predictor=Spy(), of=2)), source_of(16)
        sampling(source)
        sampling(source)
        assert SEEN[0][0] == []
        assert len(SEEN[1][0]) == 4
        copy = Rollouts(group=4, choice=TopPredicted(predictor=Spy(), of=2))
        copy.load_state_dict(sampling.state_dict())
        assert torch.equal(copy.choice.tried.column("score"), sampling.choice.tried.column("score"))

    def test_of_must_be_a_number_of_tasks(self) -> None:
        with pytest.raises(ValueError, match=r"sampling\.TopPredicted: of must be >= 1, found 0"):
            TopPredicted(of=0)
