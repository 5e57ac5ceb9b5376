"""Flawed right answers, and the judge's own reward; exact in float64."""

from __future__ import annotations

import pytest
import torch
from chat_server import served

import polopt as po
from polopt.features.masks import IsCorrect, SignalAbove
from polopt.methods.fapo import FlawedPositive, step_verdict
from polopt.part_diff import diff
from polopt.rewards import OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.worlds import Task


def rows(outcome: list[float], flawed: list[float]) -> po.Experience:
    return po.Experience(
        mask=torch.ones(len(outcome), 2, dtype=torch.bool),
        outcome=torch.tensor(outcome, dtype=torch.double),
        group=torch.zeros(len(outcome), dtype=torch.long),
        horizon=100,
        extras={"signal_flawed": torch.tensor(flawed)},
    )


ANSWERS = rows([1.0, 1.0, 1.0, 0.0, 0.0], [0.0, 1.0, torch.nan, 1.0, 0.0])


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 2.0])
def test_only_right_answers_are_judged_and_a_judge_that_fails_found_nothing(weight: float) -> None:
    reward = po.method("fapo", weight=weight).reward(ANSWERS)
    wanted = torch.tensor([1.0, 1.0 - weight, 1.0, -1.0, -1.0], dtype=torch.double)
    torch.testing.assert_close(reward, wanted, rtol=0, atol=0)


def test_weight_0_is_outcomes_alone_and_weight_2_is_a_strict_check_of_the_process() -> None:
    none = po.method("fapo", weight=0.0).with_advantages(ANSWERS).advantage
    alone = po.method("fapo").but(reward=SumOfRewards(terms=[OutcomeReward(scale=2, shift=-1), OverlongPenalty()]))
    torch.testing.assert_close(none, alone.with_advantages(ANSWERS).advantage, rtol=1e-12, atol=0)
    strict = po.method("fapo", weight=2.0).with_advantages(ANSWERS).advantage
    sound = ANSWERS.replace(outcome=torch.where(SignalAbove(name="flawed")(ANSWERS), 0, ANSWERS.outcome))
    torch.testing.assert_close(strict, alone.with_advantages(sound).advantage, rtol=1e-12, atol=0)
    assert (strict - none).abs().max() > 0.1


def test_a_chat_model_is_asked_about_right_answers_alone() -> None:
    tasks = [Task(f"t{i}", "k", "2 + 2?", "4", {}) for i in range(4)]
    answers = ["a slip, so 4", "4", "a slip, so 5", "silence, so 4"]
    batch = rows([1.0, 1.0, 0.0, 1.0], [0.0] * 4).replace(extras={"answer": answers, "task": tasks})
    replies = {"slip": "It slips.\nScore: 10", "silence": "I cannot tell."}
    with served(lambda asked: next((reply for word, reply in replies.items() if word in asked), "Score: 0")) as server:
        chat = po.backends.Chat(url=server.url, model="tiny")
        # A reply that cannot be read has found nothing.
        assert po.method("fapo", chat=chat).reward(batch).tolist() == [0.0, 1.0, -1.0, 1.0]
        assert len(server.seen) == 3


def test_what_fapo_changes_of_dapo() -> None:
    assert {path for path, *_ in diff(po.method("fapo", group=16), po.method("dapo"))} == {
        "sampling.select", "sampling.refills", "objective.trust.dual", "reward.terms"
    }  # fmt: skip


def test_the_judge_is_paid_for_the_step_it_names() -> None:
    """Every verdict on every solution of up to 5 steps, against the rule case by case."""
    for steps in range(1, 6):
        for first in range(-1, steps):
            for found in range(-3, steps + 3):
                readable = found == -1 or 0 <= found < steps
                if not readable:
                    wanted = -1.0
                elif first == -1:
                    wanted = 1.0 if found == -1 else -1.0
                else:
                    wanted = -1.0 if found == -1 else 1 - abs(found - first) / steps
                paid = step_verdict(torch.tensor([found]), torch.tensor([first]), torch.tensor([steps]))
                assert paid.item() == pytest.approx(wanted, abs=1e-7)


def test_any_check_of_the_process_will_do() -> None:
    judged = FlawedPositive(flawed=SignalAbove(name="flawed", above=0.3), right=IsCorrect(threshold=0.5))
    batch = rows([0.6, 0.6, 0.4], [0.4, 0.2, 0.9])
    assert judged(batch).tolist() == [-1.0, 0.0, 0.0]


def test_bad_input_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"methods\.fapo\.FlawedPositive: weight must be >= 0, found -1"):
        FlawedPositive(weight=-1)
    with pytest.raises(po.ExperienceError, match=r"SignalAbove needs experience\.extras\['signal_flawed'\]"):
        FlawedPositive()(po.Experience(mask=ANSWERS.mask, outcome=ANSWERS.outcome))
