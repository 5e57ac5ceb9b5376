"""Which rows are kept, against brute force; and how a filtered batch is refilled."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from batches import random_batch

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.sampling import Demonstrations, EntropyTemperature, MixedGroups, Rollouts, TopK, UniqueAnswers


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
    assert MixedGroups()(e).extras["row"].tolist() == varied
    first = [k for k, r in enumerate(rows) if not any(rows[j][2] == r[2] for j in own[r[0]] if j < k)]
    assert UniqueAnswers()(e).extras["row"].tolist() == first
    for count in (1, 2, 5):
        for threshold in (-float("inf"), 0.5):
            best = []
            for members in own.values():
                ranked = sorted(members, key=lambda k: (-rows[k][1], k))[:count]
                best += [k for k in ranked if rows[k][1] >= threshold]
            found = TopK(count=count, threshold=threshold)(e).extras["row"].tolist()
            assert found == sorted(best)


@dataclasses.dataclass
class Source:
    """Prompts 0, 1, 2, ...; every second group is unanimous, and answer k of a group of prompt p is p % (k + 1)."""

    rows: int
    dull: int = 0  # so many first calls give unanimous groups only
    calls: int = 0
    asked: list = dataclasses.field(default_factory=list)

    def take(self, count):
        return torch.arange(count)

    def rollout(self, request):
        prompts, group, support = len(request.tasks), int(request.counts[0]), request.support
        assert (request.counts == group).all()
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


def test_one_batch():
    support, source = po.Support(temperature=0.6), Source(rows=32)
    e = Rollouts(group=8, support=support)(source)
    assert source.asked == [(4, 8, support)]
    assert (len(e), e.support) == (32, support)


def test_refills_until_full():
    """Half of the groups are varied: two calls give 4 of 4 groups, and no third is made."""
    source = Source(rows=32)
    e = Rollouts(group=8, select=[MixedGroups()], refills=5)(source)
    assert source.calls == 2
    assert len(e) == 32
    assert po.ops.group_size(e.group).tolist() == [8] * 32


def test_refills_end():
    source = Source(rows=64)
    assert len(Rollouts(group=32, select=[MixedGroups(), TopK(count=3)], refills=2)(source)) == 9
    assert source.calls == 3


@pytest.mark.parametrize("rows", [20, 30, 33])
def test_a_full_batch_is_cut_between_groups(rows):
    """A group that lost a row to the cut would have another mean."""
    e = Rollouts(group=8, select=[MixedGroups()], refills=9)(Source(rows=rows))
    assert po.ops.group_size(e.group).tolist() == [8] * len(e)
    assert rows - 8 < len(e) <= rows


def test_groups_larger_than_the_batch():
    for dull in (0, 1):
        assert len(Rollouts(group=8, select=[MixedGroups()], refills=3)(Source(rows=4, dull=dull))) == 8


def test_demonstrations():
    tree = TokenTree.bandit([0.0, 1.0, 0.5])
    shown = Demonstrations()(TreeSource(tree, TabularPolicy(tree), rows=5))
    assert shown.outcome.tolist() == [1.0] * 5
    assert shown.extras["leaf"].tolist() == [1] * 5


@dataclasses.dataclass
class Warm(Source):
    """Entropies of 0.1, 0.2, ... times how often it was asked; it samples as it is told to."""

    def rollout(self, request):
        e, support = super().rollout(request), request.support
        plain = self.calls * torch.arange(1.0, 1 + e.mask.numel(), dtype=torch.float64).view(e.mask.shape) / 10
        if support.by_entropy is None:
            return e.replace(entropy=plain)
        extras = {"temperature": po.ops.temperatures(support, plain), "plain_entropy": plain}
        return e.replace(entropy=torch.full_like(plain, 7.0), extras=extras)


class TestEntropyTemperature:
    def test_it_follows_the_batch_before(self):
        """20 entropies, 0.1 to 2: the pivot at 0.8 is the nearest of rank 15.2, the 16th."""
        part, source = Rollouts(group=5, adapt=EntropyTemperature(strength=0.1)), Warm(rows=10)
        first = part(source)
        assert first.support == po.Support()
        second = part(source)
        rule = second.support.by_entropy
        assert [rule.lowest, rule.pivot, rule.highest] == pytest.approx([math.log(x) for x in (0.1, 1.6, 2.0)])
        h = [(math.log(0.2) - rule.pivot) / (rule.pivot - rule.lowest), 1.0]
        assert second.extras["temperature"].flatten()[[0, -1]].tolist() == pytest.approx([1 + 0.1 * x for x in h])
        # The second batch's entropies at its one temperature count, not those that it was drawn with.
        assert part.adapt.scale.tolist() == pytest.approx([math.log(x) for x in (0.2, 3.2, 4.0)])

    def test_refills_are_sampled_alike_and_the_filtered_batch_counts(self):
        part = Rollouts(group=5, adapt=EntropyTemperature(quantile=0.0), select=[MixedGroups()], refills=3)
        source = Warm(rows=20)
        part(source)
        assert source.calls == 2
        supports = [support for *_, support in source.asked]
        assert supports[0] == supports[1]
        part(source)
        assert source.asked[-1][2] == source.asked[-2][2] != supports[0]
        kept = [x for x in range(1, 41) if (x - 1) // 10 % 2 == 0]  # rows of groups 0 and 2, two decisions each
        assert source.asked[-1][2].by_entropy.lowest == pytest.approx(math.log(min(kept) / 10))
        assert source.asked[-1][2].by_entropy.highest == pytest.approx(math.log(2 * max(kept) / 10))

    def test_an_empty_batch_teaches_nothing_and_neither_does_evaluation(self):
        part = Rollouts(group=5, adapt=EntropyTemperature(), select=[MixedGroups()])
        part(Warm(rows=10, dull=9))
        assert part.adapt.scale.isnan().all()
        part.eval()(Warm(rows=10))
        assert part.adapt.scale.isnan().all()

    def test_its_memory_is_its_state(self):
        part, source = Rollouts(group=5, adapt=EntropyTemperature()), Warm(rows=10)
        part(source)
        again = po.from_yaml(part.to_yaml())
        again.load_state_dict(part.state_dict())
        assert again.adapt(po.Support(temperature=0.8)) == part.adapt(po.Support(temperature=0.8))
        assert part.adapt(po.Support(temperature=0.8)).temperature == 0.8

    def test_refusals(self):
        with pytest.raises(po.ExperienceError, match=r"EntropyTemperature needs experience.entropy"):
            Rollouts(group=5, adapt=EntropyTemperature())(Source(rows=10))
        for wrong in ({"strength": 1.0}, {"quantile": -0.1}):
            with pytest.raises(ValueError, match="EntropyTemperature: need"):
                EntropyTemperature(**wrong)
