"""RefCritic against the world that pays it."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy
from polopt.lab.problems import digits
from polopt.part_diff import diff
from polopt.sampling.parts import RolloutRequest
from polopt.training import recipe as recipes
from polopt.worlds import Critic


def batch(tries: int = 8) -> po.Experience:
    """Four critiques of each of 20 solutions, as a world judges them."""
    world = Critic(size=20, tries=tries)
    critiques = ["right", "wrong 1", "wrong 2", "nonsense"]
    found = [world.score(text, world[i]) for i in range(20) for text in critiques]
    signals = {f"signal_{name}": [info["signals"][name] for _, info in found] for name in world.signals}
    return po.Experience(
        mask=torch.ones(80, 1, dtype=torch.bool),
        rollout_logp=torch.zeros(80, 1),
        outcome=torch.tensor([paid for paid, _ in found]),
        group=torch.arange(20).repeat_interleave(4),
        extras={name: torch.tensor(values) for name, values in signals.items()},
    )


def test_stage_1_is_grpo_and_stage_2_changes_its_reward() -> None:
    assert diff(po.method("grpo", group=8), po.method("refcritic", stage=1)) == []
    assert [path for path, *_ in diff(po.method("grpo", group=8), po.method("refcritic"))] == ["reward"]
    with pytest.raises(ValueError, match="stage must be 1 or 2, found 3"):
        po.method("refcritic", stage=3)


def test_beta_0_is_the_verdict_alone() -> None:
    b = batch()
    both, none, alone = (
        po.method("refcritic", kl=0, **settings).compute_advantages(b).advantage
        for settings in ({}, {"beta": 0.0}, {"stage": 1})
    )
    assert torch.equal(none, alone)
    assert not torch.equal(both, alone)


@pytest.mark.parametrize("tries", [1, 8])
def test_the_reward_is_the_verdict_and_the_share_of_refined_answers(tries: int) -> None:
    b, world = batch(tries), Critic(size=20, tries=tries)
    reward = po.method("refcritic", beta=0.5).reward(b)
    for row, text in enumerate(["right", "wrong 1", "wrong 2", "nonsense"] * 20):
        wrong = world[row // 4].row["wrong"]
        verdict = float((text == "right" and not wrong) or (text.startswith("wrong") and wrong > 0))
        least = 0.5 * (wrong > 0 and text.startswith("wrong"))
        assert verdict <= reward[row] <= verdict + least
        assert reward[row] * 2 * tries == pytest.approx(round(float(reward[row]) * 2 * tries))
    assert reward.max() > 1


def test_without_the_signal_it_is_refused() -> None:
    tree, policy = digits()
    assert isinstance(policy, TabularPolicy)
    source = po.lab.TreeSource(tree, policy, rows=8)
    with pytest.raises(po.ExperienceError, match=r"rewards\.FieldReward needs experience\.extras\['signal_refined'\]"):
        po.method("refcritic").compute_advantages(source.rollout(RolloutRequest(torch.tensor([0]), 8, po.Support())))


def test_the_recipe_has_the_three_stages() -> None:
    recipe = recipes.load("refcritic")
    rewards = [repr(algorithm.reward) for algorithm in recipe.algorithms.values()]
    assert list(recipe.stages) == ["cold-start", "verdict", "both"]
    assert rewards[1] == "rewards.OutcomeReward()"
    assert "signal_refined" in rewards[2]
