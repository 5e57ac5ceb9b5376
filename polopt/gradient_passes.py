"""Losses of a minibatch and their gradients, each pass evaluated step by step or as one compiled graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from polopt.errors import UserError
from polopt.experience import Experience
from polopt.fields import SHAPES
from polopt.support import Support

Columns = dict[str, Tensor]
# A loss, and other tensors that a pass finds on the way, by name.
LossOf = Callable[[Experience], tuple[Tensor, Columns]]


class GradientPass(NamedTuple):
    """One pass over a minibatch. gradients: of the parameters, in their order. found: the loss's other tensors."""

    gradients: Sequence[Tensor | None]
    loss: Tensor
    found: Columns


class GradientPasses:
    """Computes losses and their gradients.

    modules: all whose parameters and buffers the losses read, by name.
    compiled: whether a pass is one graph, made for each loss and each shape of a minibatch. What a loss draws from a
        generator is drawn before the graph runs, in the same order and number; a graph reads the modules' tensors as
        they are then.

    Raises:
        UserError: a loss that is compiled draws by numbers that depend on the minibatch.
    """

    def __init__(self, modules: Mapping[str, nn.Module], compiled: bool = False) -> None:
        self._modules, self.compiled = nn.ModuleDict(dict(modules)), compiled
        self._graphs: dict[tuple[Any, ...], _Graph] = {}
        self._state: Columns = {}

    def begin_batch(self) -> None:
        """Finds the modules' tensors, which the steps on a batch change in place."""
        if self.compiled:
            self._state = _state_of(self._modules)

    def __call__(self, name: str, loss: LossOf, parameters: Sequence[nn.Parameter], batch: Experience) -> GradientPass:
        """Returns the pass of a loss, which is known by `name`, with respect to some of the modules' parameters, which
        require gradients."""
        if not self.compiled:
            value, found = loss(batch)
            gradients = torch.autograd.grad(value, parameters, allow_unused=True)
            return GradientPass(gradients, value.detach(), found)
        if not self._state:
            self.begin_batch()
        columns = columns_of(batch)
        key = (name, batch.support, *((n, *value.shape, value.dtype) for n, value in columns.items()))
        if key not in self._graphs:
            self._graphs[key] = _Graph(loss, parameters, self._modules, columns, batch.support)
        return self._graphs[key](self._state, columns)


class _Graph:
    """A pass as a compiled graph of the modules' tensors, a minibatch's columns, and draws."""

    def __init__(
        self,
        loss: LossOf,
        parameters: Sequence[nn.Parameter],
        modules: nn.ModuleDict,
        columns: Columns,
        support: Support,
    ) -> None:
        from torch.fx.experimental.proxy_tensor import make_fx

        self._draws = _Draws()
        with self._draws, torch.no_grad():
            loss(batch_of(columns, support))
        root = _Root(modules, loss)
        places = {id(p): name for name, p in modules.named_parameters()}
        learned = [places[id(p)] for p in parameters]

        def call(state: Columns, columns: Columns, draws: list[Tensor]) -> Any:
            with torch.enable_grad(), _Given(draws):
                leaves = {name: state[name].detach().requires_grad_() for name in learned}
                inputs = {f"inner.{name}": value for name, value in {**state, **leaves}.items()}
                value, found = functional_call(root, inputs, (batch_of(columns, support),))
                gradients = torch.autograd.grad(value, [*leaves.values()], allow_unused=True)
            flat, self._shape = tree_flatten((gradients, value.detach(), found))
            return flat

        graph = make_fx(call)(_state_of(modules), columns, self._draws.first)
        self._read = _pruned(graph)
        self._run = torch.compile(graph, dynamic=False)

    @torch.no_grad()
    def __call__(self, state: Columns, columns: Columns) -> GradientPass:
        given = [*state.values(), *columns.values(), *self._draws.again()]
        flat = self._run(*(given[i] for i in self._read))
        return GradientPass(*tree_unflatten(flat, self._shape))


def _state_of(modules: nn.Module) -> Columns:
    """Returns parameters and buffers, without gradient."""
    return {n: value.detach() for n, value in (*modules.named_parameters(), *modules.named_buffers())}


class _Root(nn.Module):
    """Modules and a loss that reads them, as one module."""

    def __init__(self, modules: nn.ModuleDict, loss: LossOf) -> None:
        super().__init__()
        self.inner, self._loss = modules, loss

    def forward(self, batch: Experience) -> tuple[Tensor, Columns]:
        return self._loss(batch)


class _Draws(TorchFunctionMode):
    """Notes what is drawn from generators inside, and leaves the generators as they were.

    first: what was drawn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first: list[Tensor] = []
        self._calls: list[Callable[[], Tensor]] = []
        self._before: dict[torch.Generator, Tensor] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None:
            if any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
                raise UserError(
                    f"compiled: true: a loss draws by torch.{function.__name__}, whose chances depend on the "
                    "minibatch; set compiled to false"
                )
            self._before.setdefault(generator, generator.get_state())
            self._calls.append(lambda: function(*args, **kwargs))
            self.first.append(function(*args, **kwargs))
            return self.first[-1]
        return function(*args, **kwargs)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for generator, state in self._before.items():
            generator.set_state(state)

    def again(self) -> list[Tensor]:
        """Draws anew, in the same order."""
        return [draw() for draw in self._calls]


class _Given(TorchFunctionMode):
    """Gives tensors in the place of draws from generators, in turn."""

    def __init__(self, draws: Sequence[Tensor]) -> None:
        super().__init__()
        self._left = iter(draws)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if (kwargs or {}).get("generator") is not None:
            return next(self._left)
        return function(*args, **(kwargs or {}))


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
