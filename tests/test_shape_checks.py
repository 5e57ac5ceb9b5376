"""The checks of annotated shapes refuse what they refused when every call was checked in full."""

from __future__ import annotations

import jaxtyping
import pytest
import torch
from beartype import beartype
from shape_checks import check_once
from torch import Tensor

from polopt import ops


def refused() -> pytest.RaisesExc[Exception]:
    return pytest.raises(jaxtyping.TypeCheckError)


@pytest.mark.parametrize("first", ["right", "wrong"])
def test_arguments(first: str) -> None:
    x, mask = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
    for _ in range(2):
        if first == "right":
            assert ops.masked_sum(x, mask) == 6
        for wrong in (mask[:, :2], mask[0], mask.long(), None):
            with refused():
                ops.masked_sum(x, wrong)
        with refused():
            ops.masked_sum(x, mask=mask.int())
        assert ops.masked_sum(x, mask) == 6


def test_one_function_of_a_module_that_another_calls() -> None:
    """The names inside a package are those that are checked, too."""
    with refused():
        ops.group_mean(torch.ones(3), torch.zeros(2, dtype=torch.long))
    assert ops.grouped.group_sum is ops.group_sum
    assert hasattr(ops.group_sum, "__wrapped__")


def test_results() -> None:
    """A result that is right is no proof of the next one."""
    results = [torch.ones(3), torch.ones(2), torch.ones(3), torch.ones(3).long(), torch.ones(3)]

    @check_once
    @jaxtyping.jaxtyped(typechecker=beartype)
    def doubled(x: jaxtyping.Float[Tensor, "B"]) -> jaxtyping.Float[Tensor, "B"]:
        return results[0]

    x = torch.ones(3)
    while results:
        if results[0].shape == x.shape and results[0].is_floating_point():
            assert doubled(x) is results[0]
        else:
            with refused():
                doubled(x)
        results.pop(0)


def test_what_holds_more_than_its_kind_is_checked_each_time() -> None:
    assert ops.numbered(["a", "b", "a"]) == [0, 1, 0]
    with refused():
        ops.numbered(3)
