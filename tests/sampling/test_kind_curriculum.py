"""Tasks by kind, stage after stage: what is refused before training, and what the log says."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.source import TreeSource
from polopt.sampling import KindCurriculum
from polopt.situation import Situation


def situation(*kinds: str) -> Situation:
    return Situation("rl", 4, 8, 1, [None], kinds, frozenset(), len, lambda block: [])


def source(*kinds: str, rows: int = 8) -> TreeSource:
    tree = TokenTree.bandit([[1.0, 0.0]] * len(kinds))
    tree.kinds = list(kinds)
    return TreeSource(tree, TabularPolicy(tree), rows=rows)


def test_kinds_that_the_tasks_do_not_have_are_refused_before_training() -> None:
    named = KindCurriculum(levels=(("a",), ("c", "d")))
    assert list(named.refusals(situation("a", "c", "d"))) == []
    (sentence,) = named.refusals(situation("a", "b"))
    assert "name the kinds c, d, and the tasks are of the kinds a, b" in sentence
    (sentence,) = KindCurriculum().refusals(situation("a"))
    assert "all are of the kind a" in sentence
    assert list(KindCurriculum().refusals(situation("a", "b"))) == []
    for wrong in ({"batches": 0}, {"review": 1.0}, {"levels": [[]]}):
        with pytest.raises(ValueError, match=r"sampling\.KindCurriculum: needs"):
            KindCurriculum(**wrong)  # type: ignore[arg-type]


def test_a_kind_without_a_task_is_an_error_and_not_an_endless_search() -> None:
    with pytest.raises(ExperienceError, match="no task is of the kinds z; name kinds that the tasks have, of a, b"):
        KindCurriculum(levels=(("z",), ("a",)))(source("a", "b", "a"), 2)


def test_the_stage_is_in_the_log_and_in_the_state() -> None:
    part = KindCurriculum(batches=2)
    tasks = source("a", "b", "c", "a")
    seen = []
    for _ in range(8):
        chosen = part(tasks, 2)
        assert {tasks.kinds_of(chosen)[0]} == set(tasks.kinds_of(chosen))
        seen.append(
            (
                part.batch_metrics(po.Experience(mask=torch.ones(1, 1).bool()))["choice/stage"],
                *set(tasks.kinds_of(chosen)),
            )
        )
        part.step()
    assert seen == [(0.0, "a")] * 2 + [(1.0, "b")] * 2 + [(2.0, "c")] * 4
    other = KindCurriculum(batches=2)
    other.load_state_dict(part.state_dict())
    assert set(tasks.kinds_of(other(tasks, 3))) == {"c"}
