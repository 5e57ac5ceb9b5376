"""Frontiers by hand and by loops, the sources of pairs, and files of curves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import polopt as po
from polopt.claims.problems.judged import LogLinearPolicy, fitted_reward, judged_answers
from polopt.config import ConfigError
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.pair_sources import FixedPairs, OwnPairs, ReplayedPairs, labelled, pair_training
from polopt.methods.ipo import ipo
from polopt.methods.sft import sft
from polopt.metrics import FrontierCurves, MetricDataError, MetricError, frontier, t_interval
from polopt.training import measuring


def curves(runs: int = 3, seed: int = 0) -> FrontierCurves:
    g = np.random.default_rng(seed)
    n = 20
    rows = [(s, str(r), k) for s in ("online", "offline") for r in range(runs) for k in np.linspace(0, 5, n)]
    kl = np.array([k for *_, k in rows])
    return FrontierCurves(
        source=[s for s, *_ in rows],
        run=[r for _, r, _ in rows],
        kl=kl,
        win_rate=np.clip(0.5 + 0.1 * kl * (1 - kl / 8) + 0.02 * g.standard_normal(len(kl)), 0, 1),
        accuracy=g.random(len(kl)),
    )


def test_a_frontier_by_hand() -> None:
    """Points (1, 0.6), (2, 0.5), (3, 0.8): flat to 2, then a line to 0.8, nothing before 1, 0.8 beyond 3."""
    found = frontier([3, 1, 2], [0.8, 0.6, 0.5], [0.5, 1, 1.5, 2, 2.5, 3, 9])
    np.testing.assert_allclose(found, [np.nan, 0.6, 0.6, 0.6, 0.7, 0.8, 0.8])
    # Of two points of one KL the better counts, in any order.
    np.testing.assert_allclose(frontier([1, 1, 2], [0.5, 0.7, 0.6], [1.0, 1.5]), [0.7, 0.7])
    np.testing.assert_allclose(frontier([1, 1, 2], [0.7, 0.5, 0.6], [1.0, 1.5]), [0.7, 0.7])


def test_gaps_are_differences_of_frontiers_paired_by_run() -> None:
    data = curves()
    found = po.metric("online-offline-gap", budgets=[2.5])(data)
    gaps = []
    for run in ("0", "1", "2"):
        both = []
        for source in ("online", "offline"):
            rows = (data.source == source) & (data.run == run)
            points = sorted(zip(data.kl[rows], data.win_rate[rows], strict=True))
            best = np.array([max(y for x, y in points if x <= k) for k, _ in points])
            at = np.array([k for k, _ in points])
            place = int(np.searchsorted(at, 2.5))
            share = (2.5 - at[place - 1]) / (at[place] - at[place - 1])
            both.append(best[place - 1] + share * (best[place] - best[place - 1]))
        gaps.append(both[0] - both[1])
    interval = t_interval(np.array(gaps))
    name = "online - offline at KL 2.5"
    assert found.values[name] == pytest.approx(interval.estimate, abs=1e-12)
    assert (found.intervals[name].low, found.intervals[name].high) == pytest.approx((interval.low, interval.high))
    assert found.rows["online - offline, mean"].shape == (3,)
    best = [data.win_rate[(data.source == "online") & (data.run == run)].max() for run in ("0", "1", "2")]
    assert found.values["online, peak"] == pytest.approx(np.mean(best))
    assert found.cautions == ()


def test_the_mean_gap_is_over_the_common_range() -> None:
    """0.5 + 0.1 KL up to 2 against 0.5 up to 4: the mean over [0, 2] is 0.1, not that to 4."""
    data = FrontierCurves(
        source=["online"] * 2 + ["offline"] * 2, kl=[0, 2, 0, 4], win_rate=[0.5, 0.7, 0.5, 0.5], run=[1, 1, 1, 1]
    )
    found = po.metric("online-offline-gap", budgets=[1.0, 4.0])(data)
    assert found.values["online - offline, mean"] == pytest.approx(0.1)
    assert found.values["online - offline at KL 1"] == pytest.approx(0.1)
    assert any("KL 4 was not reached" in text for text in found.cautions)
    assert any("one run" in text for text in found.cautions)
    assert not found.intervals


def test_it_measures_a_file(tmp_path: Path) -> None:
    file = tmp_path / "curves.jsonl"
    data = curves(2)
    rows = [
        {"pairs": s, "kl": k, "win_rate": w, "run": r}
        for s, k, w, r in zip(data.source, data.kl, data.win_rate, data.run, strict=True)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    found = measuring.measure("online-offline-gap", file, {"source": "pairs"})
    direct = po.metric("online-offline-gap")(data)
    assert found.values["online - offline, mean"] == pytest.approx(direct.values["online - offline, mean"])
    assert "online, accuracy at the peak" not in found.values
    assert "online, accuracy at the peak" in direct.values
    file.write_text(json.dumps({"source": "online", "kl": 1.0}))
    with pytest.raises(ConfigError, match="win_rate"):
        measuring.measure("online-offline-gap", file)


def test_what_cannot_be_compared_is_refused() -> None:
    metric = po.metric("online-offline-gap")
    with pytest.raises(MetricError, match="needs the source 'offline' and another one, found online"):
        metric(FrontierCurves(source=["online"], kl=[0.0], win_rate=[0.5]))
    apart = FrontierCurves(source=["online", "offline"], kl=[0.0, 1.0], win_rate=[0.5, 0.5])
    with pytest.raises(MetricError, match="no range in common"):
        metric(apart)
    for change, message in (
        ({"kl": [-0.1]}, "kl must be finite and >= 0"),
        ({"win_rate": [1.1]}, r"win_rate must be in \[0, 1\]"),
        ({"kl": [0.0, 1.0]}, r"must be \[1\]"),
        ({"source": []}, "one evaluation or more"),
    ):
        with pytest.raises(MetricDataError, match=message):
            FrontierCurves(**{"source": ["a"], "kl": [0.0], "win_rate": [0.5], **change})
    with pytest.raises(ValueError, match="budgets must be KLs above 0"):
        po.metric("online-offline-gap", budgets=[0.0])


# Sources of pairs ---------------------------------------------------------------------------------------------


def test_labels_are_as_frequent_as_the_judge_says() -> None:
    judge = torch.tensor([[0.5, 0.8], [0.2, 0.5]], dtype=torch.double)
    answers = torch.tensor([[0, 1], [1, 0]]).repeat(10_000, 1)
    found = labelled(answers, judge, torch.Generator().manual_seed(0))
    assert float((found[:, 0] == 0).double().mean()) == pytest.approx(0.8, abs=0.01)
    assert (found.sort(1).values == answers.sort(1).values).all()


def test_the_problem_is_exact() -> None:
    problem, features = judged_answers(1, answers=8, known=5)
    policy = LogLinearPolicy(problem.tree, features[:, :3], problem.reference.logits.detach())
    assert problem.evaluation(policy) == pytest.approx({"kl": 0.0, "win_rate": 0.5, "accuracy": 0.5})
    with torch.no_grad():
        policy.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
    start = problem.reference.logits.detach()[0]
    chance, base = (start + features[:, :3] @ policy.weights.detach()).softmax(0), start.softmax(0)
    expected = sum(float(chance[i] * base[j] * problem.golden[i, j]) for i in range(8) for j in range(8))
    found = problem.evaluation(policy)
    assert found["win_rate"] == pytest.approx(expected)
    ratio = (chance / base).log()
    right = [float(ratio[a] > ratio[b]) + 0.5 * float(a == b) for a, b in problem.data.tolist()]
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["kl"] == pytest.approx(float((chance * ratio).sum()))


def test_the_proxy_is_the_likeliest_reward() -> None:
    g = torch.Generator().manual_seed(0)
    features = torch.randn(6, 3, generator=g, dtype=torch.double)
    pairs = torch.randint(6, (60, 2), generator=g)
    found = fitted_reward(features, pairs, penalty=0.5)
    weights = torch.linalg.lstsq(features, found[:, None]).solution[:, 0].requires_grad_()
    margin = (features[pairs[:, 0]] - features[pairs[:, 1]]) @ weights
    loss = torch.nn.functional.softplus(-margin).sum() + 0.25 * weights.square().sum()
    assert torch.autograd.grad(loss, weights)[0].abs().max() < 1e-8


def test_a_replay_is_the_same_pairs_once_in_another_order() -> None:
    problem, _ = judged_answers(0, answers=8, known=3)
    own = OwnPairs(problem.tree, problem.proxy)
    list(pair_training(ipo(), problem, tabular(problem.tree), own, steps=5, step_size=0.0, rows=4))
    replay, g = ReplayedPairs(own.stream, torch.Generator().manual_seed(1)), torch.Generator()
    found = torch.cat([replay(problem.reference, 4, g) for _ in range(5)])
    first = torch.cat(own.stream)
    assert not torch.equal(found, first)
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, first.tolist()))
    with pytest.raises(ValueError, match="20 pairs are too few for 24"):
        replay(problem.reference, 4, g)


def tabular(tree: TokenTree) -> TabularPolicy:
    return TabularPolicy(tree, spread=0.5, seed=2)


def test_a_policy_that_is_never_refreshed_samples_what_the_first_one_does() -> None:
    """Pairs do not depend on the training then: they are those of a data set of the reference's answers."""
    problem, _ = judged_answers(0, answers=8, known=3)
    streams = {}
    for refresh, size in ((None, 0.1), (None, 0.0), (1, 0.1), (1, 0.0)):
        policy = TabularPolicy(problem.tree).set_probabilities(problem.reference.logits.detach().softmax(-1))
        own = OwnPairs(problem.tree, problem.golden, refresh)
        list(pair_training(ipo(tau=0.1), problem, policy, own, steps=6, step_size=size, rows=64))
        streams[refresh, size] = torch.cat(own.stream)
    assert torch.equal(streams[None, 0.1], streams[None, 0.0])
    assert torch.equal(streams[1, 0.0], streams[None, 0.0])
    assert not torch.equal(streams[1, 0.1], streams[1, 0.0])


def test_a_step_is_that_of_the_losses_formula() -> None:
    """IPO's and SFT's first step on one pair, by hand."""
    problem, _ = judged_answers(0, answers=4, known=3)
    start = problem.reference.logits.detach()
    pairs, size, tau = torch.tensor([[2, 0]]), 0.01, 0.25
    for algorithm, slope in (
        (ipo(tau=tau), 2 * (0 - 1 / (2 * tau)) * torch.tensor([[-1.0, 0.0, 1.0, 0.0]], dtype=torch.double)),
        (sft(), start.softmax(-1) - torch.tensor([[0.0, 0.0, 1.0, 0.0]], dtype=torch.double)),
    ):
        policy = TabularPolicy(problem.tree).set_probabilities(start.softmax(-1))
        before = policy.logits.detach().clone()
        found = list(pair_training(algorithm, problem, policy, FixedPairs(pairs), steps=1, step_size=size, rows=1))
        torch.testing.assert_close(policy.logits.detach() - before, -size * slope)
        assert [p["step"] for p in found] == [0.0, 1.0]
        assert found[0]["kl"] == pytest.approx(0.0, abs=1e-12)
        chance, base = policy.logits.detach()[0].softmax(0), start[0].softmax(0)
        assert found[1]["kl"] == pytest.approx(float((chance * (chance / base).log()).sum()))
