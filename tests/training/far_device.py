"""A device that only pretends to be elsewhere, to find on a CPU what would fail on a GPU.

A far tensor says that it is on the device "meta" and holds a CPU tensor inside. Every operation computes on what is
inside, but refuses, as CUDA does, far and near tensors together. As on CUDA, near tensors without dimensions and near
indices are allowed, and whatever reads a far value into Python waits for the device: `waits` counts that.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
FAR = torch.device("meta")
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._unsafe_index.Tensor}
SIZED_BY_VALUES = {aten.nonzero.default, aten._unique2.default, aten.equal.default}
waits: Counter[str] = Counter()

with torch.device("cpu"):
    # PyTorch remembers, the first time, which functions make tensors: it must not be those that `far_device` puts in.
    torch.zeros(0)


class MixedDevices(RuntimeError):
    pass


class Far(Tensor):
    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Far:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=FAR,
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        return f"Far({self.inner})"

    def tolist(self) -> Any:  # torch's own takes no subclasses
        waits["tolist"] += 1
        return self.inner.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(function, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and the guard against it would double what an operation takes."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(function, args, kwargs or {})


def _inside(value: Any) -> Any:
    kind = type(value)
    if kind is Far:
        return value.inner
    if kind in (list, tuple):
        return kind([_inside(one) for one in value])
    return {name: _inside(one) for name, one in value.items()} if kind is dict else value


def _outside(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, Tensor):
        return value if kind is Far else Far(value)
    return kind([_outside(one) for one in value]) if kind in (list, tuple) else value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif type(value) in (list, tuple):
        for one in value:
            yield from _tensors(one)


@functools.cache
def _written(function: Any) -> tuple[int, str] | None:
    """Which argument an operation writes to and returns, by place and name."""
    schema = function._schema
    written = [(i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
    return written[0] if written and schema.returns and schema.returns[0].alias_info is not None else None


def _compute(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [*_tensors(args), *(t for value in kwargs.values() for t in _tensors(value))]
    far = any(type(x) is Far for x in tensors)
    asked = kwargs.get("device")
    to_far = far if asked is None else torch.device(asked) == FAR
    options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "non_blocking")}
    if function in (aten._to_copy.default, aten.copy_.default):  # the ways from one device to the other
        waits["to the CPU"] += far and not to_far
        copy = function(*_inside(args), **_inside(options))
        return args[0] if function is aten.copy_.default else _outside(copy) if to_far else copy
    if not far:
        return _outside(function(*args, **options)) if to_far else function(*args, **kwargs)
    near = [x for x in tensors if type(x) is not Far and x.dim()]
    if near and function in INDEXING and isinstance(args[0], Far):
        near = [x for x in near if x.is_floating_point()]
    if near:
        shapes = ", ".join(f"{'far' if isinstance(x, Far) else 'near'} {list(x.shape)}" for x in tensors)
        raise MixedDevices(f"{function}: {shapes}")
    if function is aten._local_scalar_dense.default:
        waits["item"] += 1
    elif function in SIZED_BY_VALUES:
        waits[str(function)] += 1
    found = function(*_inside(args), **_inside(options))
    if (written := _written(function)) is not None:
        place, name = written
        return args[place] if place < len(args) else kwargs[name]
    return _outside(found) if to_far else found


@contextlib.contextmanager
def plain_adam() -> Iterator[None]:
    """AdamW that is not fused, which would know no far device."""
    adam = torch.optim.AdamW

    def plain(*args: Any, **kwargs: Any) -> Any:
        return adam(*args, **{**kwargs, "fused": False, "foreach": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "AdamW", plain)
        yield


@contextlib.contextmanager
def far_device() -> Iterator[None]:
    """Inside, `device="meta"` is the far device."""
    made = torch.tensor

    def tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        near = made(data, dtype=dtype)
        return near if device is None else near.to(device)

    def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
        return (
            data.to(device or data.device, dtype or data.dtype)
            if isinstance(data, Tensor)
            else tensor(data, dtype=dtype, device=device)
        )

    waits.clear()
    with pytest.MonkeyPatch.context() as patch, _Everywhere():
        patch.setattr(torch, "tensor", tensor)
        patch.setattr(torch, "as_tensor", as_tensor)
        patch.setattr(torch, "inference_mode", torch.no_grad)  # it takes no wrapped tensors
        yield
