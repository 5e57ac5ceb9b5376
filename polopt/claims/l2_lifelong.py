"""These programs measure what metrics of lifelong learning show, on logs whose forgetting and transfer are known."""

from __future__ import annotations

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.continual import logged
from polopt.methods.l2_lifelong import LifelongMetrics, l2_lifelong
from polopt.metrics import t_interval
from polopt.metrics.lifelong import LifelongLog, Lifetime

RANGE = {"low": 0.0, "high": 1.0}


def planted(level: float, forgotten: float, gained: float, length: int = 40) -> LifelongLog:
    """Returns a log without noise: A and then B are trained. Training on B lowers A by `forgotten`; training on A
    raises B by `gained` from `level`, and either task is learned along a straight line."""
    rows: list[tuple[str, str, int, int, float]] = []

    def evaluated(block: int, a: float, b: float) -> None:
        rows.extend(("eval", task, block, e, x) for task, x in (("A", a), ("B", b)) for e in range(5))

    def trained(block: int, task: str, start: float, end: float) -> None:
        rows.extend(("train", task, block, e, x) for e, x in enumerate(np.linspace(start, end, length)))

    evaluated(0, level, level)
    trained(1, "A", level, 90.0)
    evaluated(2, 90.0, level + gained)
    trained(3, "B", level + gained, 80.0)
    evaluated(4, 90.0 - forgotten, 80.0)
    rows += [("expert", "A", 0, e, x) for e, x in enumerate(np.linspace(level, 90.0, length))]
    return LifelongLog(*map(list, zip(*rows, strict=True)))


@claim(
    "On logs without noise they are what was planted: PM is minus the forgetting, the contrast of FT is g / (2 a + g), "
    "and a learner that is its own expert has RP and SE of 1.",
    kind="identity",
    baseline="the ratio of FT, which is 1 + g / a",
)
def planted_numbers() -> Finding:
    off: dict[str, float] = {"PM": 0.0, "FT": 0.0, "BT": 0.0, "FT, ratio": 0.0, "RP": 0.0, "SE": 0.0}
    apart = np.inf
    draw = np.random.default_rng(0)
    for _ in range(50):
        a, f, g = draw.uniform(5, 30), draw.uniform(1, 40), draw.uniform(1, 40)
        log = planted(a, f, g)
        found = l2_lifelong(normalise=False)(log).values
        ratio = l2_lifelong(normalise=False, transfer="ratio")(log).values
        expected = {"PM": -f, "FT": g / (2 * a + g), "BT": -f / (180 - f), "RP": 1.0, "SE": 1.0}
        for name, value in expected.items():
            off[name] = max(off[name], abs(found[name] - value))
        off["FT, ratio"] = max(off["FT, ratio"], abs(ratio["FT"] - (1 + g / a)))
        apart = min(apart, abs(ratio["FT"] - found["FT"]))
    return Finding(
        measured={**{f"error of {name}": x for name, x in off.items()}, "contrast to ratio": float(apart)},
        criterion="all errors < 1e-9 on 50 logs; contrast and ratio differ by more than 0.5",
        holds=max(off.values()) < 1e-9 and apart > 0.5,
    )


NOTE = (
    "Three goals on a 5 x 5 grid, in the order A, B, A, C, A; nine tenths of each update are of weights that all tasks "
    "share. Both learners have the same experts; the replay learns from 16 earlier steps with every new one. "
)


@claim(
    "They tell a learner that forgets from one that replays: maintenance is higher by 10 points of 100 or more.",
    kind="headline",
    baseline="the learner without replay, and the same learner on other seeds",
    cost="slow",
)
def replay_remembers() -> Finding:
    metric = l2_lifelong(low=0.0, high=1.0)
    plain, replays = (metric(logged(range(8), replay)) for replay in (False, True))
    again = metric(logged(range(8, 16), False))
    gain, control = (t_interval(x.rows["PM"] - plain.rows["PM"]) for x in (replays, again))
    return Finding(
        measured={
            "gain of PM": gain.estimate,
            "PM without replay": plain.values["PM"],
            "PM with replay": replays.values["PM"],
            "gain of PM on other seeds": control.estimate,
        },
        criterion="the 95 % interval of the gain over 8 seeds lies above 10; that of other seeds without replay does "
        "not",
        holds=gain.low > 10 and not control.low > 10,
        intervals={"gain of PM": (gain.low, gain.high), "gain of PM on other seeds": (control.low, control.high)},
        note=NOTE,
    )


@claim(
    "What is kept resists what is new: the learner that replays has less performance relative to the expert.",
    kind="limit",
    baseline="the learner without replay",
    cost="slow",
)
def replay_has_a_price() -> Finding:
    metric = l2_lifelong(low=0.0, high=1.0)
    plain, replays = (metric(logged(range(24), replay)) for replay in (False, True))
    share = t_interval(replays.rows["RP"] / plain.rows["RP"])
    return Finding(
        measured={
            "RP over that without replay": share.estimate,
            "RP without replay": plain.values["RP"],
            "RP with replay": replays.values["RP"],
        },
        criterion="the 95 % interval of the quotient over 24 seeds lies below 1",
        holds=share.high < 1,
        intervals={"RP over that without replay": (share.low, share.high)},
        note=NOTE + "A task that is trained for the first time is learned more slowly while earlier ones are replayed: "
        "the metrics show the price of remembering beside its gain.",
    )


@mutation("The reference is the evaluation before the training.", kills=planted_numbers)
def reference_before(replace: Replace) -> None:
    def wrong(self: Lifetime, task: str) -> np.ndarray:
        evals = [block.terminal for block in self.of("eval", task)]
        return np.diff(evals) if self.of("train", task) else np.zeros(0)

    replace(Lifetime, "maintenance", wrong)


@mutation("The gain is divided by the performance before alone.", kills=planted_numbers)
def divides_by_before(replace: Replace) -> None:
    replace(LifelongMetrics, "gain", lambda self, before, after: (after - before) / before)
