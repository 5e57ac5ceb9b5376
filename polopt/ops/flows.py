"""Points between data and noise."""

from jaxtyping import Float
from torch import Tensor


def noised(
    point: Float[Tensor, "B D"], noise: Float[Tensor, "B T D"], level: Float[Tensor, "B T"]
) -> Float[Tensor, "B T D"]:
    """(1 - t) x + t e of each draw: the points of a rectified flow at the noise levels t."""
    level = level[..., None]
    return (1 - level) * point[:, None] + level * noise
