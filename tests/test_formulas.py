"""Published formulas, composed of parts, against the same formulas in plain loops: 1e-10 in float64, gradient too."""

from __future__ import annotations

import math

import loops
import pytest
import torch
from batches import SampleBatch, random_batch

import polopt as po
from polopt.credit import GAE, GroupStd, LeaveOneOut, MovingAverage, RelativeAdvantage, RewardToGo, WhitenedAdvantage
from polopt.objectives import (
    Clip,
    ClipWeight,
    EntropyBonus,
    OldPolicyRatio,
    PolicyGradient,
    ReferenceKL,
    SequenceMean,
    SequenceRatio,
    SequenceSum,
    Surrogate,
    TokenMean,
    TokenRatio,
    TruncatedImportance,
    ValueLoss,
)
from polopt.rewards import KLPenalty, OutcomeReward, OverlongPenalty, SumOfRewards

SEEDS = pytest.mark.parametrize("seed", range(4))
BASE = po.Algorithm()


def close(found, expected, tolerance=1e-10):
    found = float(found.detach()) if isinstance(found, torch.Tensor) else found
    assert found == pytest.approx(expected, abs=tolerance, rel=tolerance)


def credited(batch: SampleBatch, expected: list[float], credit: po.credit.Credit) -> SampleBatch:
    """Check the credit decision by decision; the batch that carries it."""
    found = credit(batch.experience)
    for i, row in enumerate(loops.decisions(batch.experience)):
        for t in range(found.shape[1]):
            close(found[i, t], expected[i] if t in row else 0.0)
    return SampleBatch(batch.experience.replace(advantage=found), batch.leaves)


def agree(objective, batch: SampleBatch, weigh, term) -> None:
    """Loss and gradient by logp against `term(i, t) -> (value, {column: derivative})` with row weights."""
    result = objective(batch.experience, batch.evaluation())
    (grad,) = torch.autograd.grad(result.loss, batch.leaves["logp"])
    loss, slopes = loops.total(loops.decisions(batch.experience), weigh, term)
    close(result.loss, loss)
    for i in range(grad.shape[0]):
        for t in range(grad.shape[1]):
            close(grad[i, t], slopes.get((i, t), 0.0))


class Numbers:
    """What the loops read of a batch."""

    def __init__(self, batch: SampleBatch):
        e = batch.experience
        self.now = batch.leaves["logp"].tolist()
        self.then, self.ref, self.old = e.rollout_logp.tolist(), e.ref_logp.tolist(), e.old_logp.tolist()
        self.rows = loops.decisions(e)
        self.n = [len(row) for row in self.rows]
        self.tokens, self.filled = sum(self.n), sum(n > 0 for n in self.n)

    def ratio(self, i, t):
        return math.exp(self.now[i][t] - self.then[i][t])

    def token_mean(self, i):
        return 1 / self.tokens

    def sequence_mean(self, i):
        return 1 / (self.filled * self.n[i])


@SEEDS
def test_grpo(seed):
    batch = random_batch(seed)
    algorithm = po.method("grpo", kl=0.04, clip=0.1)
    A = loops.grpo_advantage(batch.experience, 1e-6)
    batch = credited(batch, A, algorithm.credit)
    x = Numbers(batch)

    def term(i, t):
        r, (kl, kl_slope) = x.ratio(i, t), loops.k3(x.now[i][t], x.ref[i][t])
        value, slope = loops.clipped(r, A[i], 0.1, 0.1)
        return value + 0.04 * kl, {t: slope * r + 0.04 * kl_slope}

    agree(algorithm.objective, batch, x.sequence_mean, term)


@SEEDS
def test_dr_grpo(seed):
    batch = random_batch(seed)
    algorithm = BASE.but(credit=RelativeAdvantage(scale=None), **{"objective.aggregate": SequenceSum()})
    A = loops.centred_advantage(batch.experience)
    batch = credited(batch, A, algorithm.credit)
    x, rows = Numbers(batch), len(batch.mask)

    def term(i, t):
        r = x.ratio(i, t)
        value, slope = loops.clipped(r, A[i], 0.2, 0.2)
        return value, {t: slope * r}

    agree(algorithm.objective, batch, lambda i: 1 / (rows * batch.experience.horizon), term)


@SEEDS
def test_dapo(seed):
    batch = random_batch(seed)
    algorithm = BASE.but(objective=Surrogate(trust=Clip(low=0.2, high=0.28), aggregate=TokenMean()))
    A = loops.grpo_advantage(batch.experience, 1e-6)
    batch = credited(batch, A, algorithm.credit)
    x = Numbers(batch)

    def term(i, t):
        r = x.ratio(i, t)
        value, slope = loops.clipped(r, A[i], 0.2, 0.28)
        return value, {t: slope * r}

    agree(algorithm.objective, batch, x.token_mean, term)


@SEEDS
def test_gspo(seed):
    batch = random_batch(seed)
    objective = Surrogate(ratio=SequenceRatio(), trust=Clip(low=0.03, high=0.04), aggregate=SequenceMean())
    A = loops.grpo_advantage(batch.experience, 1e-6)
    batch = credited(batch, A, RelativeAdvantage())
    x = Numbers(batch)

    def term(i, t):
        s = math.exp(sum(x.now[i][u] - x.then[i][u] for u in x.rows[i]) / x.n[i])
        value, slope = loops.clipped(s, A[i], 0.03, 0.04)
        return value, dict.fromkeys(x.rows[i], slope * s / x.n[i])

    agree(objective, batch, x.sequence_mean, term)


@SEEDS
@pytest.mark.parametrize("low", [None, 0.1])
def test_cispo(seed, low):
    batch = random_batch(seed)
    A = loops.grpo_advantage(batch.experience, 1e-6)
    batch = credited(batch, A, RelativeAdvantage())
    x = Numbers(batch)

    def term(i, t):
        w = min(x.ratio(i, t), 1.15)
        w = w if low is None else max(w, 1 - low)
        return -w * A[i] * x.now[i][t], {t: -w * A[i]}

    agree(Surrogate(trust=ClipWeight(low=low, high=0.15)), batch, x.token_mean, term)


@SEEDS
def test_rloo(seed):
    batch = random_batch(seed)
    algorithm = po.method("rloo", kl=0.05)
    x = Numbers(batch)
    shaped = [
        batch.experience.outcome[i].item() - 0.05 * sum(x.then[i][t] - x.ref[i][t] for t in row)
        for i, row in enumerate(x.rows)
    ]
    judged = algorithm.compute_advantages(batch.experience.replace(reward=None))
    for found, expected in zip(judged.returns(), shaped, strict=True):
        close(found, expected)
    A = loops.rloo_advantage(batch.experience.replace(reward=torch.tensor(shaped, dtype=torch.float64)))
    batch = credited(SampleBatch(judged, batch.leaves), A, RelativeAdvantage(baseline=LeaveOneOut(), scale=None))

    def term(i, t):
        return -A[i] * x.now[i][t], {t: -A[i]}

    agree(algorithm.objective, batch, lambda i: 1 / len(batch.mask), term)


@SEEDS
@pytest.mark.parametrize("dual", [None, 1.3])
def test_ppo(seed, dual):
    """Clip or dual clip on GAE, entropy bonus and clipped value loss, all under one token mean."""
    batch, gamma, lam = random_batch(seed), 0.9, 0.8
    credit = GAE(gamma=gamma, lam=lam)
    A = loops.gae(batch.experience, gamma, lam)
    found = credit(batch.experience)
    for i, row in enumerate(A):
        for t, a in row.items():
            close(found[i, t], a)
    batch = SampleBatch(credit.credited(batch.experience), batch.leaves)
    x = Numbers(batch)
    objective = Surrogate(
        trust=Clip(low=0.1, high=0.1, dual=dual),
        regularise=[ValueLoss(coefficient=0.7, clip=0.3), EntropyBonus(coefficient=0.02)],
    )
    old, now = batch.experience.value.tolist(), batch.leaves["value"].tolist()
    entropy = batch.leaves["entropy"].tolist()

    def term(i, t):
        r = x.ratio(i, t)
        value, slope = loops.clipped(r, A[i][t], 0.1, 0.1, dual)
        target = A[i][t] + old[i][t]
        near = min(max(now[i][t], old[i][t] - 0.3), old[i][t] + 0.3)
        critic = max((now[i][t] - target) ** 2, (near - target) ** 2) / 2
        return value + 0.7 * critic - 0.02 * entropy[i][t], {t: slope * r}

    agree(objective, batch, x.token_mean, term)


@SEEDS
def test_decoupled_ppo(seed):
    """The ratio to the learner's own start is clipped; that start's ratio to the sampler is a capped weight."""
    batch = random_batch(seed)
    A = loops.grpo_advantage(batch.experience, 1e-6)
    batch = credited(batch, A, RelativeAdvantage())
    x = Numbers(batch)

    def term(i, t):
        r, w = math.exp(x.now[i][t] - x.old[i][t]), min(math.exp(x.old[i][t] - x.then[i][t]), 1.05)
        value, slope = loops.clipped(r, A[i], 0.1, 0.1)
        return w * value, {t: w * slope * r}

    objective = Surrogate(
        ratio=OldPolicyRatio(), trust=Clip(low=0.1, high=0.1), weights=[TruncatedImportance(cap=1.05)]
    )
    agree(objective, batch, x.token_mean, term)


@SEEDS
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reward_to_go(seed, gamma):
    experience = random_batch(seed).experience
    found, reward = RewardToGo(gamma=gamma)(experience), experience.reward.tolist()
    for i, row in enumerate(loops.decisions(experience)):
        for k, t in enumerate(row):
            expected = 0.0
            for j, u in enumerate(row[k:]):
                r = reward[i][u] if experience.reward.ndim == 2 else (reward[i] if u == row[-1] else 0.0)
                expected += gamma**j * r
                if experience.terminated.ndim == 2 and (experience.terminated[i, u] or experience.truncated[i, u]):
                    break
            close(found[i, t], expected)


@SEEDS
def test_whitened(seed):
    experience = random_batch(seed).experience
    values = [a for row in loops.gae(experience, 1.0, 0.95) for a in row.values()]
    mean = sum(values) / len(values)
    std = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    found = WhitenedAdvantage(credit=GAE())(experience)[experience.mask]
    for a, b in zip(found, values, strict=True):
        close(a, (b - mean) / (std + 1e-8))


@SEEDS
@pytest.mark.parametrize("unit", ["token", "row"])
def test_truncated_importance(seed, unit):
    batch = random_batch(seed)
    x = Numbers(batch)
    found = TruncatedImportance(cap=1.1, unit=unit)(batch.experience, batch.evaluation())
    for i, row in enumerate(x.rows):
        whole = sum(x.old[i][t] - x.then[i][t] for t in row)
        for t in row:
            close(found[i, t], min(math.exp(whole if unit == "row" else x.old[i][t] - x.then[i][t]), 1.1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moving_average(dtype):
    """Batch k is compared with the weighted mean of batches 1..k-1, weights decay^(k-1-j), and never with
    itself.
    """
    credit, means = RelativeAdvantage(baseline=MovingAverage(decay=0.7), scale=None), []
    for seed in range(5):
        experience = random_batch(seed).to(dtype).experience
        returns = loops.outcomes(experience)
        weights = [0.7 ** (len(means) - 1 - j) for j in range(len(means))]
        past = sum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights) if means else 0.0
        found = credit(experience)
        for i, row in enumerate(loops.decisions(experience)):
            for t in row:
                close(found[i, t], returns[i] - past, 1e-5 if dtype == torch.float32 else 1e-10)
        means.append(sum(returns) / len(returns))
    frozen = credit.eval().state_dict()["baseline.total"].clone()
    credit(experience)
    assert credit.state_dict()["baseline.total"] == frozen, "the average moved in evaluation mode"


def test_group_std_divides_by_n_or_by_one_less():
    experience = random_batch(0).experience.replace(group=torch.zeros(9, dtype=torch.long))
    R = loops.outcomes(experience)
    mean = sum(R) / 9
    for correction in (0, 1):
        std = math.sqrt(sum((r - mean) ** 2 for r in R) / (9 - correction))
        found = RelativeAdvantage(scale=GroupStd(correction=correction, eps=1e-3))(experience)
        close(found[0, 0], (R[0] - mean) / (std + 1e-3))


def test_overlong():
    """Limit 8, buffer 4, lengths 3 to 9: 0 up to 4, then -1/4 a decision, -1 from 8 on."""
    mask = torch.arange(9) < torch.arange(3, 10)[:, None]
    found = OverlongPenalty(limit=8, buffer=4)(po.Experience(mask=mask))
    assert found.tolist() == [0, 0, -0.25, -0.5, -0.75, -1, -1]
    assert OverlongPenalty(buffer=4)(po.Experience(mask=mask, horizon=8)).tolist() == found.tolist()
    with pytest.raises(po.ExperienceError, match="horizon"):
        OverlongPenalty()(po.Experience(mask=mask))
    with pytest.raises(ValueError, match="buffer must be >= 1"):
        OverlongPenalty(limit=8, buffer=0)


def test_sum_of_rewards():
    """Outcomes add up row by row; with a term per decision they land on the last decision."""
    experience = random_batch(0).experience
    flat = SumOfRewards(terms=[OutcomeReward(), OverlongPenalty(limit=4, buffer=2)], weights=[1.0, 0.5])(experience)
    expected = experience.outcome + 0.5 * OverlongPenalty(limit=4, buffer=2)(experience)
    assert flat.tolist() == expected.tolist()
    stepwise = SumOfRewards(terms=[OutcomeReward(scale=3.0), KLPenalty(coefficient=0.1)])(experience)
    for i, row in enumerate(loops.decisions(experience)):
        for t in row:
            kl = experience.rollout_logp[i, t] - experience.ref_logp[i, t]
            close(stepwise[i, t], float(-0.1 * kl + (3 * experience.outcome[i] if t == row[-1] else 0)))


# Identities between methods -----------------------------------------------------------------------------------


@SEEDS
def test_rloo_is_grpo_without_std_times_n_over_n_minus_one(seed):
    experience = random_batch(seed).experience
    grpo = RelativeAdvantage(scale=None)(experience)
    rloo = RelativeAdvantage(baseline=LeaveOneOut(), scale=None)(experience)
    n = po.ops.group_size(experience.group)[:, None]
    torch.testing.assert_close(rloo[n[:, 0] > 1], (grpo * n / (n - 1))[n[:, 0] > 1], rtol=1e-10, atol=1e-12)


@SEEDS
def test_on_policy_every_surrogate_has_the_gradient_of_the_score(seed):
    batch = random_batch(seed)
    batch = SampleBatch(batch.experience.replace(rollout_logp=batch.leaves["logp"].detach()), batch.leaves)
    grads = {}
    for name, objective in {
        "score": Surrogate(trust=PolicyGradient()),
        "clip": Surrogate(),
        "no ratio": Surrogate(ratio=None),
        "dual": Surrogate(trust=Clip(low=0, high=0, dual=1.5)),
        "clip weight": Surrogate(trust=ClipWeight(low=0.0, high=0.0)),
    }.items():
        (grads[name],) = torch.autograd.grad(objective(batch.experience, batch.evaluation()).loss, batch.leaves["logp"])
    for name, grad in grads.items():
        torch.testing.assert_close(grad, grads["score"], rtol=1e-12, atol=1e-14, msg=name)


@SEEDS
def test_gae_with_lam_1_is_the_return_minus_the_value(seed):
    """Where every episode ends by itself."""
    experience = random_batch(seed).experience
    experience = experience.replace(terminated=torch.ones(len(experience), dtype=torch.bool), truncated=None)
    found = GAE(gamma=0.9, lam=1.0)(experience)
    expected = torch.where(experience.mask, RewardToGo(gamma=0.9)(experience) - experience.value, 0)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_reference_kl_adds_its_ratio_to_what_is_differentiated():
    batch = random_batch(1)
    x = Numbers(batch)
    objective = Surrogate(
        ratio=None, regularise=[ReferenceKL(coefficient=1.0, value="k2", gradient="k3", ratio=TokenRatio())]
    )
    batch = SampleBatch(
        batch.experience.replace(advantage=torch.zeros_like(batch.leaves["logp"]).detach()), batch.leaves
    )

    def term(i, t):
        d = x.ref[i][t] - x.now[i][t]
        value, slope = loops.k3(x.now[i][t], x.ref[i][t])
        return d * d / 2, {t: x.ratio(i, t) * (slope + value)}

    agree(objective, batch, x.token_mean, term)


def test_gae_where_a_cut_is_worth_nothing():
    """One row of three decisions, cut off, gamma 1 and lam 1: the advantage is the reward to go minus V."""
    value = torch.tensor([[0.5, 0.25, 0.125]], dtype=torch.float64)
    row = po.Experience(
        mask=torch.ones(1, 3, dtype=torch.bool),
        reward=torch.tensor([0.0], dtype=torch.float64),
        value=value,
        final_value=torch.tensor([8.0], dtype=torch.float64),
        terminated=torch.tensor([False]),
        truncated=torch.tensor([True]),
    )
    assert torch.equal(GAE(gamma=1.0, lam=1.0, cut="zero")(row), -value)
    assert torch.equal(GAE(gamma=1.0, lam=1.0)(row), 8 - value)
