"""Pairs and prompts by a gap of rewards: by hand, against sorting, and what is refused."""

from __future__ import annotations

import pytest
import torch

from polopt.claims.problems.stored_pairs import MODEL, labelled
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.methods.dpo import dpo
from polopt.methods.mpo_easyhard import EasyPairs, HardPrompts, mpo_easyhard, reward_gaps
from polopt.methods.ppo import ppo
from polopt.part_diff import diff
from polopt.rewards import FieldReward, KLPenalty, OutcomeReward, SumOfRewards
from polopt.sampling import UniformTasks

SCORE = FieldReward(name="score")


def three_pairs() -> Experience:
    """Gaps 2, -3 and 0.5; the second pair has its rejected row first, and the rows of the third stand apart."""
    return Experience(
        mask=torch.ones(6, 2, dtype=torch.bool),
        outcome=torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]),
        group=torch.tensor([7, 9, 4, 4, 9, 7]),
        extras={
            "score": torch.tensor([3.0, 1.0, 4.0, 1.0, 1.5, 1.0]),
            "is_demonstration": torch.ones(6, dtype=torch.bool),
        },
    )


def test_the_gap_by_hand() -> None:
    assert reward_gaps(three_pairs(), SCORE, "absolute").tolist() == [2.0, 0.5, 3.0, 3.0, 0.5, 2.0]
    assert reward_gaps(three_pairs(), SCORE, "signed").tolist() == [2.0, 0.5, -3.0, -3.0, 0.5, 2.0]


@pytest.mark.parametrize(
    ("gap", "gamma", "kept"),
    [
        ("absolute", 0.0, [7, 9, 4, 4, 9, 7]),
        ("absolute", 0.5, [7, 4, 4, 7]),
        ("absolute", 2.0, [4, 4]),
        ("signed", 0.0, [7, 9, 9, 7]),
        ("signed", 2.0, []),
    ],
)
def test_easy_pairs_stay_whole(gap: str, gamma: float, kept: list[int]) -> None:
    """Though they are demonstrated rows, which other filters pass by."""
    algorithm = mpo_easyhard(stage=1, reward=SCORE, gamma=gamma, gap=gap)
    assert algorithm.filtered(three_pairs()).group.tolist() == kept


def test_a_reward_of_each_decision_is_added_up() -> None:
    batch = three_pairs().replace(rollout_logp=torch.zeros(6, 2), ref_logp=-torch.arange(6.0)[:, None].expand(6, 2))
    found = reward_gaps(batch, KLPenalty(coefficient=1.0), "signed")
    # -2 i a row: rows 0 and 5, 4 and 1, 3 and 2.
    assert found.tolist() == [10.0, -6.0, -2.0, -2.0, -6.0, 10.0]


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_hard_prompts_are_those_below_the_threshold(gamma: float) -> None:
    problem = labelled(0)
    scores = problem.scores.flatten()[problem.stored]
    hard = {i for i, (w, r) in enumerate(scores.tolist()) if abs(w - r) <= gamma}
    source = problem.source(problem.policy(), rows=8)
    part = HardPrompts(reward=FieldReward(name=f"signal_{MODEL}"), gamma=gamma)
    found = [part(source, 5).tolist() for _ in range(20)]
    assert {task for tasks in found for task in tasks} == hard
    assert all(len(set(tasks)) == 5 for tasks in found[:2])
    # One round finds fewer than 60 of 100, which are repeated.
    once = part.but(tries=1)(problem.source(problem.policy(), rows=8), 60).tolist()
    assert len(once) == 60
    assert set(once) <= hard


def test_it_is_dpo_and_then_ppo() -> None:
    first, second = (mpo_easyhard(stage=stage, reward=SCORE, beta=0.3, group=4) for stage in (1, 2))
    assert [path for path, *_ in diff(first, dpo(beta=0.3))] == ["select"]
    plain = ppo(kl=0.0, group=4).but(reward=SumOfRewards(terms=[SCORE, KLPenalty(coefficient=0.3)]))
    assert [path for path, *_ in diff(second, plain)] == ["sampling.choice"]
    assert diff(second.but({"sampling.choice": UniformTasks()}), plain) == []
    assert isinstance(first.select[0], EasyPairs)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="stage must be 1, the easy pairs, or 2, the hard prompts, found 3"):
        mpo_easyhard(stage=3)
    with pytest.raises(ValueError, match="tries must be >= 1, found 0"):
        HardPrompts(reward=OutcomeReward(), tries=0)
    problem = labelled(0, prompts=10)
    part = HardPrompts(reward=FieldReward(name=f"signal_{MODEL}"), gamma=-1.0, tries=3)
    with pytest.raises(
        ExperienceError, match="none of 12 pairs has a gap of rewards of at most gamma = -1; raise gamma"
    ):
        part(problem.source(problem.policy(), rows=4), 4)
