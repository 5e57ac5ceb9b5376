"""Variance and similarity of demonstrations by brute force, the bound by enumeration, the filter, and the door."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polopt.methods.il_data_quality import DemonstrationQuality, consistent_demonstrations, il_data_quality
from polopt.metrics import LoggedTransitions, MetricError, jackknife, state_divergence
from polopt.training.measuring import measure


def walks(seed: int, demonstrations: int = 7) -> LoggedTransitions:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(3, 9, demonstrations)
    return LoggedTransitions(
        episode=np.repeat(np.arange(demonstrations), lengths).astype(str),
        step=np.concatenate([np.arange(n) for n in lengths]),
        state=draw.normal(size=(lengths.sum(), 2)) * [1.0, 30.0],
        action=draw.normal(size=(lengths.sum(), 2)) + 5,
    )


def by_force(data: LoggedTransitions, radius: float, apart_from: int | None = None) -> tuple[float, np.ndarray]:
    """The action variance by loops over all pairs, without one demonstration, and the shares of others near each."""
    state, action = ((x - x.mean(0)) / x.std(0) for x in (data.state, data.action))
    E, found, shares = len(data.lengths), [], []
    kept = [i for i in range(len(data)) if data.number[i] != apart_from]
    for i in kept:
        near = [
            j for j in kept
            if data.number[j] != data.number[i] and np.linalg.norm(state[i] - state[j]) <= radius
        ]  # fmt: skip
        shares.append(len({int(data.number[j]) for j in near}) / (E - 1))
        if near:
            found.append(np.mean([((action[i] - action[j]) ** 2).sum() / 2 for j in near]))
    return float(np.mean(found)), np.array(shares)


def test_the_numbers_are_those_of_loops_over_all_pairs() -> None:
    data = walks(0)
    found = il_data_quality(radius=0.9)(data)
    variance, shares = by_force(data, 0.9)
    assert found.values["action variance"] == pytest.approx(variance)
    assert found.values["state similarity"] == pytest.approx(data.means(shares).mean())
    assert found.values["neighbours"] == pytest.approx(data.means((shares > 0).astype(float)).mean())
    assert found.values["horizon"] == data.lengths.mean()
    without = [by_force(data, 0.9, e)[0] for e in range(7)]
    expected = jackknife(variance, without)
    interval = found.intervals["action variance"]
    assert (interval.low, interval.high) == pytest.approx((max(expected.low, 0), expected.high))


def test_the_radius_is_a_quantile_of_the_nearest_distances() -> None:
    data = walks(1)
    state = (data.state - data.state.mean(0)) / data.state.std(0)
    apart = np.linalg.norm(state[:, None] - state[None], axis=2)
    apart[data.number[:, None] == data.number[None]] = np.inf
    assert il_data_quality(quantile=0.3)(data).values["radius"] == pytest.approx(np.quantile(apart.min(1), 0.3))


def test_copies_leave_the_variance_and_raise_the_similarity() -> None:
    data = walks(2)
    twice = LoggedTransitions(
        episode=[*data.episode, *(f"copy {x}" for x in data.episode)],
        step=np.tile(data.step, 2),
        state=np.tile(data.state, (2, 1)),
        action=np.tile(data.action, (2, 1)),
    )
    one, two = (il_data_quality(radius=0.8)(x).values for x in (data, twice))
    assert two["action variance"] == pytest.approx(one["action variance"])
    assert two["state similarity"] > one["state similarity"]


def test_categories_are_coordinates_and_a_deterministic_expert_has_no_variance() -> None:
    base = {"episode": ["a", "a", "b", "b"], "step": [0, 1, 0, 1], "state": [0.0, 1.0, 0.0, 1.0]}
    same = LoggedTransitions(**base, action=["left", "right", "left", "right"])
    assert il_data_quality(radius=0.1)(same).values["action variance"] == 0
    other = LoggedTransitions(**base, action=["left", "right", "right", "right"])
    # One state in two has both actions; a coordinate of share 1/4 has variance 3/16, so each pair is 2 x 16/3 / 2.
    assert il_data_quality(radius=0.1)(other).values["action variance"] == pytest.approx(16 / 3 / 2)


def test_the_filter_leaves_out_the_demonstration_that_differs() -> None:
    draw = np.random.default_rng(0)
    state = np.tile(np.linspace(0, 1, 5), 6) + 0.001 * draw.normal(size=30)
    action = state.copy()
    action[10:15] *= -1
    data = LoggedTransitions(np.repeat(list("abcdef"), 5), np.tile(range(5), 6), state, action)
    kept = consistent_demonstrations(data, 0.8, il_data_quality(radius=0.1))
    assert sorted(set(kept.episode)) == ["a", "b", "d", "e", "f"]
    assert len(consistent_demonstrations(data, 1.0)) == 30
    with pytest.raises(ValueError, match=r"keep in \(0, 1\], found 0"):
        consistent_demonstrations(data, 0)


def test_the_bound_by_enumeration_of_trajectories() -> None:
    draw = np.random.default_rng(1)
    S, A, H = 3, 2, 3
    start, P = draw.dirichlet(np.ones(S)), draw.dirichlet(np.ones(S), (S, A))
    policies = draw.dirichlet(np.ones(A), (2, S))
    visits = np.zeros((2, H + 1, S))
    for k, policy in enumerate(policies):
        for path in itertools.product(range(S), repeat=H + 1):
            step = [sum(policy[s, a] * P[s, a, u] for a in range(A)) for s, u in itertools.pairwise(path)]
            for t, s in enumerate(path):
                visits[k, t, s] += start[path[0]] * np.prod(step)
    kl = (visits[0] * np.log(visits[0] / visits[1])).sum(1)
    actions = (policies[0] * np.log(policies[0] / policies[1])).sum(1)
    found = state_divergence(start, P, *policies, H)
    assert found.states == pytest.approx(kl[1:].mean())
    assert found.bound == pytest.approx(sum((H - t) * visits[0, t] @ actions for t in range(H)) / H)
    never = np.array([[1.0, 0.0]] * S)
    assert state_divergence(start, P, policies[0], never, H).bound == np.inf
    with pytest.raises(ValueError, match="add up to 1"):
        state_divergence(start, P, policies[0] * 2, policies[1], H)
    with pytest.raises(ValueError, match="a horizon >= 1"):
        state_divergence(start, P, *policies, 0)


def row(**changes: Any) -> list[dict[str, Any]]:
    base = {"observation": [0.5, 1.5], "action": 0.0}
    rows = [{**base, "episode": e, "step": i} for e in "ab" for i in range(3)]
    return [{**r, **(changes if i == 1 else {})} for i, r in enumerate(rows)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"observation": None}, "column 'observation' is missing"),
        ({"observation": [0.5, "x"]}, "observation must be text, a finite number or a list of them"),
        ({"observation": [1.0]}, "row 2: state has 1 number, and that of row 1 has 2 numbers"),
        ({"step": 4}, "row 3: episode 'a' goes from step 0 to 2"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "demos.jsonl"
    file.write_text("\n".join(map(json.dumps, row(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("il-data-quality", file)


def test_data_and_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "demos.jsonl"
    file.write_text("\n".join(map(json.dumps, row())))
    assert measure("il-data-quality", file).values["action variance"] == 0
    with pytest.raises(MetricError, match="data set 'data' has one"):
        il_data_quality()(walks(0, demonstrations=1))
    with pytest.raises(MetricError, match="observations that are numbers or lists of them, found texts"):
        il_data_quality()(LoggedTransitions(["a", "b"], [0, 0], ["s", "s"], [0, 1]))
    with pytest.raises(ValueError, match="radius must be above 0"):
        DemonstrationQuality(radius=0.0)
    with pytest.raises(ValueError, match="quantile and level"):
        DemonstrationQuality(quantile=0.0)
