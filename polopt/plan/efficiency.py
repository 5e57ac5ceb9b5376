"""Efficiency of devices relative to their peak: measured where available, otherwise assumed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from polopt.config import ConfigError


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """learn: share of the peak FLOP/s that the learner's products reach (where `touch` is 0: MFU). decode: the same of
    thin products while decoding. memory: share of the bandwidth. call: seconds that calling one layer takes whatever it
    works on. touch: times that each number kept for the backward pass crosses memory. token: seconds of the host's work
    per answer token. step: seconds per step. overlap: share of the arithmetic that hides traffic between devices.
    """

    learn: float
    decode: float
    memory: float
    call: float
    touch: float = 0.0
    token: float = 0.0
    step: float = 0.0
    overlap: float = 1.0


@dataclasses.dataclass(frozen=True)
class EfficiencyRange:
    """Likely efficiencies, and the ends of an interval: best and worst. measured: errors of held-out configurations,
    None if none was. provenance: one sentence on where the numbers come from.

    time, peak: factors by which seconds and bytes may be off, where they were measured.
    """

    likely: Efficiency
    best: Efficiency
    worst: Efficiency
    provenance: str
    measured: Mapping[str, Any] | None = None
    time: float = 1.0
    peak: float = 1.1


# No GPU was measured. Llama 3 was trained at 38 to 43 % MFU on up to 16,384 H100 (arXiv 2407.21783, table 4), Megatron
# reached 41 to 56 % on A100 (arXiv 2205.05198, table 5); a trainer of reinforcement learning has shorter rows, smaller
# batches and less tuning. PaLM decoded at 76 % MFU for prompts at best (arXiv 2211.05102); model bandwidth utilisation
# of single requests is stated around 60 % by serving engines' makers.
ASSUMED = EfficiencyRange(
    likely=Efficiency(learn=0.35, decode=0.4, memory=0.6, call=25e-6, token=2e-6, step=2.0, overlap=0.7),
    best=Efficiency(learn=0.5, decode=0.6, memory=0.8, call=10e-6, step=0.5),
    worst=Efficiency(learn=0.15, decode=0.2, memory=0.35, call=120e-6, token=2e-5, step=10.0, overlap=0.0),
    provenance="not measured here: efficiencies are assumptions around published ones of other trainers and engines",
    peak=1.25,
)


def of_record(record: Mapping[str, Any]) -> EfficiencyRange:
    """Builds the efficiencies of a calibration record (`fit.fitted`)."""
    likely = Efficiency(**record["efficiency"])
    error = record["error"]
    about = record["about"]
    return EfficiencyRange(
        likely=likely,
        best=likely,
        worst=likely,
        provenance=(
            f"calibrated on {about['machine']}, {about['date'][:10]}, {about['configurations']} configurations; left "
            f"out one by one, a step's seconds were off by {100 * error['step']['median']:.0f} % in the median and "
            f"{100 * error['step']['worst']:.0f} % at worst"
        ),
        measured=error,
        time=1 + error["step"]["worst"],
        peak=1 + error["memory"]["worst"],
    )


def records(path: Path | None = None) -> Sequence[Mapping[str, Any]]:
    """Reads the calibration in a file, else those that come with polopt.

    Raises:
        ConfigError: the file cannot be read.
    """
    place = resources.files("polopt.plan") / "calibrated.json" if path is None else path
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        return [found] if "efficiency" in found else list(found["machines"])
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"{place}: no calibration: {error}; make one with polopt plan --calibrate FILE") from None
