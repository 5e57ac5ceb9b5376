"""Rewards of length that only some groups are paid, and the methods made of them; exact in float64."""

from __future__ import annotations

import math

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.features.masks import IsCorrect, SolvedGroups, TopGroups
from polopt.features.rows import DecisionCount, RowField, TurnCount
from polopt.lab.length_bandit import LENGTHS, length_bandit, rightness
from polopt.lab.shapes import coin
from polopt.part_diff import diff
from polopt.part_names import name_of
from polopt.rewards import ConditionalReward, LinearLength, OutcomeReward, RelativeLength, SumOfRewards
from polopt.sampling.parts import RolloutRequest


def rows(outcome: list[float], lengths: list[int], group: list[int], **fields: object) -> po.Experience:
    return po.Experience(
        mask=torch.arange(max(lengths)) < torch.tensor(lengths)[:, None],
        outcome=torch.tensor(outcome, dtype=torch.double),
        group=torch.tensor(group),
        **fields,  # type: ignore[arg-type]
    )


def sampled(prompts: int = 24, group: int = 8) -> tuple[po.Experience, object]:
    tree, policy = length_bandit()
    source = po.lab.TreeSource(tree, policy, rows=prompts * group, seed=3, draw=coin)
    return source.rollout(RolloutRequest(source.take(prompts), group, po.Support())), policy


def by_hand(batch: po.Experience, weight: float, share: float) -> list[float]:
    """GRPO-lambda's rewards in plain Python."""
    groups: dict[int, list[int]] = {}
    for row, group in enumerate(batch.group.tolist()):
        groups.setdefault(group, []).append(row)
    right, length = (batch.outcome >= 1).tolist(), batch.lengths.tolist()
    order = sorted(groups, key=lambda g: -sum(right[i] for i in groups[g]) / len(groups[g]))
    best = set(order[: math.ceil(share * len(order))])
    paid = [float(r) for r in right]
    for group in best:
        among = [length[i] for i in groups[group] if right[i]]
        for i in groups[group]:
            if right[i]:
                mean = sum(among) / len(among)
                std = math.sqrt(sum((x - mean) ** 2 for x in among) / len(among))
                z = (length[i] - mean) / std if std > 0 else 0.0
                paid[i] -= weight / (1 + math.exp(-z))
    return paid


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_top_groups_are_those_of_a_plain_loop(share: float) -> None:
    batch, _ = sampled()
    algorithm = po.method("grpo-lambda-len", share=share, weight=0.3)
    wanted = torch.tensor(by_hand(batch, 0.3, share), dtype=torch.double)
    torch.testing.assert_close(algorithm.reward(batch), wanted, rtol=1e-12, atol=1e-14)


def test_no_group_is_grpo_and_all_groups_are_grpo_with_a_length_penalty() -> None:
    batch, policy = sampled()
    grpo = po.method("grpo", group=16, kl=0)

    def of(algorithm: po.Algorithm) -> torch.Tensor:
        judged = algorithm.compute_advantages(batch)
        loss = algorithm.objective(judged, policy.evaluate(judged)).loss
        return torch.autograd.grad(loss, policy.weights)[0]

    same(of(po.method("grpo-lambda-len", share=0.0)), of(grpo))
    penalised = grpo.but(reward=SumOfRewards(terms=[OutcomeReward(), RelativeLength()]))
    same(of(po.method("grpo-lambda-len", share=1.0)), of(penalised))
    assert (of(penalised) - of(grpo)).abs().max() > 1e-6
    assert [path for path, *_ in diff(po.method("grpo-lambda-len"), grpo)] == ["reward"]


def test_a_share_that_only_solved_groups_reach_is_the_rule_of_conciser() -> None:
    batch, _ = sampled()
    solved = SolvedGroups(least=1.0)(batch)
    groups = len(batch.group.unique())
    share = len(batch.group[solved].unique()) / groups
    assert 0 < share < 1
    assert torch.equal(TopGroups(share=share)(batch), solved)


def test_any_weight_of_length_has_the_same_advantage_where_all_are_right() -> None:
    """A z-score has no unit: where nothing else differs, length is blown up to variance 1."""
    batch = rows([1.0] * 4, [3, 5, 9, 10], [0] * 4)
    found = [
        po.method("grpo-lambda-len", weight=w).but(**{"credit.scale.eps": 0.0}).with_advantages(batch).advantage[:, 0]
        for w in (0.001, 0.2, 50.0)
    ]
    assert found[0].abs().max() > 1
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-9, atol=1e-11)


def test_one_right_answer_is_paid_half_the_weight_less_and_hears_nothing_of_length() -> None:
    for length in (1, 7):
        batch = rows([1.0, 0.0, 0.0], [length, 3, 9], [0] * 3)
        reward = RelativeLength(weight=0.4)(batch)
        assert reward.tolist() == [-0.2, 0.0, 0.0]


def test_groups_without_a_right_answer_are_never_chosen() -> None:
    batch = rows([0.0, 0.0, 1.0, 0.0], [1, 2, 3, 4], [0, 0, 1, 1])
    assert TopGroups(share=1.0)(batch).tolist() == [False, False, True, True]
    assert SolvedGroups(least=0.0)(batch).tolist() == [False, False, True, True]
    assert SolvedGroups(least=0.6)(batch).tolist() == [False] * 4


def test_of_equal_groups_the_first_in_the_batch_is_chosen() -> None:
    batch = rows([1.0, 1.0, 1.0], [1, 2, 3], [9, 4, 5])
    assert TopGroups(share=0.2)(batch).tolist() == [True, False, False]
    assert TopGroups(share=0.5)(batch).tolist() == [True, True, False]


def test_length_may_be_turns_or_what_the_world_counted() -> None:
    turn = torch.tensor([[0, 0, 1, 3], [2, 2, 2, 2]])
    batch = rows([1.0, 1.0], [4, 3], [0, 0], turn=turn, extras={"signal_calls": torch.tensor([2.0, 5.0])})
    lengths = {"decisions": DecisionCount(), "turns": TurnCount(), "signal_calls": RowField(name="signal_calls")}
    cost = {name: LinearLength(of=of, weight=1.0, limit=10)(batch) for name, of in lengths.items()}
    assert cost["decisions"].tolist() == [-0.4, -0.3]
    torch.testing.assert_close(cost["turns"], torch.tensor([-0.3, -0.1], dtype=torch.double))
    assert cost["signal_calls"].tolist() == [-0.2, -0.5]
    with pytest.raises(po.ExperienceError, match=r"features.RowField needs experience.extras\['signal_tools'\]"):
        LinearLength(of=RowField(name="signal_tools"), limit=10)(batch)


def test_conciser_pays_what_is_left_where_all_are_right_and_nothing_where_one_is_wrong() -> None:
    algorithm = po.method("conciser", limit=100)
    batch = rows([1.0] * 3 + [1.0, 0.0], [10, 20, 30, 10, 20], [0, 0, 0, 1, 1])
    wanted = torch.tensor([1.9, 1.8, 1.7, 1.0, 0.0], dtype=torch.double)
    torch.testing.assert_close(algorithm.reward(batch), wanted, rtol=1e-12, atol=0)
    level = rows([1.0] * 3, [7] * 3, [0] * 3)
    assert algorithm.with_advantages(level).advantage.abs().max() == 0


def test_the_first_stage_of_conciser_is_dapo_without_its_length_penalty() -> None:
    bare = po.method("dapo").but(reward=OutcomeReward())
    assert diff(po.method("conciser", stage=1, entropy=0.0), bare) == []
    second = po.method("conciser")
    assert {path for path, *_ in diff(po.method("conciser", stage=1), second)} == {
        "sampling.select", "sampling.refills", "reward"
    }  # fmt: skip
    any_right = second.but({"reward.terms.1.when.least": 0.0})
    batch, _ = sampled()
    penalised = SumOfRewards(terms=[OutcomeReward(), LinearLength(weight=1.0, free=1.0)])
    torch.testing.assert_close(any_right.reward(batch), penalised(batch), rtol=1e-12, atol=0)


def test_a_gate_leaves_rewards_of_decisions_in_shape() -> None:
    batch = rows([1.0, 0.0], [2, 2], [0, 0])
    each = po.rewards.KLPenalty(coefficient=1.0)
    logp = torch.tensor([[-1.0, -2.0], [-1.0, -2.0]]).double()
    batch = batch.replace(rollout_logp=logp, ref_logp=2 * logp)
    gated = ConditionalReward(reward=each, when=IsCorrect())(batch)
    torch.testing.assert_close(gated, torch.where(torch.tensor([[True], [False]]), each(batch), 0))
    assert gated[0].abs().min() > 0


def test_bad_settings_are_refused_in_one_sentence() -> None:
    for part, setting in ((TopGroups, {"share": 1.2}), (SolvedGroups, {"least": -0.1}), (LinearLength, {"limit": 0})):
        with pytest.raises(ValueError, match=rf"{name_of(part)}: {next(iter(setting))} must be"):
            part(**setting)
    with pytest.raises(ValueError, match="is no regular expression"):
        po.features.AnswerMatches(pattern="(")
    with pytest.raises(po.ExperienceError, match="needs the longest row allowed"):
        LinearLength()(rows([1.0], [1], [0]))


def test_the_length_bandit_is_what_it_says() -> None:
    tree, policy = length_bandit()
    assert [len(a) for a in tree.answers] == list(range(1, LENGTHS + 1))
    assert tree.kinds.count("hard") == 3
    assert tree.outcome[0, :3].tolist() == [0.0, 0.0, 0.97]
    assert tree.outcome[9, 11].item() == pytest.approx(0.475)
    easy, hard = rightness(tree, policy).tolist()
    assert easy == pytest.approx(0.97 * 18 / 20)
    assert hard == pytest.approx(sum(0.95 / (1 + math.exp(12 - k)) for k in range(1, 21)) / 20)


def test_slope_is_that_of_a_policy_in_a_table_too() -> None:
    """The gates work on any batch of a tree."""
    tree, policy = po.lab.problems.digits()
    batch = batch_of(tree, policy)
    assert slope(po.method("grpo-lambda-len", share=1.0), batch, policy).abs().max() > 1e-6
