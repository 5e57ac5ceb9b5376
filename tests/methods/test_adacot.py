"""Penalties for thinking or not, and the decision that is left alone; exact in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.claims.problems.thinking import ThinkingPolicy, frontier, questions
from polopt.features.masks import AnswerMatches, SignalAbove, TaskKindIs
from polopt.lab.problems import digits
from polopt.methods.adacot import MaskThinkDecision, ThinkOrNot
from polopt.part_diff import diff
from polopt.rewards import OutcomeReward, SumOfRewards
from polopt.sampling.parts import RolloutRequest


def test_each_fault_has_its_price() -> None:
    """All eight cases, with three prices that tell them apart."""
    cases = list(itertools.product((0.0, 1.0), repeat=3))
    thought, need, bad = (torch.tensor([case[i] for case in cases]) for i in range(3))
    batch = po.Experience(
        mask=torch.ones(8, 1, dtype=torch.bool),
        outcome=torch.zeros(8, dtype=torch.double),
        extras={"signal_working": thought, "signal_needed": need, "signal_bad": bad},
    )
    part = ThinkOrNot(miss=0.3, over=0.2, form=1.0, malformed=SignalAbove(name="bad"))
    for paid, (t, n, b) in zip(part(batch).tolist(), cases, strict=True):
        assert paid == pytest.approx(-(0.3 * (n > t) + 0.2 * (t > n) + 1.0 * b), abs=1e-12)
    level = ThinkOrNot(miss=0.25, over=0.25)
    torch.testing.assert_close(level(batch), -0.25 * (thought != need).double(), rtol=0, atol=0)


def test_without_prices_and_mask_every_stage_of_reinforcement_is_ppo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    batch = batch.replace(extras={"signal_needed": torch.ones(len(batch))})
    ppo = po.method("ppo", kl=0.0)
    for free in (
        po.method("adacot", stage=2).but(select=[]),
        po.method("adacot", miss=0.0, over=0.0, form=0.0),
    ):
        same(slope(free, batch, policy), slope(ppo, batch, policy))
    assert (slope(po.method("adacot", stage=2), batch, policy) - slope(ppo, batch, policy)).abs().max() > 1e-4


def test_stages_are_what_they_say() -> None:
    assert diff(po.method("adacot", stage=1), po.method("sft")) == []
    assert {path for path, *_ in diff(po.method("adacot", stage=2), po.method("ppo", kl=0.0))} == {"select"}
    assert {path for path, *_ in diff(po.method("adacot"), po.method("ppo", kl=0.0))} == {"reward"}
    with_reference = po.method("adacot", kl=0.1).reward
    assert diff(with_reference.terms[0], po.method("ppo", kl=0.1).reward) == []


def test_a_filled_block_is_a_thought_and_an_answer_without_a_block_is_malformed() -> None:
    penalty = po.method("adacot").reward.terms[1]
    texts = ["<think>a</think>b", "<think></think>b", "<think> \n </think>b", "b", " <think>x\ny</think>", "<think>x"]
    batch = po.Experience(mask=torch.ones(len(texts), 1, dtype=torch.bool), extras={"answer": texts})
    assert penalty.thought(batch).tolist() == [True, False, False, False, True, True]
    assert penalty.malformed(batch).tolist() == [False, False, False, True, False, True]


def rows(mask: list[list[int]], tokens: list[list[int]]) -> po.Experience:
    decided = torch.tensor(mask).bool()
    return po.Experience(mask=decided, extras={"tokens": torch.tensor(tokens)})


def test_the_decision_is_the_first_or_the_one_behind_the_tag() -> None:
    batch = rows(
        [[0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0], [0] * 6],
        [[8, 7, 8, 5, 7, 8], [7, 8, 7, 0, 8, 6], [7, 8, 7, 7, 8, 9], [0, 1, 7, 8, 0, 0], [7, 8, 7, 8, 7, 8]],
    )
    first = MaskThinkDecision()(batch).mask
    assert (batch.mask & ~first).int().tolist() == [
        [0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0] * 6
    ]  # fmt: skip
    # Of decisions alone: a tag that the prompt begins does not count, one that a tool interrupts does; nothing follows
    # the tags of the third and the fourth row.
    behind = MaskThinkDecision(after=(7, 8))(batch).mask
    assert (batch.mask & ~behind).int().tolist() == [
        [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1], [0] * 6, [0] * 6, [0] * 6
    ]  # fmt: skip


def test_a_decision_may_take_several_tokens() -> None:
    batch = rows([[1, 0, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]], [[7, 0, 5, 8, 5, 6], [5, 7, 0, 0, 0, 0]])
    assert MaskThinkDecision(count=2)(batch).mask.int().tolist() == [[0, 0, 0, 1, 1, 1], [0] * 6]
    assert MaskThinkDecision(after=(5,), count=2)(batch).mask.int().tolist() == [[1, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0]]


def test_the_masked_decision_has_no_gradient_and_the_others_their_own() -> None:
    tree, u = questions()
    policy = ThinkingPolicy(tree, u)
    source = po.lab.TreeSource(tree, policy, rows=80)
    batch = source.rollout(RolloutRequest(source.take(10), 8, po.Support()))
    bare = po.method("dr-grpo")
    found = {}
    for name, select in (("all", []), ("masked", [MaskThinkDecision()])):
        judged = bare.but(select=select).compute_advantages(batch)
        loss = bare.objective(judged, policy.evaluate(judged)).loss
        found[name] = torch.autograd.grad(loss, [policy.think, policy.end])
    assert found["masked"][0].abs().max() == 0
    assert found["all"][0].abs().max() > 1e-3
    torch.testing.assert_close(found["masked"][1], found["all"][1], rtol=1e-12, atol=0)


def test_the_frontier_is_the_best_of_all_policies() -> None:
    """Against all subsets of eight questions."""
    _, u = questions(count=8)
    for size in range(9):
        best = max(
            sum(0.95 if i in chosen else 1 - u[i].item() for i in range(8)) / 8
            for chosen in itertools.combinations(range(8), size)
        )
        assert frontier(u, size / 8) == pytest.approx(best, abs=1e-12)
    middle = (frontier(u, 3 / 8) + frontier(u, 4 / 8)) / 2
    assert frontier(u, 3.5 / 8) == pytest.approx(middle, abs=1e-12)


def test_a_tree_is_told_by_what_it_says_first() -> None:
    tree, u = questions(count=4, needed=0.5)
    batch = tree.leaves()
    penalty = ThinkOrNot(thought=AnswerMatches(pattern="^1"), need=TaskKindIs(kinds=("hard",)), miss=0.3, over=0.1)
    wanted = [[0.0, 0.0, -0.1, -0.1]] * 2 + [[-0.3, -0.3, 0.0, 0.0]] * 2
    torch.testing.assert_close(penalty(batch).view(4, 4), torch.tensor(wanted, dtype=torch.double))
    total = SumOfRewards(terms=[OutcomeReward(), penalty])(batch)
    assert total.view(4, 4)[3, 1].item() == pytest.approx(1 - u[3].item() - 0.3)


def test_bad_input_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="ThinkOrNot: miss, over and form must be >= 0"):
        ThinkOrNot(over=-1)
    with pytest.raises(ValueError, match="MaskThinkDecision: count must be >= 1, found 0"):
        MaskThinkDecision(count=0)
    with pytest.raises(po.ExperienceError, match=r"MaskThinkDecision needs experience\.extras\['tokens'\]"):
        MaskThinkDecision(after=(1,))(po.Experience(mask=torch.ones(1, 1, dtype=torch.bool)))
