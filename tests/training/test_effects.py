"""Stages in which a part cannot act are refused before anything is spent; where it acts in vain, the run warns."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from chat_server import served
from tiny_runs import recipe

import polopt as po
from polopt.backends import Chat
from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.methods.gtalign import CELLS
from polopt.situation import Situation
from polopt.training.estimate import estimate
from polopt.training.language import LanguageDomain
from polopt.training.launch import train
from polopt.training.provided import check_effects

GAME = "<payoff>" + json.dumps({cell: {"user": 1, "LLM": 2} for cell in CELLS}) + "</payoff>"
PLAIN = Situation(
    stage="rl",
    group=8,
    limit=100,
    turns=1,
    solutions=["2", None],
    kinds=["digits"],
    fields=frozenset(),
    tokens=len,
    block=lambda block: ["wte"],
)


def found(method: str | dict[str, Any], **changes: Any) -> list[str]:
    """Cautions on a method, in a stage whose group is that of its sampling unless given."""
    algorithm = po.method(**method) if isinstance(method, dict) else po.method(method)
    situation = dataclasses.replace(PLAIN, **{"group": algorithm.sampling.compared, **changes})
    return check_effects(algorithm, situation)


RELATIVE = (
    *("grpo", "dr-grpo", "dapo", "gspo", "cispo", "bnpo", "seed-grpo", "luspo", "canon", "g2rpo", "hapo"),
    *("stratified-grpo", "empg", "noisy-verifier"),
)


@pytest.mark.parametrize("slug", RELATIVE)
def test_a_group_of_one_is_refused_where_rows_of_a_group_are_compared(slug: str) -> None:
    assert found({"slug": slug, "group": 2}) == []
    with pytest.raises(
        ConfigError,
        match=r"stages\.rl: (credit|methods\.\w+)\.\w+: its groups hold one row each.*stages\.rl\.group to 2",
    ):
        found({"slug": slug, "group": 1})


@pytest.mark.parametrize("slug", ["ppo", "reinforce", "rloo", "tempsamp-r1", "sapo-swarm", "v0-5"])
def test_a_group_of_one_may_learn_by_itself_or_from_others(slug: str) -> None:
    """By a critic, a prediction, a solution or others' rows that join it."""
    assert found({"slug": slug, "group": 1}) == []


def test_a_refused_group_leaves_no_folder(tmp_path: Path) -> None:
    settings = recipe(stages={"rl": {"method": "dr-grpo", "steps": 2, "rows": 8, "group": 1}})
    with pytest.raises(ConfigError, match=r"stages\.rl\.group to 2 or more, found 1"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_texts_that_do_not_fit_an_answer_are_refused() -> None:
    probes = {"slug": "rex-rag", "texts": ["abc", "defgh"]}
    assert found(probes, limit=6) == []
    with pytest.raises(
        ConfigError, match=r"methods\.rex_rag\.RetryRollouts: the text 'defgh' and one token after it need 6 tokens"
    ):
        found(probes, limit=5)


def test_attempts_that_tasks_do_not_ask_for() -> None:
    assert found("score", turns=2) == []
    assert "methods.score.TurnAdvantage" in found("score")[0]
    with pytest.raises(ConfigError, match=r"methods\.score\.TurnRewards: it rewards no answer before number 2"):
        found({"slug": "score", "stage": 1})
    assert found({"slug": "score", "stage": 1}, turns=2) == []


def test_unit_tests_of_no_function_are_refused() -> None:
    assert found("rlsqm", fields=frozenset({"focal", "size"})) == []
    with pytest.raises(ConfigError, match=r"methods\.rlsqm\.UnitTest: .*as 'focal', and the tasks name none"):
        found("rlsqm", fields=frozenset({"size"}))


@pytest.mark.parametrize(
    ("method", "fine", "sentence"),
    [
        ("policyrollout", {"slug": "policyrollout", "rules": "a42"}, "which are none"),
        (
            "mpo-meta",
            {"slug": "mpo-meta", "items": [po.rewards.Item(name="outcome")]},
            r"reward length \(characters\)",
        ),
        ({"slug": "latr", "least": 0.5}, {"slug": "latr", "least": 0.49}, "no tree can branch"),
        ({"slug": "latr", "share": ((0, 0.1),)}, {"slug": "latr", "share": ((0, 0.25),)}, "one row is a tree's"),
        ("gtalign", {"slug": "gtalign", "blocks": False}, "none of the first 1 solutions has a block <payoff>"),
    ],
)
def test_a_default_that_acts_in_vain_is_told_of(method: Any, fine: Any, sentence: str) -> None:
    (told,) = found(method)
    assert told.startswith("stages.rl: ")
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(told)
    assert found(fine) == []


def test_solutions_that_show_the_game_and_tasks_without_any_are_fine() -> None:
    assert found("gtalign", solutions=["2", GAME]) == []
    assert found("gtalign", solutions=[None, None]) == []


def test_what_is_told_is_a_warning_of_the_run_and_a_missing_block_is_refused(tmp_path: Path) -> None:
    def build(method: Any) -> list[str]:
        settings = recipe(stages={"rl": {"method": method, "steps": 2, "rows": 8, "group": 4}})
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            LanguageDomain(settings)
        return [str(w.message) for w in seen if issubclass(w.category, PoloptWarning)]

    assert len(build("mpo-meta")) == 1
    assert build("gvm") == []  # by default the input embedding, whatever its name
    with pytest.raises(
        ConfigError, match=r"GradientVarianceAllocator: no parameter's name contains 'embed_tokens'; there are"
    ):
        build({"name": "gvm", "block": "embed_tokens"})


def test_trees_that_never_branch_are_told_of_once(tmp_path: Path) -> None:
    """A policy of near even odds, with which nothing is above `least`."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        settings = recipe(stages={"rl": {"method": "latr", "steps": 5, "rows": 8, "group": 4}}, checkpoint=100)
        train(settings, tmp_path / "run")
    told = [str(w.message) for w in seen if issubclass(w.category, PoloptWarning)]
    assert told == [s for s in told if "no tree has branched" in s]
    assert len(told) == 1


def test_a_dry_run_asks_no_server() -> None:
    with served() as server:
        chat = {"part": "backends.Chat", "url": server.url, "model": "tiny"}
        method = {"name": "fapo", "chat": chat}
        stages = {
            "warmup": {"method": "sft", "steps": 1, "rows": 8},
            "rl": {"method": method, "steps": 2, "rows": 8, "group": 4},
        }
        told = estimate(recipe(stages=stages), seconds=0.1)
        assert server.seen == []
        assert told.servers == {"rl": [server.url]}
    assert told.total is None
    assert list(told.steps) == ["warmup"]
    assert Chat(url="http://a/v1", model="m").servers == {"http://a/v1"}
