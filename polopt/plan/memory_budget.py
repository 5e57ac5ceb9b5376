"""Memory budget of each kind of device: one that learns, one that samples, or one that does both in turn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from polopt.plan import memory
from polopt.plan.job import PlannedJob, heaviest
from polopt.policies.vocabulary import MOST_KEPT

# Bytes for each logit of a sampler's pass: the logits, their log-softmax and its exponential in float32, and the
# cumulative distribution in float64.
CHOOSING = 20


@dataclasses.dataclass(frozen=True)
class MemoryBudget:
    """Bytes on one device by what they are. always: all through the run. learning, sampling: in their turn. aside:
    those of libraries and the allocator. capacity: the device's memory. concurrent: rows that one sampler decodes at
    once.
    """

    always: Mapping[str, float]
    learning: Mapping[str, float]
    sampling: Mapping[str, float]
    capacity: float
    aside: float
    concurrent: int

    @property
    def items(self) -> dict[str, float]:
        """All of them by name, though not all at once."""
        return {**self.always, **self.learning, **self.sampling}

    @property
    def peak(self) -> float:
        """Bytes at the worst moment."""
        return sum(self.always.values()) + max(sum(self.learning.values()), sum(self.sampling.values()))

    @property
    def over(self) -> float:
        """Bytes that do not fit; negative is what is left."""
        return self.peak + self.aside - self.capacity


def memory_budgets(job: PlannedJob) -> dict[str, MemoryBudget]:
    """Returns the budget of each kind of device: "device" where all do both, else "learner" and "sampler"."""
    samples = bool(job.demands.sampling_overhead)
    if not job.apart:
        return {"device": _memory_budget(job, {**_learned(job), **_served(job)}, learns=True, samples=samples)}
    return {
        "learner": _memory_budget(job, _learned(job), learns=True, samples=False),
        "sampler": _memory_budget(job, {"sampler's weights": _copy(job)}, learns=False, samples=samples),
    }


def _memory_budget(job: PlannedJob, always: Mapping[str, float], *, learns: bool, samples: bool) -> MemoryBudget:
    always = {name: value for name, value in always.items() if value}
    free = job.device.memory - job.device.aside - sum(always.values())
    concurrent = concurrency(job, free) if samples else 0
    return MemoryBudget(
        always=always,
        learning=_learning(job) if learns else {},
        sampling=_sampling(job, concurrent) if samples else {},
        capacity=job.device.memory,
        aside=job.device.aside,
        concurrent=concurrent,
    )


def _learned(job: PlannedJob) -> dict[str, float]:
    """Weights, gradients and moments b P, b P, 2 b P over the shards; b P for each frozen copy. Adapters learn instead
    of the weights, which are then kept in the arithmetic's type, and only they are copied; they are in float32 or
    wider."""
    total, size = job.shape.parameters + (job.shape.width + 1) * job.demands.critic, job.size
    if not job.lora:
        learned, still = total, 0.0
    else:
        learned, still = memory.adapter(job.shape, job.lora), memory.weights(total, job.work)
        size = max(4, size)
    found = {
        "weights": still + memory.weights(learned, size),
        "gradients": memory.weights(learned, size),
        "Adam state": memory.adam(learned, size),
        "frozen copies": job.demands.frozen * memory.weights(learned, size),
    }
    return {name: memory.sharded(value, job.shards) for name, value in found.items()}


def _copy(job: PlannedJob) -> float:
    """Bytes of the weights on one of the devices that share a sampler."""
    return memory.weights(job.shape.parameters, job.work) / job.tensor


def _served(job: PlannedJob) -> dict[str, float]:
    """Bytes that a separate engine holds in addition to the learner; polopt's own sampler reads the learner's weights,
    or, where these lie in pieces, a whole copy of them."""
    if not job.demands.sampling_overhead or (job.engine == "native" and job.shards == 1):
        return {}
    return {"sampler's weights": _copy(job) if job.engine == "paged" else job.size * job.shape.parameters}


def _learning(job: PlannedJob) -> dict[str, float]:
    """While the learner works: activations of the largest forward pass, logits, and weights in another precision or
    gathered from their shards."""
    read = heaviest(job.batch, job.micro)
    kept = memory.activations(
        job.shape,
        read.tokens,
        read.keys,
        read.shared,
        job.work,
        stream=job.size,
        kind=job.device.kind,
        checkpointing=job.checkpointing,
        again=not job.lora,
    )
    decided = read.decided * job.shape.vocabulary
    most = decided if job.demands.whole else job.logits_at_once
    keep = MOST_KEPT.get(job.device.kind, 0)
    found = {"activations": kept, "logits": memory.logits(read.decided, job.shape.vocabulary, most, keep)}
    if job.shards > 1:
        found["gathered weights"] = memory.gathered(job.shape, job.work)
    elif job.work != job.size and not job.lora:
        found["weights, cast"] = memory.cast(job.shape, job.work, checkpointing=job.checkpointing)
    return found


def _sampling(job: PlannedJob, concurrent: int) -> dict[str, float]:
    """While rows are decoded. polopt's own sampler lays the products' weights out anew, one copy."""
    found = {
        "KV cache": memory.kv_cache(job.shape, concurrent * _tokens_of_row(job), job.work) / job.tensor,
        "sampler's logits": CHOOSING * concurrent * job.shape.vocabulary / job.tensor,
    }
    if job.engine == "native":
        found["weights laid out"] = memory.weights(job.shape.matrix, job.work)
    return found


def _tokens_of_row(job: PlannedJob) -> float:
    """Tokens whose keys and values a row keeps: up to the longest answer where room is shared out evenly, the mean one
    where it is paged."""
    return job.prompt + (job.batch.longest if job.engine == "native" else job.batch.mean)


def concurrency(job: PlannedJob, free: float) -> int:
    """Rows that one sampler decodes at once: all of its own, or as many as fit, one at least."""
    own = math.ceil(job.rows / job.replicas)
    if job.engine == "native":
        return own
    each = memory.kv_cache(job.shape, _tokens_of_row(job), job.work) + CHOOSING * job.shape.vocabulary
    return max(1, min(own, int(free * job.tensor / each)))
