"""Log-ratios of occupancies, and a small network that estimates the occupancy ratio of the policy and the reference by
classification."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.part import Part


class LogRatio(Part):
    """Log-ratio d of the sampler's and the reference's probability: `log_ratio(experience) -> [B] or [B, T]`.

    The probability is that of a row, or of a decision in its state. No gradient; values outside the mask are ignored.
    """

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class Discriminator(LogRatio):
    """Log-ratio d(s, a) that minimises mean over the policy's visits of softplus(-d) + mean over the reference's of
    softplus(d).

    The minimum is at d = log(mu / mu_ref). In training mode the network is updated on every batch, before that batch is
    rewarded, on new visits of both policies, with `steps` full-batch steps of Adam from its current weights; in
    evaluation mode it is only applied.

    `extras["features"]` [B, T, F] describes each decision in its state; `extras["base_features"]` [B, T', F] and
    `extras["base_mask"]` [B, T'] are rollouts of the reference, one for each row. Source: arXiv:2403.03185, which fits
    by minibatches of PPO's size.

    features: F.
    hidden: units of the one hidden layer; 0 is linear, a table where features are one-hot.
    steps: Adam steps on each batch.
    rate: learning rate.
    seed: seed of the hidden layer's initial weights.
    """

    features: int
    hidden: int = 0
    steps: int = 50
    rate: float = 0.05
    seed: int = 0

    reads_batch: ClassVar[bool] = True  # the fit is on the whole batch
    reads = frozenset({"extras.features", "extras.base_features", "extras.base_mask"})

    def setup(self) -> None:
        if self.features < 1 or self.hidden < 0 or self.steps < 0 or self.rate <= 0:
            raise ValueError(
                "rewards.Discriminator: need features >= 1, hidden >= 0, steps >= 0 and rate > 0, found "
                f"{self.features}, {self.hidden}, {self.steps} and {self.rate}"
            )
        inner = self.hidden or self.features
        # Zero weights of the last layer, so that d = 0 everywhere at first.
        layers = [torch.zeros(1, inner)]
        if self.hidden:
            g = torch.Generator().manual_seed(self.seed)
            layers.insert(0, torch.randn(inner, self.features, generator=g) / self.features**0.5)
        for number, weight in enumerate(layers):
            self.register_buffer(f"weight_{number}", weight.double())
            self.register_buffer(f"bias_{number}", torch.zeros(len(weight)).double())

    def forward(self, experience: Experience) -> Tensor:
        mask = experience.mask
        own = self._of(experience, "features")[mask]
        if self.training:
            base = experience.extras["base_mask"]
            self._fit(own, self._of(experience, "base_features")[base])
        d = torch.zeros(mask.shape, dtype=experience.extras["features"].dtype, device=mask.device)
        d[mask] = self._judge(own, [b for _, b in self.named_buffers()]).to(d.dtype)
        return d

    def _of(self, experience: Experience, name: str) -> Tensor:
        found = experience.extras[name]
        if found.ndim != 3 or found.shape[2] != self.features:
            raise ExperienceError(
                f"rewards.Discriminator: extras[{name!r}] must be [B, T, features] with features = {self.features}, "
                f"found {list(found.shape)}"
            )
        return found.double()

    def _judge(self, x: Tensor, layers: list[Tensor]) -> Tensor:
        for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
            x = torch.tanh(F.linear(x, weight, bias))
        return F.linear(x, layers[-2], layers[-1])[..., 0]

    def _fit(self, own: Tensor, base: Tensor) -> None:
        if not len(own) or not len(base):
            return
        with torch.enable_grad():
            layers = [b.clone().requires_grad_() for _, b in self.named_buffers()]
            optimiser = torch.optim.Adam(layers, lr=self.rate)
            for _ in range(self.steps):
                optimiser.zero_grad()
                d, other = self._judge(own, layers), self._judge(base, layers)
                (F.softplus(-d).mean() + F.softplus(other).mean()).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        for (_, kept), found in zip(self.named_buffers(), layers, strict=True):
            kept.copy_(found.detach())
