"""Rows that grow over several batches, and what is learnt from them. Against walks in plain Python."""

from __future__ import annotations

import pytest
import torch
from batches import random_batch
from sentences import same
from small_trees import stop_tree

import polopt as po
from polopt.credit import GAE
from polopt.features.masks import FieldMask, Finished
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.problems import corridor
from polopt.methods.t_ppo import DecoupledTargets
from polopt.objectives import AuxiliaryLoss, Surrogate, ValueLoss
from polopt.sampling import PartialRollouts, Rollouts


def source_of(tree: TokenTree, rows: int = 12, seed: int = 0) -> TreeSource:
    policy = TabularPolicy(tree, spread=0.8, seed=3, critic=True)
    with torch.no_grad():
        policy.values.copy_(torch.randn(len(policy.values), generator=torch.Generator().manual_seed(5)))  # type: ignore[union-attr]
    return TreeSource(tree, policy, rows=rows, seed=seed, needs=frozenset({"value", "entropy"}))


def test_every_decision_is_in_one_window() -> None:
    """Rows are followed from batch to batch by their place: those that wait come first, in their order."""
    source = source_of(TokenTree.full(2, 7, lambda p, a: float(sum(a) >= 4)))
    part, waiting, finished = PartialRollouts(window=3), [], 0
    for _step in range(12):
        with torch.no_grad():
            source.policy.logits.add_(0.1 * torch.randn(source.policy.logits.shape))
        source.refresh()
        batch = part(source)
        assert len(batch) == 12
        assert batch.group.tolist() == list(range(12))
        window = batch.extras["window"]
        assert not (window & ~batch.mask).any()
        for b in range(12):
            before = waiting[b] if b < len(waiting) else ([], [])
            tokens = batch.extras["tokens"][b][batch.mask[b]].tolist()
            n = len(before[0])
            assert tokens[:n] == before[0]
            # What was decided earlier keeps its log-probability; it is policy data no more.
            assert batch.rollout_logp[b][batch.mask[b]].tolist()[:n] == before[1]
            assert window[b][batch.mask[b]].tolist() == [False] * n + [True] * (len(tokens) - n)
            assert len(tokens) - n == 3 or batch.terminated[b]
        said = source.policy.evaluate(batch, frozenset()).logp
        torch.testing.assert_close(batch.rollout_logp[window], said[window].detach())
        finished += int(batch.terminated.sum())
        waiting = [
            (batch.extras["tokens"][b][batch.mask[b]].tolist(), batch.rollout_logp[b][batch.mask[b]].tolist())
            for b in range(12)
            if not batch.terminated[b]
        ]
        assert (batch.outcome[~batch.terminated] == 0).all()
    assert finished == 12 * 4
    assert waiting == []


def test_it_costs_what_it_samples() -> None:
    source = source_of(TokenTree.full(2, 7, lambda p, a: 1.0))
    part = PartialRollouts(window=3)
    total = sum(int(part(source).extras["window"].sum()) for _ in range(5))
    assert source.decided == total


def test_a_wide_window_is_rollouts_of_single_rows() -> None:
    tree = stop_tree()
    one, two = source_of(tree), source_of(tree)
    windows, rollouts = PartialRollouts(window=9), Rollouts(group=1)
    for _ in range(3):
        a, b = windows(one), rollouts(two)
        assert torch.equal(a.extras["leaf"], b.extras["leaf"])
        assert torch.equal(a.mask, b.mask)
        assert torch.equal(a.extras["window"], a.mask)
    assert windows.memory.batches() == []


def test_rows_that_wait_resume_bit_for_bit() -> None:
    tree = TokenTree.full(2, 7, lambda p, a: float(sum(a) >= 4), prompts=3)
    through, stopped, later = (source_of(tree, seed=seed) for seed in (4, 4, 8))
    one, two = PartialRollouts(window=2), PartialRollouts(window=2)
    for _ in range(3):
        one(through), two(stopped)
    resumed = po.from_yaml(two.to_yaml())
    resumed.load_state_dict(two.state_dict())
    later.generator.set_state(stopped.generator.get_state())
    later._queue = list(stopped._queue)
    for _ in range(3):
        a, b = one(through), resumed(later)
        for name in ("mask", "rollout_logp", "outcome", "terminated"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name
        assert torch.equal(a.extras["window"], b.extras["window"])


def test_outside_training_nobody_waits() -> None:
    source, part = source_of(TokenTree.full(2, 7, lambda p, a: 1.0)), PartialRollouts(window=2).eval()
    assert (part(source).lengths == 2).all()
    assert part.memory.batches() == []


@pytest.mark.parametrize("cut", ["bootstrap", "zero"])
@pytest.mark.parametrize("seed", range(4))
def test_extended_gae_row_by_row(seed: int, cut: str) -> None:
    """Each row ends as its flags say; one without flags ends with its last value."""
    e, gamma, lam = random_batch(seed, B=18, clean=True).experience, 0.9, 0.7
    found = GAE(gamma=gamma, lam=lam, cut=cut, open="last")(e)
    seen = set()
    for b in range(len(e)):
        columns, carry, ahead = e.mask[b].nonzero().flatten().tolist(), 0.0, None
        expected = {}
        for k, t in reversed(list(enumerate(columns))):
            last = k == len(columns) - 1
            ends = bool(e.terminated[b, t]) if e.terminated.ndim == 2 else bool(e.terminated[b]) and last
            flagged = bool(e.truncated[b, t]) if e.truncated.ndim == 2 else bool(e.truncated[b]) and last
            reward = float(e.reward[b, t]) if e.reward.ndim == 2 else float(e.reward[b]) * last
            V = float(e.value[b, t])
            if ends or (flagged and cut == "zero"):
                ahead, carry = 0.0, 0.0
            elif flagged:
                ahead, carry = float(e.final_value[b, t] if e.final_value.ndim == 2 else e.final_value[b]), 0.0
            elif last:
                ahead, carry = V, 0.0
                seen.add(b)
            carry = reward + gamma * ahead - V + gamma * lam * carry
            ahead, expected[t] = V, carry
        for t in columns:
            assert found[b, t].item() == pytest.approx(expected[t], abs=1e-10)
    assert seen


def test_extended_gae_needs_no_final_value_of_open_rows() -> None:
    e = random_batch(0, clean=True).experience
    e = e.replace(final_value=None, truncated=torch.zeros_like(e.terminated), terminated=e.terminated & False)
    assert GAE(open="last")(e).isfinite().all()
    with pytest.raises(po.ExperienceError, match=r"rows did not terminate and need experience\.final_value"):
        GAE()(e)


def test_the_policy_learns_from_windows_and_the_critic_from_what_has_ended() -> None:
    """By hand: sums over the window's decisions, and over all decisions of rows that are over."""
    tree = TokenTree.full(2, 5, lambda p, a: float(sum(a) >= 3), stop=1)
    source = source_of(tree, rows=24)
    algorithm = po.method("t-ppo", window=2, value=0.7)
    algorithm.sampling(source)
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    window, over = batch.extras["window"], batch.mask & batch.terminated[:, None]
    assert 0 < window.sum() < batch.mask.sum()
    assert (over & ~window).any()
    assert (window & ~over).any()
    policy = source.policy
    said = policy.evaluate(batch, frozenset({"value"}))
    actor = -(batch.advantage * (said.logp - batch.rollout_logp).exp())[window].sum() / window.sum()
    critic = 0.5 * (said.value - batch.outcome[:, None])[over].square().sum() / over.sum()
    loss = algorithm.objective(batch, policy.evaluate(batch, algorithm.objective.required_outputs))
    expected = torch.autograd.grad(actor + 0.7 * critic, list(policy.parameters()))
    found = torch.autograd.grad(loss.loss, list(policy.parameters()))
    for a, b in zip(found, expected, strict=True):
        same(a, b)
    same(loss.metrics["ValueLoss"], critic.detach())
    # Micro-batches of it add up.
    pieces = [
        torch.autograd.grad(algorithm.objective(m, policy.evaluate(m, frozenset({"value"}))).loss, policy.logits)[0]
        for m in batch.split(7)
    ]
    same(sum(pieces), found[0])


def test_without_window_and_value_it_is_ppo() -> None:
    tree, policy = corridor(length=8, door=3, width=2, leave=0.3)
    ours = po.method("t-ppo", window=8)
    apart = DecoupledTargets(credit=GAE(lam=0.95, cut="zero"), target=GAE(lam=1.0, cut="zero"))
    theirs = po.method("ppo", kl=0, value_clip=None).but(credit=apart)
    slopes = []
    for algorithm in (ours, theirs):
        source = TreeSource(tree, policy, rows=32, seed=1, needs=algorithm.required_fields)
        batch = algorithm.compute_advantages(algorithm.sampling(source))
        loss = algorithm.objective(batch, policy.evaluate(batch, frozenset({"value"}))).loss
        slopes.append(torch.autograd.grad(loss, list(policy.parameters())))
    for a, b in zip(*slopes, strict=True):
        same(a, b)


def test_what_ended_by_hand() -> None:
    mask = torch.tensor([[True] * 4, [True, True, False, True], [True] * 4])
    flags = torch.zeros(3, 4, dtype=torch.bool)
    flags[0, 1] = flags[1, 2] = flags[2, 3] = True  # one inside, one off the mask, one at the end
    none = torch.zeros_like(flags)
    expected = torch.tensor([[True, True, False, False], [False] * 4, [True] * 4])
    for terminated, truncated in ((flags, none), (none, flags)):
        e = po.Experience(mask=mask, terminated=terminated, truncated=truncated)
        assert torch.equal(Finished()(e), expected)
        assert torch.equal(Finished(invert=True)(e), ~expected)
    rows = torch.tensor([True, False, False])
    e = po.Experience(mask=mask, terminated=rows, truncated=~rows & False, extras={"mine": rows})
    assert Finished()(e).any(1).tolist() == FieldMask(name="mine")(e).tolist() == rows.tolist()
    assert FieldMask(name="mine", invert=True)(e).tolist() == (~rows).tolist()


def test_auxiliary_terms_are_a_surrogates_own() -> None:
    batch = random_batch(2, clean=True)
    part = ValueLoss(clip=None, coefficient=0.3)
    quiet = batch.experience.replace(advantage=torch.zeros_like(batch.experience.rollout_logp))
    alone = AuxiliaryLoss(regularise=[part])(quiet, batch.evaluation())
    inside = Surrogate(regularise=[part])(quiet, batch.evaluation())
    same(alone.loss, inside.loss)
    same(alone.metrics["ValueLoss"], inside.metrics["ValueLoss"])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="window must be >= 1, found 0"):
        PartialRollouts(window=0)
