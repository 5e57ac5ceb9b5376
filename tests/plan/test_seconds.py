"""Lengths, passes and traffic against plain loops and samples."""

import math
import random

import pytest
import torch

from polopt.config import ConfigError
from polopt.plan import flops, lengths, memory, seconds
from polopt.plan.efficiency import ASSUMED, Efficiency
from polopt.plan.hardware import Device
from polopt.plan.job import PlannedJob, heaviest, read
from polopt.plan.memory_budget import memory_budgets
from polopt.plan.models import find
from polopt.plan.predict import phases, predict, step_seconds
from polopt.plan.requirements import MethodRequirements
from polopt.plan.shape import shape_of
from polopt.policies.packing import pack

SMALL = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
SHAPE = shape_of({**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500})
DEVICE = Device(name="it", flops={"bfloat16": 1e12, "float32": 2e11}, memory=1e9, bandwidth=1e11, link=1e10, held=0.0)
EFF = Efficiency(learn=0.5, decode=0.4, memory=0.6, call=1e-5, touch=2.0, token=1e-6, step=0.1, overlap=0.5)


def job(**changes):
    settings = {"rows": 16, "group": 4, "prompt": 10, "answer": 30, "limit": 80, "engine": "native"}
    settings |= {"shape": SHAPE, "device": DEVICE, "demands": MethodRequirements()}
    return PlannedJob(**{**settings, **changes})


@pytest.mark.parametrize(("mean", "limit", "spread"), [(100, 400, 0.6), (300, 400, 0.6), (50, 10_000, 1.2)])
def test_typical_lengths_have_the_mean_and_the_longest_of_samples(mean, limit, spread):
    found = lengths.typical(256, mean, limit, spread)
    assert sum(found) / 256 == pytest.approx(mean, rel=0.02)
    sigma = math.sqrt(math.log1p(spread**2))
    middle = lengths._median(mean, limit, sigma)
    generator = torch.Generator().manual_seed(1)
    drawn = (middle + sigma * torch.randn(2000, 256, generator=generator)).exp().clamp(max=limit)
    assert drawn.mean().item() == pytest.approx(mean, rel=0.02)
    assert found[-1] == pytest.approx(drawn.amax(1).median().item(), rel=0.05)
    assert found[128] == pytest.approx(drawn.median().item(), rel=0.03)


def test_many_rows_are_stood_for_and_still_have_their_longest():
    few = lengths.typical(lengths.MOST, 100, 1e9, 0.6)
    many = lengths.typical(100 * lengths.MOST, 100, 1e9, 0.6)
    assert len(many) == len(few)
    assert many[-1] > 1.3 * few[-1]
    batch = lengths.BatchLengths(100 * lengths.MOST, 8, 10, many)
    assert batch.tokens == pytest.approx(100 * batch.rows, rel=0.02)


def test_impossible_lengths_are_refused():
    with pytest.raises(ConfigError, match="answers of 90 tokens on average with a limit of 80"):
        job(answer=90)


def simulated(job, eff, concurrent):
    """Token by token: each pass all rows in a place go on by one, and the next row takes the place of one that ends."""
    waiting = list(job.batch.lengths[::-1])
    going = [[waiting.pop(0), 0] for _ in range(min(concurrent, len(waiting)))]
    shape, spent = job.shape, 0.0
    peak, bandwidth = job.device.flops[job.precision], eff.memory * job.device.bandwidth
    products = shape.matrix + shape.head
    while going:
        rows = len(going)
        spent += eff.call * shape.layers + max(2 * products * rows / (eff.decode * peak), 2 * products / bandwidth)
        spent += 28 * rows * shape.vocabulary / bandwidth + eff.token * rows
        for place in going:
            place[1] += 1
            seen = job.prompt + place[1]
            spent += 2 * 2 * shape.layers * shape.keys * seen / bandwidth
        going = [p if p[1] < p[0] else ([waiting.pop(0), 0] if waiting else None) for p in going]
        going = [p for p in going if p is not None]
    return spent


@pytest.mark.parametrize("concurrent", [16, 5, 1])
@pytest.mark.parametrize("slow", [1.0, 1e-3], ids=["reading", "products"])
def test_decoding_is_the_sum_of_its_passes(concurrent, slow):
    whole = tuple(float(n) for n in random.Random(2).choices(range(3, 80), k=16))
    device = DEVICE.model_copy(update={"flops": {"bfloat16": 1e15 * slow}, "bandwidth": 1e11 * slow**0.3})
    it = job(lengths=whole, device=device)
    # One row takes longest on this device through reading alone, so keys and values are never bound by products.
    assert seconds.decoding(it, EFF, concurrent).total == pytest.approx(simulated(it, EFF, concurrent), rel=1e-9)


def test_decoding_is_shared_by_replicas():
    one, four = (seconds.decoding(job(rows=64, devices=n), EFF, 64) for n in (1, 4))
    alone = seconds.decoding(job(rows=16, limit=80), EFF, 16)
    assert alone.total < four.total < one.total
    assert four.parts["host"] == pytest.approx(one.parts["host"] / 4, rel=0.15)


def test_the_longest_answers_leave_a_tail():
    even, ragged = (seconds.decoding(job(rows=256, limit=5000, answer=100, spread=s), EFF, 256) for s in (0, 1.5))
    assert even.tail == 0
    assert ragged.tail > 0.25 * ragged.total


def test_what_a_forward_pass_reads_is_what_is_packed():
    """Groups of three behind prompts of ten, and behind one that is not worth sharing."""
    for prompt, group in ((10, 3), (1, 3), (10, 1)):
        answers = [7, 9, 4, 12, 5, 6]
        rows = torch.full((6, prompt + 12), -1)
        for i, n in enumerate(answers):
            rows[i, :prompt] = i // group
            rows[i, prompt : prompt + n] = 9
        packed = pack(rows, torch.full((6,), prompt), torch.tensor(answers) + prompt)
        found = read(prompt, answers, 6 / group)
        assert found.tokens == len(packed.tokens)
        # Padding inside the buckets' attention is not counted.
        assert found.keys + found.shared <= sum(bucket.read.numel() for bucket in packed.buckets)
        assert bool(found.shared) == any(bucket.bias is not None for bucket in packed.buckets)


def test_the_heaviest_pass_is_no_lighter_than_any_and_no_heavier_than_the_longest_rows():
    batch = job(rows=64).batch
    found = heaviest(batch, 16)
    assert found.tokens >= 64 * batch.mean / 4
    assert found.decided <= sum(batch.lengths[-16:])


def test_learning_is_three_forward_passes_and_checkpointing_a_fourth():
    plain = Efficiency(learn=0.5, decode=0.4, memory=0.6, call=0.0)
    it = job(lengths=(20.0,) * 16, prompt=10)
    work = flops.forward(SHAPE, 4 * 10 + 16 * 20, 4 * 55 + 16 * (200 + 210), 16 * 20)
    assert seconds.learning(it, plain)["learning"] == pytest.approx(3 * work / 0.5e12)
    more = seconds.learning(it.but(checkpointing=True), plain)["learning"]
    head = 2 * SHAPE.head * 16 * 20
    assert more == pytest.approx((4 * work - head) / 0.5e12)
    assert seconds.learning(it.but(lora=4), plain)["learning"] == pytest.approx(2 * work / 0.5e12)
    assert seconds.learning(it.but(epochs=3), plain)["learning"] == pytest.approx(9 * work / 0.5e12)


def test_shards_and_copies_send_what_zero_says():
    none = Efficiency(learn=0.5, decode=0.4, memory=0.6, call=0.0, overlap=0.0)
    total = 2 * SHAPE.parameters
    copies, shards = (
        seconds.learning(job(devices=4, sharding=s, minibatches=2), none)["links of learners"] for s in ("ddp", "fsdp")
    )
    assert copies == pytest.approx(2 * 2 * 0.75 * total / 1e10)
    assert shards == pytest.approx(2 * 3 * 0.75 * total / 1e10)
    across = job(devices=16, sharding="ddp", device=DEVICE.model_copy(update={"between": 1e8}))
    assert seconds.learning(across, none)["links of learners"] == pytest.approx(2 * 15 / 16 * total / 1e8)


def test_asynchronous_steps_take_the_longer_side():
    apart = job(devices=4, apart=2)
    found, _ = phases(apart, EFF, memory_budgets(apart))
    both = step_seconds(apart, found)
    longer = step_seconds(apart.but(asynchronous=True), found)
    sampled = found["reading prompts"] + found["decoding"]
    assert both == pytest.approx(sum(found.values()))
    assert longer == pytest.approx(max(sampled, both - sampled))


def test_methods_pay_for_what_they_need():
    plain = predict(job(), ASSUMED)
    for needs, phase in (
        (MethodRequirements(frozen=1, other=1), "passes before learning"),
        (MethodRequirements(sampling_overhead=2.0), "decoding"),
        (MethodRequirements(once=1, group=4), "decoding"),
    ):
        more = predict(job(demands=needs), ASSUMED)
        assert more.phases[phase].likely > (plain.phases[phase].likely if phase in plain.phases else 0)
    surveyed = job(demands=MethodRequirements(survey=1), micro_rows=4)
    assert "passes before learning" in predict(surveyed, ASSUMED).phases
    assert "passes before learning" not in predict(surveyed.but(micro_rows=None), ASSUMED).phases
    assert predict(job(demands=MethodRequirements(sampling_overhead=0.0)), ASSUMED).sampling is None


def test_every_device_holds_its_share():
    shape, device = find("Qwen2.5-7B"), Device(name="x", flops={"bfloat16": 1e15}, memory=8e10, bandwidth=1e12)
    more = {"shape": shape, "device": device, "devices": 8, "engine": "paged", "demands": MethodRequirements(frozen=1)}
    whole, shares = (memory_budgets(job(sharding=s, **more))["device"].always for s in ("ddp", "fsdp"))
    assert sum(whole.values()) == pytest.approx((4 + 1 + 1) * 2 * shape.parameters)
    for name in ("weights", "gradients", "Adam state", "frozen copies"):
        assert shares[name] == pytest.approx(whole[name] / 8)
    adapters = memory_budgets(job(lora=16, **more))["device"].always
    learned = memory.adapter(shape, 16)
    assert sum(adapters.values()) == pytest.approx(2 * 2 * shape.parameters + (4 + 1) * 4 * learned)
    apart = memory_budgets(job(**{**more, "apart": 4, "tensor": 2}))
    assert sum(apart["sampler"].always.values()) == pytest.approx(shape.parameters)


def test_a_paged_sampler_takes_as_many_rows_as_fit():
    device = DEVICE.model_copy(update={"memory": 30e6})
    it = job(rows=2048, group=4, device=device, engine="paged")
    (held,) = memory_budgets(it).values()
    assert 1 < held.concurrent < 2048
    each = 2 * 2 * 3 * 32 * (it.prompt + it.batch.mean) + 20 * 500
    free = 30e6 - sum(held.always.values())
    assert held.concurrent == int(free / each)
    assert sum(held.sampling.values()) <= free


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rows": 15}, "rows = 15 must be a multiple of group = 4; try 12"),
        ({"apart": 1}, "apart = 1 of 1 devices: at least one must learn"),
        ({"asynchronous": True}, "asynchronous rollouts need devices that only sample"),
        ({"tensor": 3, "devices": 4}, "tensor = 3 does not divide the 4 devices"),
        ({"tensor": 8, "devices": 8}, "tensor = 8 does not divide the model's 4 heads"),
        ({"dtype": "float8"}, "'float8' is not a precision"),
        ({"sharding": "zero"}, "sharding = 'zero'"),
        ({"steps": 0}, "steps = 0: expected at least 1"),
    ],
)
def test_settings_that_do_not_go_together(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        job(**changes)


@pytest.mark.parametrize("name", ["Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen2.5-72B", "Qwen3-30B-A3B"])
def test_a_remedy_fits(name):
    """What is said to fit is planned again."""
    from polopt.plan.hardware import find as machine

    count, device = machine("8xA100-80")
    it = job(shape=find(name), device=device, devices=count, rows=512, answer=1024, limit=2048, engine="paged")
    found = predict(it, ASSUMED)
    assert not found.fits
    assert found.remedies
    for remedy in found.remedies:
        changes = {}
        for word in remedy.split(" and "):
            key, _, value = word.rpartition(" ")
            if value == "devices":
                changes["devices"] = int(key)
            elif word == "checkpointing":
                changes["checkpointing"] = True
            elif key == "LoRA of rank":
                changes["lora"] = int(value)
            else:
                changes[key] = value if key == "sharding" else int(value)
        assert predict(it.but(**changes), ASSUMED).fits, remedy


def test_the_interval_holds_what_is_likely():
    found = predict(job(devices=4, sharding="fsdp", steps=10), ASSUMED)
    for span in (*found.phases.values(), found.step, found.sampling, found.learning, found.whole, found.run):
        assert span.low <= span.likely <= span.high
    assert found.run.likely == pytest.approx(10 * found.step.likely)
    assert found.whole.likely == pytest.approx(found.job.batch.tokens / found.step.likely)
