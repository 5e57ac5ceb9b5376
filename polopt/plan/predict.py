"""Prediction of a job: memory per device, seconds by phase with an interval, cost, and the bottleneck."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

from polopt.plan import seconds
from polopt.plan.efficiency import Efficiency, EfficiencyRange
from polopt.plan.job import PlannedJob
from polopt.plan.memory_budget import MemoryBudget, memory_budgets


@dataclasses.dataclass(frozen=True)
class Span:
    """A likely value, and its interval under the underlying assumptions or measurements."""

    likely: float
    low: float
    high: float

    def times(self, factor: float) -> Span:
        return Span(self.likely * factor, self.low * factor, self.high * factor)

    def over(self, amount: float) -> Span:
        """amount / this."""
        return Span(amount / self.likely, amount / self.high, amount / self.low)


@dataclasses.dataclass(frozen=True)
class Plan:
    """memory: by kind of device. peak: bytes, by kind of device. phases: seconds of a step. sampling: its tokens per
    second, learning: those of the batch, whole: of both in turn or at once. run: seconds of all steps. cost: dollars.
    """

    job: PlannedJob
    known: EfficiencyRange
    memory: dict[str, MemoryBudget]
    phases: dict[str, Span]
    step: Span
    sampling: Span | None
    learning: Span
    whole: Span
    run: Span
    cost: Span
    bottleneck: str
    remedies: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return all(budget.over <= 0 for budget in self.memory.values())

    def record(self) -> dict[str, Any]:
        """Plain data, for programs."""
        job = self.job
        plain = {f.name: getattr(job, f.name) for f in dataclasses.fields(job) if f.name != "lengths"}
        for name in ("shape", "demands"):
            plain[name] = dataclasses.asdict(getattr(job, name))
        plain["device"] = job.device.model_dump()
        numbers = ("step", "sampling", "learning", "whole", "run", "cost")
        return {
            "job": plain,
            "parameters": job.shape.parameters,
            "fits": self.fits,
            "memory": {
                kind: {**dataclasses.asdict(budget), "peak": budget.peak, "over": budget.over}
                for kind, budget in self.memory.items()
            },
            "phases": {name: dataclasses.asdict(span) for name, span in self.phases.items()},
            **{n: None if (span := getattr(self, n)) is None else dataclasses.asdict(span) for n in numbers},
            "bottleneck": self.bottleneck,
            "remedies": list(self.remedies),
            "efficiency": {"story": self.known.provenance, "measured": self.known.measured is not None},
        }


def phases(
    job: PlannedJob, eff: Efficiency, memory: dict[str, MemoryBudget]
) -> tuple[dict[str, float], seconds.Decoding | None]:
    """Seconds of one step, and what decoding was spent on; None where nothing is sampled."""
    concurrent = max(budget.concurrent for budget in memory.values())
    if any(budget.over > 0 for budget in memory.values()):  # the times are those of a device that is large enough
        concurrent = math.ceil(job.rows / job.replicas)
    overhead, found, decoding = job.demands.sampling_overhead, {}, None
    if overhead:
        decoding = seconds.decoding(job, eff, concurrent)
        more = overhead + job.demands.once / job.group
        found = {"reading prompts": overhead * seconds.prefill(job, eff), "decoding": more * decoding.total}
    found["rewards"] = job.reward * job.rows
    found |= seconds.learning(job, eff)
    found["handing over weights"] = seconds.handing_over(job, eff)
    found["each step"] = eff.step
    return {name: value for name, value in found.items() if value}, decoding


SAMPLING = ("reading prompts", "decoding", "rewards")


def step_seconds(job: PlannedJob, found: dict[str, float]) -> float:
    """In turn, or the longer of the two at once."""
    sampled = sum(value for name, value in found.items() if name in SAMPLING)
    others = sum(found.values()) - sampled
    return max(sampled, others) if job.asynchronous else sampled + others


def predict(job: PlannedJob, known: EfficiencyRange, *, remedies: bool = True) -> Plan:
    """A job's plan. remedies: whether to look for a setting that fits, where this one does not."""
    memory = memory_budgets(job)
    likely, decoding = phases(job, known.likely, memory)
    best, worst = (phases(job, e, memory)[0] for e in (known.best, known.worst))
    spans = {n: _spanned([v, best.get(n, 0.0), worst.get(n, 0.0)], known) for n, v in likely.items()}
    step = _spanned([step_seconds(job, found) for found in (likely, best, worst)], known)
    sampled = [sum(v for n, v in found.items() if n in SAMPLING) for found in (likely, best, worst)]
    learned = [sum(v for n, v in found.items() if n not in SAMPLING) for found in (likely, best, worst)]
    run = step.times(job.steps)
    over = any(budget.over > 0 for budget in memory.values())
    return Plan(
        job=job,
        known=known,
        memory=memory,
        phases=spans,
        step=step,
        sampling=_spanned(sampled, known).over(job.batch.tokens * job.demands.sampling_overhead) if decoding else None,
        learning=_spanned(learned, known).over(job.batch.tokens),
        whole=step.over(job.batch.tokens),
        run=run,
        cost=run.times(job.devices * job.device.price / 3600),
        bottleneck=_bottleneck(job, likely, decoding),
        remedies=tuple(_remedies(job)) if remedies and over else (),
    )


def _spanned(values: list[float], known: EfficiencyRange) -> Span:
    """Returns the span of the values under likely, best and worst efficiencies, wider by the measured error."""
    return Span(values[0], min(values) / known.time, max(values) * known.time)


_WHY = {
    "calls": "by calling the layers of every pass, whatever they work on",
    "products": "by arithmetic: so many rows at once that weights are read quickly enough",
    "weights read": "by reading the weights in every pass",
    "keys and values": "by reading keys and values of long rows",
    "choosing": "by choosing from the vocabulary",
    "links": "by adding up between the devices that share a sampler",
    "host": "by the host's work on each token",
}


def _bottleneck(job: PlannedJob, found: dict[str, float], decoding: seconds.Decoding | None) -> str:
    sides = {"decoding": sum(v for n, v in found.items() if n in SAMPLING)}
    name = max(found, key=lambda n: found[n])
    fraction = found[name] / sum(found.values())
    sentence = f"{name}, {100 * fraction:.0f} % of the work"
    if job.asynchronous:
        rest = sum(found.values()) - sides["decoding"]
        waits = "learners wait for rollouts" if sides["decoding"] > rest else "samplers wait for learners"
        sentence += f"; {waits}"
    if name == "decoding" and decoding is not None:
        cause = max(decoding.parts, key=lambda n: decoding.parts[n])
        sentence += f", bound {_WHY[cause]}"
        tail = decoding.tail / decoding.total
        if tail > 0.2:
            sentence += (
                f"; {100 * tail:.0f} % of it while less than a tenth of the rows goes on: the longest answers decide"
            )
    return sentence


@dataclasses.dataclass(frozen=True, order=True)
class _Way:
    """A change of settings: how much is given up for it, what it is called, what it changes."""

    price: float
    name: str
    changes: tuple[tuple[str, Any], ...]

    def of(self, job: PlannedJob) -> PlannedJob:
        return job.but(**dict(self.changes))


_STAY = _Way(0.0, "", ())


def _ways(job: PlannedJob) -> list[list[_Way]]:
    """Lists the possible changes of each setting, no change included."""
    micro, rows = [_STAY], job.micro
    while rows > 1:
        rows //= 2
        micro.append(_Way(0.5 + 0.1 * len(micro), f"micro_rows {rows}", (("micro_rows", rows),)))
    tensor = [_STAY]
    for t in (2 * job.tensor, 4 * job.tensor, 8 * job.tensor):
        if t <= job.device.per_node and job.samplers % t == 0 and job.shape.heads % t == 0:
            tensor.append(_Way(0.8 + 0.1 * len(tensor), f"tensor {t}", (("tensor", t),)))
    shards = [_STAY]
    if job.sharding == "ddp" and job.learners > 1:
        shards.append(_Way(0.7, "sharding fsdp", (("sharding", "fsdp"),)))
    kept = [_STAY] if job.checkpointing else [_STAY, _Way(1.0, "checkpointing", (("checkpointing", True),))]
    engine = [_STAY] if job.engine == "paged" else [_STAY, _Way(1.2, "engine paged", (("engine", "paged"),))]
    return [shards, kept, micro, tensor, engine]


def _remedies(job: PlannedJob) -> Iterator[str]:
    """Settings that fit: every single change that does, else the changes together that give up least, on as few devices
    as it takes; and adapters instead of all weights."""
    ways = _ways(job)
    singles = [next((w for w in kind if w.name and _fits(w.of(job))), None) for kind in ways]
    yield from (way.name for way in singles if way is not None)
    for factor in (1, 2, 4, 8, 16, 32, 64) if not any(singles) else ():
        larger = job.but(devices=factor * job.devices, apart=factor * job.apart)
        if found := _together(larger):
            yield " and ".join(filter(None, ["" if factor == 1 else f"{larger.devices} devices", found]))
            break
    if not job.lora:
        adapters = job.but(lora=32)
        if found := "alone" if _fits(adapters) else _together(adapters):
            yield "LoRA of rank 32" + ("" if found == "alone" else f" and {found}")


def _together(job: PlannedJob) -> str:
    """The changes that make it fit and give up least; empty if none do, or none are needed."""
    combinations = sorted(itertools.product(*_ways(job)), key=lambda ways: sum(way.price for way in ways))
    for ways in combinations:
        if _fits(job.but(**dict(change for way in ways for change in way.changes))):
            return " and ".join(way.name for way in ways if way.name)
    return ""


def _fits(job: PlannedJob) -> bool:
    return all(budget.over <= 0 for budget in memory_budgets(job).values())
