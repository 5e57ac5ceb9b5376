"""Networks over the limbs of a body that do not change when the world is turned about gravity."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from polopt.networks.parts import Network, Space
from polopt.networks.perceptron import seeded
from polopt.networks.trunks import Trunk
from polopt.part import Part


class Limbs(Part):
    """The layout of an observation [N (3 M + K)]: of each of N limbs M vectors of three numbers, then K numbers.

    limbs: N. vectors: M. scalars: K.
    directions: places of the vectors that turn with nothing but the world, as gravity and the way to the goal.
    axes: places of the limb's axes, along each of which an action acts: an action is [N axes].
    """

    limbs: int = 1
    vectors: int = 5
    scalars: int = 0
    directions: tuple[int, ...] = (0,)
    axes: tuple[int, ...] = (2, 3, 4)

    def setup(self) -> None:
        if min(self.limbs, self.vectors) < 1 or self.scalars < 0 or not self.axes:
            raise ValueError(
                f"networks.Limbs: limbs and vectors must be >= 1, with an axis or more, found {self.limbs}, "
                f"{self.vectors} and axes {list(self.axes)}"
            )
        if max(*self.directions, *self.axes, 0) >= self.vectors or min(*self.directions, *self.axes, 0) < 0:
            raise ValueError(
                f"networks.Limbs: directions and axes must be among the {self.vectors} vectors 0, 1, ..., found "
                f"{list(self.directions)} and {list(self.axes)}"
            )

    def split(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the vectors [..., N, 3, M] and the numbers [..., N, K]."""
        limbs = observation.unflatten(-1, (self.limbs, 3 * self.vectors + self.scalars))
        vectors, scalars = limbs.tensor_split([3 * self.vectors], -1)
        return vectors.unflatten(-1, (self.vectors, 3)).transpose(-1, -2), scalars

    def check(self, space: Space) -> None:
        """Raises ValueError if observations or actions are not of this layout."""
        expected = self.limbs * (3 * self.vectors + self.scalars), self.limbs * len(self.axes)
        if (space.observations, space.dimensions) != expected or space.inputs:
            raise ValueError(
                f"networks.Limbs: {self.limbs} limbs of {self.vectors} vectors, {self.scalars} numbers and "
                f"{len(self.axes)} axes are observations of {expected[0]} numbers and actions of {expected[1]}, found "
                f"{space.observations} and {space.dimensions}; change limbs, vectors, scalars or axes"
            )


class _Invariants(nn.Module):
    """S = Z^T Z of Z = [V W, directions], and a perceptron of it; W mixes channels, so S does not see a turn."""

    def __init__(self, channels: int, mixed: int, directions: int, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(channels, mixed, bias=False)
        self.size = mixed + directions
        self.net = nn.Sequential(nn.Linear(self.size**2, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, vectors: Tensor, directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns Z [..., 3, C], the perceptron's output, and 1 + |S|."""
        z = torch.cat([self.mix(vectors), directions], -1)
        gram = (z.transpose(-1, -2) @ z).flatten(-2)
        return z, self.net(gram), 1 + gram.norm(dim=-1, keepdim=True)


class _Turned(nn.Module):
    """Z m(S, h) / (1 + |S|): vectors that turn with the world, of a matrix that does not."""

    def __init__(self, size: int, scalars: int, width: int, outputs: int) -> None:
        super().__init__()
        self.size = size
        self.net = nn.Sequential(nn.Linear(scalars, width), nn.ReLU(), nn.Linear(width, size**2))
        self.out = nn.Linear(size, outputs, bias=False)

    def forward(self, z: Tensor, scalars: Tensor, norm: Tensor) -> Tensor:
        matrix = (self.net(scalars) / norm).unflatten(-1, (self.size, self.size))
        found: Tensor = self.out(z @ matrix)
        return found


class _Layer(nn.Module):
    """Attention between limbs by what does not turn, of numbers and of vectors; then a step of each limb's own."""

    def __init__(self, width: int, heads: int, mixed: int, directions: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = (_Invariants(width, mixed, directions, width) for _ in range(2))
        self.query, self.key, self.value = (nn.Linear(2 * width, width) for _ in range(3))
        self.vectors = nn.Linear(width, width, bias=False)
        self.out, self.vectors_out = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.step = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.turned = _Turned(self.after.size, 2 * width, width, width)

    def forward(self, vectors: Tensor, scalars: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        _, invariants, _ = self.before(vectors, directions)
        x = torch.cat([scalars, invariants], -1)
        q, k, v = (m(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3) for m in (self.query, self.key, self.value))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)  # [..., heads, N, N]
        scalars = self.norms[0](scalars + self.out((weights @ v).transpose(-2, -3).flatten(-2)))
        carried = self.vectors(vectors).unflatten(-1, (self.heads, -1))  # [..., N, 3, heads, c]
        moved = torch.einsum("...hij,...jxhc->...ixhc", weights, carried).flatten(-2)
        vectors = vectors + self.vectors_out(moved)
        z, invariants, norm = self.after(vectors, directions)
        x = torch.cat([scalars, invariants], -1)
        return vectors + self.turned(z, x, norm), self.norms[1](scalars + self.step(x) / norm)


class _Body(nn.Module):
    """Vectors and numbers of each limb after all layers, [..., N, 3, width] and [..., N, width]."""

    def __init__(self, limbs: Limbs, extra: int, width: int, heads: int, layers: int, mixed: int) -> None:
        super().__init__()
        self.limbs = limbs
        self.vectors = nn.Linear(limbs.vectors, width, bias=False)
        self.scalars = nn.Linear(limbs.scalars + extra, width) if limbs.scalars + extra else None
        self.place = nn.Parameter(torch.zeros(limbs.limbs, width))
        self.layers = nn.ModuleList(_Layer(width, heads, mixed, len(limbs.directions)) for _ in range(layers))
        self.last = _Invariants(width + limbs.vectors, mixed, len(limbs.directions), width)

    def forward(self, observation: Tensor, extra: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns Z, the numbers that do not turn, 1 + |S|, and the vectors that were read."""
        seen, numbers = self.limbs.split(observation)
        directions = seen[..., list(self.limbs.directions)]
        numbers = numbers if extra is None else torch.cat([numbers, extra], -1)
        vectors = self.vectors(seen)
        scalars = self.place.expand(*numbers.shape[:-1], -1)
        scalars = scalars if self.scalars is None else scalars + self.scalars(numbers)
        for layer in self.layers:
            vectors, scalars = layer(vectors, scalars, directions)
        z, invariants, norm = self.last(torch.cat([seen, vectors], -1), directions)
        return z, torch.cat([scalars, invariants], -1), norm, seen


class _Actor(nn.Module):
    def __init__(self, body: _Body, width: int, each: int) -> None:
        super().__init__()
        self.body, self.turned = body, _Turned(body.last.size, 2 * width, width, each)

    def forward(self, observation: Tensor) -> Tensor:
        z, scalars, norm, seen = self.body(observation)
        forces = self.turned(z, scalars, norm)  # [..., N, 3, each]
        along = seen[..., list(self.body.limbs.axes)].transpose(-1, -2) @ forces  # [..., N, axes, each]
        return along.movedim(-1, -3).flatten(-3)


class _Values(nn.Module):
    def __init__(self, bodies: list[_Body], width: int) -> None:
        super().__init__()
        self.limbs, self.bodies = bodies[0].limbs, nn.ModuleList(bodies)
        self.out = nn.ModuleList(nn.Linear(2 * width, 1) for _ in bodies)

    def forward(self, observation: Tensor, action: Tensor | None = None) -> Tensor:
        extra = None if action is None else action.unflatten(-1, (self.limbs.limbs, -1))
        found = [(out(body(observation, extra)[1])).mean(-2) for body, out in zip(self.bodies, self.out, strict=True)]
        return torch.cat(found, -1)


class Subequivariant(Trunk):
    """A trunk whose actions, along the limbs' own axes, do not change if all vectors are turned about gravity: limbs
    attend to each other by inner products of their vectors and by numbers, and forces are combinations of vectors.

    limbs: the layout of the observation.
    width: channels of vectors and numbers of each limb. heads: of the attention. layers: of it.
    mixed: channels, beside the directions, whose inner products are taken.

    Policies must not normalise observations. Source: Chen et al. 2023, arXiv 2305.18951.
    """

    limbs: Limbs = Limbs()
    width: int = 64
    heads: int = 2
    layers: int = 2
    mixed: int = 14

    normalised = False

    def setup(self) -> None:
        _check(self)

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        self.limbs.check(space)
        with seeded(generator):
            return _Actor(self._body(), self.width, outputs // (self.limbs.limbs * len(self.limbs.axes)))

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        with seeded(generator):
            return _Values([self._body()], self.width)

    def _body(self) -> _Body:
        return _Body(self.limbs, 0, self.width, self.heads, self.layers, self.mixed)


class SubequivariantQ(Network):
    """Values Q [..., H] of a state and an action that do not change if all vectors are turned about gravity.

    ensemble: H. limbs, width, heads, layers, mixed: as in `Subequivariant`.
    """

    ensemble: int = 2
    limbs: Limbs = Limbs()
    width: int = 64
    heads: int = 2
    layers: int = 2
    mixed: int = 14

    inputs = ("observation", "action")

    def setup(self) -> None:
        _check(self)

    def build(self, space: Space, generator: Generator) -> nn.Module:
        self.limbs.check(space)
        with seeded(generator):
            sizes = (len(self.limbs.axes), self.width, self.heads, self.layers, self.mixed)
            return _Values([_Body(self.limbs, *sizes) for _ in range(self.ensemble)], self.width)


def _check(part: Subequivariant | SubequivariantQ) -> None:
    if min(part.width, part.heads, part.layers, part.mixed) < 1 or part.width % part.heads:
        raise ValueError(
            f"networks.{type(part).__name__}: width, heads, layers and mixed must be >= 1 and width a multiple of "
            f"heads, found {part.width}, {part.heads}, {part.layers} and {part.mixed}"
        )
