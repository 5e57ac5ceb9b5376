"""Rankings of pairs against counts by hand, closed forms and a trained policy's own batch."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import polopt as po
from polopt.config import ConfigError
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.preferences import paired
from polopt.methods.ranking_accuracy import RankingAccuracy, ranking_accuracy
from polopt.metrics import MetricDataError, RankedPairs, idealised_margin, margin_at_loss
from polopt.objectives import HingeLink, LogisticLink, SquaredLink
from polopt.training import measuring

# Four pairs: the reference ranks the first two right; the policy turns the third and loses the second.
PAIRS = {
    "chosen_logps": [-10.0, -30.0, -12.0, -40.0],
    "rejected_logps": [-20.0, -25.0, -15.0, -20.0],
    "ref_chosen_logps": [-12.0, -20.0, -20.0, -50.0],
    "ref_rejected_logps": [-18.0, -22.0, -14.0, -21.0],
    "chosen_length": [5, 10, 6, 20],
    "rejected_length": [4, 12, 5, 8],
}


def test_by_hand() -> None:
    found = ranking_accuracy(beta=0.1, agreement=0.75)(RankedPairs(**PAIRS))
    assert found.values["ranking_accuracy"] == found.values["reference_accuracy"] == 0.5
    # Per token: -2 > -5, -3 < -2.08, -2 > -3, -2 > -2.5; reference -2.4 > -4.5, -2 < -1.83, -3.3 < -2.8, -2.5 > -2.6.
    assert found.values["ranking_accuracy_per_token"] == 0.75
    assert found.values["reference_accuracy_per_token"] == 0.5
    # Ideal margins are the reference's 6, 2, -6 and -29 plus log(3) / 0.1 = 10.99.
    assert found.values["idealised_accuracy"] == 0.75
    assert found.values["alignment_gap"] == 0.25
    # Implicit rewards 4, -7, 9 and 9.
    assert found.values["implicit_accuracy"] == 0.75
    assert found.values["flipped"] == found.values["unlearned"] == 0.5
    z = np.array([0.4, -0.7, 0.9, 0.9])
    np.testing.assert_allclose(found.rows["loss"], np.log1p(np.exp(-z)), rtol=1e-12)
    np.testing.assert_allclose(found.rows["flip_loss"], np.log1p(np.exp([0.6, 0.2, -0.6, -2.9])), rtol=1e-12)
    # At the mean loss of each pair the margin is z*, which the needed -0.6, -0.2, 0.6, 2.9 reach or not.
    target = np.log1p(np.exp(-z)).mean()
    assert found.values["loss"] == pytest.approx(target)
    star = -math.log(math.expm1(target))
    assert found.values["flippable"] == np.mean(np.array([-0.6, -0.2, 0.6, 2.9]) <= star)
    assert found.intervals["ranking_accuracy"].n == 4


def test_settings_of_the_loss() -> None:
    pairs = RankedPairs(**PAIRS)
    half = ranking_accuracy(beta=0.2, attenuation=0.5)(pairs)
    plain = ranking_accuracy(beta=0.1)(pairs)
    np.testing.assert_allclose(half.rows["flip_loss"], plain.rows["flip_loss"])  # beta times attenuation
    free = ranking_accuracy(attenuation=0.0)(pairs)
    np.testing.assert_allclose(free.rows["flip_loss"], math.log(2))
    assert free.values["implicit_accuracy"] == free.values["ranking_accuracy"] == 0.5
    assert ranking_accuracy(target_loss=0.05)(pairs).values["flippable"] == 1.0
    assert ranking_accuracy(target_loss=0.5)(pairs).values["flippable"] == 0.5


@pytest.mark.parametrize(
    ("link", "loss", "expected", "bottom"),
    [
        (LogisticLink(), 0.6, -math.log(math.expm1(0.6)), None),
        (LogisticLink(shift=1.5), 0.6, 1.5 - math.log(math.expm1(0.6)), None),
        (LogisticLink(label_smoothing=0.2), 0.0, math.log(4), math.log(4)),
        (SquaredLink(target=5.0), 4.0, 3.0, 5.0),
        (SquaredLink(target=5.0), -1.0, 5.0, 5.0),
        (HingeLink(threshold=2.0), 0.5, 1.5, 2.0),
    ],
)
def test_margins_at_a_loss(link, loss, expected, bottom) -> None:
    found = margin_at_loss(RankingAccuracy(link=link)._loss_of, loss)
    assert found[0] == pytest.approx(expected, abs=1e-6)
    assert bottom is None or found[1] == pytest.approx(bottom, abs=1e-6)


def test_a_pair_beyond_the_minimum_cannot_be_turned() -> None:
    pairs = RankedPairs(**PAIRS)
    found = ranking_accuracy(beta=1.0, link=SquaredLink(target=5.0))(pairs)
    np.testing.assert_array_equal(np.isnan(found.rows["flip_loss"]), [False, False, True, True])
    assert found.values["unreachable"] == 0.5
    smooth = ranking_accuracy(link=LogisticLink(label_smoothing=0.3), target_loss=0.1)(pairs)
    assert "never falls to the target" in smooth.cautions[0]


def test_rank_and_loss_agree_for_every_link() -> None:
    draw = np.random.default_rng(0)
    for link in (LogisticLink(), SquaredLink(target=3.0), HingeLink(threshold=2.0)):
        pairs = RankedPairs(*-draw.exponential(3.0, (4, 3000)))
        found = ranking_accuracy(beta=0.5, link=link)(pairs).rows
        z = 0.5 * (found["margin"] - found["reference_margin"])
        left = z <= margin_at_loss(RankingAccuracy(link=link)._loss_of, -1.0)[1]  # the side on which the loss falls
        kept = left & ~np.isnan(found["flip_loss"])
        assert kept.sum() > 500
        np.testing.assert_array_equal((found["loss"] <= found["flip_loss"])[kept], (found["margin"] >= 0)[kept])


def test_ideal_margins() -> None:
    found = idealised_margin([1.0, -1.0], [0.5, 1.0], 0.5)
    np.testing.assert_allclose(found, [1.0, -1.0 + 2 * math.log(999)])
    with pytest.raises(ValueError, match="need beta > 0"):
        idealised_margin([1.0], 0.5, 0.0)


def test_before_training_the_reference_is_enough() -> None:
    known = {name: values for name, values in PAIRS.items() if "ref_" in name}
    found = ranking_accuracy()(RankedPairs(**known))
    assert {"reference_accuracy", "unreachable", "median_flip_loss"} == set(found.values)
    assert ranking_accuracy(target_loss=0.3)(RankedPairs(**known)).values["flippable"] == 0.75
    with pytest.raises(MetricDataError, match="chosen_length is missing"):
        RankedPairs(**known).margin(reference=True, per_token=True)


def test_tensors_batches_and_a_second_policy() -> None:
    tree = TokenTree.full(2, 3, lambda prompt, answer: 0.0)
    reference, policy = (TabularPolicy(tree, spread=1.0, seed=seed) for seed in (1, 2))
    chosen, rejected = [0, 3, 5], [1, 2, 7]
    batch = paired(tree, reference, list(zip(chosen, rejected, strict=True)))
    turned = batch[torch.tensor([1, 0, 2, 3, 5, 4])]
    logps = [tree.log_probabilities(p).detach()[0] for p in (policy, reference)]
    by_hand = RankedPairs(logps[0][chosen], logps[0][rejected], logps[1][chosen], logps[1][rejected], [3] * 3, [3] * 3)
    for rows in (batch, turned):
        found = RankedPairs.of_experience(rows, policy.evaluate(rows))
        np.testing.assert_allclose(found.margin(), by_hand.margin(), atol=1e-12)
        np.testing.assert_allclose(found.margin(reference=True), by_hand.margin(reference=True), atol=1e-12)
    alone = RankedPairs(logps[1][chosen], logps[1][rejected])
    again = RankedPairs(logps[0][chosen], logps[0][rejected]).with_reference(alone)
    assert ranking_accuracy()(again).values["flipped"] == ranking_accuracy()(by_hand).values["flipped"]
    with pytest.raises(MetricDataError, match="evaluate both on the same pairs"):
        by_hand.with_reference(alone[[0, 1]])
    with pytest.raises(MetricDataError, match="every group must be a pair"):
        RankedPairs.of_experience(batch[torch.arange(3)], policy.evaluate(batch[torch.arange(3)]))


def test_a_file(tmp_path: Path) -> None:
    rows = [dict(zip(PAIRS, values, strict=True)) for values in zip(*PAIRS.values(), strict=True)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(json.dumps({**row, "prompt": "x"}) for row in rows))
    expected = ranking_accuracy()(RankedPairs(**PAIRS)).values
    assert measuring.measure("ranking-accuracy", file).values == expected
    file.write_text("\n".join(map(json.dumps, [rows[0], {**rows[1], "chosen_length": None}])))
    with pytest.raises(MetricDataError, match="row 2: chosen_length is empty"):
        measuring.measure("ranking-accuracy", file)
    file.write_text(json.dumps({**rows[0], "chosen_logps": 3}))
    with pytest.raises(ConfigError, match="line 1: RankedPairs: chosen_logps must be sums of log-probabilities"):
        measuring.measure("ranking-accuracy", file)
    file.write_text(json.dumps({"prompt": "x"}))
    with pytest.raises(ConfigError, match="needs chosen_logps and rejected_logps, or ref_chosen_logps"):
        measuring.measure("ranking-accuracy", file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rejected_logps": None}, "come together"),
        ({"chosen_logps": [-1.0]}, r"all must be \[N\], N >= 1, found chosen_logps \[1\]"),
        ({"chosen_logps": [math.nan] * 4}, "chosen_logps must be finite"),
        ({"chosen_length": [0] * 4}, "chosen_length must be >= 1"),
        ({"agreement": [2] * 4}, r"agreement must be in \[0, 1\], found 2"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message) -> None:
    with pytest.raises(MetricDataError, match=message):
        RankedPairs(**{**PAIRS, **changes})
    with pytest.raises(MetricDataError, match="give the log-probabilities"):
        RankedPairs(agreement=[0.5])


@pytest.mark.parametrize("settings", [{"beta": 0.0}, {"attenuation": 3.0}, {"agreement": 1.5}, {"clip": 0.6}])
def test_settings_are_checked(settings) -> None:
    with pytest.raises(ValueError, match="ranking_accuracy"):
        RankingAccuracy(**settings)
    assert isinstance(po.metric("ranking-accuracy"), RankingAccuracy)
