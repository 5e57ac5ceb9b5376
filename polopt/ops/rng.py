"""Random numbers that are functions of integer keys alone, the same on every device."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


def scrambled(keys: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """Maps 64-bit integers bijectively to pseudo-random ones: consecutive counters become noise.

    The output function of SplitMix64 (Steele, Lea and Flood 2014), in integers that wrap around.
    """
    x = keys.long() - 0x61C8864680B583EB
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def uniform(keys: Int[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Returns pseudo-random float64 numbers in [0, 1), a function of the keys alone, the same on every device."""
    return ((scrambled(keys) >> 11) & ((1 << 53) - 1)).double() / (1 << 53)
