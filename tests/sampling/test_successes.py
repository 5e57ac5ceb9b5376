"""Right answers that come back: to whom, whose, how old, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sentences import same

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.sampling import Rollouts, SuccessReplay

NEEDS = frozenset({"value", "entropy"})


def problem(right: float = 0.1) -> tuple[TokenTree, TabularPolicy]:
    """Four prompts of five answers, one of them right."""
    tree = TokenTree.bandit([[1.0, 0, 0, 0, 0]] * 4)
    odds = torch.tensor([right, *[(1 - right) / 4] * 4]).double()
    return tree, TabularPolicy(tree, critic=True).set_probabilities(odds)


def source_of(right: float = 0.1, seed: int = 0, rows: int = 16) -> TreeSource:
    tree, policy = problem(right)
    return TreeSource(tree, policy, rows=rows, seed=seed, needs=NEEDS)


def test_where_nothing_is_remembered_nothing_changes() -> None:
    for right in (0.0, 1.0):
        plain, mixed = source_of(right), source_of(right)
        one, two = Rollouts(group=4), Rollouts(group=4, mix=[SuccessReplay()])
        for _ in range(3):
            a, b = one(plain), two(mixed)
            for name in ("mask", "rollout_logp", "outcome", "group", "old_logp"):
                assert torch.equal(getattr(a, name), getattr(b, name)), name
            assert torch.equal(a.extras["leaf"], b.extras["leaf"])
            assert (b.extras["age"] == 0).all()


@pytest.mark.parametrize("each", [1, 3])
def test_who_gets_what_from_when(each: int) -> None:
    """Beside a source that samples the same rows without memory, which says what each batch was."""
    plain, mixed = source_of(0.15), source_of(0.15)
    bare, part = Rollouts(group=4), Rollouts(group=4, mix=[SuccessReplay(each=each)])
    known: dict[int, list[tuple[int, float]]] = {}
    helped, ages = 0, set()
    for step in range(40):
        for source in (plain, mixed):
            with torch.no_grad():  # the policy moves, so that old rows have other log-probabilities
                source.policy.logits[:, 0] += 0.01 if step % 2 else -0.01
            source.refresh()
        before, batch = bare(plain), part(mixed)
        mixed.generator.set_state(plain.generator.get_state())  # a draw among several may have come between
        mixed._queue = list(plain._queue)
        assert torch.equal(batch.group, before.group)
        for g in before.group.unique().tolist():
            rows = (before.group == g).nonzero().flatten()
            task = int(before.extras["index"][rows[0]])
            came = rows[batch.extras["age"][rows] > 0]
            if (before.outcome[rows] >= 1).any() or task not in known:
                assert not len(came)
                assert torch.equal(batch.extras["leaf"][rows], before.extras["leaf"][rows])
                continue
            helped += 1
            assert came.tolist() == [int(rows[-1])]
            row = int(came)
            age = int(batch.extras["age"][row])
            ages.add(age)
            assert batch.outcome[row] == 1
            assert int(batch.extras["index"][row]) == task
            logp = batch.rollout_logp[row][batch.mask[row]].item()
            assert (step - age, pytest.approx(logp, abs=1e-12)) in known[task][-each:]
            same(batch.old_logp[row][batch.mask[row]], mixed.policy.evaluate(batch).logp[row][batch.mask[row]].detach())
            assert torch.equal(batch.extras["leaf"][rows[:-1]], before.extras["leaf"][rows[:-1]])
        for row in (before.outcome >= 1).nonzero().flatten().tolist():
            said = before.rollout_logp[row][before.mask[row]].item()
            known.setdefault(int(before.extras["index"][row]), []).append((step, said))
    assert helped > 10
    assert len(ages) > 3


def test_only_so_many_tasks_are_remembered() -> None:
    source = source_of(1.0, rows=8)
    part = Rollouts(group=2, mix=[SuccessReplay(tasks=2)])
    for _ in range(3):
        part(source)
    (kept,) = part.mix[0].memory.batches()
    assert len(kept) == 2
    assert len(kept.extras["index"].unique()) == 2
    assert set(kept.extras["sampled"].tolist()) == {2}


def test_resumes_bit_for_bit_and_stands_still_outside_training() -> None:
    through, stopped = source_of(0.15, seed=3), source_of(0.15, seed=3)
    make: Any = lambda: Rollouts(group=4, mix=[SuccessReplay(each=3)])  # noqa: E731
    one, two = make(), make()
    for _ in range(6):
        one(through), two(stopped)
    resumed, later = po.from_yaml(two.to_yaml()), source_of(0.15, seed=9)
    resumed.load_state_dict(two.state_dict())
    later.generator.set_state(stopped.generator.get_state())
    later._queue = list(stopped._queue)
    seen = 0
    for _ in range(8):
        a, b = one(through), resumed(later)
        assert torch.equal(a.extras["leaf"], b.extras["leaf"])
        assert torch.equal(a.extras["age"], b.extras["age"])
        assert torch.equal(a.rollout_logp, b.rollout_logp)
        seen += int((a.extras["age"] > 0).sum())
    assert seen > 3
    still = make().eval()
    still(source_of(1.0))
    assert still.mix[0].memory.batches() == []
    assert int(still.mix[0].batches) == 0


def test_it_learns_where_grpo_seldom_sees_a_success() -> None:
    """From successes of probability 0.02, mean of 5 seeds: a check that what comes back is of use."""
    values = {}
    for name, mix in (("plain", []), ("successes", [SuccessReplay()])):
        found = []
        for seed in range(5):
            tree, policy = problem(0.02)
            sentence = po.method("grpo", group=4, kl=0).but(**{"sampling.mix": mix})
            loop = po.lab.training(sentence, tree, policy, rate=1.0, rows=4, seed=seed)
            for _ in range(30):
                next(loop)
            found.append(tree.value(policy).item())
        values[name] = sum(found) / 5
    assert values["successes"] > 1.5 * values["plain"]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="each and tasks must be >= 1, found 0 and 4096"):
        SuccessReplay(each=0)
    with pytest.raises(ValueError, match="may have no probability under"):
        Rollouts(support=po.Support(top_k=3), mix=[SuccessReplay()])
