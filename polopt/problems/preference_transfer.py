"""Preference transfer: labelled trajectories of one task, and trajectories of another task without labels."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from polopt.errors import UserError


class TransferError(UserError, ValueError):
    """Trajectories or labels of a transfer problem contradict each other."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PreferenceTransfer:
    """Trajectories of a source task with preferences, and those of a target task, of which a policy is to be learned.

    source: [N, T, D] the steps of the source's trajectories. labels: [N, N] the probability that i is preferred to k,
    with labels[i, k] + labels[k, i] = 1, NaN for a pair without a label; the diagonal is never read.
    target: [M, T', D'] those of the target; the tasks may differ in length and dimension.
    returns: [M] the true returns of the target's trajectories, for measurements alone.
    names: of the target's trajectories, None numbers them.

    A solution is the weight [M] with which each of the target's trajectories is imitated.

    Raises:
        TransferError: sizes that do not fit, no pair with a label, labels that are no probabilities of one event.
    """

    source: Tensor
    labels: Tensor
    target: Tensor
    returns: Tensor
    names: tuple[str, ...] | None = None
    name: str = "preference-transfer"
    unit: str = "reward"

    def __post_init__(self) -> None:
        N, M = len(self.source), len(self.target)
        if self.source.ndim != 3 or self.target.ndim != 3 or min(N, M) < 2:
            raise TransferError(
                f"{self.name}: source and target must be [trajectories, steps, features] with two trajectories or "
                f"more, found {list(self.source.shape)} and {list(self.target.shape)}"
            )
        if self.labels.shape != (N, N) or self.returns.shape != (M,):
            raise TransferError(
                f"{self.name}: need labels {[N, N]} and returns {[M]}, found {list(self.labels.shape)} and "
                f"{list(self.returns.shape)}"
            )
        if self.names is not None and len(set(self.names)) != M:
            raise TransferError(f"{self.name}: {M} trajectories need as many different names, found {self.names}")
        known = self.known
        if not known.any():
            raise TransferError(f"{self.name}: no pair of the source's trajectories has a label; give one at least")
        both = (self.labels + self.labels.T)[known]
        if ((self.labels[known] < 0) | (self.labels[known] > 1) | ((both - 1).abs() > 1e-9)).any():
            raise TransferError(f"{self.name}: labels must be in [0, 1], and labels[i, k] + labels[k, i] must be 1")

    @property
    def known(self) -> Tensor:
        """Mask of the labelled pairs, [N, N]."""
        return ~self.labels.isnan() & ~torch.eye(len(self.labels), dtype=torch.bool)

    @property
    def source_distances(self) -> Tensor:
        """Euclidean distances between the source's trajectories, [N, N]."""
        return distances(self.source)

    @property
    def target_distances(self) -> Tensor:
        """Euclidean distances between the target's trajectories, [M, M]."""
        return distances(self.target)

    def pair_accuracy(self, score: Tensor) -> float:
        """Returns the fraction of the target's pairs of different true returns that a score [M] orders right; half of a
        tie counts, and scores that differ by rounding are tied."""
        true = self.returns[:, None] - self.returns
        found = score[:, None] - score
        found = torch.where(found.abs() > 1e-9, found, 0)
        return float((0.5 + 0.5 * found.sign() * true.sign())[true != 0].mean())

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures weights [M]: how far their mean true return is below the best one, that mean, and the accuracy of
        their order."""
        value = float(solution @ self.returns)
        return {
            "regret": float(self.returns.max()) - value,
            "value": value,
            "pair accuracy": self.pair_accuracy(solution),
        }

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts weights to plain data, by the trajectories' names."""
        names = self.names or tuple(f"trajectory {j}" for j in range(len(solution)))
        return {"weights": dict(zip(names, solution.tolist(), strict=True))}


def distances(trajectories: Tensor) -> Tensor:
    """Returns the Euclidean distances [N, N] between trajectories [N, T, D]."""
    flat = trajectories.flatten(1)
    return (flat[:, None] - flat).square().sum(-1).sqrt()


def preference_transfer(
    *,
    trajectories: int = 12,
    steps: int = 4,
    features: int = 2,
    noise: float = 0.02,
    wrong: float = 0.0,
    labelled: float = 1.0,
    symmetric: bool = False,
    seed: int = 0,
) -> PreferenceTransfer:
    """Builds a random source task and, for the target, the same trajectories in another order, turned by a random
    rotation and displaced by noise. The reward of a step is linear in its features.

    noise: the standard deviation of the target's displacement, where that of a step's features is 1.
    wrong: the fraction of the source's labels that are the opposite of the truth.
    labelled: the fraction of the source's pairs that have a label.
    symmetric: with every trajectory x the source has -x too, so that no distance tells better from worse.

    Raises:
        TransferError: fewer than 4 trajectories or one step or feature, an odd number of symmetric trajectories, noise
            below 0, wrong outside [0, 1], or labelled outside (0, 1].
    """
    if trajectories < 4 or min(steps, features) < 1 or (symmetric and trajectories % 2):
        raise TransferError(
            "preference-transfer: need trajectories >= 4, an even number if symmetric, steps >= 1 and features >= 1, "
            f"found {trajectories}, {steps} and {features}"
        )
    if noise < 0 or not 0 <= wrong <= 1 or not 0 < labelled <= 1:
        raise TransferError(
            "preference-transfer: need noise >= 0, wrong in [0, 1] and labelled in (0, 1], found "
            f"{noise}, {wrong} and {labelled}"
        )
    g = torch.Generator().manual_seed(seed)
    half = trajectories // 2 if symmetric else trajectories
    source = torch.randn(half, steps, features, generator=g, dtype=torch.double)
    if symmetric:
        source = torch.cat([source, -source])
    weights = torch.nn.functional.normalize(torch.randn(features, generator=g, dtype=torch.double), dim=0)
    rotation = torch.linalg.qr(torch.randn(features, features, generator=g, dtype=torch.double))[0]
    order = torch.randperm(trajectories, generator=g)
    displaced = noise * torch.randn(source.shape, generator=g, dtype=torch.double)
    target = source[order] @ rotation.T + displaced
    value = (source @ weights).sum(1)
    labels = (value[:, None] > value).double()
    flipped = torch.rand(labels.shape, generator=g).double().triu(1) > 1 - wrong
    labels = torch.where(flipped | flipped.T, 1 - labels, labels)
    hidden = torch.rand(labels.shape, generator=g).double().triu(1) > labelled
    labels = torch.where(hidden | hidden.T, torch.nan, labels)
    return PreferenceTransfer(source, labels, target, (target @ (rotation @ weights)).sum(1))
