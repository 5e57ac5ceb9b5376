"""A table of the methods that run in each trainer, from the trainers' capabilities."""

from __future__ import annotations

from collections.abc import Iterable

from polopt import catalogue, index
from polopt.algorithm import Algorithm
from polopt.bridges import prime_rl, skyrl, slime, verl_config
from polopt.bridges.capabilities import TrainerCapabilities
from polopt.bridges.trl import trl_capabilities as trl

HOSTS: tuple[TrainerCapabilities, ...] = (trl.HOST, verl_config.HOST, skyrl.HOST, prime_rl.HOST, slime.HOST)


def reasons(algorithm: Algorithm) -> dict[str, list[str]]:
    """Returns, by trainer, the reasons why it cannot run the algorithm; empty lists if it can."""
    return {host.name: host.refusals(algorithm) for host in HOSTS}


def cells(slugs: Iterable[str]) -> dict[str, list[str]]:
    """Returns, by method, for each trainer "yes", the condition under which the method runs, or "" if it does not."""
    found = {}
    for slug in slugs:
        algorithm = catalogue.method(slug)
        found[slug] = ["" if host.refusals(algorithm) else host.condition(algorithm) or "yes" for host in HOSTS]
    return found


def shown(row: Iterable[str]) -> list[str]:
    """Returns the cells in printed form."""
    return [cell or "–" for cell in row]


def markdown() -> str:
    """Returns the table as Markdown: the methods that run in some trainer, and then the names of all others."""
    rows = cells(index.slugs("algorithm"))
    names = [host.name for host in HOSTS]
    lines = ["| method | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    lines += [
        f"| `{slug}` | " + " | ".join(cell or "–" for cell in row) + " |" for slug, row in rows.items() if any(row)
    ]
    counts = [sum(bool(row[i]) for row in rows.values()) for i in range(len(names))]
    lines.append(f"| {len(rows)} methods | " + " | ".join(map(str, counts)) + " |")
    others = ", ".join(f"`{slug}`" for slug, row in rows.items() if not any(row))
    return "\n".join([*lines, "", f"In none of them with its paper's settings: {others}."])
