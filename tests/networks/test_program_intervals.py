"""Policies that act in an interval around programs, and the programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from polopt.errors import RunError
from polopt.networks import IntervalActor, LinearProgram, Program, ProgramInterval
from polopt.part import build
from polopt.policies.explorers import NoisyPolicy, UniformPolicy
from polopt.policies.head import HeadError
from polopt.policies.network import NetworkPolicy
from polopt.sampling import BernoulliInput
from polopt.schedules import Schedule
from polopt.worlds.control import ProgramRule

TWO = (LinearProgram(gains=((1.0, 0.0), (0.0, 5.0))), LinearProgram(gains=((0.0, 1.0), (0.0, 0.0)), offset=(0.1, -3.0)))
LOW, HIGH = torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 0.5])


def policy_of(**settings: Any) -> NetworkPolicy:
    trunk = settings.pop("trunk", ProgramInterval(programs=TWO, spread=0.5, margin=0.1, hidden=(5,)))
    made = {"observations": 2, "dimensions": 2, "inputs": {"masked": 1}, "head": "deterministic", "trunk": trunk}
    return NetworkPolicy(**{"low": LOW.tolist(), "high": HIGH.tolist()} | made | settings)


def read(masked: list[float], seed: int = 0) -> Tensor:
    seen = torch.randn(len(masked), 2, generator=Generator().manual_seed(seed))
    return torch.cat([seen, torch.tensor(masked)[:, None]], 1)


def ends(seen: Tensor) -> tuple[Tensor, Tensor]:
    """The interval of TWO, one number of an action after the other."""
    x, y = seen.double().unbind(1)
    first = torch.stack([x.clamp(-1, 1), (5 * y).clamp(-2, 0.5)], 1)
    second = torch.stack([(y + 0.1).clamp(-1, 1), torch.full_like(y, -2.0)], 1)
    half = torch.tensor([1.0, 1.25], dtype=torch.float64)
    reach = 0.5 * (first - second).abs() / 2 + 0.1 * half
    low, high = LOW.double(), HIGH.double()
    middle = (first + second) / 2
    return (middle - reach).clamp(low, high), (middle + reach).clamp(low, high)


def test_the_interval_is_that_of_the_programs_or_the_bounds() -> None:
    seen = read([1.0, 0.0] * 20)
    policy = policy_of()
    least, most = policy.head.limits(policy.law(seen)) or (None, None)
    assert least is not None
    assert most is not None
    low, high = ends(seen[:, :2])
    torch.testing.assert_close(least[::2].double(), low[::2])
    torch.testing.assert_close(most[::2].double(), high[::2])
    torch.testing.assert_close(least[1::2], LOW.expand(20, 2))
    torch.testing.assert_close(most[1::2], HIGH.expand(20, 2))


def test_actions_lie_in_it_whoever_explores() -> None:
    policy, seen = policy_of(), read([1.0] * 300)
    low, high = (end.float() for end in ends(seen[:, :2]))
    actors: dict[str, Any] = {
        "own": policy,
        "noisy": NoisyPolicy(policy, 1.0, LOW, HIGH),
        "uniform": UniformPolicy(policy, LOW, HIGH),
    }
    for name, actor in actors.items():
        action = actor.act(seen, Generator().manual_seed(3)).action
        assert ((action >= low - 1e-6) & (action <= high + 1e-6)).all(), name
        free = actor.act(torch.cat([seen[:, :2], torch.zeros(300, 1)], 1), Generator().manual_seed(3)).action
        assert not ((free >= low - 1e-6) & (free <= high + 1e-6)).all(), name
    uniform = actors["uniform"].act(seen, Generator().manual_seed(3))
    torch.testing.assert_close(uniform.logp, -(high - low).log().sum(1))


def test_the_actor_reads_the_interval() -> None:
    policy = policy_of()
    assert isinstance(policy.actor, IntervalActor)
    first = policy.actor.network[0]  # type: ignore[index]
    assert first.in_features == 2 + 4
    seen = read([1.0, 0.0])
    same = torch.cat([seen[:1, :2].expand(2, 2), seen[:, 2:]], 1)
    one, other = policy.actor(same)[:, :2]
    assert not torch.equal(one, other)


def test_a_saved_policy_has_its_programs(tmp_path: Path) -> None:
    policy, seen = policy_of(), read([1.0, 0.0])
    policy.save(tmp_path)
    loaded = NetworkPolicy.load(tmp_path)
    torch.testing.assert_close(loaded.law(seen), policy.law(seen))
    torch.testing.assert_close(loaded.frozen().twin().law(seen), policy.law(seen))


class Broken(Program):
    """Divides by what is 0 now and then."""

    def forward(self, observation: Tensor) -> Tensor:
        return (1 + observation) / (1 - observation[..., :1].abs().round())


class Flat(Program):
    """Forgets an axis."""

    def forward(self, observation: Tensor) -> Tensor:
        return observation[..., 0]


@pytest.mark.parametrize(
    ("trunk", "settings", "message"),
    [
        ({"programs": ()}, {}, "programs is empty: name one or more"),
        ({"programs": (Flat(),)}, {}, r"Flat must return finite actions \[N, 2\].*found \[2\]"),
        ({"programs": (LinearProgram(gains=((1.0,), (1.0,))),)}, {}, "rows of 1 numbers, and an observation has 2"),
        ({"programs": TWO}, {"inputs": {}}, "set sampling.policy_input to sampling.BernoulliInput with name = masked"),
        ({"programs": TWO}, {"inputs": {"masked": 2}}, "an input of one number"),
        ({"programs": TWO}, {"head": "gaussian"}, "set policy.head to deterministic"),
        ({"programs": TWO}, {"normalise": True}, "ProgramInterval reads observations as they are"),
    ],
)
def test_policies_that_cannot_be(trunk: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_of(trunk=ProgramInterval(**trunk), **settings)


def test_a_head_that_has_no_interval_is_refused() -> None:
    with pytest.raises(HeadError, match="'squashed_gaussian' does not act within the interval"):
        policy_of(head="squashed_gaussian")


def test_a_program_that_fails_later_is_named() -> None:
    policy = policy_of(trunk=ProgramInterval(programs=(Broken(),)))
    with pytest.raises(RunError, match="a program's action is not a finite number"):
        policy.law(torch.tensor([[1.0, 0.0, 1.0]]))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda: LinearProgram(gains=((1.0, 2.0), (3.0,))), "gains needs rows of one length"),
        (lambda: LinearProgram(gains=((1.0,),), offset=(1.0, 2.0)), "offset a number for each row"),
        (lambda: LinearProgram(gains=((float("nan"),),)), "should be a finite number"),
        (lambda: ProgramInterval(programs=TWO, margin=-0.1), "need spread >= 0 and margin >= 0"),
        (lambda: BernoulliInput(chance=1.5), "chance must be in"),
        (lambda: BernoulliInput(chance=Schedule(knots=[(0, 1.0), (5, -0.1)])), "chance must be in"),
    ],
)
def test_parts_that_cannot_be(part: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part()


def test_the_flag_is_drawn_anew_by_a_chance_that_falls() -> None:
    part, draw = BernoulliInput(chance=Schedule(knots=[(0, 0.75), (2, 0.25)])), Generator().manual_seed(0)
    first, nothing = part.draw(4000, 1, draw), torch.zeros(4000, 1)
    for share in (0.75, 0.5, 0.25):
        drawn = part.after(first, torch.zeros(4000, 2), torch.zeros(4000, 2), draw, None)
        assert drawn.unique().tolist() == [0.0, 1.0]
        assert part.metrics(drawn) == {"masked": float(drawn.mean())}
        assert abs(float(drawn.mean()) - share) < 0.03
        agree = float((drawn == first).float().mean())
        assert abs(agree - (0.75 * share + 0.25 * (1 - share))) < 0.03  # independent of the one before
        part.chance.on_step()  # type: ignore[union-attr]
    assert torch.equal(part.most_likely(first), nothing)


def test_a_program_plays_as_a_rule() -> None:
    spec = {"part": "polopt.worlds.control:ProgramRule"}
    rule = build(spec | {"program": {"part": "networks.LinearProgram", "gains": [[0.5, 0.0]], "offset": [1.0]}})
    assert isinstance(rule, ProgramRule)
    torch.testing.assert_close(rule(torch.tensor([[2.0, 5.0]]), Generator()), torch.tensor([[2.0]]))
