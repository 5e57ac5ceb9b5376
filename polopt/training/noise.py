"""The gradient noise scale while training, from the gradients of a batch's minibatches."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.metrics import gradient_noise
from polopt.policies.sharded import gradient_norm

# The weight of one step's estimates in the running averages.
SHARE = 0.1
# A signal below this share of the noise is rounding: the difference of two sums of float32 gradients' squares.
LEAST = 1e-6


class NoiseMeter:
    """A meter of the gradient noise scale, the batch size in rows beyond which more rows gain little, from the
    minibatches' gradients and their mean.

    Signal and noise are each averaged over steps, and only then divided, as the ratio of one step's estimates means
    nothing. The policy moves a little between the minibatches; that is taken for noise. `moments` is all its state.
    """

    def __init__(self) -> None:
        self.moments = torch.zeros(2, dtype=torch.float64)  # signal, noise
        self._total: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._rows = 0

    def see(self, gradients: list[Tensor], rows: int, norm: Tensor | None = None) -> None:
        """Adds one minibatch's gradient, averaged over `rows` rows. norm: the gradient's, if it is known."""
        self._norms.append(gradient_norm(gradients) if norm is None else norm)
        if self._total:
            torch._foreach_add_(self._total, gradients)
        else:
            self._total = [*map(torch.clone, gradients)]
        self._rows += rows

    def scale(self) -> float | None:
        """Returns the scale after the minibatches since the last call; None if it cannot be estimated from them."""
        n, total, rows = len(self._norms), self._total, self._rows
        squares = [float(norm) ** 2 for norm in self._norms]
        self._total, self._norms, self._rows = [], [], 0
        if n < 2:
            return None
        mean_norm = float(gradient_norm(total)) ** 2 / n**2
        now = gradient_noise(sum(squares) / n, mean_norm, max(1, rows // n), rows)
        self.moments = (1 - SHARE) * self.moments + SHARE * torch.tensor([now.signal, now.noise], dtype=torch.float64)
        signal, noise = self.moments.tolist()
        return max(0.0, noise) / signal if signal > max(0.0, LEAST * noise) else None
