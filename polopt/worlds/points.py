"""Tasks of generative policies: given points with scores, and a reward for points that a policy makes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.errors import UserError
from polopt.problems.named import build_named

# reward(points [B, D], context [B]) -> [B]
PointReward = Callable[[Tensor, Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class PointTask:
    """A task of a generative policy.

    points: [N, D] float32, given ones. context: [N] int64, what each is asked for, from 0. score: [N], how good each
    is: of two points of one context the one with the higher score is preferred. reward: of any points in their
    contexts, [B, D] and [B] -> [B]. heldout_reward: the same for evaluations; None takes `reward`. contexts: their
    number.

    Raises:
        ValueError: shapes or types that differ from these.
    """

    points: Tensor
    context: Tensor
    score: Tensor
    reward: PointReward
    heldout_reward: PointReward | None = None
    contexts: int = 1

    def __post_init__(self) -> None:
        shape = self.points.shape
        if self.points.ndim != 2 or not len(self.points) or not self.points.is_floating_point():
            raise ValueError(
                f"PointTask: points must be floating point [N, D], found {self.points.dtype} {list(shape)}"
            )
        if not self.points.isfinite().all():
            raise ValueError("PointTask: points must be finite")
        for name in ("context", "score"):
            if getattr(self, name).shape != shape[:1]:
                raise ValueError(
                    f"PointTask: {name} must be [N] = [{shape[0]}], found {list(getattr(self, name).shape)}"
                )
        if self.context.dtype != torch.int64 or self.context.min() < 0 or self.context.max() >= self.contexts:
            raise ValueError(f"PointTask: context must be int64 and from 0 to contexts - 1 = {self.contexts - 1}")

    @property
    def held_out(self) -> PointReward:
        """The reward by which a policy is evaluated."""
        return self.reward if self.heldout_reward is None else self.heldout_reward


def modes(
    *,
    count: int = 2,
    ask: bool = False,
    radius: float = 2.0,
    std: float = 0.3,
    width: float = 0.5,
    size: int = 2000,
    seed: int = 0,
) -> PointTask:
    """Returns points around `count` centres on a circle in the plane, of which those around the first are preferred.

    The reward of a point is exp(-|x - c|^2 / (2 width^2)), c the preferred centre.

    ask: there are `count` contexts, and each prefers a centre of its own; a point has a context by lot. radius: of the
    circle. std: of the normal noise around each centre. width: of the reward. size: given points, as many of each
    centre.
    """
    if count < 2 or min(radius, std, width) <= 0 or size < count:
        raise ValueError(
            f"modes: count >= 2, radius, std, width > 0 and size >= count are needed, found {count}, {radius}, {std}, "
            f"{width} and {size}"
        )
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.arange(count) / count
    centres = radius * torch.stack([angle.cos(), angle.sin()], 1)
    which = torch.arange(size) % count
    points = centres[which] + std * torch.randn(size, 2, generator=generator)
    context = torch.randint(count if ask else 1, (size,), generator=generator)

    def reward(x: Tensor, asked: Tensor) -> Tensor:
        return torch.exp(-(x - centres.to(x)[asked.to(x.device)]).square().sum(-1) / (2 * width**2))

    return PointTask(points, context, (which == context).float(), reward, contexts=count if ask else 1)


def digits(*, wrong: float = 0.3, seed: int = 0) -> PointTask:
    """Returns scikit-learn's 1797 handwritten digits of 8 x 8 pixels, scaled to [-1, 1], in 10 contexts: a context asks
    for a digit.

    The reward of an image is the probability of the digit that its context asks for, by a logistic regression fitted to
    one half of the images; that for evaluations is by another one, of the other half.

    wrong: share of the images whose context asks for another digit; their score is 0, that of the others 1.

    Raises:
        UserError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise UserError("the task digits needs scikit-learn: pip install 'polopt[generative]'") from None
    if not 0 <= wrong < 1:
        raise ValueError(f"digits: wrong must be in [0, 1), found {wrong}")
    pixels, label = load_digits(return_X_y=True)
    points, truth = torch.tensor(pixels, dtype=torch.float32) / 8 - 1, torch.tensor(label)
    order = torch.randperm(len(points), generator=(generator := torch.Generator().manual_seed(seed)))
    halves = order.chunk(2)

    def probability(rows: Tensor) -> PointReward:
        fitted = LogisticRegression(max_iter=5000).fit(points[rows].double().numpy(), truth[rows].numpy())
        weight, bias = torch.tensor(fitted.coef_).float(), torch.tensor(fitted.intercept_).float()

        def reward(x: Tensor, context: Tensor) -> Tensor:
            chance = (x @ weight.T.to(x) + bias.to(x)).softmax(-1)
            return chance.gather(-1, context.to(x.device)[:, None])[:, 0]

        return reward

    moved = torch.rand(len(points), generator=generator) < wrong
    shift = torch.randint(1, 10, (len(points),), generator=generator)
    context = torch.where(moved, (truth + shift) % 10, truth)
    return PointTask(
        points=points,
        context=context,
        score=(~moved).float(),
        reward=probability(halves[0]),
        heldout_reward=probability(halves[1]),
        contexts=10,
    )


POINT_TASKS: dict[str, Callable[..., PointTask]] = {"digits": digits, "modes": modes}


def find_points(spec: str | Mapping[str, Any]) -> PointTask:
    """Returns the task of a name: `modes`; `{name: modes, count: 3}`, with its settings; or a function that returns
    one, as `my_points.py:build`.

    Raises:
        UnknownProblem: there is none; the nearest name.
        ValueError, TypeError: a setting does not exist or is not valid, or the function returns no task.
    """
    name, built = build_named(spec, POINT_TASKS, "task of points", "digits or {name: modes, count: 3}")
    if not isinstance(built, PointTask):
        raise ValueError(f"{name!r:.100} returned {built!r:.60}, expected a polopt.worlds.points.PointTask")
    return built


def expected_rating(judge: PointReward) -> PointReward:
    """Returns the reward sum_k k softmax(z)_k / K in [0, 1] of a judge's logits z [B, K + 1] of the ratings 0 to K.

    judge: any model, as judge(points [B, D], context [B]). Its expectation tells apart points to which it would give
    one rating. Source: UniWorld-V2, arXiv:2510.16888.
    """

    def reward(points: Tensor, context: Tensor) -> Tensor:
        logits = judge(points, context)
        if logits.ndim != 2 or logits.shape[0] != len(points) or logits.shape[1] < 2:
            raise ValueError(
                f"expected_rating: the judge must return logits [B, ratings] with B = {len(points)} and at least 2 "
                f"ratings, found {list(logits.shape)}"
            )
        highest = logits.shape[1] - 1
        return logits.softmax(-1) @ torch.arange(highest + 1).to(logits) / highest

    return reward
