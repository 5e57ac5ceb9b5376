"""The quality of a preference model on pairs that it has not seen: accuracy, log loss, calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from polopt.backends import PreferenceModel, TextClassifier, TextScorer
from polopt.metrics import Interval, brier_score, calibration_error, fit_temperature, log_loss
from polopt.metrics.calibration import COLDEST
from polopt.metrics.intervals import rate_interval
from polopt.training.fit_data import FitPairs

Numbers = NDArray[np.float64]
Link = Literal["logistic", "probit"]
# Probabilities are no nearer to 0 and 1 than this, so that no pair's log loss is infinite.
SMALLEST = 1e-12


@dataclasses.dataclass(frozen=True)
class PreferenceResults:
    """Results on held-out pairs. Fractions are means over prompts, the independent units; the others over pairs.

    pairs, prompts: counts.
    accuracy: the fraction of pairs whose preferred answer has the higher probability, ties half; of labels that are
        probabilities, the fraction of single votes that it agrees with.
    longer, shorter: the accuracy on pairs whose preferred answer is the longer, or the shorter one.
    shown_first, shown_second: on pairs whose preferred answer was shown first, or second.
    log_loss, brier_score, calibration_error: of the probabilities; the last one of that of the answer that is found
        better.
    temperature: what margins are to be divided by, from all held-out pairs; 1 where none of them is found wrong, since
        the best one would be 0.
    calibrated: log loss, Brier score and calibration error with a temperature that is fitted to one half of the prompts
        and applied to the other. None with one prompt.
    """

    pairs: int
    prompts: int
    accuracy: Interval
    longer: Interval | None
    shorter: Interval | None
    shown_first: Interval | None
    shown_second: Interval | None
    log_loss: float
    brier_score: float
    calibration_error: float
    temperature: float
    calibrated: dict[str, float] | None

    def record(self) -> dict[str, Any]:
        """Returns the results as plain data; an infinite end of an interval is None."""
        found = dataclasses.asdict(self)
        for value in found.values():
            if isinstance(value, dict) and "low" in value:
                value |= {end: None for end in ("low", "high") if not np.isfinite(value[end])}
        return found


@torch.no_grad()
def margins(model: PreferenceModel, scorer: TextScorer | TextClassifier, data: FitPairs, rows: int) -> Numbers:
    """Returns the margin z of each pair."""
    scorer.eval()
    pairs, found = data.pairs, []
    for at in range(0, len(pairs), rows):
        some = slice(at, at + rows)
        scores = model.score(scorer, pairs.prompts[some], pairs.better[some], pairs.worse[some])
        found.append(model.margin(*scores).double().cpu())
    return torch.cat(found).numpy()


def probability(z: Numbers, link: str) -> Numbers:
    """Returns F(z)."""
    return np.asarray(expit(z) if link == "logistic" else ndtr(z))


def results(z: Numbers, link: str, data: FitPairs) -> PreferenceResults:
    """Returns the results of margins z [P] on P pairs."""
    given = data.pairs.probabilities
    label = np.ones(len(z)) if given is None else np.asarray(given)
    agrees = np.where(z > 0, label, np.where(z < 0, 1 - label, 0.5))
    kind: Link = "probit" if link == "probit" else "logistic"
    longer = [len(a) - len(b) for a, b in zip(data.pairs.better, data.pairs.worse, strict=True)]

    def among(holds: Callable[[int], bool]) -> Interval | None:
        return by_prompt([(data.prompts[i], agrees[i]) for i in range(len(z)) if holds(i)])

    accuracy = among(lambda i: True)
    assert accuracy is not None
    return PreferenceResults(
        pairs=len(z),
        prompts=len(set(data.prompts)),
        accuracy=accuracy,
        longer=among(lambda i: longer[i] > 0),
        shorter=among(lambda i: longer[i] < 0),
        shown_first=among(lambda i: data.first[i] is True),
        shown_second=among(lambda i: data.first[i] is False),
        **scores(z, link, label),
        temperature=temperature(z, kind, label),
        calibrated=cross_calibrated(z, kind, label, data.prompts),
    )


def scores(z: Numbers, link: str, label: Numbers) -> dict[str, float]:
    """Returns log loss, Brier score and calibration error of margins z and labels [P]."""
    chance = probability(z, link).clip(SMALLEST, 1 - SMALLEST)
    # Pairs have no order: calibration is that of the answer which is found better.
    agrees = np.where(z > 0, label, np.where(z < 0, 1 - label, 0.5))
    return {
        "log_loss": log_loss(chance, label),
        "brier_score": brier_score(chance, label),
        "calibration_error": calibration_error(probability(np.abs(z), link), agrees),
    }


def temperature(z: Numbers, link: Link, label: Numbers) -> float:
    """Returns the temperature of margins z and labels [P], 1 where every pair is found right."""
    found = fit_temperature(z, label, link)
    return 1.0 if found == COLDEST else found


def cross_calibrated(z: Numbers, link: Link, label: Numbers, prompts: Sequence[str]) -> dict[str, float] | None:
    """Returns `scores` with temperatures that each half of the prompts has from the other half."""
    half = {prompt: number % 2 for number, prompt in enumerate(sorted(set(prompts)))}
    side = np.array([half[prompt] for prompt in prompts])
    if len(half) < 2:
        return None
    scaled = z.copy()
    for half_of in (0, 1):
        scaled[side == half_of] /= temperature(z[side != half_of], link, label[side != half_of])
    return scores(scaled, link, label)


def by_prompt(values: Sequence[tuple[str, float]]) -> Interval | None:
    """Returns the mean over prompts of their means, None without values."""
    found: dict[str, list[float]] = {}
    for prompt, value in values:
        found.setdefault(prompt, []).append(value)
    return rate_interval([sum(x) / len(x) for x in found.values()]) if found else None
