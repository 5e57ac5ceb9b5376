"""Claims in processes of their own: on fresh seeds, with planted bugs, kept and continued, stopped when they hang."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest

from polopt import evidence
from polopt.claim import Claim, Finding, mutation, replace_for_good
from polopt.evidence import ClaimResult, ClaimRun, SeededClaim, by_claim, planned_runs, run_alone, run_spread
from polopt.method import Paper


def test_claims_on_seeds_and_a_planted_bug(tmp_path: Path) -> None:
    """An identity holds on each; its own seeds are the first result, as `run_claim` has it; a bug is noticed."""
    planned = [("rloo", "unbiased"), ("simpo", "length")]
    bug = evidence.planned_mutations(["dapo"], "fast")[0]
    runs = [*planned_runs(planned, range(3)), bug]
    found = list(run_spread(runs, kept=tmp_path / "kept.jsonl"))
    assert {(row.slug, row.name, row.seed, row.mutation) for row in found} == {
        (run.slug, run.claim, run.seed, run.mutation) for run in runs
    }
    assert [row.holds for row in found if row.mutation] == [False]
    exact, sampled = by_claim([row for row in found if not row.mutation], planned)
    assert (exact.held, len(exact.rows)) == (3, 3)
    assert sampled.rows[0].measured == evidence.run_claim(planned[1]).measured
    values = [tuple(row.measured.values()) for row in sampled.rows]
    assert len(set(values)) == 3
    assert next(iter(sampled.measured.values())) == pytest.approx(sum(value[0] for value in values) / 3)


def result(run: ClaimRun, holds: bool = True) -> ClaimResult:
    return ClaimResult(
        run.slug, run.claim, "headline", "s", "base", "c", {"x": 1.0}, holds, 1.0, "fast", "",
        ("grpo",), {"x": (0.5, 1.5)}, (3, 5), {"method": 2.0}, run.seed, run.mutation,
    )  # fmt: skip


def test_a_run_that_was_stopped_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is done is not done again, a line that was cut off does not count, nor do results of other sources."""
    ran: list[ClaimRun] = []
    monkeypatch.setattr(evidence, "run_alone", lambda run: (ran.append(run), result(run))[1])
    runs, kept = planned_runs([("rloo", "unbiased")], range(4)), tmp_path / "new" / "kept.jsonl"
    assert sum(1 for _ in run_spread(runs[:2], kept=kept)) == 2
    kept.write_bytes(kept.read_bytes()[:-9])
    found = list(run_spread(runs, kept=kept))
    assert found[0] == result(runs[0])
    assert sorted(run.seed for run in ran) == [0, 1, 1, 2, 3]
    assert sorted(row.seed for row in run_spread(runs, kept=kept)) == [0, 1, 2, 3]
    assert len(ran) == 5
    monkeypatch.setattr(evidence, "digest_of_sources", lambda: "other")
    list(run_spread(runs, kept=kept))
    assert len(ran) == 9
    rows = [json.loads(line) for line in kept.read_text().splitlines() if line.endswith("}")]
    assert [row["version"] for row in rows].count("other") == 4


def test_what_hangs_raises_or_dies_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bugs that are planted by a file of claims of their own, so that the process that is begun finds them."""
    monkeypatch.setattr(evidence, "LIMITS", {"fast": 4.0, "slow": 4.0})
    context = __import__("multiprocessing").get_context("fork")
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: context)
    monkeypatch.setattr(context, "set_forkserver_preload", lambda modules: None)

    def raises() -> Finding:
        raise ZeroDivisionError("by nothing")

    def sleeps() -> Finding:
        time.sleep(60)
        return Finding({}, "", True)

    def dies() -> Finding:
        os._exit(3)

    claims = [Claim(run.__name__, "A statement.", "identity", "", run) for run in (raises, sleeps, dies)]
    monkeypatch.setattr(evidence, "claims_of", lambda slug: claims)
    found = [run_alone(ClaimRun("none", claim.name)) for claim in claims]
    assert not any(row.holds for row in found)
    assert [row.note for row in found] == [
        "raised ZeroDivisionError: by nothing",
        "did not end within 4 s",
        "its process ended with code 3",
    ]


def test_a_claim_over_seeds_runs_once() -> None:
    """A claim that compares over seeds by itself makes all of them in one run; it is fresh with the first seed."""
    assert [run.seed for run in planned_runs([("dapo", "learns_more"), ("dapo", "penalty")], range(1, 4))] == [
        1, 1, 2, 3,
    ]  # fmt: skip


def test_held_counts_seeds() -> None:
    run = ClaimRun("a", "b")
    seeded = SeededClaim((result(run), result(dataclasses.replace(run, seed=1), holds=False)))
    assert seeded.held == 1
    assert seeded.intervals == {"x": (1.0, 1.0)}
    assert SeededClaim((result(run),)).intervals == {"x": (0.5, 1.5)}
    with pytest.raises(ValueError, match="needs a result"):
        SeededClaim(())


def test_a_result_survives_json() -> None:
    row = result(ClaimRun("a", "b", 2, "bug"))
    assert evidence.restored(json.loads(json.dumps(dataclasses.asdict(row)))) == row


def test_a_bug_needs_a_claim_that_holds_and_an_attribute_that_is_there() -> None:
    failing = Claim("late", "s", "part", "", lambda: Finding({}, "", False), refuted=True)
    with pytest.raises(ValueError, match="'late' fails without a bug"):
        mutation("A bug.", kills=failing)
    paper = Paper("A title", "Someone", 2020)
    replace_for_good(paper, "year", 2021)  # a frozen object too
    assert paper.year == 2021
    with pytest.raises(AttributeError, match="month"):
        replace_for_good(paper, "month", 1)
