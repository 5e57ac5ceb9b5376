"""Which rows are kept, against brute force; and how a filtered batch is refilled."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from batches import random_batch

import polopt as po
from polopt.sampling import Best, Demonstrations, Distinct, Rollouts, Varied


def rows_of(experience):
    """(group, outcome, answer) of each row."""
    e = experience
    return list(zip(e.group.tolist(), e.outcome.tolist(), e.extras["answer"], strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_against_brute_force(seed):
    e = random_batch(seed, B=27).experience
    rows = rows_of(e)
    own = {g: [k for k, r in enumerate(rows) if r[0] == g] for g, _, _ in rows}
    varied = [k for k, r in enumerate(rows) if len({rows[j][1] for j in own[r[0]]}) > 1]
    assert Varied()(e).extras["row"].tolist() == varied
    first = [k for k, r in enumerate(rows) if not any(rows[j][2] == r[2] for j in own[r[0]] if j < k)]
    assert Distinct()(e).extras["row"].tolist() == first
    for count in (1, 2, 5):
        for threshold in (-float("inf"), 0.5):
            best = []
            for members in own.values():
                ranked = sorted(members, key=lambda k: (-rows[k][1], k))[:count]
                best += [k for k in ranked if rows[k][1] >= threshold]
            found = Best(count=count, threshold=threshold)(e).extras["row"].tolist()
            assert found == sorted(best)


@dataclasses.dataclass
class Source:
    """Prompts 0, 1, 2, ...; every second group is unanimous, and answer k of a group of prompt p is p % (k + 1)."""

    rows: int
    dull: int = 0  # so many first calls give unanimous groups only
    calls: int = 0
    asked: list = dataclasses.field(default_factory=list)

    def rollout(self, prompts, group, support):
        self.calls += 1
        self.asked.append((prompts, group, support))
        number = torch.arange(prompts).repeat_interleave(group)
        member = torch.arange(group).repeat(prompts)
        return po.Experience(
            mask=torch.ones(prompts * group, 2, dtype=torch.bool),
            support=support,
            group=number,
            outcome=((number % 2 == 0) & (member == 0) & (self.calls > self.dull)).float(),
            extras={"answer": [f"{p % (k + 1)}" for p, k in zip(number.tolist(), member.tolist(), strict=True)]},
        )

    def demonstrate(self, rows):
        return po.Experience(mask=torch.ones(rows, 2, dtype=torch.bool), outcome=torch.ones(rows))


def test_one_batch():
    support, source = po.Support(temperature=0.6), Source(rows=32)
    e = Rollouts(group=8, support=support)(source)
    assert source.asked == [(4, 8, support)]
    assert (len(e), e.support) == (32, support)


def test_refills_until_full():
    """Half of the groups are varied: two calls give 4 of 4 groups, and no third is made."""
    source = Source(rows=32)
    e = Rollouts(group=8, select=[Varied()], refills=5)(source)
    assert source.calls == 2
    assert len(e) == 32
    assert po.ops.group_size(e.group).tolist() == [8] * 32


def test_refills_end():
    source = Source(rows=64)
    assert len(Rollouts(group=32, select=[Varied(), Best(count=3)], refills=2)(source)) == 9
    assert source.calls == 3


@pytest.mark.parametrize("rows", [20, 30, 33])
def test_a_full_batch_is_cut_between_groups(rows):
    """A group that lost a row to the cut would have another mean."""
    e = Rollouts(group=8, select=[Varied()], refills=9)(Source(rows=rows))
    assert po.ops.group_size(e.group).tolist() == [8] * len(e)
    assert rows - 8 < len(e) <= rows


def test_groups_larger_than_the_batch():
    for dull in (0, 1):
        assert len(Rollouts(group=8, select=[Varied()], refills=3)(Source(rows=4, dull=dull))) == 8


def test_demonstrations():
    assert len(Demonstrations()(Source(rows=5))) == 5
