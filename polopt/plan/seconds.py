"""Seconds of one step, phase by phase: a roofline with measured or assumed shares of it (Williams et al. 2009)."""

from __future__ import annotations

import dataclasses
import heapq
import math

from polopt.plan import flops, memory
from polopt.plan.efficiency import Efficiency
from polopt.plan.job import PlannedJob, read

# Bytes that choosing a token moves for each logit: read and written about seven times in float32.
CHOOSING = 28
# Seconds that one exchange between devices takes whatever its size.
LATENCY = 1e-5
# Passes of the optimiser and of clipping over parameters, gradients and moments, in numbers per parameter.
UPDATE = 9


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Seconds of decoding by what they are spent on; tail: those while less than a tenth of the rows goes on."""

    parts: dict[str, float]
    tail: float

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def slots(lengths: list[float], count: int) -> list[float]:
    """Tokens that each of `count` places of a sampler decodes one after the other, ascending, when the next row takes
    the first place that is free."""
    if count >= len(lengths):
        return sorted(lengths)
    places = [0.0] * count
    for length in lengths:
        heapq.heapreplace(places, places[0] + length)
    return sorted(places)


def decoding(job: PlannedJob, eff: Efficiency, concurrent: int) -> Decoding:
    """One batch of rollouts on the sampler that gets the longest answer.

    A pass over a rows takes what calling its layers takes, and the longer of 2 (M + V d) a FLOPs and reading the
    weights; in addition, each row's token reads its row's keys and values, 2 b L K D bytes for each token before it (or
    does their 4 L H D FLOPs, if that is longer), a sampler of t devices adds up 2 L times 2 (t - 1) / t b d a bytes
    between them
    (Shoeybi et al. 2019, arXiv 1909.08053), and choosing reads V a logits. The pass count is the longest answer's, or
    longest sum of answers where rows wait for a place.
    """
    batch, shape, device, t = job.batch, job.shape, job.device, job.tensor
    lengths = list(batch.lengths[::-1][:: job.replicas] if len(batch.lengths) >= job.replicas else batch.lengths[-1:])
    rows_per_length = math.ceil(job.rows / job.replicas) / len(lengths)
    places = slots(lengths, max(1, round(concurrent / rows_per_length)))
    peak, weights = device.rate(job.precision) * t, shape.matrix + shape.head
    bandwidth = eff.memory * device.reads(memory.weights(weights, job.work) / t) * t
    calls = eff.call * shape.layers
    parts = dict.fromkeys(("calls", "products", "weights read", "choosing", "links"), 0.0)
    tail = before = 0.0
    for i, end in enumerate(places):
        rows, passes = (len(places) - i) * rows_per_length, end - before
        if passes <= 0:
            continue
        before = end
        product = 2 * weights * rows / (eff.decode * peak)
        read_once = weights if shape.experts == 1 else shape.read_by(rows)
        reading = job.work * read_once / bandwidth
        chosen = CHOOSING * rows * shape.vocabulary
        choosing = chosen / (eff.memory * device.reads(chosen / t) * t)
        sent = 2 * (t - 1) / t * job.work * shape.width * rows / device.link_bandwidth(t)
        links = 2 * shape.layers * (sent + LATENCY) if t > 1 else 0.0
        parts["calls"] += passes * calls
        parts["products" if product > reading else "weights read"] += passes * max(product, reading)
        parts["choosing"] += passes * choosing
        parts["links"] += passes * links
        if i > 0.9 * len(places):
            tail += passes * (calls + max(product, reading) + choosing + links)
    pairs = rows_per_length * sum(flops.behind(batch.prompt, n) for n in lengths)
    cache = memory.kv_cache(shape, pairs, job.work) / (eff.memory * device.reads(memory.kv_cache(shape, pairs, 1)) * t)
    attention = 4 * shape.layers * shape.queries * pairs / (eff.decode * peak)
    parts["keys and values"] = max(cache, attention)
    parts["host"] = eff.token * rows_per_length * sum(lengths)
    return Decoding(parts, tail)


def prefill(job: PlannedJob, eff: Efficiency) -> float:
    """Each prompt once, on all devices that sample."""
    batch = job.batch
    work = flops.forward(job.shape, batch.prompts * batch.prompt, batch.prompt_pairs, batch.prompts)
    return work / (eff.learn * job.device.rate(job.precision) * job.samplers) + eff.call * job.shape.layers


@dataclasses.dataclass(frozen=True)
class Pass:
    """One forward pass over one learner's whole share of the batch, in pieces."""

    flops: float
    layers_flops: float
    kept: float
    pieces: int


def over_batch(job: PlannedJob) -> Pass:
    """Counts the pass over the batch; a prompt is read once per group if packing is worth it for the whole batch."""
    batch, shape, n = job.batch, job.shape, job.learners
    whole = read(batch.prompt, list(batch.lengths), len(batch.lengths) / batch.group)
    scale = batch.each / n
    prompts = batch.prompts if whole.shared else batch.rows
    pairs = (batch.answer_pairs + prompts * flops.causal(batch.prompt)) / n
    tokens, decided = whole.tokens * scale, whole.decided * scale
    repeated = job.device.kind != "cpu"
    kept = memory.made_by_layer(shape, tokens, whole.keys * scale, whole.shared * scale, repeated=repeated)
    own = math.ceil(job.rows / n / job.minibatches)
    return Pass(
        flops=flops.forward(shape, tokens, pairs, decided * (1 + job.demands.heads)),
        layers_flops=flops.recomputed(shape, tokens, pairs),
        kept=job.work * shape.layers * kept + 12 * decided * shape.vocabulary,
        pieces=job.minibatches * math.ceil(own / job.micro),
    )


def learning(job: PlannedJob, eff: Efficiency) -> dict[str, float]:
    """Seconds of passes without gradient, of forward and backward, of the optimiser and of traffic that is not hidden.

    Backward is twice forward, once where only adapters learn, and checkpointing adds the layers' forward pass again.
    Gradients are added up by 2 (N - 1) / N b P bytes a device and optimiser step; shards instead gather the weights
    before each forward and each backward pass, (N - 1) / N b P each, and scatter the gradients' sum as often (ZeRO,
    arXiv 1910.02054, section 7).
    """
    shape, device, needs = job.shape, job.device, job.demands
    one_pass, peak = over_batch(job), eff.learn * device.rate(job.precision)
    calls = eff.call * shape.layers * one_pass.pieces
    bandwidth = eff.memory * device.bandwidth
    forward = one_pass.flops / peak + eff.touch * one_pass.kept / 3 / bandwidth + calls
    surveys = needs.survey * job.epochs if job.split else 0
    prompts = needs.prompts * flops.forward(
        shape, job.batch.prompts * job.prompt / job.learners, job.batch.prompt_pairs / job.learners, 0
    )
    times = (2 if job.lora else 3) + 0.0
    learn = job.epochs * (times * one_pass.flops / peak + eff.touch * one_pass.kept / bandwidth + 3 * calls)
    if job.checkpointing:
        learn += job.epochs * (one_pass.layers_flops / peak + calls)
    learned = memory.adapter(shape, job.lora) if job.lora else shape.parameters
    update = job.optimiser_steps * UPDATE * job.size * learned / job.shards / bandwidth
    links = _links(job, one_pass.pieces, learned, needs.own + needs.other + surveys)
    return {
        "passes before learning": (needs.own + needs.other + surveys) * forward + prompts / peak,
        "learning": learn,
        "optimiser": update,
        "links of learners": max(0.0, links - eff.overlap * learn),
    }


def _links(job: PlannedJob, pieces: int, learned: float, before: float) -> float:
    n, bandwidth = job.learners, job.device.link_bandwidth(job.learners)
    if n == 1:
        return 0.0
    share = (n - 1) / n
    if job.shards == 1:
        return job.optimiser_steps * 2 * share * job.size * learned / bandwidth
    weights = share * job.work * job.shape.parameters
    passes = pieces * (2 * job.epochs + before)
    return (passes * weights + pieces * job.epochs * share * job.size * learned) / bandwidth


def handing_over(job: PlannedJob, eff: Efficiency) -> float:
    """The new weights' way to the samplers: laid out anew next to the learner, gathered from its shards, or sent."""
    if not job.demands.sampling_overhead:
        return 0.0
    whole = memory.weights(job.shape.parameters, job.work)
    laid_out = 2 * whole / job.tensor / (eff.memory * job.device.bandwidth)
    if job.apart:
        return laid_out + whole / job.device.link_bandwidth(job.devices)
    return laid_out + (whole / job.device.link_bandwidth(job.devices) if job.shards > 1 else 0.0)
