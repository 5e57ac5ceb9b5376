"""Every method: round trips, micro-batches, copies, and its fast claims. A new one joins by being there."""

from __future__ import annotations

import dataclasses
import json
import math
from importlib import import_module
from typing import Any

import forked
import pytest
import torch
from sentences import batch_of, same, unknown

import polopt as po
from polopt import index, part_names
from polopt.catalogue import claims_of, find, mutations_of, part
from polopt.claim import replace_for_good
from polopt.evidence import planned_claims, run_claim
from polopt.lab import TabularPolicy, tree_teacher
from polopt.lab.problems import digits
from polopt.method import ROOMS, Paper, method
from polopt.part import from_yaml
from polopt.part_diff import diff
from polopt.sampling import TransitionReplay


@pytest.mark.parametrize("slug", po.slugs())
def test_round_trip_print_and_change(slug: str) -> None:
    published, built = find(slug), part(slug)
    assert built.method_kind == published.kind == index.entry(slug).kind
    again = from_yaml(built.to_yaml())
    assert diff(built, again) == []
    rooms = {room: import_module(f"polopt.{room}") for room in part_names.ROOMS}
    scope = {**rooms, "Algorithm": po.Algorithm, "Support": po.Support}
    assert diff(eval(repr(built), scope), built) == []
    published = find(slug)
    if published.kind == "algorithm":
        assert [path for path, *_ in diff(built, built.but(reference_tau=0.5))] == ["reference_tau"]
    assert claims_of(slug)
    assert len(published.doc) > 200
    assert published.paper.bibtex(slug).count("{") == published.paper.bibtex(slug).count("}")


def test_every_method_has_a_planted_bug() -> None:
    assert [slug for slug in po.slugs() if not mutations_of(slug)] == []


# What is said on a tree, where texts are numbers.
ON_A_TREE: dict[str, dict[str, Any]] = {
    "agent-r": {"expansions": 1, "width": 2},  # of several tasks
    "gtalign": {"blocks": False},
    "rex-rag": {"texts": ["1"]},
}


@pytest.mark.parametrize("slug", po.slugs("algorithm"))
def test_micro_batches_add_up(slug: str) -> None:
    """In every phase that a table can be asked in: it has no layers."""
    algorithm = po.method(slug, **ON_A_TREE.get(slug, {}))
    while any("_of_layer_" in name for name in algorithm.active_fields("reads")):
        algorithm.step()
    tree, policy = digits()
    # Enough prompts that what a method selects of them has a gradient.
    behaviour = TabularPolicy(tree, spread=0.9, seed=7, critic=True)
    needs = frozenset(n for n in algorithm.required_fields if "_of_layer_" not in n)
    if len(algorithm.networks) or isinstance(algorithm.sampling, TransitionReplay):
        pytest.skip("its networks learn from transitions")
    if any({"actors", "weights"} & part.source_capabilities for part in algorithm.parts()):
        pytest.skip("samples with other weights of a policy")
    sampling = algorithm.sampling if algorithm.all_writes - {"value_target"} else None
    batch = batch_of(tree, policy, prompts=12, behaviour=behaviour, needs=needs, sampling=sampling)
    if algorithm.teacher is not None:
        frozen = {name: TabularPolicy(tree, spread=0.5, seed=i) for i, name in enumerate(("dpo", "reverse"))}
        teacher = tree_teacher(policy, algorithm.teacher, frozen)
        assert teacher is not None
        batch = teacher.teach(batch, algorithm.teacher.signals)
    if absent := unknown(algorithm, batch):
        pytest.skip(f"reads {', '.join(sorted(absent))}, which answers in tokens do not have")
    batch = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    needs = algorithm.objective.active_fields("policy_outputs")
    if algorithm.objective.active_fields("full_batch_outputs"):
        batch = batch.replace(full_batch_evaluation=policy.evaluate(batch, needs).detach())

    def slope_of(piece: po.Experience) -> torch.Tensor:
        loss = algorithm.objective(piece, policy.evaluate(piece, needs)).loss
        return torch.autograd.grad(loss, policy.logits)[0]

    surveyed = batch.replace(full_batch_evaluation=policy.evaluate(batch, needs).detach())
    same(sum(slope_of(piece) for piece in surveyed.split(5, binds=algorithm.objective.binding)), slope_of(batch))


@pytest.mark.parametrize("slug", po.slugs())
def test_what_a_method_builds_twice_shares_nothing(slug: str) -> None:
    one, two = part(slug), part(slug)
    assert not {id(m) for m in one.modules()} & {id(m) for m in two.modules()}


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'grpo'"):
        find("grppo")


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(("slug", "name"), [(s, c.name) for s in po.slugs() for c in claims_of(s) if c.cost == "fast"])
def test_fast_claims(slug: str, name: str) -> None:
    claim = next(c for c in claims_of(slug) if c.name == name)
    finding = claim.run()
    assert finding.holds != claim.refuted, finding
    assert finding.holds or finding.note
    assert claim.baseline
    assert claim.statement
    assert all(math.isfinite(v) for v in finding.measured.values())


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("slug", "name"), [(s, m.name) for s in po.slugs() for m in mutations_of(s) if m.kills.cost == "fast"]
)
def test_a_planted_bug_is_noticed(slug: str, name: str) -> None:
    """In a process of its own: what was computed before is not there, and what the bug leaves behind ends with it."""
    bug = next(m for m in mutations_of(slug) if m.name == name)
    assert bug.kills in claims_of(slug)

    def noticed() -> None:
        bug.plant(replace_for_good)
        assert not bug.kills.run().holds

    assert forked.alone(noticed) == 0


def test_run_claim_gives_plain_rows() -> None:
    planned = [("rloo", "unbiased"), ("knapsack-rl", "easy_or_hard")]
    rows = [run_claim(which) for which in planned]
    assert [(r.slug, r.name) for r in rows] == planned
    assert set(planned) < set(planned_claims(["rloo", "knapsack-rl"], cost="fast"))
    assert [row["holds"] for row in json.loads(json.dumps([dataclasses.asdict(r) for r in rows]))] == [True, False]
    with pytest.raises(ValueError, match="there is no method"):
        planned_claims(["nothing-like-it"])


def test_every_method_belongs_to_a_room_whose_parts_its_paper_changes() -> None:
    """The four are those of the loop, and each is some paper's."""
    assert ROOMS == ("sampling", "rewards", "credit", "objectives", "updates", "metrics", "guards", "solvers")
    assert {find(slug).room for slug in po.slugs()} == set(ROOMS)
    paper = Paper(title="", authors="", year=2024)
    with pytest.raises(ValueError, match="room = 'policies' is none of sampling, rewards, credit, objectives"):
        method(paper=paper, changes="", room="policies", tier="proven")  # type: ignore[arg-type]
