"""What a method's mechanism did stands in the log: counts against the batch itself, read in plain loops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from tiny_runs import lines, recipe

import polopt as po
from polopt.training import batches
from polopt.training.batches import RolloutBatch
from polopt.training.launch import train
from polopt.training.measure import metrics_of

# One method for each mechanism, as it acts on a tiny policy.
METHODS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "knapsack-rl": {},
    "rex-rag": {"texts": ["2", "4"], "chance": 1.0, "keep": 1.0},
    "latr": {"least": 0.0, "apart": 1.0, "share": ((0, 0.5),)},
    "pope": {"most": 1.0, "tries": 0},
    "policyrollout": {"rules": " 2 4 6 8"},
    "vade": {},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[dict[str, Any]], list[RolloutBatch]]]:
    """By method, the log of its stage and the batches that were sampled for it."""
    found = {}
    for slug, settings in METHODS.items():
        folder, sampled = tmp_path_factory.mktemp(slug), list[RolloutBatch]()
        with pytest.MonkeyPatch.context() as patch:
            plain = batches.collect

            def spy(*args: Any, kept: list[RolloutBatch] = sampled, gather: Any = plain) -> RolloutBatch:
                kept.append(gather(*args))
                return kept[-1]

            patch.setattr(batches, "collect", spy)
            stages = {
                "warmup": {"method": "sft", "steps": 8, "rows": 16, "optimiser": {"lr": 0.03}},
                "rl": {"method": {"name": slug, **settings}, "steps": 3, "rows": 16, "group": 4},
            }
            # The knapsack knows a task when it comes again: all do, batch by batch.
            tasks = {"kind": recipe().tasks["kind"], "size": 4 if slug == "knapsack-rl" else 20}
            train(recipe(stages=stages, tasks=tasks, evaluation={"problems": 2}, checkpoint=100), folder / "run")
        log = [record for record in lines(folder / "run", "metrics") if record["stage"] == "rl"]
        found[slug] = (log, sampled[8:])
    return found


@pytest.mark.parametrize("slug", METHODS)
def test_sizes_of_groups(slug: str, runs: Any) -> None:
    for record, batch in zip(*runs[slug], strict=True):
        sizes = Counter(batch.experience.group.tolist()).values()
        assert (record["groups/size_min"], record["groups/size_max"]) == (min(sizes), max(sizes))
    log, _ = runs[slug]
    even = {"grpo", "latr", "pope", "policyrollout", "vade"}
    assert all(record["groups/size_min"] == record["groups/size_max"] == 4 for record in log) == (slug in even)


def test_probes(runs: Any) -> None:
    for record, batch in zip(*runs["rex-rag"], strict=True):
        marks = batch.experience.extras["probe"].tolist()
        assert record["probe"] == pytest.approx(sum(marks) / len(marks), abs=1e-12)
    assert max(record["probe"] for record in runs["rex-rag"][0]) > 0


def test_trees(runs: Any) -> None:
    """Half of each group of four are leaves of a tree that branches wherever it can."""
    for record, batch in zip(*runs["latr"], strict=True):
        rows = batch.experience
        assert record["explored"] == sum(rows.extras["explored"].tolist()) / len(rows) == 0.5
        ways: dict[int, set[tuple[int, ...]]] = {}
        for i in range(len(rows)):
            if rows.extras["explored"][i]:
                tokens = [int(t) for t, m in zip(rows.extras["tokens"][i], rows.mask[i], strict=True) if m]
                ways.setdefault(int(rows.group[i]), set()).add(tuple(tokens))
        assert record["tree/ways"] == pytest.approx(sum(map(len, ways.values())) / len(ways), abs=1e-12)
        assert record["tree/branched"] == sum(len(w) > 1 for w in ways.values()) / len(ways) == 1


def test_beginnings(runs: Any) -> None:
    for record, batch in zip(*runs["pope"], strict=True):
        given = batch.experience.extras["given"].tolist()
        assert record["given/rows"] == pytest.approx(sum(n > 0 for n in given) / len(given), abs=1e-12)
        assert record["given/decisions"] == pytest.approx(sum(given) / len(given), abs=1e-12)
    assert max(record["given/rows"] for record in runs["pope"][0]) == 0.5


def test_hints(runs: Any) -> None:
    for record, batch in zip(*runs["policyrollout"], strict=True):
        rows = batch.experience
        paid: dict[bool, list[float]] = {True: [], False: []}
        for hinted, outcome in zip(rows.extras["hinted"].tolist(), rows.outcome.tolist(), strict=True):
            paid[hinted].append(outcome)
        assert record["hinted/rows"] == len(paid[True]) / len(rows) == 0.5
        assert record["hinted/outcome"] == pytest.approx(sum(paid[True]) / len(paid[True]), rel=1e-6)
        assert record["hinted/outcome_without"] == pytest.approx(sum(paid[False]) / len(paid[False]), rel=1e-6)


def test_scores_of_the_chosen_tasks(runs: Any) -> None:
    """Beta(1 + right, 1 + wrong) of twenty tasks, whose counts fade by 0.995 a batch, and by 0.5 more where chosen."""
    counts = [[0.0, 0.0] for _ in range(20)]
    for record, batch in zip(*runs["vade"], strict=True):
        index, outcome = batch.experience.extras["index"].tolist(), batch.experience.outcome.tolist()
        counts = [[0.995 * c * (0.5 if task in index else 1) for c in pair] for task, pair in enumerate(counts)]
        for task, paid in zip(index, outcome, strict=True):
            counts[task][0] += paid
            counts[task][1] += 1 - paid
        p = [(1 + right) / (2 + right + wrong) for right, wrong in counts]
        score = [p[task] * (1 - p[task]) ** 2 for task in index]
        assert record["choice/success"] == pytest.approx(sum(p) / 20, rel=1e-6)
        assert record["choice/score"] == pytest.approx(sum(score) / len(score), rel=1e-6)
        assert record["choice/tried"] == sum(right + wrong > 0 for right, wrong in counts) / 20


def test_a_rubric_and_its_trust() -> None:
    """Length goes against the outcome here, so that the audit after every batch halves its trust."""
    algorithm = po.method("mpo-meta", every=1, kl=0.0)
    batch = po.Experience(
        mask=torch.ones(4, 1, dtype=torch.bool),
        rollout_logp=torch.zeros(4, 1),
        outcome=torch.tensor([1.0, 1.0, 0.0, 0.0]),
        extras={"answer": ["a", "b", "long one", "longer still"]},
    )
    for number, trust in enumerate((1.0, 0.5, 0.25), 1):
        algorithm.reward(batch)
        assert metrics_of(algorithm.reward, batch) == {
            "rubric/number": number,
            "rubric/items": 2,
            "rubric/trust/outcome": 1.0,
            "rubric/trust/characters": trust,
        }
        algorithm.step()
