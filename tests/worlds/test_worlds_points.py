"""Tasks of generative policies."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch

from polopt.errors import UserError
from polopt.worlds.points import PointTask, digits, expected_rating, find_points, modes


def test_modes_prefer_what_is_asked_for() -> None:
    task = modes(count=3, ask=True, radius=2.0, std=0.1, width=0.5, size=300)
    centres = torch.tensor([[2.0, 0.0], [-1.0, 3**0.5], [-1.0, -(3**0.5)]])
    nearest = torch.cdist(task.points, centres).argmin(1)
    assert torch.equal(task.score, (nearest == task.context).float())
    off = torch.tensor([[0.3, -0.4]])
    reward = task.reward(centres + off, torch.arange(3))
    assert torch.allclose(reward, torch.full((3,), 0.5).exp() ** -1, atol=1e-6)
    assert modes().contexts == 1


def test_digits_are_scored_by_what_they_are() -> None:
    task = digits(wrong=0.3, seed=1)
    assert task.points.shape == (1797, 64)
    assert task.points.min() == -1
    assert task.points.max() == 1
    assert task.score.mean().item() == pytest.approx(0.7, abs=0.03)
    for reward in (task.reward, task.held_out):
        found = reward(task.points, task.context)
        assert ((found >= 0) & (found <= 1)).all()
        assert found[task.score > 0].mean() > 0.9
        assert found[task.score == 0].mean() < 0.1
    assert not torch.equal(task.reward(task.points, task.context), task.held_out(task.points, task.context))


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    own = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return own(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'polopt\[generative\]'"):
        digits()


def test_a_task_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "my_points.py"
    file.write_text(
        "import torch\nfrom polopt.worlds.points import PointTask\n"
        "def build(count: int = 4):\n"
        "    zeros = torch.zeros(count)\n"
        "    return PointTask(torch.ones(count, 3), zeros.long(), zeros, lambda x, context: x.sum(-1))\n"
        "def other():\n    return 3\n"
    )
    task = find_points({"name": f"{file}:build", "count": 5})
    assert task.points.shape == (5, 3)
    assert task.held_out(torch.ones(2, 3), torch.zeros(2)).tolist() == [3, 3]
    with pytest.raises(ValueError, match=r"expected a polopt\.worlds\.points\.PointTask"):
        find_points(f"{file}:other")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mode", "there is no task of points 'mode'; did you mean 'modes'"),
        ({"name": "modes", "cont": 2}, "has no setting 'cont'"),
        ({"name": "modes", "count": 1}, "count >= 2"),
        ({"name": "digits", "wrong": 1.0}, r"wrong must be in \[0, 1\)"),
    ],
)
def test_what_is_wrong_is_named(spec: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        find_points(spec)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": torch.zeros(3)}, r"points must be floating point \[N, D\], found torch.float32 \[3\]"),
        ({"points": torch.full((3, 2), torch.nan)}, "points must be finite"),
        ({"score": torch.zeros(2)}, r"score must be \[N\] = \[3\], found \[2\]"),
        ({"context": torch.tensor([0, 1, 2])}, "from 0 to contexts - 1 = 1"),
    ],
)
def test_a_task_has_its_shapes(changes: dict[str, Any], message: str) -> None:
    right = {"points": torch.zeros(3, 2), "context": torch.tensor([0, 1, 0]), "score": torch.zeros(3)}
    with pytest.raises(ValueError, match=message):
        PointTask(**right | changes, reward=lambda x, context: x.sum(-1), contexts=2)


def test_a_judge_must_rate_every_point() -> None:
    with pytest.raises(ValueError, match=r"logits \[B, ratings\] with B = 3"):
        expected_rating(lambda x, context: torch.zeros(3))(torch.zeros(3, 2), torch.zeros(3))
