"""Identities of the methods that modulate credit, exact in float64."""

from __future__ import annotations

import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.credit import ModulatedAdvantage
from polopt.lab import TabularPolicy
from polopt.lab.problems import digits, many_right
from polopt.objectives import TokenMean
from polopt.part_diff import diff


def test_without_strength_they_are_what_they_modulate() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy, behaviour=TabularPolicy(tree, spread=0.9, seed=7))
    grpo, tokens = po.method("grpo", kl=0), {"objective.aggregate": TokenMean(), "objective.trust.high": 0.28}
    pairs = [
        (po.method("seed-grpo", alpha=0.0), po.method("dr-grpo")),
        (po.method("progrpo", alpha=0.0), grpo.but(tokens)),
        # Rows of one turn: GRPO's advantages have mean 0 over them.
        (po.method("empg", k=0.0, zeta=0.0), grpo),
    ]
    for ours, base in pairs:
        same(slope(ours, batch, policy), slope(base, batch, policy))


def test_what_they_change_is_the_credit_alone() -> None:
    assert [path for path, *_ in diff(po.method("seed-grpo"), po.method("dr-grpo"))] == ["credit"]
    assert [path for path, *_ in diff(po.method("empg"), po.method("grpo", group=8, kl=0))] == ["credit"]


def test_answers_that_agree_are_left_alone_and_others_shrink_by_alpha() -> None:
    tree, policy = many_right(right=4, arms=8)
    batch = batch_of(tree, policy, group=4, prompts=6)
    plain, ours = po.method("dr-grpo").credit(batch), po.method("seed-grpo", alpha=0.5, weigh="count").credit(batch)
    agree = batch.replace(extras={"answer": ["x"] * len(batch)})
    torch.testing.assert_close(po.method("seed-grpo", alpha=0.5).credit(agree), plain)
    differ = batch.replace(extras={"answer": [str(i) for i in range(len(batch))]})
    same(po.method("seed-grpo", alpha=0.5, weigh="count").credit(differ), plain / 2)
    assert ((ours.abs() <= plain.abs() + 1e-12) & (ours * plain >= 0)).all()


def test_the_prompts_confidence_moves_a_group_as_a_whole() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    by_prompt, by_group = (po.method("progrpo", than=than) for than in ("prompt", "group"))
    apart = by_prompt.credit(batch) - by_group.credit(batch)
    rows = apart.gather(1, batch.mask.int().argmax(1, keepdim=True)).squeeze(1)
    torch.testing.assert_close(rows, po.ops.group_mean(rows, batch.group))
    assert rows.abs().max() > 1e-3
    assert isinstance(by_group.credit, ModulatedAdvantage)
    assert "extras.prompt_logp" in by_prompt.required_fields
    assert "extras.prompt_logp" not in by_group.required_fields
