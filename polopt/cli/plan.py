"""polopt plan: memory, time and cost of a run before it starts."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from polopt.cli import wording
from polopt.cli.options import MethodOption, RecipeArgument
from polopt.display import format

if TYPE_CHECKING:
    from polopt.plan import efficiency
    from polopt.plan.hardware import Device
    from polopt.plan.job import PlannedJob
    from polopt.plan.memory_budget import MemoryBudget
    from polopt.plan.predict import Plan, Span
    from polopt.plan.shape import ModelShape
    from polopt.training.language_recipe import LanguageStageSpec, PolicySpec

BATCH, MACHINE, HOW = "Batch", "Machine", "How"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


ModelOption = Annotated[
    str | None, _option("A folder with a config.json, or a public model by name, as Qwen2.5-7B.", MACHINE)
]
DevicesOption = Annotated[
    str | None,
    _option("How many of which, as 8xH100; cpu is this machine, and the default of a recipe for it.", MACHINE),
]
PriceOption = Annotated[float | None, _option("Dollars per device and hour; else the table's assumption.", MACHINE)]
HardwareOption = Annotated[
    Path | None, _option("More devices: a YAML file as polopt/plan/hardware.yaml.", MACHINE, "--hardware")
]
CalibrationOption = Annotated[
    Path | None, _option("A file of --calibrate; else what comes with polopt.", MACHINE, metavar="FILE")
]
CalibrateOption = Annotated[
    Path | None, _option("Measure this machine into a file, in minutes, and stop.", MACHINE, metavar="FILE")
]


def plan(
    recipe: RecipeArgument = None,
    model: ModelOption = None,
    devices: DevicesOption = None,
    method: MethodOption = None,
    rows: Annotated[int | None, _option("Rollouts in a batch, on all devices.", BATCH)] = None,
    group: Annotated[int | None, _option("Rollouts per prompt; the method's own if not given.", BATCH)] = None,
    prompt: Annotated[float, _option("Mean tokens of a prompt.", BATCH)] = 512,
    answer: Annotated[float | None, _option("Mean tokens of an answer; half the limit if not given.", BATCH)] = None,
    limit: Annotated[int | None, _option("Most tokens of an answer; twice the mean if not given.", BATCH)] = None,
    spread: Annotated[float, _option("Standard deviation of answers' lengths over their mean.", BATCH)] = 0.6,
    kept: Annotated[float, _option("Share of the groups that a method's filters keep; an assumption.", BATCH)] = 0.6,
    steps: Annotated[int | None, _option("Batches in all.", BATCH)] = None,
    epochs: Annotated[int | None, _option("Times that each batch is learned from.", BATCH)] = None,
    minibatches: Annotated[int | None, _option("Optimiser steps an epoch.", BATCH)] = None,
    micro_rows: Annotated[int | None, _option("Rows per forward pass on one device.", HOW)] = None,
    apart: Annotated[int, _option("How many of the devices only sample.", MACHINE)] = 0,
    tensor: Annotated[int, _option("Devices that share one copy of the sampler's weights.", HOW)] = 1,
    sharding: Annotated[str | None, _option("ddp or fsdp; fsdp for several learners if not given.", HOW)] = None,
    dtype: Annotated[str | None, _option("Of weights, gradients and moments.", HOW)] = None,
    compute: Annotated[str | None, _option("Of the arithmetic, if another.", HOW)] = None,
    checkpointing: Annotated[bool | None, _option("Compute activations again.", HOW)] = None,
    lora: Annotated[int | None, _option("Rank of adapters that learn instead of the weights.", HOW)] = None,
    asynchronous: Annotated[bool, _option("Sample and learn at the same time; needs --apart.", HOW)] = False,
    engine: Annotated[str | None, _option("paged (as vLLM) or native (polopt's own).", HOW)] = None,
    reward_seconds: Annotated[float, _option("Of judging one answer, one after the other.", BATCH)] = 0.0,
    price: PriceOption = None,
    hardware_file: HardwareOption = None,
    calibration: CalibrationOption = None,
    calibrate: CalibrateOption = None,
    threads: Annotated[int, _option("CPU threads for --calibrate.", MACHINE)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Estimate what a run would take, on any machine, before it starts: memory per device, time, cost."""
    if calibrate is not None:
        _calibrate(calibrate, threads)
        return
    from polopt.plan import efficiency
    from polopt.plan.predict import predict

    batch: dict[str, Any] = {"rows": rows, "group": group, "steps": steps, "epochs": epochs, "minibatches": minibatches}
    how: dict[str, Any] = {
        "sharding": sharding,
        "dtype": dtype,
        "micro_rows": micro_rows,
        "engine": engine,
        "compute": compute,
    }
    settings: dict[str, Any] = {"prompt": prompt, "kept": kept, "spread": spread, "reward": reward_seconds}
    settings |= {"apart": apart, "tensor": tensor, "lora": lora}
    settings |= {"checkpointing": checkpointing, "asynchronous": asynchronous}
    calibrated = list(efficiency.records(calibration))
    find_device = functools.partial(_device, file=hardware_file, calibrated=calibrated, price=price)
    batch, how = _not_none(batch), _not_none(how)
    job = _job(recipe, model, method, devices, find_device, answer, limit, batch=batch, how=how, **settings)
    found = predict(job, known(job.device, calibrated))
    if as_json:
        typer.echo(json.dumps(found.record(), indent=1))
        return
    show(wording.screen(), found)


def _not_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _job(
    recipe: str | None,
    model: str | None,
    method: str | None,
    devices: str | None,
    find_device: Callable[[str], tuple[int, Device]],
    answer: float | None,
    limit: int | None,
    *,
    batch: dict[str, Any],
    how: dict[str, Any],
    apart: int,
    **settings: Any,
) -> PlannedJob:
    """Builds the job that the options and a recipe describe. batch, how: the options' changes of a stage, and of the
    use of a machine; settings: of `planning.job_of`."""
    from polopt.config import parse
    from polopt.training.language_recipe import LanguageStageSpec
    from polopt.training.planning import job_of

    recipe = "laptop" if recipe is None and model is None else recipe
    policy, stage, shape, usual = _asked(recipe, model, method)
    on_cpu = usual.pop("device", "") == "cpu" and model is None
    stage = parse(LanguageStageSpec, {**stage.model_dump(), **batch}, "plan")
    algorithm = stage.algorithm("plan")
    count, device = find_device(devices or ("cpu" if on_cpu else "H100"))
    usual = {**_of_device(device, count - apart, recipe is None), **usual}
    if limit is None:
        limit = usual.pop("limit", None) or (2048 if answer is None else round(2 * answer))
    usual.pop("limit", None)
    settings |= {"answer": limit / 2 if answer is None else answer, "limit": limit, "apart": apart, **usual, **how}
    return job_of(stage, policy, algorithm, shape=shape, device=device, devices=count, **settings)


def _asked(
    recipe: str | None, model: str | None, method: str | None
) -> tuple[PolicySpec, LanguageStageSpec, ModelShape, dict[str, Any]]:
    """Returns policy, main stage, the model's shape, and the other settings of a recipe."""
    from polopt.plan import models
    from polopt.plan.shape import shape_of
    from polopt.training import recipe as recipe_file
    from polopt.training.language_recipe import LanguageRecipe, LanguageStageSpec, PolicySpec

    way = None if method is None else wording.method(method)
    if recipe is None:
        assert model is not None, "else the recipe is the laptop's"
        return PolicySpec(), LanguageStageSpec(method=way or "dr-grpo", rows=1024, steps=100), models.find(model), {}
    found = LanguageRecipe.require(recipe_file.load(recipe, method=way))
    stage, policy = found.stages[found.main_stage], found.policy
    if model is not None or policy.model is not None:
        shape = models.find(model or str(policy.model))
    else:
        # The vocabulary comes from the tasks' texts; those of letters and digits have about a hundred tokens.
        shape = shape_of(_filled({"vocab_size": 128, **policy.config}), Path(recipe).stem)
    engine = "native" if found.rollout.engine == "native" else "paged"
    usual = {"limit": found.limit_of(found.main_stage), "sharding": found.parallel, "engine": engine}
    usual |= {"device": found.device}
    return policy, stage, shape, usual


def _of_device(device: Device, learners: int, free: bool) -> dict[str, Any]:
    """Returns the default settings of a device; free: there is no recipe that sets them."""
    usual: dict[str, Any] = {"sharding": "fsdp" if learners > 1 else "ddp"}
    if device.kind == "cpu":
        return usual | {"engine": "native"}
    return usual | {"engine": "paged"} | ({"compute": "bfloat16", "micro_rows": 4} if free else {})


def _filled(config: dict[str, Any]) -> dict[str, Any]:
    """Fills in a recipe's config with the defaults of transformers."""
    from transformers import AutoConfig

    settings = dict(config)
    return AutoConfig.for_model(settings.pop("model_type"), **settings).to_dict()


def _device(name: str, file: Path | None, calibrated: list[Any], price: float | None) -> tuple[int, Device]:
    from polopt.plan import hardware
    from polopt.plan.hardware import Device

    measured = {r["device"]["name"]: Device(**r["device"]) for r in calibrated}
    described = {} if file is None else hardware.read(file)
    count, device = hardware.find(name, {**measured, **hardware.table(), **described})
    return count, device if price is None else device.model_copy(update={"price": price})


def known(device: Device, calibrated: list[Any]) -> efficiency.EfficiencyRange:
    """Returns the efficiencies measured on this device, else the assumed ones."""
    from polopt.plan import efficiency

    record = next((r for r in calibrated if r["device"]["name"] == device.name), None)
    return efficiency.ASSUMED if record is None else efficiency.of_record(record)


def _calibrate(file: Path, threads: int) -> None:
    from polopt.plan import efficiency
    from polopt.training.calibrate import calibrate

    screen = wording.screen()
    found = calibrate(threads, report=screen.print)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1))
    screen.print(f"{efficiency.of_record(found).provenance}.\n{file}")


def show(screen: Console, found: Plan) -> None:
    """Prints the plan."""
    job = found.job
    screen.print(
        f"{job.shape.name}, {format.count(job.shape.parameters)} parameters, {job.precision}; "
        f"{job.devices} x {job.device.name}{f', {job.apart} of them sample' if job.apart else ''}",
        style="bold",
    )
    batch = job.batch
    screen.print(
        f"{job.rows} rows in groups of {job.group}, prompts of {job.prompt:.0f} tokens, answers of {batch.mean:.0f} on "
        f"average, the longest of a batch {batch.longest:.0f}"
    )
    if requirements := job.demands.sentence():
        screen.print(f"The method needs {requirements}.")
    for kind, budget in found.memory.items():
        screen.print()
        screen.print(_memory(kind, budget, found.known.peak))
    screen.print()
    screen.print(_times(found))
    screen.print(f"\nBottleneck: {found.bottleneck}.")
    if not found.fits:
        over = max(budget.over for budget in found.memory.values())
        screen.print(f"It does not fit, by {format.size(over)} a device; the times are as if it did.", style="red")
        for remedy in found.remedies or ("no setting that was tried",):
            screen.print(f"  would fit: {remedy}")
    screen.print(f"{found.known.provenance[0].upper()}{found.known.provenance[1:]}.", style="dim")


def _memory(kind: str, budget: MemoryBudget, error: float) -> Table:
    table = Table(box=None, pad_edge=False, title=f"Memory of a {kind}", title_justify="left", title_style="bold")
    for name in ("", "bytes", "when"):
        table.add_column(name, justify="right" if name == "bytes" else "left")
    for when, items in (("always", budget.always), ("learning", budget.learning), ("sampling", budget.sampling)):
        for name, value in items.items():
            if value:
                table.add_row(name, format.size(value), when)
    if budget.aside:
        table.add_row("libraries and allocator", format.size(budget.aside), "always")
    low, high = budget.peak / error, budget.peak * error
    table.add_row("peak", f"{format.size(budget.peak)} ({format.size(low)} to {format.size(high)})", "", style="bold")
    table.add_row(
        "there is", format.size(budget.capacity), f"{budget.concurrent} rows at once" if budget.concurrent else ""
    )
    return table


def _times(found: Plan) -> Table:
    table = Table(box=None, pad_edge=False, title="Time and cost", title_justify="left", title_style="bold")
    for name, side in (("", "left"), ("likely", "right"), ("between", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]

    def row(name: str, span: Span | None, form: Any, style: str = "") -> None:
        if span is not None:
            table.add_row(name, form(span.likely), f"{form(span.low)} and {form(span.high)}", style=style)

    for name, span in found.phases.items():
        if span.likely >= 0.005 * found.step.likely:
            row(name, span, format.duration)
    row("one step", found.step, format.duration, "bold")
    per_second = lambda rate: f"{rate:,.0f} tokens/s"  # noqa: E731
    row("sampling", found.sampling, per_second)
    row("learning", found.learning, per_second)
    row("both", found.whole, per_second)
    row(f"{found.job.steps} steps", found.run, format.duration, "bold")
    if found.job.device.price:
        price = f"{found.job.devices} x ${found.job.device.price:g} an hour"
        row(f"cost at {price}", found.cost, lambda dollars: f"${dollars:,.0f}", "bold")
    return table
