"""Identities of the methods that choose after credit, exact in float64."""

from __future__ import annotations

import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.lab.problems import digits
from polopt.lab.selection import as_rows, rewarded
from polopt.methods.d3s import HighestVariance
from polopt.methods.pf_ppo import RankedRows
from polopt.objectives import SequenceMean, TokenMean
from polopt.part_diff import diff

WHOLE = {"rows": (1.0, 1.0), "tokens": (1.0, 1.0)}


def test_d3s_that_keeps_all_is_grpo_over_tokens() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    grpo = po.method("grpo", group=8, kl=0).but(**{"objective.aggregate": TokenMean()})
    same(slope(po.method("d3s", **WHOLE), batch, policy), slope(grpo, batch, policy))
    assert {path for path, *_ in diff(po.method("d3s"), grpo)} == {"select"}
    assert {path for path, *_ in diff(po.method("d3s"), po.method("d3s", within="group"))} == {"select.0.within"}
    back = grpo.but(**{"objective.aggregate": SequenceMean()})
    assert diff(po.method("d3s").but(**{"select": [], "objective.aggregate": SequenceMean()}), back) == []


def test_pf_ppo_that_keeps_all_is_ppo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    same(slope(po.method("pf-ppo", best=4, worst=0), batch, policy), slope(po.method("ppo"), batch, policy))
    assert diff(po.method("pf-ppo").but(select=[]), po.method("ppo", group=8)) == []


def test_two_rows_of_each_group_with_the_most_variance_are_its_best_and_worst() -> None:
    reward, _ = rewarded(50, 8, "extreme reward")
    rows = as_rows(reward)
    rows = rows.replace(advantage=rows.outcome[:, None])
    pairs = HighestVariance(share=0.25, within="group")(rows).extras["row"]
    assert torch.equal(pairs, RankedRows(best=1, worst=1)(rows).extras["row"])


def test_d3s_learns_from_less_than_a_fifth_of_the_tokens_over_a_run() -> None:
    algorithm = po.method("d3s", steps=20)
    tree, policy = digits()
    batch = batch_of(tree, policy, group=8, prompts=16)
    used = 0
    for _ in range(20):
        used += int(algorithm.compute_advantages(batch).mask.sum())
        algorithm.step()
    assert 0.1 < used / (20 * int(batch.mask.sum())) < 0.2
