"""Corrections of verdicts: expectations, identities, and the rates that are estimated on the way; exact in float64."""

from __future__ import annotations

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.claims.problems.verifier import expected_push, verdicts
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.problems import digits
from polopt.methods.noisy_verifier import BackwardCorrected, FixedRates, ForwardCorrected, RejudgedRates
from polopt.part_diff import diff
from polopt.rewards import OutcomeReward

EXACT = {"rtol": 1e-12, "atol": 1e-14}


def of(outcome: list[float], **extras: object) -> po.Experience:
    mask = torch.ones(len(outcome), 1, dtype=torch.bool)
    return po.Experience(
        mask=mask,
        outcome=torch.tensor(outcome, dtype=torch.double),
        extras=extras,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("rho0", "rho1"), [(0.0, 0.0), (0.1, 0.2), (0.05, 0.7), (0.4, 0.45)])
def test_expectations_are_those_of_the_formulas(rho0: float, rho1: float) -> None:
    rates = FixedRates(false_positive=rho0, false_negative=rho1)
    backward, forward = (part(rates=rates)(of([0.0, 1.0])) for part in (BackwardCorrected, ForwardCorrected))
    for chance, clean in ((rho0, 0.0), (1 - rho1, 1.0)):  # of being paid, of a wrong and of a right answer
        mean = lambda r: (1 - chance) * r[0].item() + chance * r[1].item()  # noqa: B023, E731
        assert mean(backward) == pytest.approx(clean, abs=1e-12)
        assert mean(forward) == pytest.approx(0.0 if clean else -(1 - rho0 - rho1), abs=1e-12)
    assert (backward[1] - backward[0]).item() == pytest.approx(1 / (1 - rho0 - rho1), rel=1e-12)


def test_without_noise_backward_is_the_verdict_and_forward_punishes_the_refused() -> None:
    clean = FixedRates(false_positive=0.0, false_negative=0.0)
    batch = of([0.0, 1.0, 1.0, 0.0])
    assert torch.equal(BackwardCorrected(rates=clean)(batch), batch.outcome)
    assert ForwardCorrected(rates=clean)(batch).tolist() == [-1.0, 0.0, 0.0, -1.0]


def test_a_verdict_is_yes_or_no_whatever_is_paid_for_the_half_of_it() -> None:
    batch = of([0.0, 0.5, 0.99, 1.0, 2.0])
    assert torch.equal(ForwardCorrected()(batch), ForwardCorrected()(of([0.0, 0.0, 0.0, 1.0, 1.0])))


def test_the_denominator_has_a_floor() -> None:
    rates = FixedRates(false_positive=0.5, false_negative=0.48)
    reward = BackwardCorrected(rates=rates, least=0.25)(of([0.0, 1.0]))
    assert reward.tolist() == [-2.0, 2.0]


def test_a_z_score_undoes_the_correction_and_a_group_mean_undoes_the_forward_one() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    scored = RelativeAdvantage(scale=GroupStd(eps=0.0))
    grpo, backward = po.method("grpo", kl=0), po.method("noisy-verifier", correction="backward")
    same(slope(backward.but(credit=scored), batch, policy), slope(grpo.but(credit=scored), batch, policy))
    raw = grpo.but(credit=RelativeAdvantage(baseline=GroupMean(), scale=None))
    same(slope(backward, batch, policy), slope(raw, batch, policy) / 0.7)
    forward = po.method("noisy-verifier", correction="forward")
    centred = forward.but(credit=RelativeAdvantage(baseline=GroupMean(), scale=None))
    same(slope(centred, batch, policy), slope(raw, batch, policy))
    assert (slope(forward, batch, policy) - slope(raw, batch, policy)).abs().max() > 1e-3


def test_only_reward_and_credit_differ_from_grpo() -> None:
    for correction in ("backward", "forward"):
        ours = po.method("noisy-verifier", correction=correction)
        changed = {path.split(".")[0] for path, *_ in diff(ours, po.method("grpo", group=8, kl=0))}
        assert changed == {"reward", "credit"}


def test_kinds_have_rates_of_their_own() -> None:
    batch = of([1.0, 1.0, 0.0], kind=["a", "b", "a"])
    known = po.method("noisy-verifier", correction="backward", kinds=[("a", 0.2, 0.3)]).reward(batch)
    torch.testing.assert_close(known, torch.tensor([1.6, 0.9 / 0.7, -0.4], dtype=torch.double))
    own = {"judge": "signal_true", "share": 1.0, "kinds": [("a", 0.2, 0.3)]}
    judged = po.method("noisy-verifier", correction="forward", **own).reward
    judged(of([1.0, 1.0, 0.0], kind=["a", "b", "a"], signal_true=torch.tensor([1.0, 1.0, 1.0])))
    assert judged.rates.estimates()[1].tolist() == [0.45, 0.2]


def test_rates_may_differ_from_answer_to_answer_and_the_gradient_is_still_the_clean_one() -> None:
    tree = TokenTree.bandit([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    g = torch.Generator().manual_seed(0)
    rho0, rho1 = (0.45 * torch.rand(2, 3, generator=g, dtype=torch.double) for _ in range(2))
    alone = RelativeAdvantage(baseline=None, scale=None)
    sentence = po.method("noisy-verifier", correction="backward").but(
        credit=alone, **{"reward.rates": po.methods.noisy_verifier.NotedRates(), "reward.least": 1e-6}
    )
    same(expected_push(sentence, policy, tree, rho0, rho1), tree.gradient(policy))
    raw = sentence.but(reward=OutcomeReward())
    assert (expected_push(raw, policy, tree, rho0, rho1) - tree.gradient(policy)).abs().max() > 1e-3
    _, chance = verdicts(tree, rho0, rho1)
    torch.testing.assert_close(chance.view(2, -1).sum(0), torch.ones(6, dtype=torch.double), **EXACT)


def test_estimates_are_those_of_a_plain_count() -> None:
    """Everything judged again, smoothing by one half: the counts of both batches by hand."""
    rates = RejudgedRates(negatives=1.0, positives=1.0, decay=0.5, most=0.9)
    reward = BackwardCorrected(rates=rates)
    first = of([0, 0, 0, 0, 1, 1], signal_true=torch.tensor([1.0, 0, 0, torch.nan, 1, 0]))
    assert torch.equal(reward(first), first.outcome)  # before it was counted
    # Of 4 refused 3 were judged and 1 overturned: 4/3 right ones missed; of 2 paid 1 was wrong.
    rho0, rho1 = (rate.item() for rate in rates.estimates())
    assert rho1 == pytest.approx((4 / 3) / (4 / 3 + 2 - 1), rel=1e-12)
    assert rho0 == pytest.approx(1 / (1 + 4 - 4 / 3), rel=1e-12)
    reward(of([0, 1, 1, 1], signal_true=torch.tensor([0.0, 1, 1, 1])))
    missed = (0.5 * 4 + 1) * (0.5 * 1 + 0) / (0.5 * 3 + 1)
    wrong = (0.5 * 2 + 3) * (0.5 * 1 + 0) / (0.5 * 2 + 3)
    assert rates.estimates()[1].item() == pytest.approx(missed / (missed + 0.5 * 2 + 3 - wrong), rel=1e-12)


def test_what_was_never_judged_keeps_its_rate_and_no_estimate_passes_its_bound() -> None:
    rates = RejudgedRates(negatives=1.0, false_positive=0.07, false_negative=0.2, most=0.4, kinds=("a",))
    ForwardCorrected(rates=rates)(of([0, 0, 1], signal_true=torch.ones(3), kind=["a", "a", "a"]))
    rho0, rho1 = (rate.tolist() for rate in rates.estimates())
    assert rho0 == [0.07, 0.07]
    assert rho1 == [0.4, 0.2]
    unheard = RejudgedRates(negatives=1.0, false_negative=0.2)
    ForwardCorrected(rates=unheard)(of([0, 1], signal_true=torch.full((2,), torch.nan)))
    assert unheard.estimates()[1].item() == 0.2


def test_how_many_are_judged_again_does_not_hang_on_the_order_of_the_rows() -> None:
    g = torch.Generator().manual_seed(1)
    verdict, truth = (torch.randint(0, 2, (200,), generator=g) for _ in range(2))
    order = torch.randperm(200, generator=g)
    found = []
    for rows in (torch.arange(200), order):
        rates = RejudgedRates(negatives=0.3, positives=0.1, seed=5)
        for _ in range(3):
            ForwardCorrected(rates=rates)(of(verdict[rows].tolist(), signal_true=truth[rows].double()))
        found.append(rates.get_buffer("counts").clone())
    assert torch.equal(*found)
    rows, judged, overturned = found[0][0, 0].tolist()
    assert 0.2 < judged / rows < 0.4
    assert 0 < overturned < judged


def test_nothing_is_counted_in_evaluation() -> None:
    rates = RejudgedRates(negatives=1.0)
    ForwardCorrected(rates=rates).eval()(of([0, 1], signal_true=torch.ones(2)))
    assert rates.get_buffer("counts").abs().max() == 0


def test_bad_input_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"FixedRates: need rates >= 0 that add up to less than 1, found \[0.6, 0.4\]"):
        FixedRates(kinds=[("a", 0.6, 0.4)])
    with pytest.raises(ValueError, match="RejudgedRates: decay must be in"):
        RejudgedRates(decay=1.5)
    with pytest.raises(ValueError, match="BackwardCorrected: least must be > 0"):
        BackwardCorrected(least=0)
    with pytest.raises(po.ExperienceError, match=r"extras\['signal_true'\]"):
        po.method("noisy-verifier", judge="signal_true").reward(of([0.0]))
