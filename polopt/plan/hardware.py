"""Machines: the peak performance of a device, and the number of devices."""

from __future__ import annotations

import functools
import re
from importlib import resources
from pathlib import Path

import pydantic

from polopt.config import Config, ConfigError, parse
from polopt.names import nearest
from polopt.yaml_data import read_yaml_file

Positive = pydantic.PositiveFloat


class Device(Config):
    """kind: as PyTorch calls it. flops: dense FLOP/s by type. memory: bytes. bandwidth: bytes per second between memory
    and processor; `cache` bytes are read at cache_bandwidth instead, where a device has one that weights may stay in.
    link, between: bytes per second of one device, in one direction, inside a node of `per_node` devices and between
    nodes. price: dollars per device and hour. held: bytes in use before anything is loaded. note: where the
    numbers come from.
    """

    name: str = ""
    kind: str = "cuda"
    flops: dict[str, Positive]
    memory: Positive
    bandwidth: Positive
    cache: float = 0.0
    cache_bandwidth: float = 0.0
    link: Positive = 1e9
    between: Positive = 1e9
    per_node: int = pydantic.Field(default=8, ge=1)
    price: float = pydantic.Field(default=0.0, ge=0)
    held: float | None = None
    note: str = ""

    def rate(self, dtype: str) -> float:
        """FLOP/s in this type.

        Raises:
            ConfigError: it is not known.
        """
        if dtype not in self.flops:
            raise ConfigError(f"hardware.{self.name}.flops has no {dtype!r}{nearest(dtype, self.flops)}")
        return self.flops[dtype]

    def reads(self, size: float) -> float:
        """Bytes per second at which `size` bytes are read again and again."""
        return self.cache_bandwidth if size <= self.cache else self.bandwidth

    def link_bandwidth(self, devices: int) -> float:
        """Bytes per second of the slowest link among so many devices."""
        return self.link if devices <= self.per_node else min(self.link, self.between)

    @property
    def aside(self) -> float:
        """Bytes that libraries and the allocator take: as stated, else 6 % and a gigabyte."""
        return 0.06 * self.memory + 1e9 if self.held is None else self.held


@functools.cache
def table() -> dict[str, Device]:
    """Returns the devices of polopt's table, and those that were measured with it."""
    return read(str(resources.files("polopt.plan") / "hardware.yaml"))


def read(path: Path | str) -> dict[str, Device]:
    """Devices by name, as hardware.yaml writes them.

    Raises:
        ConfigError: no such file, or a field that is unknown, missing or wrong.
    """
    data = read_yaml_file(Path(path))
    if not isinstance(data, dict) or not all(isinstance(fields, dict) for fields in data.values()):
        raise ConfigError(f"{path}: expected devices by name, each with its fields, found {data!r:.80}")
    return {str(name): parse(Device, {"name": name, **fields}, f"{path}: {name}") for name, fields in data.items()}


def find(text: str, known: dict[str, Device] | None = None) -> tuple[int, Device]:
    """`8xH100` as a number of devices and their kind; `H100` is one.

    Raises:
        ConfigError: a device that is not known; the nearest one is named.
    """
    known = table() if known is None else known
    match = re.fullmatch(r"(?:(\d+)\s*[x*]\s*)?(.+)", text.strip(), re.IGNORECASE)
    count, name = (int(match[1] or 1), match[2]) if match else (1, text)
    plain = {_plain(key): device for key, device in known.items()}
    if count < 1:
        raise ConfigError(f"devices = {text!r:.60}: expected one device or more, as in 8xH100")
    if _plain(name) not in plain:
        raise ConfigError(
            f"devices = {text!r}: no device of that name is known{nearest(name, known)}; write 8xH100, or describe it "
            "in a file for --hardware"
        )
    return count, plain[_plain(name)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())
