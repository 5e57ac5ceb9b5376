"""The credit of tokens by hand, against soft values that are sums over answers, and through files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from polopt.credit import RewardToGo
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.soft_values import soft_optimum
from polopt.methods.dpo import dpo
from polopt.methods.r_to_q import TokenCredit, r_to_q
from polopt.metrics import MetricDataError, ScoredTokens
from polopt.metrics.token_credit import scored_tokens, token_row
from polopt.objectives import LogRatioReward
from polopt.rewards import PolicyLogRatio
from polopt.training import measuring

MASK = [[True, True, True], [True, True, False]]
LOGP = [[-1.0, -5.0, -2.0], [-3.0, -1.0, -9.0]]
REF = [[-2.0, -2.0, -2.0], [-2.0, -3.0, -9.0]]
WRONG = [[False, True, False], [False, True, False]]


def small() -> ScoredTokens:
    return ScoredTokens(MASK, LOGP, REF, WRONG, [["a", "b", "c"], ["d", "e"]])


def test_by_hand() -> None:
    found = r_to_q(beta=0.1)(small())
    # Credits 0.1, -0.3, 0 and -0.1, 0.2.
    np.testing.assert_allclose(found.rows["reward"], [-0.2, 0.1], atol=1e-15)
    assert found.rows["least"].tolist() == [1, 0]
    assert found.rows["length"].tolist() == [3, 2]
    assert found.values["reward"] == pytest.approx(-0.05)
    assert found.values["reward_per_token"] == pytest.approx((-0.2 / 3 + 0.1 / 2) / 2)
    assert found.values["located"] == 0.5
    assert found.values["chance"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert found.intervals["located"].n == 2
    first, second = TokenCredit(beta=0.1).trace(small())
    assert first.record()["tokens"] == ["a", "b", "c"]
    np.testing.assert_allclose(first.value, [0.1, -0.2, -0.2], atol=1e-15)
    assert str(second).splitlines() == ["d  -0.100  -0.100", "e  +0.200  +0.100"]


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_soft_values_are_sums_over_answers(beta: float) -> None:
    """V*(s) = beta log E_ref[exp(R / beta) | s] where only the whole answer is rewarded."""
    tree = TokenTree.full(
        3, 3, lambda p, answer: math.sin(17 * p + sum(5**i * a for i, a in enumerate(answer))), prompts=2
    )
    reference = TabularPolicy(tree, spread=1.0, seed=2)
    best, value = soft_optimum(tree, reference, beta)
    leaves, base = tree.leaves(), tree.log_probabilities(reference).detach().flatten().numpy()
    outcome = tree.outcome.flatten().numpy()
    for node in range(len(value)):
        below = ((tree.nodes == node) & leaves.mask).any(1).numpy()
        expected = beta * (logsumexp(base[below] + outcome[below] / beta) - logsumexp(base[below]))
        assert value[node].item() == pytest.approx(expected, abs=1e-12)
    law = tree.log_probabilities(best).detach().exp()
    torch.testing.assert_close(law, (torch.from_numpy(base).view(2, -1) + tree.outcome / beta).softmax(1))
    with pytest.raises(ValueError, match="beta must be > 0, found 0"):
        soft_optimum(tree, reference, 0.0)


def test_the_sum_is_dpos_implicit_reward() -> None:
    tree = TokenTree.full(3, 3, lambda _, answer: float(answer[0]))
    policy, reference = (TabularPolicy(tree, spread=1.0, seed=seed) for seed in (0, 1))
    leaves = tree.leaves()
    leaves = leaves.replace(ref_logp=reference.evaluate(leaves).logp.detach())
    data = ScoredTokens.of_experience(leaves, policy.evaluate(leaves), torch.zeros_like(leaves.mask))
    implicit = dpo(beta=0.3).objective.implicit
    assert isinstance(implicit, LogRatioReward)
    expected = implicit(leaves, policy.evaluate(leaves)).detach().numpy()
    np.testing.assert_allclose(r_to_q(beta=0.3)(data).rows["reward"], expected, rtol=1e-13)
    assert "located" not in r_to_q()(data).values
    # The same credit as an advantage: the dense reward of each token alone.
    batch = leaves.replace(extras={"dpo_logp": policy.evaluate(leaves).logp.detach()})
    batch = batch.replace(reward=PolicyLogRatio(coefficient=0.3)(batch))
    np.testing.assert_allclose(RewardToGo(gamma=0.0)(batch).numpy(), data.credit(0.3), rtol=1e-13)


def test_a_file_has_a_token_a_row(tmp_path: Path) -> None:
    data = small()
    lines = []
    for i, n in enumerate((3, 2)):
        for t in reversed(range(n)):
            row = {"answer": i, "step": t, "logp": LOGP[i][t], "ref_logp": REF[i][t], "wrong": int(WRONG[i][t])}
            lines.append(json.dumps(row))
    path = tmp_path / "tokens.jsonl"
    path.write_text("\n".join(lines))
    assert measuring.measure("r-to-q", path).values == r_to_q()(data).values
    assert measuring.measure("r-to-q", path, beta=0.2).values["reward"] == pytest.approx(-0.1)
    path.write_text("\n".join(lines[:1] + lines[2:]))
    with pytest.raises(MetricDataError, match="steps must be 0 to 1 without a gap"):
        measuring.measure("r-to-q", path)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="need beta > 0"):
        r_to_q(beta=0.0)
    with pytest.raises(MetricDataError, match="logp must be finite log-probabilities <= 0, found 1"):
        ScoredTokens([[True]], [[1.0]], [[-1.0]])
    with pytest.raises(MetricDataError, match=r"ref_logp must be \[1, 1\], found \[1, 2\]"):
        ScoredTokens([[True]], [[-1.0]], [[-1.0, -1.0]])
    with pytest.raises(MetricDataError, match="1 rows without one"):
        ScoredTokens([[False]], [[-1.0]], [[-1.0]])
    with pytest.raises(MetricDataError, match="one text for each token"):
        ScoredTokens([[True]], [[-1.0]], [[-1.0]], None, [["a", "b"]])
    row = {"answer": "x", "step": 0, "logp": -1, "ref_logp": -1}
    for change, error in (
        ({"answer": ""}, "'answer' is missing or empty"),
        ({"step": 0.5}, "step must be a whole number >= 0, found 0.5"),
        ({"wrong": 2}, "wrong must be 0 or 1, found 2"),
        ({"ref_logp": 0.5}, "ref_logp must be a log-probability <= 0, found 0.5"),
    ):
        with pytest.raises(MetricDataError, match=error):
            token_row(row | change)
    one = token_row(row)
    with pytest.raises(MetricDataError, match='row 2: step 0 of answer "x" is there twice'):
        scored_tokens([(1, one), (2, one)])
    with pytest.raises(MetricDataError, match="without a gap"):
        scored_tokens([(1, token_row(row | {"step": 1}))])
    with pytest.raises(MetricDataError, match="wrong is empty in some rows"):
        scored_tokens([(1, one), (2, token_row(row | {"step": 1, "wrong": 1}))])
    with pytest.raises(MetricDataError, match="there are no tokens"):
        scored_tokens([])
