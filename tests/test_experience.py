"""The one batch: what it refuses, how it indexes, splits, joins and moves."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from batches import random_batch

import polopt as po
from polopt import Evaluation, Experience, ExperienceError, Support, SupportError
from polopt.fields import SHAPES


def small(rows=3, T=4, **fields):
    return Experience(mask=torch.ones(rows, T, dtype=torch.bool), **fields)


class TestShapes:
    @pytest.mark.parametrize(
        ("field", "value", "sentence"),
        [
            (
                "rollout_logp",
                torch.zeros(3, 5),
                "'rollout_logp' must be floating point of shape [B, T] = [3, 4], found float32 [3, 5]",
            ),
            (
                "rollout_logp",
                torch.zeros(3, 4).long(),
                "must be floating point of shape [B, T] = [3, 4], found int64 [3, 4]",
            ),
            ("reward", torch.zeros(4), "of shape [B] = [3] or [B, T] = [3, 4], found float32 [4]"),
            ("group", torch.zeros(3), "field 'group' must be integer of shape [B] = [3], found float32 [3]"),
            ("terminated", torch.zeros(3), "field 'terminated' must be bool of shape [B] = [3] or"),
            ("advantage", [1.0], "field 'advantage' must be floating point of shape [B, T] = [3, 4], found list [1.0]"),
            ("extras", {"answer": ["a"]}, "extras['answer'] must have one entry per row, B = 3, found list ['a']"),
        ],
    )
    def test_one_sentence(self, field, value, sentence):
        with pytest.raises(ExperienceError, match=re.escape(sentence)) as error:
            small(**{field: value})
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("mask", [torch.ones(3, 4), torch.ones(3, dtype=torch.bool), [[True]]])
    def test_the_mask(self, mask):
        with pytest.raises(ExperienceError, match=r"field 'mask' must be bool of shape \[B, T\]"):
            Experience(mask=mask)

    @pytest.mark.parametrize("shape", [(3, 5), (3,), (3, 4, 1), (2, 4)])
    def test_an_evaluation_of_something_else(self, shape):
        with pytest.raises(ExperienceError, match=r"field 'logp' must be \[B, T\] with \[B, T\] = \[3, 4\]"):
            Evaluation(logp=torch.zeros(shape)).check(small().mask)
        with pytest.raises(ExperienceError, match=r"field 'logits' must be \[B, T, V\]"):
            Evaluation(logp=torch.zeros(3, 4), logits=torch.zeros(3, 4)).check(small().mask)

    @pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}])
    def test_support(self, wrong):
        name, value = next(iter(wrong.items()))
        with pytest.raises(ValueError, match=f"{name} must be .*found {value}"):
            Support(**wrong)


class TestIndexing:
    @pytest.mark.parametrize(
        "rows",
        [
            [0, 2],
            [True, False, True],
            torch.tensor([0, 2]),
            torch.tensor([True, False, True]),
            np.array([0, 2]),
            np.array([True, False, True]),
            slice(0, 3, 2),
            (-3, -1),
        ],
        ids=repr,
    )
    def test_every_way_to_name_rows(self, rows):
        e = small(
            rollout_logp=torch.arange(12.0).reshape(3, 4), extras={"answer": ["a", "b", "c"], "x": torch.arange(3)}
        )
        found = e[rows]
        assert found.rollout_logp.tolist() == e.rollout_logp[[0, 2]].tolist()
        assert found.extras["answer"] == ["a", "c"]
        assert found.extras["x"].tolist() == [0, 2]

    def test_one_row_and_none(self):
        e = small(extras={"answer": ["a", "b", "c"]})
        assert len(e[1]) == 1
        assert e[1].extras["answer"] == ["b"]
        assert len(e[[]]) == 0

    def test_an_index_makes_a_new_whole(self):
        micro = next(small(rows=4).split(2))
        assert len(micro.full_batch) == 4
        assert len(micro[:1].full_batch) == 1

    def test_a_view_leaves_the_original_alone(self):
        e = small(extras={"a": [1, 2, 3]})
        changed = e.replace(reward=torch.zeros(3), extras={"b": [4, 5, 6]})
        assert e.reward is None
        assert set(e.extras) == {"a"}
        assert set(changed.extras) == {"a", "b"}
        with pytest.raises(AttributeError):
            e.reward = torch.zeros(3)


class TestSplit:
    @pytest.mark.parametrize("rows", [1, 2, 3, 7])
    def test_pieces_make_the_whole_and_remember_it(self, rows):
        e = random_batch(0).experience
        pieces = list(e.split(rows))
        assert [len(p) for p in pieces] == [min(rows, len(e) - k) for k in range(0, len(e), rows)]
        assert all(p.full_batch is e for p in pieces)
        joined = torch.cat([p.rollout_logp for p in pieces])
        torch.testing.assert_close(joined, e.rollout_logp, rtol=0, atol=0, equal_nan=True)
        assert all(q.full_batch is e for p in pieces for q in p.split(1)), "a split of a split forgets"
        assert all(p.replace(reward=torch.zeros(len(p))).full_batch is e for p in pieces)

    def test_no_rows_per_piece(self):
        with pytest.raises(ValueError, match=r"rows per micro-batch must be >= 1, found 0"):
            next(small().split(0))


class TestCat:
    def test_pads_to_the_longest(self):
        a, b = random_batch(0, T=4), random_batch(0, T=7)
        joined = Experience.cat([a.experience, b.experience])
        assert joined.mask.shape == (18, 7)
        assert not joined.mask[:9, 4:].any()
        for name in SHAPES:
            left, right = getattr(a.experience, name), getattr(joined, name)
            part = right[:9] if right.ndim == 1 else right[:9, :4]
            if name != "group":
                torch.testing.assert_close(part, left, rtol=0, atol=0, equal_nan=True)
        assert joined.extras["answer"] == a.experience.extras["answer"] + b.experience.extras["answer"]
        assert joined.extras["row"].tolist() == [*range(9), *range(9)]

    @pytest.mark.parametrize("groups", [([0, 1], [0, 1]), ([0, 3], [-1, 2]), ([-5, -5], [-5, 0]), ([7, 7], [7, 7])])
    def test_group_numbers_are_kept_apart(self, groups):
        parts = [small(rows=2, group=torch.tensor(g)) for g in (*groups, [0, 0])]
        found = Experience.cat(parts).group.tolist()
        assert not set(found[:2]) & set(found[2:4])
        assert not set(found[:4]) & set(found[4:])
        for k, part in enumerate(parts):
            assert (found[2 * k] == found[2 * k + 1]) == (part.group[0] == part.group[1]).item()

    def test_supports_do_not_mix(self):
        with pytest.raises(SupportError, match=r"temperature=1\.0.*temperature=0\.6.*do not mix"):
            Experience.cat([small(), small(support=Support(temperature=0.6))])

    @pytest.mark.parametrize(
        ("left", "right", "sentence"),
        [
            ({"reward": torch.zeros(3)}, {}, "field 'reward' is missing in batch 1"),
            ({}, {"reward": torch.zeros(3)}, "field 'reward' is missing in batch 0"),
            ({"reward": torch.zeros(3)}, {"reward": torch.zeros(3, 4)}, "field 'reward' must have one kind of shape"),
            ({"extras": {"a": [1, 2, 3]}}, {}, "extras['a'] is in some batches and not in others"),
            ({}, {"extras": {"a": [1, 2, 3]}}, "extras['a'] is in some batches and not in others"),
        ],
    )
    def test_unlike_batches_are_refused(self, left, right, sentence):
        with pytest.raises(ExperienceError, match=re.escape(sentence)):
            Experience.cat([small(**left), small(**right)])

    def test_nothing(self):
        with pytest.raises(ExperienceError, match="at least one batch"):
            Experience.cat([])

    def test_horizon(self):
        assert Experience.cat([small(horizon=9), small(horizon=9)]).horizon == 9
        assert Experience.cat([small(horizon=9), small(horizon=8)]).horizon is None


class TestTo:
    def test_a_dtype_is_for_floating_point_only(self):
        group = torch.tensor([2**24, 2**24 + 1, 2**53 + 1])
        e = small(rollout_logp=torch.zeros(3, 4), group=group, extras={"id": group, "answer": ["a", "b", "c"]})
        moved = e.to(torch.float64)
        assert moved.rollout_logp.dtype == torch.float64
        assert moved.mask.dtype == torch.bool
        assert e.to(torch.float32).group.tolist() == group.tolist(), "group numbers went through float32"
        assert moved.extras["id"].tolist() == group.tolist()
        assert moved.extras["answer"] == ["a", "b", "c"]
        assert e.to("cpu", torch.float64).rollout_logp.dtype == torch.float64

    def test_a_micro_batch_keeps_its_whole(self):
        e = small()
        assert next(e.split(1)).to(torch.float64).full_batch is e
        moved = e.to(torch.float64)
        assert moved.full_batch is moved


def test_blanked_clears_what_no_decision_owns():
    for seed in range(4):
        batch = random_batch(seed)
        e, v = batch.experience.zero_masked(), batch.evaluation().zero_masked(batch.mask)
        for x in (e.rollout_logp, e.old_logp, e.ref_logp, e.value, e.advantage, e.entropy):
            assert x[~batch.mask].count_nonzero() == 0
            assert x.isfinite().all()
        assert v.logits[~batch.mask].count_nonzero() == 0
        assert torch.equal(e.rollout_logp[batch.mask], batch.experience.rollout_logp[batch.mask])


class TestRequire:
    @pytest.mark.parametrize(
        ("call", "sentence"),
        [
            (
                lambda e: po.credit.RelativeAdvantage()(e),
                "credit.RelativeAdvantage needs experience.reward of shape [3] or [3, 4], found None; score the "
                "rollouts first",
            ),
            (
                lambda e: po.credit.RelativeAdvantage()(e.replace(reward=torch.zeros(3))),
                "features.SamePrompt needs experience.group of shape [3], found None; number the rows by prompt",
            ),
            (
                lambda e: po.objectives.Surrogate()(e, Evaluation(logp=torch.zeros(3, 4))),
                "objectives.Surrogate needs experience.advantage of shape [3, 4], found None; set it with",
            ),
            (
                lambda e: po.sampling.UniqueAnswers()(e.replace(group=torch.zeros(3).long(), extras={"n": [1, 2, 3]})),
                "sampling.UniqueAnswers needs experience.extras['answer'] with B = 3 entries, found none; "
                "extras holds ['n']",
            ),
            (
                lambda e: po.objectives.Surrogate(regularise=[po.objectives.EntropyBonus()])(
                    e.replace(advantage=torch.zeros(3, 4), rollout_logp=torch.zeros(3, 4)),
                    Evaluation(logp=torch.zeros(3, 4)),
                ),
                "objectives.EntropyBonus needs evaluation.entropy of shape [3, 4], found None; "
                "evaluate the policy with needs={'entropy'}",
            ),
            (
                lambda e: po.credit.RelativeAdvantage()(experience=e),
                "credit.RelativeAdvantage needs experience.reward of shape",
            ),
        ],
    )
    def test_one_sentence_names_the_part_the_field_and_the_fix(self, call, sentence):
        with pytest.raises(ExperienceError, match=re.escape(sentence)) as error:
            call(small())
        assert "\n" not in str(error.value)
