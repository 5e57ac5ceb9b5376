"""Every part, one row each. Ratios, trusts, weights, aggregates and regularisers stand inside objectives."""

from __future__ import annotations

import importlib
from pathlib import Path

import battery
import pytest
from batches import networks_batch
from battery import PartRow

import polopt as po
from polopt import networks, solvers
from polopt.methods.vad_cfr_shor_psro import VolatilityDiscount

# A file tests/rows_*.py holds dicts by these names; a part joins by one row in one of them. Parts of a room stand in
# rows_<room>.py, those of a single method in rows_methods_<room>.py by the method's room. BATCHES: slug -> what makes a
# batch for a method that a random one does not suit.
TABLES = [importlib.import_module(file.stem) for file in sorted(Path(__file__).parent.glob("rows_*.py"))]


def kinds(*found):
    """The rows of each of these tables, and the checks that they must pass."""
    return [(getattr(table, name, {}), checks) for table in TABLES for name, checks in found]


# Parts that read batches, and all.
BATCH_KINDS = kinds(
    ("OBJECTIVES", battery.OBJECTIVE),
    ("CREDITS", battery.CREDIT),
    ("REWARDS", battery.REWARD),
    ("SELECTS", battery.SELECT),
)
OTHER_KINDS = kinds(("METRICS", battery.METRIC), ("DATA_METRICS", battery.DATA_METRIC), ("GUARDS", battery.GUARD))
KINDS = [*BATCH_KINDS, *OTHER_KINDS]
CASES = [
    pytest.param(check, row, id=f"{check.__name__}-{name}")
    for rows, checks in KINDS
    for name, row in rows.items()
    for check in checks
]


def published():
    """The objective and the credit of every method whose needs a random batch meets, each sentence once."""
    filled = {k for k, v in vars(battery.random_batch().experience).items() if v is not None}
    filled |= {f"extras.{k}" for k in battery.random_batch().experience.extras}
    special = {slug: batch for table in TABLES for slug, batch in getattr(table, "BATCHES", {}).items()}
    rows = {}
    for slug in po.slugs("algorithm"):
        algorithm = po.method(slug)
        batch = networks_batch if len(algorithm.networks) else special.get(slug, battery.random_batch)
        for part, checks in (
            (algorithm.objective, (battery.objective_split, battery.objective_poison, battery.objective_extremes)),
            (algorithm.credit, (battery.credit_padding, battery.credit_permutation, battery.credit_poison)),
        ):
            if part.required_fields <= filled:
                rows.setdefault(repr(part), (slug, part, batch, checks))
    return [
        pytest.param(check, PartRow(part, batch=batch), id=f"{check.__name__}-{slug}")
        for slug, part, batch, checks in rows.values()
        for check in checks
    ]


@pytest.mark.parametrize(("check", "row"), CASES)
def test_battery(check, row):
    check(row)


@pytest.mark.parametrize(("check", "row"), published())
def test_methods(check, row):
    check(row)


LOOPS = (
    *(
        po.sampling.Sampling,
        po.sampling.BatchMixer,
        po.sampling.GoalReward,
        po.sampling.LogWeights,
        po.sampling.TaskSampler,
        po.sampling.RolloutAllocator,
        po.sampling.PromptAugmenter,
        po.sampling.OpponentPolicy,
        po.sampling.PolicyInput,
        networks.Network,
        networks.Relabel,
        po.sampling.BehaviourUpdate,
    ),
    *(po.sampling.EntropyTemperature, po.sampling.Lookahead, po.backends.Pool),
    # A solver's: see tests/solvers.
    *(solvers.RegretSum, solvers.RegretMatching, solvers.IterationWeight, solvers.MetaSolver, VolatilityDiscount),
    *(po.sampling.Predictor, po.sampling.SuccessCounts, po.methods.spo_selfsup.TokenImportance),
    *(po.methods.agent_r.ErrorLocator, po.methods.meds3.VoteSum, po.methods.step_q.StepReranker),
)


def test_every_part_has_a_row():
    """A part that a room exports and that does something must stand in a table."""
    seen = {type(p) for rows, _ in KINDS for row in rows.values() for p in row.part.parts()}
    for part in battery.public_parts(po.credit, po.guards, po.metrics, po.objectives, po.rewards, po.sampling):
        # A loop's part, or part of one: see test_sampling.
        calls_a_loop = issubclass(part, LOOPS)
        assert part.__subclasses__() or calls_a_loop or part in seen, f"{part.__name__} has no row in the battery"
