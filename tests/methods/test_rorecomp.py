"""Recomposed batches: which rows, when the others come back, and that nothing else changes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.claims.problems.recomposed import longer_is_surer
from polopt.lab import TabularPolicy, TokenTree, TreeSource, training
from polopt.lab.problems import digits, lengths
from polopt.lab.shapes import coin
from polopt.methods.rorecomp import LengthRecomposed, SelectByField, shortest_right_longest_wrong
from polopt.part_diff import diff
from polopt.sampling.parts import RolloutRequest
from polopt.schedules import Schedule

NEEDS = frozenset({"value", "prev_logp", "entropy"})


def source_of(rows: int = 48, seed: int = 0) -> TreeSource:
    tree, policy = lengths()
    return TreeSource(tree, policy, rows=rows, seed=seed, draw=coin, needs=NEEDS)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_chosen_rows_against_brute_force(seed: int, share: float) -> None:
    g = torch.Generator().manual_seed(seed)
    length = torch.randint(1, 6, (40,), generator=g)
    right, group = torch.rand(40, generator=g) < 0.4, torch.randint(0, 5, (40,), generator=g)
    expected = set()
    for prompt in group.unique().tolist():
        for value, sign in ((True, 1), (False, -1)):
            mine = [i for i in range(40) if group[i] == prompt and bool(right[i]) is value]
            ranked = sorted(mine, key=lambda i: (sign * int(length[i]), i))
            expected |= set(ranked[: math.ceil(round(share * len(mine), 9))])
    assert set(shortest_right_longest_wrong(length, right, group, share).nonzero().flatten().tolist()) == expected


def test_share_1_is_grpo_number_for_number() -> None:
    found = []
    for sentence in (po.method("grpo", group=8, kl=0), po.method("rorecomp", group=8, share=1.0)):
        tree, policy = digits()
        for _, (batch, _source) in zip(range(5), training(sentence, tree, policy, rate=0.5, rows=4), strict=False):
            assert len(batch) == 32
        found.append(policy.logits.detach())
    assert torch.equal(*found)


def rows_of(batch: po.Experience) -> list[tuple[int, float, tuple[float, ...]]]:
    said = torch.where(batch.mask, batch.rollout_logp, 0)
    return sorted(zip(batch.extras["leaf"].tolist(), batch.outcome.tolist(), map(tuple, said.tolist()), strict=True))


@pytest.mark.parametrize("statistics", ["selected", "full"])
def test_with_compensation_after_every_batch_all_rollouts_are_learned_from_once(statistics: str) -> None:
    one, two = source_of(), source_of()
    part = LengthRecomposed(group=8, compensate=1.0, statistics=statistics)
    for _ in range(4):
        whole = one.rollout(RolloutRequest(one.take(6), 8, po.Support()))
        priority, rest = part(two), part(two)
        assert two.drawn == one.drawn
        ages = [batch.extras["age"].unique().tolist() for batch in (priority, rest)]
        assert ages == [[0], [1]]
        chosen = [SelectByField()(batch) for batch in (priority, rest)]
        assert rows_of(chosen[0]) != rows_of(whole)
        assert sorted(rows_of(chosen[0]) + rows_of(chosen[1])) == rows_of(whole)
        assert all(len(c) == len(b) for c, b in zip(chosen, (priority, rest), strict=True)) == (
            statistics == "selected"
        )


def test_full_statistics_are_those_of_grpo() -> None:
    """At one policy the gradients of a priority and of its compensation batch add up to that of all rows."""
    tree, policy = digits()
    draw: dict[str, Any] = {"rows": 48, "seed": 3, "draw": coin}
    grpo = po.method("grpo", group=8, kl=0).but(**{"objective.aggregate": po.objectives.SequenceSum(length=1)})
    ours = po.method("rorecomp", group=8, compensate=1.0, statistics="full").but(
        **{"objective.aggregate": po.objectives.SequenceSum(length=1)}
    )
    source = TreeSource(tree, policy, **draw)
    parts = [ours.sampling(source), ours.sampling(source)]
    whole = grpo.sampling(TreeSource(tree, policy, **draw))
    added = sum(slope(ours, part, policy) * len(ours.compute_advantages(part)) for part in parts)
    same(added / len(whole), slope(grpo, whole, policy))
    # The other statistics are not: they see the recomposed groups alone.
    selected = ours.but(**{"sampling.statistics": "selected", "select": []})
    source = TreeSource(tree, policy, **draw)
    parts = [selected.sampling(source), selected.sampling(source)]
    other = sum(slope(selected, part, policy) * len(part) for part in parts) / len(whole)
    assert (other - slope(grpo, whole, policy)).abs().max() > 1e-3


def test_what_waits_is_what_the_last_batches_left() -> None:
    source = source_of()
    part = LengthRecomposed(group=8, batches=2, compensate=Schedule(knots=[(0, 0.0), (4, 1.0)], shape="step"))
    left = []
    for _ in range(4):
        before = source.drawn
        left.append(48 - len(part(source)))
        assert source.drawn == before + 48
        part.step()
    assert left[-1] > 0
    priority, rest = part(source), part(source)
    assert rest.extras["age"].max() == 2
    assert len(rest) == 48 - len(priority) + left[-1]
    assert part.memory.batches() == []
    source.draw = None
    assert len(part(source)) < 48


def test_rows_that_waited_keep_their_sampler_and_meet_the_policy_of_now() -> None:
    tree = longer_is_surer(6)
    policy = TabularPolicy(tree)
    source = TreeSource(tree, policy, rows=32, draw=coin, needs=NEEDS)
    part = LengthRecomposed(group=8, compensate=1.0)
    part(source)
    before = source.leaf_table()[0].rollout_logp
    with torch.no_grad():
        policy.logits.add_(torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(0)))
    source.refresh()
    rest = part(source)
    leaf, mask = rest.extras["leaf"], rest.mask
    same(rest.rollout_logp[mask], before[leaf][mask])
    same(rest.old_logp[mask], policy.evaluate(rest).logp[mask].detach())
    assert (rest.rollout_logp - rest.old_logp)[mask].abs().max() > 0.1


def test_turns_and_their_limits() -> None:
    turn = torch.tensor([[0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, -1]])
    mask = turn >= 0
    batch = po.Experience(mask=mask, turn=turn)
    assert LengthRecomposed(by="turns")._length(batch).tolist() == [4, 1, 2, 1]
    assert LengthRecomposed()._length(batch).tolist() == [4, 4, 4, 3]
    silent = po.Experience(mask=mask & torch.tensor([[True], [True], [True], [False]]), turn=turn)
    assert LengthRecomposed(by="turns")._length(silent).tolist() == [4, 1, 2, 0]


def test_resumes_bit_for_bit() -> None:
    settings = {"group": 8, "compensate": 0.5, "batches": 3}
    through, stopped = source_of(seed=5), source_of(seed=5)
    one, two = LengthRecomposed(**settings), LengthRecomposed(**settings)
    for _ in range(5):
        one(through), two(stopped)
    resumed, later = po.from_yaml(two.to_yaml()), source_of(seed=9)
    resumed.load_state_dict(two.state_dict())
    later.generator.set_state(stopped.generator.get_state())
    later._queue = list(stopped._queue)
    kinds = set()
    for _ in range(6):
        a, b = one(through), resumed(later)
        assert rows_of(a) == rows_of(b)
        kinds.add(int(a.extras["age"].max()) > 0)
    assert kinds == {True, False}


def test_nothing_is_kept_outside_training() -> None:
    part = LengthRecomposed(group=8, compensate=1.0).eval()
    part(source_of())
    assert part.memory.batches() == []
    assert not part.due


def test_what_differs_from_grpo() -> None:
    base = po.method("grpo", group=16, kl=0)
    assert {path for path, *_ in diff(base, po.method("rorecomp"))} == {"sampling"}
    assert {path for path, *_ in diff(base, po.method("rorecomp", statistics="full"))} == {"sampling", "select"}
    tree, policy = digits()
    batch = batch_of(tree, policy, sampling=po.method("rorecomp", group=4).sampling)
    assert batch.extras["chosen"].all()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"share in \(0, 1\] and batches >= 1, found 0.0 and 4"):
        LengthRecomposed(share=0.0)
    with pytest.raises(ValueError, match=r"compensate must be in \[0, 1\], found 2.0"):
        LengthRecomposed(compensate=2.0)
    with pytest.raises(ValueError, match="memory holds no temperatures"):
        LengthRecomposed(adapt=po.sampling.EntropyTemperature())
    leaves, part = TokenTree.bandit([1.0, 0.0]).leaves().replace(turn=None), LengthRecomposed(group=2, by="turns")
    with pytest.raises(po.ExperienceError, match=r"needs experience\.turn"):
        part._length(leaves)
