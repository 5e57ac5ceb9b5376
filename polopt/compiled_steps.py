"""Optimiser steps as compiled graphs: forward and backward passes and what they change, in one call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from polopt.errors import UserError
from polopt.experience import Experience
from polopt.fields import SHAPES
from polopt.support import Support

Columns = dict[str, Tensor]
Found = TypeVar("Found")


class CompiledSteps(Generic[Found]):
    """Calls `step(columns)` as one graph, made for each shape of the columns.

    step: changes tensors in place, and returns others among what it finds (lists, tuples, dictionaries).
    tensors: returns, by name, all tensors that a step reads or changes beside the columns. A graph reads the ones of
        the last `begin_batch`, as they are then; any other tensor is a constant of the graph.

    What a step draws from a generator is drawn before the graph runs, in the same order and number.

    Raises:
        UserError: a step draws by numbers that depend on the columns.
    """

    def __init__(self, step: Callable[[Columns], Found], tensors: Callable[[], Columns]) -> None:
        self._step, self._tensors = step, tensors
        self._graphs: dict[Hashable, _Graph] = {}
        self._state: Columns = {}
        self._values: list[Tensor] = []
        self._layout: Hashable = ()

    def begin_batch(self) -> None:
        """Finds the tensors that the steps on a batch change in place."""
        self._state = self._tensors()
        self._values = [value.detach() for value in self._state.values()]
        if (layout := _layout_of(self._state)) != self._layout:
            self._graphs, self._layout = {}, layout

    def __call__(self, kind: Hashable, columns: Columns) -> Found:
        """Takes a step. kind: of what the step does, if that is not always the same."""
        key = (kind, _layout_of(columns))
        if key not in self._graphs:
            self._graphs[key] = _Graph(self._step, self._state, columns)
        found: Found = self._graphs[key](self._values, columns)
        return found


class _Graph:
    """A step as a compiled graph of the tensors that it reads and changes, its columns, and draws."""

    def __init__(self, step: Callable[[Columns], Any], state: Columns, columns: Columns) -> None:
        from torch.fx.experimental.proxy_tensor import make_fx

        places = {id(tensor): name for name, tensor in state.items()}
        with _Noted({i: copied(state[name]) for i, name in places.items()}) as noted:
            step(columns)
        self._draws = noted.draws

        def call(state: Columns, columns: Columns, draws: list[Tensor]) -> Any:
            with _Given({i: state[name] for i, name in places.items()}, draws):
                found, self._shape = tree_flatten(step(columns), is_leaf=_is_constant)
            tensors = {i: value.detach() for i, value in enumerate(found) if isinstance(value, Tensor)}
            self._found = [None if i in tensors else value for i, value in enumerate(found)]
            self._computed = [*tensors]
            return [*tensors.values()]

        copies = {name: copied(value) for name, value in state.items()}
        graph = make_fx(call, decomposition_table=PLAIN)(copies, columns, noted.found)
        self._read = _pruned(graph)
        given = [*copies.values(), *columns.values(), *noted.found]
        self._run = compiled(graph, [given[i].detach() for i in self._read])

    @torch.no_grad()
    def __call__(self, state: Sequence[Tensor], columns: Columns) -> Any:
        given = [*state, *columns.values(), *(draw() for draw in self._draws)]
        found = [*self._found]
        for i, value in zip(self._computed, self._run(*[given[i] for i in self._read]), strict=True):
            found[i] = value
        return tree_unflatten(found, self._shape)


def compiled(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Sequence[Tensor]]:
    """Returns the graph as compiled code, for inputs that are laid out like these; the code does not test it."""
    from torch._inductor import compile

    for node in graph.graph.nodes:
        node.meta.clear()  # what tracing noted of each tensor, for compilers of other graphs
    # The step of a small network is mostly calls, which C++ makes faster than Python.
    on_cpu = all(value.device.type == "cpu" for value in inputs)
    made: Callable[..., Sequence[Tensor]] = compile(graph, inputs, {"cpp_wrapper": True} if on_cpu else None)
    return made


def _layout_of(columns: Columns) -> Hashable:
    return tuple((name, *value.shape, *value.stride(), value.dtype, value.device) for name, value in columns.items())


def _is_constant(tree: Any) -> bool:
    """Tests whether there is no tensor in what a step returns, or in a piece of it."""
    return not any(isinstance(value, Tensor) for value in tree_leaves(tree))


def copied(tensor: Tensor) -> Tensor:
    """Returns a leaf with the same numbers, which requires a gradient where the tensor does."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


class _Others(TorchFunctionMode):
    """Puts other tensors, by id, in the place of some, in whatever is called."""

    def __init__(self, others: Mapping[int, Tensor]) -> None:
        super().__init__()
        self._others = others

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map_only(Tensor, lambda t: self._others.get(id(t), t), (args, kwargs or {}))
        if any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
            return self.draw(function, args, kwargs)
        return function(*args, **kwargs)

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Returns what a call draws from a generator."""
        raise NotImplementedError


class _Noted(_Others):
    """Notes what is drawn from generators inside, and leaves the generators as they were.

    found: what was drawn. draws: functions that draw anew.
    """

    def __init__(self, others: Mapping[int, Tensor]) -> None:
        super().__init__(others)
        self.found: list[Tensor] = []
        self.draws: list[Callable[[], Tensor]] = []
        self._before: dict[torch.Generator, Tensor] = {}

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        if any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
            raise UserError(
                f"compiled: true: a loss draws by torch.{function.__name__}, whose chances depend on the "
                "minibatch; set compiled to false"
            )
        (generator,) = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator))
        self._before.setdefault(generator, generator.get_state())
        self.draws.append(lambda: function(*args, **kwargs))
        self.found.append(self.draws[-1]())
        return self.found[-1]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for generator, state in self._before.items():
            generator.set_state(state)


class _Given(_Others):
    """Gives tensors in the place of draws from generators, in turn."""

    def __init__(self, others: Mapping[int, Tensor], draws: Sequence[Tensor]) -> None:
        super().__init__(others)
        self._left = iter(draws)

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        return next(self._left)


def _adamw(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    averages: Sequence[Tensor],
    squares: Sequence[Tensor],
    largest: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    found_inf: Tensor | None = None,
    **others: Any,
) -> None:
    """AdamW's step by plain operations, in the place of torch's fused kernel, which graphs do not have."""
    stopped = None if found_inf is None else found_inf > 0
    for parameter, gradient, average, square, step in zip(parameters, gradients, averages, squares, steps, strict=True):
        first, second = average.lerp(gradient, 1 - beta1), square.lerp(gradient * gradient, 1 - beta2)
        count = step.double()
        scale = (lr / (1 - beta1**count)).to(parameter.dtype)
        root = (1 - beta2**count).sqrt().to(parameter.dtype)
        kept = parameter * (1 - lr * weight_decay).to(parameter.dtype) if weight_decay else parameter
        moved = kept - scale * first / (second.sqrt() / root + eps)
        for old, new in ((parameter, moved), (average, first), (square, second)):
            old.copy_(new if stopped is None else torch.where(stopped, old, new))


def _norms(tensors: Sequence[Tensor], order: float = 2) -> list[Tensor]:
    """Norms of tensors, one by one, in the place of a kernel for all, which compiled code cannot call directly."""
    return [torch.linalg.vector_norm(tensor, order) for tensor in tensors]


# Operations in the place of kernels that graphs do not have.
PLAIN: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._fused_adamw_.tensor_lr: _adamw,
    torch.ops.aten._foreach_norm.Scalar: _norms,
}


def _pruned(graph: torch.fx.GraphModule) -> list[int]:
    """Removes inputs that a graph does not read. Returns the places of the others; the graph takes them one by one."""
    graph.graph.set_codegen(torch.fx.graph.CodeGen())
    inputs = graph.graph.find_nodes(op="placeholder")
    read = [i for i, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return read


def columns_of(batch: Experience) -> Columns:
    """Returns the tensors of a batch by name, extras as extras.NAME."""
    fields = {name: value for name in ("mask", *SHAPES) if (value := getattr(batch, name)) is not None}
    extras = {f"extras.{name}": value for name, value in batch.extras.items() if isinstance(value, Tensor)}
    return {**fields, **extras}


def batch_of(columns: Mapping[str, Tensor], support: Support) -> Experience:
    """Returns the batch that has these columns."""
    extras = {n.removeprefix("extras."): v for n, v in columns.items() if n.startswith("extras.")}
    fields: dict[str, Any] = {n: v for n, v in columns.items() if not n.startswith("extras.")}
    return Experience(support=support, extras=extras, **fields)
