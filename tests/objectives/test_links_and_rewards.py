"""Links, implicit rewards and win rates, against their formulas written out row by row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import polopt as po
from polopt.credit import ConstantBaseline, RelativeAdvantage
from polopt.objectives import (
    GuidedLogRatioReward,
    LogisticLink,
    LogProbReward,
    LogRatioReward,
    PairedObjective,
    RegressionLink,
    RegressionObjective,
    SoftLink,
    SumOfImplicitRewards,
)
from polopt.rewards import JudgedPreference, OutcomePreference, PolicyLogRatio, WinRate
from polopt.rewards.judges.parts import Judge, Judgement
from polopt.sampling import ExtremeRows

WIDTH = 5


def batch(rows: int = 8, group: int = 4, seed: int = 0) -> tuple[po.Experience, Tensor]:
    """Rows in groups with different outcomes and advantages; their log-probabilities, NaN off the mask."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.arange(WIDTH) < torch.randint(1, WIDTH + 1, (rows, 1), generator=g)
    law = lambda: (-3 * torch.rand(rows, WIDTH, generator=g, dtype=torch.double)).masked_fill(~mask, torch.nan)  # noqa: E731
    value = torch.rand(rows, generator=g, dtype=torch.double)
    found = po.Experience(
        mask=mask,
        rollout_logp=law(),
        old_logp=law(),
        ref_logp=law(),
        advantage=value[:, None].expand(rows, WIDTH).masked_fill(~mask, torch.nan),
        outcome=torch.rand(rows, generator=g, dtype=torch.double),
        group=torch.arange(rows) // group,
        extras={"guide_logp": law()},
    )
    return found, law()


def total(x: Tensor) -> list[float]:
    return [sum(v for v in row if not math.isnan(v)) for row in x.tolist()]


def test_the_loss_of_rebel_is_that_of_each_pair_written_out() -> None:
    found, logp = batch()
    eta = 0.7
    objective = PairedObjective(
        implicit=LogRatioReward(scale=1 / eta, anchor="sampler"), link=RegressionLink(), by="advantage"
    )
    reward = found.advantage[:, 0].tolist()
    ratio = [(a - b) / eta for a, b in zip(total(logp), total(found.rollout_logp), strict=True)]
    terms = [
        (ratio[i] - ratio[j] - (reward[i] - reward[j])) ** 2
        for start in (0, 4)
        for i in range(start, start + 4)
        for j in range(i + 1, start + 4)
    ]
    assert objective(found, po.Evaluation(logp=logp)).loss.item() == pytest.approx(sum(terms) / 12, abs=1e-12)


def test_a_scale_of_the_gap_is_the_inverse_scale_of_the_reward() -> None:
    found, logp = batch()
    one = PairedObjective(
        implicit=LogRatioReward(scale=1.0, anchor="sampler"), link=RegressionLink(scale=0.7), by="advantage"
    )
    two = one.but({"implicit.scale": 1 / 0.7, "link.scale": 1.0})
    losses = [objective(found, po.Evaluation(logp=logp)).loss.item() for objective in (one, two)]
    assert losses[0] == pytest.approx(0.7**2 * losses[1], abs=1e-12)


@pytest.mark.parametrize("share", [0.5, 0.7, 1.0])
def test_votes_are_a_mixture_of_the_logistic_losses(share: float) -> None:
    margin = torch.linspace(-3, 3, 7, dtype=torch.double).requires_grad_()
    gap = torch.full_like(margin, 2 * share - 1)
    plain = LogisticLink()
    expected = share * plain(margin, gap) + (1 - share) * plain(-margin, gap)
    torch.testing.assert_close(SoftLink()(margin, gap), expected, rtol=0, atol=1e-12)
    if share < 1:  # the slope vanishes where the margin's probability is the share
        at = torch.tensor(math.log(share / (1 - share)), dtype=torch.double, requires_grad=True)
        (slope,) = torch.autograd.grad(SoftLink()(at, torch.full_like(at, 2 * share - 1)), at)
        assert slope.abs() < 1e-12


def test_two_anchors_are_their_geometric_mixture() -> None:
    found, logp = batch()
    found = found.zero_masked()
    terms = [LogRatioReward(scale=0.25), LogRatioReward(scale=0.75, anchor="old")]
    mixed = SumOfImplicitRewards(terms=terms)(found, po.Evaluation(logp=logp).zero_masked(found.mask))
    parts = zip(total(logp), total(found.ref_logp), total(found.old_logp), strict=True)
    assert mixed.tolist() == pytest.approx([now - 0.25 * ref - 0.75 * old for now, ref, old in parts], abs=1e-12)


def test_an_attenuated_reference() -> None:
    found, logp = batch()
    found = found.zero_masked()
    beta, gamma = 0.3, 0.4
    terms = [LogRatioReward(scale=gamma * beta), LogProbReward(scale=(1 - gamma) * beta, decisions="sum")]
    mixed = SumOfImplicitRewards(terms=terms)(found, po.Evaluation(logp=logp).zero_masked(found.mask))
    parts = zip(total(logp), total(found.ref_logp), strict=True)
    assert mixed.tolist() == pytest.approx([beta * (now - gamma * ref) for now, ref in parts], abs=1e-12)


def test_a_guide_weighs_the_decisions_of_both_sides() -> None:
    found, logp = batch(rows=4, group=2)
    beta, alpha = 0.9, 2.0
    guided = GuidedLogRatioReward(scale=beta, alpha=alpha)
    reward = guided(found.zero_masked(), po.Evaluation(logp=logp).zero_masked(found.mask))
    guide, ref, now = (x.tolist() for x in (found.extras["guide_logp"], found.ref_logp, logp))
    outcome, clamped = found.outcome.tolist(), 0
    for row in range(4):
        sign = 1 if outcome[row] > outcome[row ^ 1] else -1
        expected = 0.0
        for t in range(int(found.mask[row].sum())):
            weight = 1 + sign * alpha * beta * (guide[row][t] - ref[row][t])
            clamped += weight < 0
            expected += beta * max(0.0, weight) * (now[row][t] - ref[row][t])
        assert reward[row].item() == pytest.approx(expected, abs=1e-12)
    assert clamped, "some weight must reach 0 for the test to see the clamp"


def test_without_a_guide_the_reward_is_dpos() -> None:
    found, logp = batch()
    found, evaluation = found.zero_masked(), po.Evaluation(logp=logp).zero_masked(found.mask)
    plain = LogRatioReward(scale=0.4)(found, evaluation)
    torch.testing.assert_close(GuidedLogRatioReward(scale=0.4, alpha=0.0)(found, evaluation), plain)
    same = found.replace(extras={"guide_logp": found.ref_logp})
    torch.testing.assert_close(GuidedLogRatioReward(scale=0.4, alpha=5.0)(same, evaluation), plain)


def test_rows_are_regressed_on_their_advantage() -> None:
    found, logp = batch()
    loss = RegressionObjective(scale=3.0)(found, po.Evaluation(logp=logp)).loss.item()
    ratio = [a - b for a, b in zip(total(logp), total(found.rollout_logp), strict=True)]
    target = [3 * value for value in found.advantage[:, 0].tolist()]
    assert loss == pytest.approx(sum((r - t) ** 2 for r, t in zip(ratio, target, strict=True)) / 8, abs=1e-12)


def test_win_rates_of_a_group_and_of_a_row_alone() -> None:
    outcome = torch.tensor([3.0, 1.0, 1.0, 5.0], dtype=torch.double)
    rows = po.Experience(mask=torch.ones(4, 1, dtype=torch.bool), outcome=outcome, group=torch.tensor([0, 0, 0, 1]))
    assert WinRate()(rows).tolist() == [1.0, 0.25, 0.25, 0.5]
    assert WinRate(own=True)(rows).tolist() == pytest.approx([2.5 / 3, 1 / 3, 1 / 3, 0.5])
    soft = WinRate(preference=OutcomePreference(temperature=2.0))(rows)
    assert soft[0].item() == pytest.approx(1 / (1 + math.exp(-1)))
    assert soft[1].item() == pytest.approx((1 / (1 + math.exp(1)) + 0.5) / 2)


class FirstIsBetter(Judge):
    """A judge with a bias for whichever answer it reads first, and for longer ones."""

    compares = True

    def forward(self, prompts: Any, answers: Any, references: Any = None) -> Judgement:
        scores = [0.6 + 0.1 * (len(a) - len(b)) for a, b in zip(answers, references, strict=True)]
        return Judgement(torch.tensor(scores), [{} for _ in scores])


class Reads(Judge):
    def forward(self, prompts: Any, answers: Any, references: Any = None) -> Judgement:
        return Judgement(torch.zeros(len(answers)), [{} for _ in answers])


def judged(answers: list[str]) -> po.Experience:
    task = type("Task", (), {"prompt": "?", "solution": None})()
    extras = {"task": [task] * len(answers), "answer": answers}
    return po.Experience(
        mask=torch.ones(len(answers), 1, dtype=torch.bool),
        outcome=torch.zeros(len(answers)),
        group=torch.zeros(len(answers), dtype=torch.long),
        extras=extras,
    )


def test_a_judges_bias_for_the_first_answer_is_taken_off() -> None:
    found = WinRate(preference=JudgedPreference(judge=FirstIsBetter()))(judged(["aaa", "a", "aa"]))
    assert found.tolist() == pytest.approx([0.65, 0.35, 0.5])
    assert found.mean().item() == pytest.approx(0.5)


def test_judges_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ValueError, match="take a judge that compares two"):
        JudgedPreference(judge=Reads())
    with pytest.raises(ValueError, match=r"scores must be in \[0, 1\], found .* to 1.2"):
        WinRate(preference=JudgedPreference(judge=FirstIsBetter()))(judged(["aaaaaaaaa", "aaa"]))


def test_a_policys_log_ratio_is_clipped_by_decision() -> None:
    found, _ = batch()
    reward = PolicyLogRatio(coefficient=0.5, limit=0.3, policy="guide")(found.zero_masked())
    plain = 0.5 * (found.extras["guide_logp"] - found.ref_logp)
    for here, value, decided in zip(
        reward.flatten().tolist(), plain.flatten().tolist(), found.mask.flatten().tolist(), strict=True
    ):
        assert here == pytest.approx(max(-0.3, min(0.3, value)) if decided else 0.0, abs=1e-12)
    assert (reward.abs() == 0.3).any()


def test_the_best_and_the_worst_of_a_group_are_kept() -> None:
    value = torch.tensor([1.0, 3.0, 0.0, 3.0, 2.0, 2.0])
    rows = po.Experience(
        mask=torch.ones(6, 1, dtype=torch.bool), advantage=value[:, None], group=torch.tensor([0, 0, 0, 0, 1, 1])
    )
    kept = ExtremeRows()(rows)
    assert kept.advantage.flatten().tolist() == [3.0, 0.0]


def test_a_constant_baseline() -> None:
    found, _ = batch()
    found = found.replace(reward=found.outcome)
    advantage = RelativeAdvantage(baseline=ConstantBaseline(value=0.5), scale=None)(found)
    assert torch.equal(advantage[:, 0], found.outcome - 0.5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RegressionLink(scale=0.0), "scale must be > 0, found 0"),
        (lambda: RegressionObjective(scale=-1.0), "scale must be > 0, found -1"),
        (lambda: GuidedLogRatioReward(alpha=-1.0), "alpha must be >= 0, found -1"),
        (lambda: SumOfImplicitRewards(terms=[]), "needs at least one term"),
        (lambda: OutcomePreference(temperature=-1.0), "temperature must be >= 0, found -1"),
        (lambda: PolicyLogRatio(limit=0.0), "limit must be > 0, found 0"),
        (lambda: PolicyLogRatio(policy="Not plain"), "plain name"),
    ],
)
def test_settings_without_meaning_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
