"""These programs measure what the paper of RLSQM claims."""

import functools

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.unit_tests import Grammar
from polopt.experience import Experience
from polopt.lab import TabularPolicy, train
from polopt.lab.effects import More, effect
from polopt.methods.rlsqm import UnitTest, rlsqm
from polopt.rewards.unit_tests import METRICS, SMELLS
from polopt.rewards.unit_tests import metrics as found_in


@functools.cache
def course(metrics: tuple[str, ...] = METRICS, model: bool = False) -> dict[str, float]:
    """Returns how often tests have each metric, and quality, after training with this reward."""
    return trained(rlsqm(metrics=metrics, model=model, kl=0.01))


def trained(algorithm: Algorithm, *, seed: int = 0, step_size: float = 10.0) -> dict[str, float]:
    """Returns how often tests have each metric, and quality, after 60 batches of 128 from a policy that writes
    anything."""
    tree = Grammar()
    policy = TabularPolicy(tree, critic=True)
    train(algorithm, tree, policy, steps=60, rate=step_size, rows=128, reference=TabularPolicy(tree), seed=seed)
    return {name: tree.share(policy, name) for name in (*METRICS, "quality")}


@effect(
    "Paid for all metrics, tests assert something of the function and have no smell.",
    kind="headline",
    method=lambda: rlsqm(kl=0.01),
    controls={"paid for Python alone": lambda: rlsqm(metrics=("syntax",), kl=0.01), "0.95": lambda: None},
    step_sizes=(2.5, 5.0, 10.0, 20.0, 40.0),
    criteria=[More("quality", by=0.0), More("syntax", by=-0.005)],
    seeds=30,
    trials=1,
    cost="slow",
    note="480 tests of one function, of which a policy that writes anything has 0.11 with quality: an assertion, a "
    "call of the function and no smell. The second control is the number that the mean must exceed; single runs end "
    "below it, too.",
)
def quality(algorithm: Algorithm | None, *, seed: int, step_size: float) -> dict[str, float]:
    if algorithm is None:
        return {"quality": 0.95, "syntax": 0.995}
    return trained(algorithm, seed=seed, step_size=step_size)


@claim(
    "A small reward model, fitted to the first 20 batches, does as well as what it was fitted to.",
    kind="part",
    baseline="the metrics themselves",
)
def modelled() -> Finding:
    ours, exact = course(model=True), course()
    return Finding(
        measured={"quality by the model": ours["quality"], "quality by the metrics": exact["quality"]},
        criterion="within 0.05 of the metrics' own; these more than 0.8",
        holds=ours["quality"] >= exact["quality"] - 0.05 and exact["quality"] > 0.8,
    )


@claim(
    "Paid for having no smells alone, tests are empty: the metrics are gamed.",
    kind="part",
    baseline="paid for all metrics",
    cost="slow",
    refuted=True,
)
def gamed() -> Finding:
    # That a test does something is no smell of the paper's; with it, empty tests would not be paid.
    smells, every = course(tuple(name for name in SMELLS if name != "filled")), course()
    return Finding(
        measured={"quality, paid for no smell": smells["quality"], "quality, paid for all": every["quality"]},
        criterion="paid for no smell, quality < 0.3; paid for all, >= 0.95",
        holds=smells["quality"] < 0.3 and every["quality"] >= 0.95,
        note="Half of the grammar's tests without a smell assert something, and training has no reason to leave them.",
    )


@claim(
    "Paid for a single metric, most tests have it and little else: most metrics are gamed.",
    kind="part",
    baseline="paid for all metrics",
    cost="slow",
)
def gamed_singly() -> Finding:
    found = {name: course((name,)) for name in METRICS}
    gamed = [name for name, of in found.items() if of[name] >= 0.95 and of["quality"] < 0.3]
    measured = {f"quality, paid for {name}": of["quality"] for name, of in found.items()}
    measured |= {"metrics gamed, of 11": float(len(gamed)), "quality, paid for all": course()["quality"]}
    return Finding(
        measured=measured,
        criterion="more than half of the metrics reach 0.95 at a quality below 0.3; paid for all, >= 0.95",
        holds=len(gamed) > len(METRICS) / 2 and measured["quality, paid for all"] >= 0.95,
        note="Paid for an assertion, for a call of the function or for no branch, quality is higher: half of the "
        "grammar's tests have the rest.",
    )


@mutation("All that is Python is rewarded alike.", kills=modelled)
def python_alone(replace: Replace) -> None:
    def read(self: UnitTest, text: str, row: int, experience: Experience) -> float:
        return 1.0 if found_in(text, "")["syntax"] else -1.0

    course.cache_clear()
    replace(UnitTest, "read", read)
