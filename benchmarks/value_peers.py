"""Losses and gradients of value-based and offline methods beside stable-baselines3 and d3rlpy, on one batch.

python -m benchmarks.value_peers --folder F     installs the peers into F/peers once, and compares

Both sides evaluate the peer's own networks, with the same weights, transitions and random draws: the peer by its own
training code, polopt by the method's objectives. So the comparison is of the losses, and its gradients are those of the
same parameters. Results are in benchmarks/results/value_peers.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks import table, value_peer_losses
from benchmarks.methods import ROOT
from benchmarks.spec import HERE
from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.network_training import NetworkTraining
from polopt.networks import Space
from polopt.policies.head import Action
from polopt.sampling import transition_rows
from polopt.support import Density

RESULTS = HERE / "results" / "value_peers"
PEERS = ("stable-baselines3==2.9.2", "d3rlpy==2.8.1")
# What they import and this environment has not.
BESIDE = ("cloudpickle", "gym==0.26.2", "structlog", "h5py", "dataclasses-json", "marshmallow<4", "typing-inspect")
TOLERANCE = 1e-5


def install(folder: Path) -> Path:
    """Installs the peers without what they pin, beside this environment, and returns their folder."""
    peers = folder / "peers"
    if not (peers / "d3rlpy").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(peers)]
        subprocess.run([*pip, *PEERS, *BESIDE], check=True)
    return peers


def numbers(shape: Sequence[int], normal: bool) -> Tensor:
    """Returns numbers that depend on their count alone. Of three dimensions [n, B, A] the second is the slowest, as in
    [B n, A]."""
    count, draw = 1, torch.Generator().manual_seed(7)
    for size in shape:
        count *= size
    flat = torch.empty(count)
    flat = _NORMAL(flat, generator=draw) if normal else _UNIFORM(flat, generator=draw)
    if normal and len(shape) == 3:
        n, rows, width = shape
        return flat.reshape(rows, n, width).transpose(0, 1)
    return flat.reshape(tuple(shape))


_NORMAL, _UNIFORM = Tensor.normal_, Tensor.uniform_


@contextmanager
def same_draws() -> Iterator[None]:
    """Every draw of a shape is the same one, on both sides."""

    def sized(size: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size

    def uniform_(self: Tensor, low: float = 0, high: float = 1, **_: Any) -> Tensor:
        return self.copy_(low + (high - low) * numbers(self.shape, False))

    with (
        mock.patch("torch.randn", lambda *size, **_: numbers(sized(size), True)),
        mock.patch("torch.rand", lambda *size, **_: numbers(sized(size), False)),
        mock.patch("torch.distributions.normal._standard_normal", lambda shape, **_: numbers(shape, True)),
        mock.patch.object(Tensor, "normal_", lambda self, mean=0, std=1: self.copy_(std * numbers(self.shape, True))),
        mock.patch.object(Tensor, "uniform_", uniform_),
    ):
        yield


class PeerPolicy(nn.Module):
    """A policy that a peer's functions compute.

    propose: states [N, D] -> actions and log-densities. logp: (states, actions) -> log-densities. action_values: states
    -> [N, n], of which the largest is proposed.
    """

    device = torch.device("cpu")
    normaliser = None
    head = SimpleNamespace(limits=lambda law: None)  # actions have the bounds of all states

    def __init__(self, space: Space, *, propose: Any = None, logp: Any = None, action_values: Any = None) -> None:
        super().__init__()
        self.space, self._propose, self._logp, self._values = space, propose, logp, action_values
        self.slow: PeerPolicy | None = None

    def law(self, observation: Tensor, legal: Any = None) -> tuple[Tensor]:
        """Returns the values of all choices; of vectors the observation, which is all that a proposal depends on."""
        return (observation if self._values is None else self.action_values(observation),)

    def propose_of(self, law: tuple[Tensor], generator: Any) -> Action:
        if self._values is None:
            action, logp = self._propose(law[0].reshape(-1, law[0].shape[-1]))
            return Action(action.unflatten(0, law[0].shape[:-1]), logp.unflatten(0, law[0].shape[:-1]))
        best = law[0].max(-1)
        return Action(best.indices, torch.zeros_like(best.values))

    def action_values(self, observation: Tensor) -> Tensor:
        values: Tensor = self._values(observation.reshape(-1, observation.shape[-1]))
        return values.unflatten(0, observation.shape[:-1])

    def evaluate(self, experience: Experience, needs: Any = (), *, top: int = 0) -> Evaluation:
        states = experience.extras["observation"][:, 0]
        logp = self._logp(states, experience.extras["action"][:, 0])[:, None]
        return Evaluation(logp=logp, support=experience.support)

    def frozen(self) -> PeerPolicy | None:
        return self.slow


class PeerNetwork(nn.Module):
    """A network that a peer's function computes: [M, D] and [M, A] to [M, H] or [M]."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        flat = [value.reshape(-1, value.shape[-1]) for value in inputs]
        found: Tensor = self.function(*flat)
        return found.unflatten(0, inputs[0].shape[:-1])


def ours(
    algorithm: Algorithm, policy: PeerPolicy, networks: dict[str, Any], targets: dict[str, Any], batch: Experience
) -> dict[str, Tensor]:
    """Returns the loss of the policy, as `policy`, and of each network, by name, without a step between them."""
    training = NetworkTraining(policy, algorithm, 1e-3, torch.Generator().manual_seed(0))
    training.modules |= {name: PeerNetwork(function) for name, function in networks.items()}
    training.targets |= {name: PeerNetwork(function) for name, function in targets.items()}
    batch = algorithm.with_advantages(batch)
    found: dict[str, Tensor] = {}
    objectives = {name: spec.objective for name, spec in training.specs.items()} | {"policy": algorithm.objective}
    for name, objective in objectives.items():
        assert objective is not None
        for module in training.modules.values():  # a temperature of polopt's own among them
            module.requires_grad_(True)
        with same_draws():
            found[name] = objective(batch, training.evaluate(batch, objective)).loss
    return found


def transitions(rows: int = 64, D: int = 3, A: int | None = 2) -> Experience:
    """Returns random transitions, of which a third terminated, with vectors of A numbers or four choices."""
    draw = torch.Generator().manual_seed(5)
    action = torch.randint(4, (rows,), generator=draw) if A is None else 1.8 * torch.rand(rows, A, generator=draw) - 0.9
    columns = {
        "observation": torch.randn(rows, D, generator=draw),
        "next_observation": torch.randn(rows, D, generator=draw),
        "action": action,
        "reward": 2 * torch.randn(rows, generator=draw),
        "terminated": torch.rand(rows, generator=draw) < 1 / 3,
        "truncated": torch.zeros(rows, dtype=torch.bool),
        "discount": torch.full((rows,), 0.99),
    }
    return transition_rows(columns, Density())


def compare(row: value_peer_losses.Row, algorithm: Algorithm, batch: Experience) -> dict[str, Any]:
    """Returns relative differences of loss and gradient, the latter of its largest entry."""
    if algorithm.sampling.gamma is None:  # type: ignore[attr-defined]
        batch = batch.replace()
        batch.extras.pop("discount", None)
    own = ours(algorithm, row.policy, row.networks, row.targets, batch)[row.name]
    gradients = torch.autograd.grad(own, row.parameters, allow_unused=True)
    apart, largest = 0.0, 0.0
    for gradient, theirs in zip(gradients, row.gradients, strict=True):
        gradient = torch.zeros_like(theirs) if gradient is None else gradient
        apart = max(apart, float((gradient - theirs).abs().max()))
        largest = max(largest, float(theirs.abs().max()))
    loss = abs(float(own.detach()) - row.loss) / max(abs(row.loss), 1e-12)
    return {
        "peer": row.peer,
        "method": row.method,
        "loss of": row.name,
        "loss": row.loss,
        "loss_difference": None if row.shift else loss,
        "gradient_difference": apart / largest,
        "differs": row.differs,
    }


def markdown(data: dict[str, Any]) -> str:
    """The table of all comparisons."""
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    lines = [
        "# Losses and gradients beside the peers",
        "",
        f"{versions}. 64 random transitions, a third of which terminated; both sides evaluate the peer's own networks "
        "with the same random draws. Differences are relative: of the loss to its value, of the gradient to its "
        "largest entry. Where no loss is given, polopt's is a ratio of 1 whose gradient is the weighted likelihood's.",
        "",
        "|method|peer|loss of|loss|gradient|settings and definitions that differ|",
        "|--|--|--|--:|--:|--|",
    ]
    for row in data["rows"]:
        loss = "" if row["loss_difference"] is None else f"{row['loss_difference']:.1e}"
        cells = row["method"], row["peer"], row["loss of"], loss, f"{row['gradient_difference']:.1e}", row["differs"]
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join([*lines, ""])


def prepare(description: str | None, installed: Callable[[Path], Path]) -> None:
    """Reads the command line, and lets the peers that `installed` puts into its folder be imported."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the peers are kept")
    folder = parser.parse_args().folder.resolve()
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    sys.path.append(str(installed(folder)))


def save(place: Path, data: dict[str, Any], page: str) -> None:
    """Writes results as data and as a page."""
    place.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    place.with_suffix(".md").write_text(page, encoding="utf-8")


def main() -> None:
    prepare(__doc__, install)
    about = table.about(ROOT, threads=1, module="value_peers") | {"command": "python -m benchmarks.value_peers"}
    rows = []
    for method, settings, but, choices in value_peer_losses.METHODS:
        batch = transitions(A=None if choices else 2)
        algorithm = catalogue.sentence({"name": method, **settings}).but(but)
        assert isinstance(algorithm, Algorithm)
        for row in value_peer_losses.peers_of(method, batch, same_draws, PeerPolicy):
            rows.append(compare(row, algorithm, batch))
            print(rows[-1], flush=True)
    data = {"about": about, "versions": value_peer_losses.versions(), "rows": rows}
    save(RESULTS, data, markdown(data))
    worst = max(max(row["loss_difference"] or 0, row["gradient_difference"]) for row in rows)
    print(markdown(data), f"largest difference: {worst:.1e}")
    if worst > TOLERANCE:
        sys.exit(f"a difference is above {TOLERANCE}")


if __name__ == "__main__":
    main()
