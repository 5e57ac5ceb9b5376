"""Quality of demonstrations: how far their actions differ where their states are alike."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, rate_interval, t_interval
from polopt.metrics.jackknife import jackknife
from polopt.metrics.transitions import DEMONSTRATION_ROWS, LoggedTransitions

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
# The weight of an identical demonstration among neighbours: it agrees, where no other is near.
COPY = 1e-9


@method(
    paper=Paper(
        title="Data Quality in Imitation Learning",
        authors="Belkhale, Suneel and Cui, Yuchen and Sadigh, Dorsa",
        year=2023,
        arxiv="2306.02437",
    ),
    changes="Describes demonstrations by what lets a cloned policy stay near their states: actions that agree where "
    "states are alike, and states that several demonstrations pass.",
    room="metrics",
    tier="reading",
)
def il_data_quality(*, radius: float | None = None, quantile: float = 0.5, level: float = 0.95) -> DemonstrationQuality:
    """Of each state s_i, with N_i the states of other demonstrations within a radius of it:

        action variance = mean_i v_i,    v_i = 1/|N_i| sum_{j in N_i} |a_i - a_j|^2 / 2

    over the states that have neighbours; v_i is the unbiased variance of actions there, summed over their coordinates.
    `state similarity` is the share of the other demonstrations that pass within the radius, `neighbours` the share of
    states that have one, and `horizon` the mean length. Low variance, high similarity and short horizons make cloning
    easier. Low variance alone proves nothing: without neighbours it is not known.

    Coordinates are standardised over all data sets of the file, and have one radius, so that data sets can be compared.
    A text as action is a category, and one of A coordinates.

    radius: in standard deviations; None is the `quantile` of the distances to the nearest state of another
        demonstration.
    level: of the intervals, over demonstrations: the jackknife of variance, Student's of the others.

    The paper's divergence of state distributions is bounded by that of actions, see `metrics.state_divergence`. How it
    estimates variance and similarity was not confirmed: neighbourhoods are ours, as is the radius, the unbiased
    variance, and that identical demonstrations count as one in it, unless there are no others.
    """
    return DemonstrationQuality(radius=radius, quantile=quantile, level=level)


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Pairs of a state and another demonstration near it, [M].

    state, other: numbers of the state's row and of the demonstration. near: its states within the radius. apart: the
    sum over them of |a_i - a_j|^2 / 2, 0 in both where the demonstration is identical to the state's own.
    """

    state: Places
    other: Places
    near: Numbers
    apart: Numbers

    def variances(self, rows: int) -> tuple[Numbers, Numbers]:
        """Returns v_i of each row, 0 without neighbours, and its weight in means, 1 with and 0 without, [N] each."""
        return _mean(_sums(self.state, self.near, rows), _sums(self.state, self.apart, rows))

    def variance_without(self, episode: Places) -> tuple[float, Numbers]:
        """Returns the action variance, and that without each demonstration, [E], not a number without neighbours.

        episode: of each row, [N].
        """
        N, E = len(episode), int(episode.max()) + 1
        count, total = _sums(self.state, self.near, N), _sums(self.state, self.apart, N)
        v, weight = _mean(count, total)
        v_left, weight_left = _mean(count[self.state] - self.near, total[self.state] - self.apart)

        def sums(every: Numbers, left: Numbers) -> Numbers:
            own = np.bincount(episode, every, E)
            return np.append(every.sum(), every.sum() - own + np.bincount(self.other, left - every[self.state], E))

        top, weights = sums(v * weight, v_left * weight_left), sums(weight, weight_left)
        found = np.where(weights > COPY / 2, top / np.maximum(weights, COPY / 2), np.nan)
        return float(found[0]), found[1:]


def _sums(place: Places, values: Numbers, size: int) -> Numbers:
    """Returns the sum of the values at each place, [size]."""
    found: Numbers = np.bincount(place, values, size).astype(float)
    return found


def _mean(count: Numbers, total: Numbers) -> tuple[Numbers, Numbers]:
    """Returns total / count, 0 without a count, and weights."""
    weight = np.where(count > COPY / 2, np.minimum(count, 1.0), 0.0)
    return np.where(weight > 0, total / np.maximum(count, COPY / 2), 0.0), weight


class DemonstrationQuality(Metric):
    """Quality of data sets of demonstrations; settings as those of the method `il-data-quality`.

    Values are named `action variance` and so on, with several data sets `DATASET, action variance`; rows: the action
    variance of each demonstration, by its states that have neighbours, in the order of their names.
    """

    radius: float | None = None
    quantile: float = 0.5
    level: float = 0.95

    rows = DEMONSTRATION_ROWS

    def setup(self) -> None:
        where = "methods.il_data_quality.DemonstrationQuality"
        if not 0 < self.quantile <= 1 or not 0 < self.level < 1:
            raise ValueError(f"{where}: quantile and level must be in (0, 1), found {self.quantile} and {self.level}")
        if self.radius is not None and not 0 < self.radius < math.inf:
            raise ValueError(f"{where}: radius must be above 0, found {self.radius}")

    def measure(self, data: LoggedTransitions) -> Measured:
        """Measures every data set.

        Raises:
            MetricError: a data set of one demonstration, or observations that are texts.
        """
        if "state" in data.categories:
            raise MetricError("il-data-quality needs observations that are numbers or lists of them, found texts")
        names = sorted(set(data.dataset.tolist()))
        states, actions = self.standardised(data)
        parts = {name: np.flatnonzero(data.dataset == name) for name in names}
        for name, rows in parts.items():
            if len(set(data.episode[rows].tolist())) < 2:
                raise MetricError(f"il-data-quality compares demonstrations, and data set {name!r:.60} has one")
        radius = self.radius_of(data, states, parts)
        found: dict[str, Interval] = {}
        values, each, cautions = {"radius": radius}, {}, []
        for name, rows in parts.items():
            of, prefix = data[rows], f"{name}, " if len(names) > 1 else ""
            near = neighbourhoods(states[rows], actions[rows], of.number, self.copies(of, states[rows]), radius)
            numbers, intervals, v = self.described(of, near)
            found |= {f"{prefix}{key}": interval for key, interval in intervals.items()}
            values |= {f"{prefix}{key}": number for key, number in numbers.items()}
            each[f"{prefix}action variance"] = v
            share = intervals["neighbours"].estimate
            if share < 0.2:
                cautions.append(f"{prefix}only {share:.0%} of states have a neighbour; collect more, or set radius")
        return Measured(values | {k: i.estimate for k, i in found.items()}, found, each, tuple(cautions))

    def standardised(self, data: LoggedTransitions) -> tuple[Numbers, Numbers]:
        """Returns states and actions, [N, D] each, in standard deviations of all data."""
        action = data.action
        if "action" in data.categories:
            action = (action == np.unique(action)[None, :]).astype(float)
        found = []
        for x in (data.state, action):
            spread = x.std(0)
            found.append((x - x.mean(0)) / np.where(spread > 0, spread, 1.0))
        return found[0], found[1]

    def radius_of(self, data: LoggedTransitions, states: Numbers, parts: dict[str, Places]) -> float:
        """Returns the radius of all data sets."""
        if self.radius is not None:
            return self.radius
        nearest = [_nearest(states[rows], data.number[rows]) for rows in parts.values()]
        return max(float(np.quantile(np.concatenate(nearest), self.quantile)), 1e-9)

    def copies(self, data: LoggedTransitions, states: Numbers) -> Places:
        """Returns a number of each demonstration that identical ones share, [E]."""
        ends = np.append(data.first, len(data))
        known: dict[bytes, int] = {}
        both = np.concatenate([data.state, data.action], 1)
        pieces = (both[a:b].tobytes() for a, b in itertools.pairwise(ends))
        return np.array([known.setdefault(piece, i) for i, piece in enumerate(pieces)])

    def described(
        self, data: LoggedTransitions, near: Neighbourhoods
    ) -> tuple[dict[str, float], dict[str, Interval], Numbers]:
        """Returns the plain numbers of one data set, its estimates, and the variance of each demonstration, [E]."""
        E, N = len(data.lengths), len(data)
        passing = np.bincount(near.state, minlength=N) / (E - 1)
        v, weight = near.variances(N)
        total, known = (np.bincount(data.number, x, E) for x in (v * weight, weight))
        each = np.where(known > 0, total / np.maximum(known, COPY / 2), np.nan)
        found = {
            "state similarity": rate_interval(data.means(passing), self.level),
            "neighbours": rate_interval(data.means((passing > 0).astype(float)), self.level),
            "horizon": t_interval(data.lengths, self.level),
        }
        every, without = near.variance_without(data.number)
        if np.isfinite(every) and np.isfinite(without).all():
            interval = jackknife(every, without, self.level)
            found["action variance"] = dataclasses.replace(interval, low=max(interval.low, 0.0))
        return {"demonstrations": float(E), "decisions": float(N), "action variance": every}, found, each


def _nearest(states: Numbers, episode: Places) -> Numbers:
    """Returns the distance of each state to the nearest one of another demonstration, [N]."""
    from scipy.spatial import KDTree

    found = np.full(len(states), np.inf)
    for e in np.unique(episode):
        own = episode == e
        found[own] = KDTree(states[~own]).query(states[own])[0]
    return found


def neighbourhoods(states: Numbers, actions: Numbers, episode: Places, copies: Places, radius: float) -> Neighbourhoods:
    """Returns each state's neighbours in other demonstrations, by a k-d tree.

    states: [N, D]. actions: [N, K]. episode: [N] numbers. copies: [E] as `DemonstrationQuality.copies`.
    """
    from scipy.spatial import KDTree

    pairs = KDTree(states).query_pairs(radius, output_type="ndarray")
    i, j = np.concatenate([pairs, pairs[:, ::-1]]).T
    i, j = (x[episode[i] != episode[j]] for x in (i, j))
    E = int(episode.max()) + 1
    key, place = np.unique(i * E + episode[j], return_inverse=True)
    state, other = np.divmod(key, E)
    differ = np.where(copies[episode[i]] != copies[episode[j]], 1.0, COPY)
    apart = ((actions[i] - actions[j]) ** 2).sum(1) / 2 * differ
    return Neighbourhoods(state, other, _sums(place, differ, len(key)), _sums(place, apart, len(key)))


def consistent_demonstrations(
    data: LoggedTransitions, keep: float = 0.8, metric: DemonstrationQuality | None = None
) -> LoggedTransitions:
    """Returns the demonstrations of one data set whose actions differ least from those of the others at similar states.

    keep: the share of demonstrations, rounded up; those without neighbours, of which nothing is known, come first.

    Raises:
        ValueError: a share outside (0, 1], or several data sets.
        MetricError: as the metric.
    """
    if not 0 < keep <= 1 or len(set(data.dataset.tolist())) > 1:
        raise ValueError(f"consistent_demonstrations: needs one data set, and keep in (0, 1], found {keep}")
    v = (metric or DemonstrationQuality())(data).rows["action variance"]
    best = np.argsort(np.nan_to_num(v, nan=-1.0), kind="stable")[: math.ceil(keep * len(v) - 1e-9)]
    return data[np.flatnonzero(np.isin(data.number, best))]
