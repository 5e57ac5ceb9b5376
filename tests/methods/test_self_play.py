"""SPPO and INPO: TRL's losses, closed forms of a round, and runs that learn."""

from __future__ import annotations

import itertools

import pytest
import torch
from trl_oracle import BETA, trl_dpo

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.comparisons import CYCLE, TablePreference, bradley_terry

WIDTH, PAIRS = 5, 6


def test_sppo_with_hard_labels_is_trls() -> None:
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(WIDTH) < torch.randint(1, WIDTH + 1, (2 * PAIRS, 1), generator=g)
    logp, start = (
        torch.where(mask, -3 * torch.rand(2 * PAIRS, WIDTH, generator=g, dtype=torch.double), 0) for _ in range(2)
    )
    leaf = logp.clone().requires_grad_()
    expected, _ = trl_dpo(mask, leaf, start, "sppo_hard")
    (slope,) = torch.autograd.grad(expected, leaf)
    won = torch.tensor([0.5, -0.5], dtype=torch.double).repeat_interleave(PAIRS)
    batch = po.Experience(mask=mask, rollout_logp=start, advantage=won[:, None] * mask)
    ours = logp.clone().requires_grad_()
    loss = po.method("sppo", eta=1 / BETA).objective(batch, po.Evaluation(logp=ours)).loss
    (gradient,) = torch.autograd.grad(loss, ours)
    # TRL adds the squares of a pair and takes the mean over pairs, ours is a mean over rows.
    torch.testing.assert_close(2 * loss, expected.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(2 * gradient, torch.where(mask, slope, 0), rtol=0, atol=1e-10)


def test_inpo_without_a_memory_is_ipo() -> None:
    inpo, ipo = po.method("inpo", eta=0.4, tau=0.4), po.method("ipo", tau=0.4)
    g = torch.Generator().manual_seed(1)
    logp, ref = (-3 * torch.rand(6, 3, generator=g, dtype=torch.double) for _ in range(2))
    value = torch.tensor([1.0, 0.0] * 3, dtype=torch.double)
    batch = po.Experience(
        mask=torch.ones(6, 3, dtype=torch.bool),
        ref_logp=ref,
        outcome=value,
        advantage=value[:, None].expand(6, 3),
        group=torch.arange(3).repeat_interleave(2),
    )
    losses = [method.objective(batch, po.Evaluation(logp=logp)).loss.item() for method in (inpo, ipo)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)
    assert "rollout_logp" not in inpo.objective.required_fields


def test_a_pairs_margin_has_both_anchors() -> None:
    eta, tau = 0.5, 0.2
    g = torch.Generator().manual_seed(2)
    logp, ref, old = (-3 * torch.rand(2, 3, generator=g, dtype=torch.double) for _ in range(3))
    batch = po.Experience(
        mask=torch.ones(2, 3, dtype=torch.bool),
        ref_logp=ref,
        rollout_logp=old,
        advantage=torch.tensor([[0.2], [0.9]], dtype=torch.double).expand(2, 3),
        group=torch.tensor([0, 0]),
    )
    loss = po.method("inpo", eta=eta, tau=tau).objective(batch, po.Evaluation(logp=logp)).loss.item()
    gap = lambda x: (x[1].sum() - x[0].sum()).item()  # noqa: E731
    h = gap(logp) - tau / eta * gap(ref) - (1 - tau / eta) * gap(old)
    assert loss == pytest.approx((h - 1 / (2 * eta)) ** 2, abs=1e-12)


def test_settings_that_no_game_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"need 0 < tau <= eta, found tau = 0\.2 and eta = 0\.1"):
        po.method("inpo", eta=0.1, tau=0.2)
    with pytest.raises(ValueError, match="scale must be > 0, found 0"):
        po.method("sppo", eta=0.0)


@pytest.mark.parametrize("name", ["sppo", "inpo"])
def test_by_default_the_better_outcome_wins(name: str) -> None:
    tree = TokenTree.bandit([0.0, 1.0, 0.2, 0.1])
    policy, reference = TabularPolicy(tree), TabularPolicy(tree)
    settings = {"sppo": {"eta": 2.0}, "inpo": {"eta": 0.2, "tau": 0.05}}[name]
    train(po.method(name, **settings), tree, policy, steps=60, rate=0.5, rows=4, seed=0, reference=reference)
    assert tree.log_probabilities(policy).exp()[0, 1] > 0.8


def test_the_likeliest_rewards_of_comparisons() -> None:
    table = torch.tensor(CYCLE, dtype=torch.double)
    reward = bradley_terry(table).requires_grad_()
    loss = -sum(
        table[i, j] * torch.nn.functional.logsigmoid(reward[i] - reward[j])
        for i, j in itertools.permutations(range(3), 2)
    )
    (slope,) = torch.autograd.grad(loss, reward)
    assert slope.abs().max() < 1e-10
    assert reward.detach().sum().abs() < 1e-12


def test_a_tables_probabilities_are_those_of_the_answers() -> None:
    rows = po.Experience(mask=torch.ones(3, 1, dtype=torch.bool), extras={"leaf": torch.arange(3)})
    assert TablePreference()(rows, torch.tensor([0, 2]), torch.tensor([1, 0])).tolist() == [0.9, 0.8]
