"""The stored results of claims: what is kept when some are measured again."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from benchmarks import claims, method_facts
from polopt import catalogue
from polopt.evidence import ClaimRun, SeededClaim, run_claim


def row(slug: str, name: str, **changes: Any) -> dict[str, Any]:
    claim = next(claim for claim in catalogue.claims_of(slug) if claim.name == name)
    return {"slug": slug, "name": name, "statement": claim.statement, "controls": list(claim.controls), **changes}


def test_old_rows_stay_unless_their_claim_has_changed() -> None:
    same, other = row("gspo", "quiet_ratio", holds=True), row("rloo", "unbiased", statement="It was said otherwise.")
    gone = {**same, "name": "no_such_claim"}
    now_an_effect = row("dapo", "learns_more", controls=[])
    found = claims.merged([other, same, gone, now_an_effect], [])
    assert found == [same]
    again = {**same, "holds": False}
    assert claims.merged([same], [again]) == [again]


def test_further_seeds_count_beside_the_old_ones() -> None:
    old = row("gspo", "quiet_ratio", holds=False, held=2, runs=3, seeds=[1, 2, 3], measured={"ratio": 1.0})
    new = {**old, "holds": True, "held": 2, "runs": 2, "seeds": [7, 8], "measured": {"ratio": 2.0}}
    (found,) = claims.added([old], [new])
    expected = {"holds": False, "held": 4, "runs": 5, "seeds": [1, 2, 3, 7, 8], "measured": {"ratio": 2.0}}
    assert {name: found[name] for name in expected} == expected
    all_held = {**old, "holds": True, "held": 3}
    assert claims.added([all_held], [new])[0]["holds"]
    assert claims.added([{**old, "statement": "It was said otherwise."}], [new]) == [new]
    with pytest.raises(ValueError, match=r"seeds \[3\] count already"):
        claims.added([old], [{**new, "seeds": [3, 9]}])


def test_a_page_shows_no_result_of_a_claim_that_says_something_else_now(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row("cot2", "improves", statement="It improves.", holds=True, held=1, runs=1),
        row("cot2", "unbiased", holds=True, held=1, runs=1),
    ]
    monkeypatch.setattr(claims, "stored", lambda: {"rows": rows})
    method_facts._stored.cache_clear()
    try:
        verdicts = {claim.name: claim.verdict for claim in method_facts.claims_of("cot2")}
    finally:
        method_facts._stored.cache_clear()
    assert verdicts == {"improves": "not run yet", "parallel": "not run yet", "unbiased": "holds"}


def test_a_row_has_the_mean_and_the_count_over_the_seeds() -> None:
    first = run_claim(("gspo", "quiet_ratio"))
    name = next(iter(first.measured))
    values = [{**first.measured, name: value} for value in (1.0, 2.0, 6.0)]
    rows = [
        dataclasses.replace(
            first, seed=seed, measured=measured, holds=seed != 3, note="" if seed != 3 else "It did not."
        )
        for seed, measured in enumerate(values, start=1)
    ]
    found = SeededClaim(tuple(rows)).summary()
    assert (found["held"], found["runs"], found["holds"], found["seeds"]) == (2, 3, False, [1, 2, 3])
    assert found["measured"][name] == 3
    assert found["note"] == "It did not."


def test_flips_are_verdicts_that_differ_from_the_results(monkeypatch: Any) -> None:
    before = row("gspo", "quiet_ratio", holds=True, held=5, runs=5)
    monkeypatch.setattr(claims, "stored", lambda: {"rows": [before]})
    assert claims.flips([{**before, "held": 5}]) == []
    assert claims.flips([{**before, "holds": False, "held": 3}]) == ["gspo quiet_ratio: 3 of 5, was 5 of 5"]
    once = {key: value for key, value in before.items() if key not in ("held", "runs")}
    monkeypatch.setattr(claims, "stored", lambda: {"rows": [once]})
    assert claims.flips([{**before, "holds": False, "held": 3}]) == ["gspo quiet_ratio: 3 of 5, was 1 of 1"]


def test_a_bug_that_ends_a_claim_with_an_error_is_not_noticed() -> None:
    (bug, *_) = catalogue.mutations_of("dapo")
    ran = run_claim(("dapo", bug.kills.name))
    seen = dataclasses.replace(ran, mutation=bug.name, holds=False)
    assert claims.killed(seen)["noticed"]
    assert not claims.killed(dataclasses.replace(seen, criterion="", note="raised TypeError: no"))["noticed"]
    assert ClaimRun("dapo", bug.kills.name).found() is bug.kills


def test_a_tier_is_what_the_results_on_fresh_seeds_make_it() -> None:
    written = {slug: catalogue.find(slug).tier for slug in catalogue.slugs()}
    earned = {slug: method_facts.earned_tier(catalogue.find(slug)) for slug in written}
    assert written == earned, "set the tier of these methods as earned, then: python -m polopt.index"
    assert {"proven", "faithful", "reading"} == set(written.values())


HOLDS: dict[str, Any] = {"holds": True, "held": 1, "runs": 1}
FAILS: dict[str, Any] = {"holds": False, "held": 0, "runs": 1}


@pytest.mark.parametrize(
    ("slug", "changes", "tier"),
    [
        ("rloo", {}, "proven"),
        ("rloo", {"learns_more": FAILS}, "faithful"),
        ("rloo", {"learns_more": {"holds": False, "held": 4, "runs": 5}}, "faithful"),
        ("rloo", {"learns_more": {}}, "faithful"),  # not run yet
        ("rloo", {"learns_more": {"holds": True}}, "faithful"),  # on its own seeds alone
        ("rloo", {"unbiased": FAILS}, "proven"),  # another kind of claim
        ("kto", {}, "proven"),
        ("kto", {"formula": {"holds": False, "held": 2, "runs": 5}}, "faithful"),  # an identity
        ("canon", {"learns_more": HOLDS}, "faithful"),  # refuted when it was made
        ("pope", {}, "reading"),
    ],
)
def test_only_a_headline_effect_that_holds_on_fresh_seeds_proves(
    slug: str, changes: dict[str, dict[str, Any]], tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is stored now: every claim that `changes` does not name holds, on a fresh seed."""
    rows = {(slug, claim.name): changes.get(claim.name, HOLDS) for claim in catalogue.claims_of(slug)}
    monkeypatch.setattr(method_facts, "_stored", lambda: rows)
    assert method_facts.earned_tier(catalogue.find(slug)) == tier


def test_one_claim_is_chosen_by_its_name_with_the_bugs_that_it_must_notice() -> None:
    assert claims.chosen(["dapo:dynamic"], None) == (
        [("dapo", "dynamic")],
        [ClaimRun("dapo", "dynamic", mutation="keeps_unanimous")],
    )
    whole, bugs = claims.chosen(["dapo", "dapo:dynamic", "rloo:unbiased"], "fast")
    assert {name for slug, name in whole if slug == "dapo"} == {
        claim.name for claim in catalogue.claims_of("dapo") if claim.cost == "fast"
    }
    assert [name for slug, name in whole if slug == "rloo"] == ["unbiased"]
    assert {bug.claim for bug in bugs if bug.slug == "dapo"} == {"rare_success", "dynamic"}
    everything, _ = claims.chosen([], None)
    assert len(everything) == sum(len(catalogue.claims_of(slug)) for slug in catalogue.slugs())
    with pytest.raises(ValueError, match="dapo has no claim 'dynamics' to run; did you mean 'dynamic'"):
        claims.chosen(["dapo:dynamics"], None)
    with pytest.raises(ValueError, match="there is no method"):
        claims.chosen(["nothing-like-it:x"], None)
