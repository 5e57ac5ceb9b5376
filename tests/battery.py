"""What every part of a kind must satisfy. A part joins by one row in a rows_*.py; nothing here knows its name.

Each check takes a row and raises AssertionError. test_battery_can_fail.py shows for each that it can.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from batches import Batch, random_batch, with_columns, without_decisions
from torch import Tensor

import polopt as po
from polopt.part import Part, to_plain

SEEDS = range(4)
SCOPE = {
    **{room: getattr(po, room) for room in ("credit", "objectives", "rewards", "sampling", "schedules")},
    "inf": float("inf"),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A part to check.

    honest: a part whose value, differentiated, must give this part's gradient; None where there is none
        because the formula itself stops a gradient. "self" is the usual case.
    relative: the credit of an all-equal group is exactly 0.
    key: what a selection keeps, whatever the order of the rows.
    keeps: what a selection does. "rows": some rows, and the same again if it chooses among those it chose. "share":
        some of the rows there are, so fewer again. "decisions": all rows, and a share of their decisions.
        "repeats": some rows, and some of them several times.
    batch: makes the batch from a seed.
    """

    part: Part
    honest: Any = "self"
    relative: bool = False
    key: Callable[[po.Experience], list[Any]] = lambda e: decided(e)
    keeps: Literal["rows", "share", "decisions", "repeats"] = "rows"
    batch: Callable[..., Batch] = random_batch


def decided(experience: po.Experience) -> list[tuple[int, ...]]:
    """Which row each one is, and the columns at which it decides."""
    rows, columns = experience.extras["row"].tolist(), experience.mask.tolist()
    return [(row, *(t for t, m in enumerate(mask) if m)) for row, mask in zip(rows, columns, strict=True)]


@dataclasses.dataclass
class Outcome:
    """What an objective said: loss, gradient of each leaf that it reached, metrics."""

    loss: Tensor
    grads: dict[str, Tensor]
    metrics: dict[str, Tensor]


def same(found: Tensor, expected: Tensor, what: str, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, check_dtype=False, msg=lambda m: f"{what}: {m}")


def judge(part: Part, batch: Batch, experience: po.Experience | None = None) -> Outcome:
    leaves = {k: v.detach().clone().requires_grad_() for k, v in batch.leaves.items()}
    evaluation = Batch(batch.experience, leaves).evaluation()
    result = part(batch.experience if experience is None else experience, evaluation)
    grads = torch.autograd.grad(result.loss, list(leaves.values()), allow_unused=True)
    filled = {k: torch.zeros_like(v) if g is None else g for (k, v), g in zip(leaves.items(), grads, strict=True)}
    return Outcome(result.loss.detach(), filled, result.metrics)


def fresh(row: Row) -> Part:
    return copy.deepcopy(row.part)


def spread(seed: int, T: int) -> Tensor:
    """T of T + 5 columns: new ones on the left, on the right and in between."""
    inner = 1 + torch.randperm(T + 3, generator=torch.Generator().manual_seed(seed))[:T]
    return inner.sort().values


def batches(row: Row) -> Iterator[tuple[int, Batch]]:
    for seed in SEEDS:
        yield seed, row.batch(seed)


# Objectives ---------------------------------------------------------------------------------------------------


def objective_padding(row: Row) -> None:
    for seed, batch in batches(row):
        T = batch.mask.shape[1]
        columns = spread(seed, T)
        narrow, wide = judge(fresh(row), batch), judge(fresh(row), with_columns(batch, columns, T + 5))
        same(wide.loss, narrow.loss, "loss under padding")
        for name, grad in narrow.grads.items():
            same(wide.grads[name][:, columns], grad, f"gradient of {name} under padding")
            assert wide.grads[name].count_nonzero() == grad.count_nonzero(), f"gradient of {name} in the padding"


def objective_permutation(row: Row) -> None:
    for seed, batch in batches(row):
        order = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(seed))
        first, second = judge(fresh(row), batch), judge(fresh(row), batch.rows(order))
        same(second.loss, first.loss, "loss of permuted rows")
        for name, grad in first.grads.items():
            same(second.grads[name], grad[order], f"gradient of {name} of permuted rows")


def objective_split(row: Row) -> None:
    for seed, batch in batches(row):
        whole = judge(fresh(row), batch)
        surveyed = batch.experience
        if row.part.all_surveys:
            surveyed = surveyed.replace(survey=batch.evaluation().detach())
        for rows in ((1, 4), (2,), (5,), (3, len(batch.mask)))[seed]:
            pieces, start = [], 0
            for micro in surveyed.split(rows):
                piece = batch.rows(torch.arange(start, start + len(micro)))
                pieces.append(judge(fresh(row), piece, micro))
                start += len(micro)
            same(sum(p.loss for p in pieces), whole.loss, f"loss split by {rows}")
            for name, grad in whole.grads.items():
                same(torch.cat([p.grads[name] for p in pieces]), grad, f"gradient of {name} split by {rows}")
            for name, value in whole.metrics.items():
                same(sum(p.metrics[name] for p in pieces), value, f"metric {name} split by {rows}")


def objective_poison(row: Row) -> None:
    for seed, batch in batches(row):
        clean = judge(fresh(row), row.batch(seed, clean=True))
        found = judge(fresh(row), batch)
        assert found.loss.isfinite(), "loss is not finite under masked NaN"
        same(found.loss, clean.loss, "loss under masked NaN and 1e30")
        for name, grad in found.grads.items():
            same(grad, clean.grads[name], f"gradient of {name} under masked NaN and 1e30")
            assert grad[~batch.mask].count_nonzero() == 0, f"gradient of {name} off the mask"


def objective_precision(row: Row) -> None:
    for _, batch in batches(row):
        double, single = judge(fresh(row), batch), judge(fresh(row), batch.to(torch.float32))
        assert single.loss.dtype == torch.float32, f"float32 in, {single.loss.dtype} out"
        same(single.loss.double(), double.loss, "float32 against float64", rtol=3e-5, atol=3e-6)
        for name, grad in double.grads.items():
            same(single.grads[name].double(), grad, f"float32 gradient of {name}", rtol=1e-3, atol=1e-5)


def objective_gradient(row: Row) -> None:
    """Central differences along random directions, with the batch clean so that a direction may point anywhere."""
    if row.honest is None:
        return
    honest, step = row.part if row.honest == "self" else row.honest, 1e-6
    for seed in SEEDS:
        batch, g = row.batch(seed, clean=True), torch.Generator().manual_seed(seed)
        grads = judge(fresh(row), batch).grads
        for _ in range(3):
            way = {k: torch.randn(v.shape, generator=g, dtype=torch.float64) * step for k, v in batch.leaves.items()}
            back = {k: -v for k, v in way.items()}
            up, down = (honest(batch.experience, batch.nudged(w).evaluation()).loss for w in (way, back))
            expected = (up - down) / (2 * step)
            found = sum((grads[k] * way[k]).sum() for k in way) / step
            same(found, expected.detach(), "gradient against finite differences", rtol=1e-5, atol=1e-7)


def objective_empty(row: Row) -> None:
    for _, batch in batches(row):
        found = judge(fresh(row), without_decisions(batch))
        same(found.loss, torch.zeros(()), "loss of a batch without decisions")
        for name, grad in found.grads.items():
            assert grad.count_nonzero() == 0, f"gradient of {name} without decisions"
        for name, value in found.metrics.items():
            assert value.isfinite(), f"metric {name} without decisions"


def objective_extremes(row: Row) -> None:
    """-2 against -91 in float32, in both directions, for each pair of log-probabilities and both signs of A."""
    for seed in SEEDS:
        batch = row.batch(seed, clean=True).to(torch.float32)
        near, far = torch.full(batch.mask.shape, -2.0), torch.full(batch.mask.shape, -91.0)
        for policy, others in ((near, far), (far, near)):
            for changed in ("logp", "old_logp", "ref_logp"):
                names = {"logp": policy, "old_logp": policy, "ref_logp": policy, changed: others}
                leaves = {**batch.leaves, "logp": policy.clone().requires_grad_()}
                found = judge(fresh(row), Batch(batch.experience.replace(**names), leaves))
                assert found.loss.isfinite(), f"loss with {changed} at {others[0, 0]} and the policy at {policy[0, 0]}"
                for name, grad in found.grads.items():
                    assert grad.isfinite().all(), f"gradient of {name} with {changed} at {others[0, 0]}"


# Credit -------------------------------------------------------------------------------------------------------


def credit_padding(row: Row) -> None:
    for seed, batch in batches(row):
        T = batch.mask.shape[1]
        columns = spread(seed, T)
        wide = fresh(row)(with_columns(batch, columns, T + 5).experience)
        same(wide[:, columns], fresh(row)(batch.experience), "credit under padding")
        assert wide.count_nonzero() == wide[:, columns].count_nonzero(), "credit in the padding"


def credit_permutation(row: Row) -> None:
    for seed, batch in batches(row):
        order = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(seed))
        expected = fresh(row)(batch.experience)[order]
        same(fresh(row)(batch.experience[order]), expected, "credit of permuted rows")
        renamed = batch.experience.replace(group=1000 - 2 * batch.experience.group)
        same(fresh(row)(renamed)[order], expected, "credit under other group numbers")


def credit_poison(row: Row) -> None:
    for seed, batch in batches(row):
        found = fresh(row)(batch.experience)
        assert found.shape == batch.mask.shape, f"credit has shape {list(found.shape)}"
        assert not found.requires_grad, "credit carries a gradient"
        assert found[~batch.mask].count_nonzero() == 0, "credit off the mask"
        same(found, fresh(row)(row.batch(seed, clean=True).experience), "credit under masked NaN and 1e30")


def credit_no_gradient(row: Row) -> None:
    for _, batch in batches(row):
        value = batch.experience.value.clone().requires_grad_()
        reward = batch.experience.reward.clone().requires_grad_()
        found = fresh(row)(batch.experience.replace(value=value, reward=reward))
        assert not found.requires_grad, "credit carries a gradient"


def credit_precision(row: Row) -> None:
    for _, batch in batches(row):
        single = fresh(row)(batch.to(torch.float32).experience)
        same(single.double(), fresh(row)(batch.experience), "float32 against float64", rtol=1e-4, atol=1e-5)


def credit_empty(row: Row) -> None:
    for _, batch in batches(row):
        found = fresh(row)(without_decisions(batch).experience)
        assert found.count_nonzero() == 0, "credit without decisions"


def credit_equal(row: Row) -> None:
    """All-equal groups, groups of one, in float32, with rewards that sums round: finite; exactly 0 if relative."""
    for _, batch in batches(row):
        experience = batch.to(torch.float32).experience
        for reward in (0.1, 0.7, 1000.1, -3.3):
            same_reward = torch.full((len(experience),), reward)
            for group in (experience.group, torch.arange(len(experience)), torch.zeros(len(experience)).long()):
                found = fresh(row)(experience.replace(reward=same_reward, group=group))
                assert found.isfinite().all(), f"credit of groups that all have reward {reward}"
                if row.relative:
                    assert found.count_nonzero() == 0, f"credit {found.abs().max()} of groups all at {reward}"


# Rewards ------------------------------------------------------------------------------------------------------


def reward_rows(row: Row) -> None:
    """A row's reward depends on that row alone, wherever its decisions stand and whatever hides off the mask."""
    for seed, batch in batches(row):
        found, T = fresh(row)(batch.experience), batch.mask.shape[1]
        assert found.shape in (batch.mask.shape, batch.mask.shape[:1]), f"reward has shape {list(found.shape)}"
        assert not found.requires_grad, "reward carries a gradient"
        assert found.isfinite().all(), "reward under masked NaN"
        order = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(seed))[:4]
        same(fresh(row)(batch.experience[order]), found[order], "reward of some of the rows")
        columns = spread(seed, T)
        wide = fresh(row)(with_columns(batch, columns, T + 5).experience)
        same(wide if found.ndim == 1 else wide[:, columns], found, "reward under padding")


def reward_precision(row: Row) -> None:
    for _, batch in batches(row):
        single = fresh(row)(batch.to(torch.float32).experience)
        same(single.double(), fresh(row)(batch.experience), "float32 against float64", rtol=1e-5, atol=1e-5)


def reward_empty(row: Row) -> None:
    for _, batch in batches(row):
        assert fresh(row)(without_decisions(batch).experience).isfinite().all(), "reward without decisions"


# Selection ----------------------------------------------------------------------------------------------------


def select_permutation(row: Row) -> None:
    for seed, batch in batches(row):
        order = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(seed))
        found = sorted(row.key(fresh(row)(batch.experience[order])))
        assert found == sorted(row.key(fresh(row)(batch.experience))), "selection depends on the order of the rows"


def select_rows(row: Row) -> None:
    """Rows come out whole and in their order, nothing is decided that was not; nothing in, nothing out."""
    for _, batch in batches(row):
        found = fresh(row)(batch.experience)
        index = found.extras["row"]
        assert (index.diff() >= (0 if row.keeps == "repeats" else 1)).all(), "selection reorders or repeats the rows"
        expected = batch.experience[index]
        for name in ("logp", "advantage", "outcome", "group", "turn", "terminated"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), equal_nan=True, rtol=0, atol=0)
        assert (found.mask <= expected.mask).all(), "a decision that nobody took"
        if row.keeps == "decisions":
            assert index.tolist() == batch.experience.extras["row"].tolist(), "a selection of decisions drops rows"
        else:
            same(found.mask, expected.mask, "mask of the selected rows")
        assert len(fresh(row)(batch.experience[torch.arange(0)])) == 0, "rows out of nothing"


def select_again(row: Row) -> None:
    """Choosing among what was chosen changes nothing; a share of it is a part of it."""
    if row.keeps == "repeats":
        return
    for _, batch in batches(row):
        once = fresh(row)(batch.experience)
        twice = fresh(row)(once)
        if row.keeps == "rows":
            assert decided(twice) == decided(once), "choosing again changes the choice"
        else:
            first, second = (int(e.mask.sum()) for e in (once, twice))
            assert 0 < second <= first < int(batch.mask.sum()), f"{first} decisions, then {second}"


def select_padding(row: Row) -> None:
    for seed, batch in batches(row):
        columns = spread(seed, batch.mask.shape[1])
        wide = fresh(row)(with_columns(batch, columns, batch.mask.shape[1] + 5).experience)
        found = fresh(row)(batch.experience)
        assert wide.extras["row"].tolist() == found.extras["row"].tolist(), "padding changes the rows"
        same(wide.mask[:, columns], found.mask, "decisions under padding")
        assert wide.mask.sum() == found.mask.sum(), "decisions in the padding"


def select_poison(row: Row) -> None:
    for seed, batch in batches(row):
        clean = fresh(row)(row.batch(seed, clean=True).experience)
        assert decided(fresh(row)(batch.experience)) == decided(clean), "selection under masked NaN and 1e30"


def select_empty(row: Row) -> None:
    for _, batch in batches(row):
        assert not fresh(row)(without_decisions(batch).experience).mask.any(), "decisions out of nothing"


# All parts ----------------------------------------------------------------------------------------------------


def output(part: Part, row: Row, seed: int) -> Tensor:
    batch = row.batch(seed)
    if isinstance(part, po.objectives.Objective):
        return judge(part, batch).loss
    found = part(batch.experience)
    if isinstance(found, po.Experience):
        return torch.cat([found.extras["row"], found.mask.flatten()])
    return found


def state_resumes(row: Row) -> None:
    """k + m calls equal k calls, save, load into a part built from YAML, m calls: bit for bit."""
    through, stopped = fresh(row), fresh(row)
    for seed in (0, 1):
        output(through, row, seed)
        output(stopped, row, seed)
    resumed = po.from_yaml(row.part.to_yaml())
    resumed.load_state_dict(stopped.state_dict())
    for seed in (2, 3):
        torch.testing.assert_close(output(resumed, row, seed), output(through, row, seed), rtol=0, atol=0)


def copies_are_apart(row: Row) -> None:
    """Using a copy changes neither the state of the original nor that of a part built afresh."""
    original = fresh(row)
    before = copy.deepcopy(original.state_dict())
    expected = output(fresh(row), row, 0)
    used = copy.deepcopy(original)
    output(used, row, 2)
    for name, value in original.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    again = po.from_yaml(row.part.to_yaml())
    torch.testing.assert_close(output(again, row, 0), expected, rtol=0, atol=0)


def yaml_returns(row: Row) -> None:
    again = po.from_yaml(row.part.to_yaml())
    assert type(again) is type(row.part), f"{type(again)} came back"
    assert again.to_dict() == row.part.to_dict()
    assert po.diff(again, row.part) == []


def repr_builds(row: Row) -> None:
    again = eval(repr(row.part), {**SCOPE, "Support": po.Support, "Algorithm": po.Algorithm})
    assert to_plain(again) == to_plain(row.part), repr(row.part)
    assert repr(again) == repr(row.part)


PART = (state_resumes, copies_are_apart, yaml_returns, repr_builds)
OBJECTIVE = (
    objective_padding,
    objective_permutation,
    objective_split,
    objective_poison,
    objective_precision,
    objective_gradient,
    objective_empty,
    objective_extremes,
    *PART,
)
CREDIT = (
    credit_padding,
    credit_permutation,
    credit_poison,
    credit_no_gradient,
    credit_precision,
    credit_empty,
    credit_equal,
    *PART,
)
REWARD = (reward_rows, reward_precision, reward_empty, *PART)
SELECT = (select_permutation, select_rows, select_again, select_padding, select_poison, select_empty, *PART)
