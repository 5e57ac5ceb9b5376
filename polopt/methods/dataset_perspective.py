"""TQ and SACo: how well a logged data set was acted, and how much of the world it shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, rate_interval, t_interval
from polopt.metrics.jackknife import jackknife
from polopt.metrics.transitions import TRANSITION_LOG_ROWS, LoggedTransitions

Cells = NDArray[np.int64]


@method(
    paper=Paper(
        title="A Dataset Perspective on Offline Reinforcement Learning",
        authors="Schweighofer, Kajetan and Dinu, Marius-Constantin and Radler, Andreas and Hofmarcher, Markus and "
        "Patil, Vihang Prakash and Bitto-Nemling, Angela and Eghbal-zadeh, Hamid and Hochreiter, Sepp",
        year=2021,
        arxiv="2111.04714",
    ),
    changes="Describes a data set for offline learning by two numbers: how good its episodes are, and how many "
    "different state-action pairs it holds.",
    room="metrics",
    tier="proven",
)
def dataset_perspective(
    *,
    random_return: float | None = None,
    expert_return: float | None = None,
    reference: str | None = None,
    bins: int = 100,
    limits: Sequence[Sequence[float]] | None = None,
    level: float = 0.95,
) -> DatasetPerspective:
    """Of a data set D, with G the mean undiscounted return of its complete episodes and u the number of its different
    state-action pairs:

        TQ = (G(D) - G_random) / (G_expert - G_random),    SACo = u(D) / u(D_ref)

    TQ is 0 for the random policy's data and 1 for the expert's. D_ref is, in the paper, what an online learner played
    in as many decisions; SACo of it is 1. Beside them: lengths of episodes, the share of rewards that are 0, unique
    states, and the entropy of a cloned policy, the logged actions' frequencies in each cell of states, in units of
    that of uniform ones.

    random_return, expert_return: of the policies; without them there is no TQ.
    reference: the data set of the file, by the column `dataset`, that is D_ref; without it there is no SACo.
    bins: cells of each coordinate of states and actions that is not always a whole number; those, and texts, count as
        they are.
    limits: low and high end of every coordinate, states' first; None takes the ends of all data sets of the file
        together, never each one's own, by which narrow data would look as wide as any.
    level: of the intervals, over episodes: Student's; of counts, what data like these would hold if they were
        collected again (`jackknife`), with D_ref as it is.

    Episodes that are not done count in everything but returns. The paper's code counts pairs with an error of 1 %, we
    count them all; it clones with a network, we count frequencies, so that states seen once have no entropy.
    """
    return DatasetPerspective(
        random_return=random_return,
        expert_return=expert_return,
        reference=reference,
        bins=bins,
        limits=None if limits is None else tuple((float(low), float(high)) for low, high in limits),
        level=level,
    )


class DatasetPerspective(Metric):
    """Quality and coverage of data sets; settings as those of the method `dataset-perspective`.

    Values are named `TQ` and so on, with several data sets `DATASET, TQ`; rows: the return of each complete episode.
    """

    random_return: float | None = None
    expert_return: float | None = None
    reference: str | None = None
    bins: int = 100
    limits: tuple[tuple[float, float], ...] | None = None
    level: float = 0.95

    rows = TRANSITION_LOG_ROWS

    def setup(self) -> None:
        where = "methods.dataset_perspective.DatasetPerspective"
        if self.bins < 1 or not 0 < self.level < 1:
            raise ValueError(f"{where}: needs bins >= 1 and level in (0, 1), found {self.bins} and {self.level}")
        ends = (self.random_return, self.expert_return)
        if (ends[0] is None) != (ends[1] is None) or (None not in ends and ends[0] >= ends[1]):  # type: ignore[operator]
            raise ValueError(f"{where}: needs random_return below expert_return, or neither, found {ends}")
        if self.limits is not None and any(not low < high for low, high in self.limits):
            raise ValueError(f"{where}: limits must have low < high of every coordinate, found {self.limits}")

    def measure(self, data: LoggedTransitions) -> Measured:
        """Measures every data set.

        Raises:
            MetricError: transitions without rewards, no data set of the reference's name, or as many limits as there
                are coordinates are not given.
        """
        if data.reward is None:
            raise MetricError("dataset-perspective needs a reward of each decision, which the data do not have")
        names = sorted(set(data.dataset.tolist()))
        if self.reference is not None and self.reference not in names:
            raise MetricError(f"dataset-perspective: there is no data set {self.reference!r:.60}; give one of {names}")
        states, pairs = self.cells(data)
        u_ref = None
        if self.reference is not None:
            u_ref = len(np.unique(pairs[data.dataset == self.reference]))
        actions = len(np.unique(data.action, axis=0))
        values: dict[str, float] = {}
        intervals: dict[str, Interval] = {}
        returns: dict[str, NDArray[np.float64]] = {}
        cautions: list[str] = []
        for name in names:
            rows = np.flatnonzero(data.dataset == name)
            of, prefix = data[rows], f"{name}, " if len(names) > 1 else ""
            complete = self.complete(of)
            found, numbers = self.described(of, complete, states[rows], pairs[rows], actions, u_ref)
            intervals |= {f"{prefix}{key}": interval for key, interval in found.items()}
            values |= {f"{prefix}{key}": interval.estimate for key, interval in found.items()}
            values |= {f"{prefix}{key}": number for key, number in numbers.items()}
            returns[f"{prefix}return"] = (of.means(of.reward) * of.lengths)[complete]
            cautions += [f"{prefix}{text}" for text in self.limitations(of, complete, states[rows], found)]
        if self.reference is not None:
            cautions += self.sizes(data, names)
        return Measured(values, intervals, returns, tuple(cautions))

    def cells(self, data: LoggedTransitions) -> tuple[Cells, Cells]:
        """Returns the numbers of each row's cell of states, and of states and actions, [N] each."""
        points = np.concatenate([data.state, data.action], 1)
        if self.limits is not None and len(self.limits) != points.shape[1]:
            raise MetricError(
                f"dataset-perspective: limits must be of {points.shape[1]} coordinates, states' and actions', found "
                f"{len(self.limits)}"
            )
        low, high = self.ends(points)
        width = np.where(high > low, high - low, 1.0)
        binned = np.clip((points - low) / width * self.bins, 0, self.bins - 1).astype(np.int64)
        whole = (points == np.round(points)).all(0)
        cells = np.where(whole, points.astype(np.int64), binned)
        both = [cells[:, : data.state.shape[1]], cells]
        states, pairs = (np.unique(x, axis=0, return_inverse=True)[1].reshape(-1) for x in both)
        return states, pairs

    def ends(self, points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the low and high ends of each coordinate, of all data sets together."""
        if self.limits is not None:
            return np.array([low for low, _ in self.limits]), np.array([high for _, high in self.limits])
        return points.min(0), points.max(0)

    def complete(self, data: LoggedTransitions) -> NDArray[np.bool_]:
        """Returns which episodes are complete, [E]; all where that is not known."""
        found: NDArray[np.bool_] = np.ones(len(data.lengths), bool) if data.done is None else data.means(data.done) > 0
        return found

    def described(
        self,
        data: LoggedTransitions,
        complete: NDArray[np.bool_],
        states: Cells,
        pairs: Cells,
        actions: int,
        u_ref: int | None,
    ) -> tuple[dict[str, Interval], dict[str, float]]:
        """Returns the estimates of one data set, and its plain numbers."""
        found: dict[str, Interval] = {}
        returns = (data.means(data.reward) * data.lengths)[complete]
        if len(returns):
            found["mean return"] = t_interval(returns, self.level)
            if self.random_return is not None and self.expert_return is not None:
                quality = (returns - self.random_return) / (self.expert_return - self.random_return)
                found["TQ"] = t_interval(quality, self.level)
        counts = {name: _different(cells, data.number) for name, cells in (("states", states), ("pairs", pairs))}
        for name, (count, without) in counts.items():
            label = {"states": "unique states", "pairs": "unique state-action pairs"}[name]
            found[label] = jackknife(count, without, self.level)
        if u_ref is not None:
            count, without = counts["pairs"]
            found["SACo"] = jackknife(count / u_ref, without / u_ref, self.level)
        found["episode length"] = t_interval(data.lengths, self.level)
        found["reward sparsity"] = rate_interval(data.means((data.reward == 0).astype(float)), self.level)
        if actions > 1:
            entropy = data.means(_entropies(states, pairs)) / np.log(actions)
            found["behaviour entropy"] = rate_interval(np.clip(entropy, 0, 1), self.level)
        numbers = {"episodes": len(data.lengths), "transitions": len(data), "complete episodes": int(complete.sum())}
        ends = {"shortest episode": data.lengths.min(), "longest episode": data.lengths.max()}
        return found, {name: float(x) for name, x in (numbers | ends).items()}

    def limitations(
        self, data: LoggedTransitions, complete: NDArray[np.bool_], states: Cells, found: dict[str, Interval]
    ) -> list[str]:
        """Returns sentences on what limits the numbers of one data set."""
        out = []
        if data.done is None:
            out.append("no column `done`: every episode counts as complete in the returns")
        elif not complete.all():
            out.append(f"{(~complete).sum()} of {len(complete)} episodes are not done, and have no return")
        seen = np.bincount(states)[states]
        if "behaviour entropy" in found and (seen == 1).mean() > 0.5:
            out.append(f"{(seen == 1).mean():.0%} of decisions are in states seen once, whose entropy counts as 0")
        return out

    def sizes(self, data: LoggedTransitions, names: Sequence[str]) -> list[str]:
        """Returns a caution on data sets of another size than the reference."""
        size = {name: int((data.dataset == name).sum()) for name in names}
        other = [f"{name} ({size[name]})" for name in names if abs(size[name] / size[str(self.reference)] - 1) > 0.1]
        if not other:
            return []
        return [
            f"SACo compares data of one size; {', '.join(other)} and the reference ({size[str(self.reference)]}) differ"
        ]


def _different(cells: Cells, episode: Cells) -> tuple[float, NDArray[np.float64]]:
    """Returns the number of different cells, and that without each episode, [E]."""
    both = np.unique(np.stack([cells, episode], 1), axis=0)
    _, place, holders = np.unique(both[:, 0], return_inverse=True, return_counts=True)
    alone = np.bincount(both[holders[place] == 1, 1], minlength=episode.max() + 1)
    return float(len(holders)), len(holders) - alone.astype(float)


def _entropies(states: Cells, pairs: Cells) -> NDArray[np.float64]:
    """Returns the entropy of the actions' frequencies in each row's cell of states, in nats, [N]."""
    _, first, count = np.unique(pairs, return_index=True, return_counts=True)
    visits = np.bincount(states)
    share = count / visits[states[first]]
    entropy = np.bincount(states[first], -share * np.log(share), minlength=len(visits)).astype(float)
    found: NDArray[np.float64] = entropy[states]
    return found
