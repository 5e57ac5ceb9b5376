"""Ranking accuracy: whether a policy prefers what it was trained to prefer, and which pairs its loss can turn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, RankedPairs, rate_interval
from polopt.metrics.ranking import PAIR_ROWS, idealised_margin, margin_at_loss
from polopt.objectives import LogisticLink
from polopt.objectives.paired import PairLink

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="Preference Learning Algorithms Do Not Learn Preference Rankings",
        authors="Chen, Angelica and Malladi, Sadhika and Zhang, Lily H. and Chen, Xinyi and Zhang, Qiuyi and "
        "Ranganath, Rajesh and Cho, Kyunghyun",
        year=2024,
        arxiv="2405.19534",
    ),
    changes="Counts the pairs whose preferred answer is the likelier one, what the ideal policy would have, and what "
    "the loss can reach.",
    room="metrics",
    tier="proven",
)
def ranking_accuracy(
    *,
    beta: float = 0.1,
    link: PairLink | None = None,
    attenuation: float = 1.0,
    target_loss: float | None = None,
    agreement: float | None = None,
    clip: float = 1e-3,
    level: float = 0.95,
) -> RankingAccuracy:
    """R = mean 1[pi(y_w) >= pi(y_l)] over pairs of a preferred answer y_w and a rejected one y_l, by the sums of
    log-probabilities and, where lengths are given, by their means over tokens.

    With c = log ref(y_l) / ref(y_w), g the attenuation of the reference and z = beta (log pi(y_w) / pi(y_l) + g c) the
    margin of the loss l(z):
        idealised accuracy   R* = mean 1[-c + log(a / (1 - a)) / beta >= 0], a the fraction of raters who prefer y_w
        alignment gap        R* - R
        implicit accuracy    mean 1[z > 0], which trainers log as rewards/accuracies
        flip loss            l(beta g c): where l falls, a pair is ranked right exactly if its loss is at most that
        flippable            the fraction of pairs that are ranked right where each has the target loss

    The smaller the flip loss, the harder is the pair: it is the paper's difficulty score. Where the margin beta g c
    lies beyond the minimum of l, as IPO's may, no loss makes the pair right, and its flip loss is NaN.

    beta: of the loss.
    link: l, the default DPO's -log sigmoid(z); with objectives.SquaredLink IPO's on z at beta = 1.
    attenuation: g in [0, 2]; 1 is the objective with its reference, 0 the one without.
    target_loss: of `flippable`; None takes the mean loss under the policy, and leaves it out without a policy.
    agreement: a for pairs that have none of their own, None leaves R* out; the authors' program takes 0.75.
    clip: a is kept in [clip, 1 - clip].
    level: of the intervals.

    The data are a `metrics.RankedPairs`: arrays or tensors of log-probabilities, a file, or a batch of pairs. Without a
    policy, the reference alone tells which pairs the objective can turn, before any training. The paper's text and
    formulas are of logistic losses without smoothing. The authors' program divides log-probabilities for its R*
    without length normalisation; a quotient of probabilities is the exponential of their difference, as here.
    """
    return RankingAccuracy(
        beta=beta,
        link=LogisticLink() if link is None else link,
        attenuation=attenuation,
        target_loss=target_loss,
        agreement=agreement,
        clip=clip,
        level=level,
    )


class RankingAccuracy(Metric):
    """Rankings of preference pairs; settings as those of the method `ranking-accuracy`.

    Values are rates over pairs, with intervals, and the mean loss. Rows, of each pair: `margin` log pi(y_w) / pi(y_l),
    `reference_margin`, `loss` and `flip_loss`.
    """

    beta: float = 0.1
    link: PairLink = LogisticLink()
    attenuation: float = 1.0
    target_loss: float | None = None
    agreement: float | None = None
    clip: float = 1e-3
    level: float = 0.95

    rows = PAIR_ROWS

    def setup(self) -> None:
        where = "methods.ranking_accuracy.RankingAccuracy"
        if self.beta <= 0 or not 0 <= self.attenuation <= 2:
            raise ValueError(
                f"{where}: need beta > 0 and attenuation in [0, 2], found {self.beta} and {self.attenuation}"
            )
        if self.agreement is not None and not 0 <= self.agreement <= 1:
            raise ValueError(f"{where}: agreement must be in [0, 1] or None, found {self.agreement}")
        if not 0 < self.clip < 0.5 or not 0 < self.level < 1:
            raise ValueError(f"{where}: need clip in (0, 0.5) and level in (0, 1), found {self.clip} and {self.level}")

    def measure(self, pairs: RankedPairs) -> Measured:
        rates: dict[str, Numbers] = {}
        rows: dict[str, Numbers] = {}
        values: dict[str, float] = {}
        cautions: list[str] = []
        if pairs.chosen_logps is not None:
            rows["margin"] = pairs.margin()
            rates |= self._ranked(pairs, "ranking_accuracy", reference=False)
        if pairs.ref_chosen_logps is not None:
            rows["reference_margin"] = pairs.margin(reference=True)
            rates |= self._ranked(pairs, "reference_accuracy", reference=True)
            rates |= self._idealised(pairs)
        if len(rows) == 2:
            rates |= self._trained(rows)
            values["loss"] = float(rows["loss"].mean())
        if "reference_margin" in rows:
            rows["flip_loss"] = self.flip_loss(rows["reference_margin"])
            if self._target(values) is not None:
                rates["flippable"], more = self._flippable(rows["reference_margin"], self._target(values))
                cautions += more
            values["unreachable"] = float(np.isnan(rows["flip_loss"]).mean())
            values["median_flip_loss"] = float(np.median(np.nan_to_num(rows["flip_loss"], nan=0.0)))
        intervals = {name: rate_interval(x, self.level) for name, x in rates.items()}
        values = {name: x.estimate for name, x in intervals.items()} | values
        self._gap(values, intervals)
        return Measured(values, intervals, rows, tuple(cautions))

    def _loss_of(self, margin: torch.Tensor) -> torch.Tensor:
        """Returns the loss of pairs whose preferred answer has outcome 1 and the other one 0."""
        return self.link(margin, torch.ones_like(margin))

    def flip_loss(self, reference_margin: Numbers) -> Numbers:
        """Returns the loss at which each pair's ranking turns right, [N]; NaN where that is beyond the minimum."""
        z = self._needed(reference_margin)
        _, bottom = margin_at_loss(self._loss_of, -np.inf)
        loss: Numbers = self._loss_of(torch.from_numpy(z)).numpy()
        return np.where(z <= bottom, loss, np.nan)

    def _needed(self, reference_margin: Numbers) -> Numbers:
        """Returns the margin beta g c at which the pair's probabilities are equal, [N]."""
        return -self.beta * self.attenuation * reference_margin

    def _ranked(self, pairs: RankedPairs, name: str, *, reference: bool) -> dict[str, Numbers]:
        found = {name: (pairs.margin(reference=reference) >= 0).astype(float)}
        if pairs.chosen_length is not None:
            found[f"{name}_per_token"] = (pairs.margin(reference=reference, per_token=True) >= 0).astype(float)
        return found

    def _idealised(self, pairs: RankedPairs) -> dict[str, Numbers]:
        agreement = pairs.agreement if pairs.agreement is not None else self.agreement
        if agreement is None:
            return {}
        kinds = {"idealised_accuracy": False} | (
            {"idealised_accuracy_per_token": True} if pairs.chosen_length is not None else {}
        )
        margins = {name: pairs.margin(reference=True, per_token=per_token) for name, per_token in kinds.items()}
        return {
            name: (idealised_margin(margin, agreement, self.beta, self.clip) >= 0).astype(float)
            for name, margin in margins.items()
        }

    def _trained(self, rows: dict[str, Numbers]) -> dict[str, Numbers]:
        """Adds each pair's loss to the rows; returns what changed with the policy."""
        before, now = rows["reference_margin"], rows["margin"]
        z = self.beta * now + self._needed(before)
        rows["loss"] = self._loss_of(torch.from_numpy(z)).numpy()
        found = {"implicit_accuracy": (now - self.attenuation * before > 0).astype(float)}
        wrong = before < 0
        if wrong.any():
            found["flipped"] = (now[wrong] >= 0).astype(float)
        if not wrong.all():
            found["unlearned"] = (now[~wrong] < 0).astype(float)
        return found

    def _target(self, values: Mapping[str, float]) -> float | None:
        return self.target_loss if self.target_loss is not None else values.get("loss")

    def _flippable(self, reference_margin: Numbers, target: float | None) -> tuple[Numbers, list[str]]:
        assert target is not None
        z, bottom = margin_at_loss(self._loss_of, target)
        caution = []
        if float(self._loss_of(torch.tensor(bottom, dtype=torch.double))) > target:
            caution.append(f"the loss never falls to the target {target:g}; flippable is that of its minimum")
        return (self._needed(reference_margin) <= z).astype(float), caution

    def _gap(self, values: dict[str, float], intervals: Mapping[str, Interval]) -> None:
        for suffix in ("", "_per_token"):
            ideal, own = (values.get(f"{name}{suffix}") for name in ("idealised_accuracy", "ranking_accuracy"))
            if ideal is not None and own is not None:
                values[f"alignment_gap{suffix}"] = ideal - own
        if not intervals:
            raise MetricError("ranking-accuracy: the pairs have no log-probabilities")
