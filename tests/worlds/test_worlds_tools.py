"""Worlds whose policies call tools, and a guard in front of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from polopt.claims.problems.injection import RULES, outcomes
from polopt.config import ConfigError
from polopt.guards import Guard, GuardVerdict, PrivilegeRule, Privileges, ToolCall, ToolCallError
from polopt.worlds import (
    GuardedTasks,
    NoisyTasks,
    Task,
    WorldError,
    build_tasks,
    described_tools,
    parse_world,
    tool_calls,
    tool_environment,
)
from polopt.worlds.contract import new_episode

WORLD = '''
from polopt.worlds import tool_environment


class Shop:
    def __init__(self, task):
        self.task, self.bought = task, []

    def tools(self):
        return {"buy": self.buy, "look": self.look}

    def look(self):
        """What there is."""
        return ["tea", "cake"]

    def buy(self, what: str, count: int = 1):
        """Buys."""
        if what not in self.look():
            raise ValueError(f"there is no {what}")
        self.bought += [what] * count
        return f"bought {count}"

    def score(self, answer):
        return float(self.bought == [self.task.row["wanted"]] and answer == "done")

    def demonstrate(self):
        wanted = self.task.row["wanted"]
        call = '{"name": "buy", "arguments": {"what": "%s", "count": 1}}' % wanted
        return "done" if self.bought else call


def shop(*, seed):
    tasks = [{"prompt": f"Buy {what}.", "id": what, "wanted": what} for what in ("tea", "cake", "milk")]
    return tool_environment(Shop, train=tasks[:2], heldout=tasks[2:], turns=4)
'''
TEA = [{"tool": "look"}, {"tool": "buy", "arguments": {"what": {"enum": ["tea"]}, "count": {"maximum": 1}}}]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(WORLD)
    return {"kind": "shop.py:shop"}


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def block(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


def test_calls_are_read_in_both_forms_and_answers_are_none() -> None:
    assert tool_calls(call("buy", what="tea")) == [ToolCall("buy", {"what": "tea"})]
    two = f"First {block(call('look'))} then {block(call('buy', what='tea'))}"
    assert [c.name for c in tool_calls(two)] == ["look", "buy"]
    assert tool_calls("done") == tool_calls("{}") == tool_calls("") == []
    for text in (f"<tool_call>{call('look')}", block("look()"), '{"name": "look"', '{"name": "look", "x": 1}'):
        with pytest.raises(ToolCallError):
            tool_calls(text)


def test_an_episode_runs_calls_and_scores_the_first_answer_without_any(spec) -> None:
    tasks = build_tasks(spec, seed=0).train
    play = new_episode(tasks, tasks[0])
    assert play.reset() == "Buy tea."
    for action, observation in (
        (call("look"), '["tea", "cake"]'),
        (call("buy", what="milk"), "error: buy: there is no milk"),
        (call("buy"), "error: buy: missing a required argument: 'what'"),
        (call("steal"), "error: there is no tool steal; there are buy, look"),
        ('{"name": buy}', "error: a tool call must be JSON: Expecting value: line 1 column 10 (char 9)"),
        (block(call("look")) + block(call("buy", what="tea")), '["tea", "cake"]\nbought 1'),
    ):
        step = play.step(action)
        assert (step.observation, step.reward, step.over) == (observation, 0.0, False)
    step = play.step("done")
    assert (step.reward, step.terminated, step.info["solved"]) == (1.0, True, True)
    assert step.info["signals"] == {
        "calls": 6.0,
        "first_call": 0.0,
        "malformed": 1.0,
    }  # those that failed too, and none where nothing could be read
    with pytest.raises(WorldError, match="is over"):
        play.step("done")
    assert tasks.turns == 4


def test_tools_are_described_for_a_prompt() -> None:
    def buy(what: str, count: int = 1) -> str:
        """Buys.

        And more.
        """
        return ""

    def look() -> None: ...

    text = described_tools({"buy": buy, "look": look})
    assert text.splitlines()[0].startswith("buy(what")
    assert text.splitlines()[0].endswith("): Buys.")
    assert text.splitlines()[1] == "look()"


def test_a_guard_refuses_before_anything_runs_and_counts(spec) -> None:
    world = build_tasks({"kind": "guarded", "of": spec, "rules": TEA, "penalty": 0.25}, seed=0)
    tasks = world.train
    assert set(tasks.signals) == {"refused", "ran", "calls", "first_call", "malformed"}  # type: ignore[attr-defined]
    play = new_episode(tasks, tasks[0])
    play.reset()
    refused = play.step(call("buy", what="cake", count=1))
    assert refused.observation == (
        "error: no rule allows buy with these arguments; nothing was run. The task is still: Buy tea."
    )
    assert (refused.reward, refused.over) == (-0.25, False)
    # One of two is refused: neither runs.
    both = play.step(block(call("buy", what="tea", count=1)) + block(call("buy", what="tea")))
    assert both.info["signals"] == {"refused": 2.0, "ran": 0.0}
    assert play.step('{"name": "buy"').observation.startswith("error: a tool call must be")
    assert play.step(call("buy", what="tea", count=1)).observation == "bought 1"
    last = play.step("done")
    assert last.reward == 1.0
    # Refused answers count, too.
    assert last.info["signals"] == {"refused": 2.0, "ran": 1.0, "calls": 1.0, "first_call": 3.0, "malformed": 1.0}
    play.reset()
    play.step(call("buy", what="tea", count=1))
    refused = play.step(call("buy", what="cake", count=1))
    # The calls that it made before stay.
    assert refused.info["signals"] == {"refused": 1.0, "ran": 1.0, "calls": 1.0, "first_call": 0.0, "malformed": 0.0}
    play.reset()


def test_demonstrations_and_other_worlds_around_a_guarded_one(spec) -> None:
    tasks = GuardedTasks(build_tasks(spec, seed=0).train, Privileges(rules=[PrivilegeRule(tool="*")]))
    noisy = NoisyTasks(tasks, missed=0.0)
    play = noisy.episode(noisy[1])
    play.reset()
    while not (step := play.step(play.demonstrate() or "")).over:
        pass
    assert step.reward == 1.0
    told = {"refused": 0.0, "ran": 1.0, "calls": 1.0, "first_call": 0.0, "malformed": 0.0, "true": 1.0}
    assert step.info["signals"] == told


def test_an_end_ends_the_episode(spec) -> None:
    tasks = build_tasks({"kind": "guarded", "of": spec, "rules": TEA, "fallback": "end"}, seed=0).train
    play = new_episode(tasks, tasks[0])
    play.reset()
    step = play.step(call("buy", what="cake", count=1))
    assert (step.observation, step.terminated, step.info["solved"]) == ("", True, False)


def test_calls_of_one_answer_are_judged_in_their_order(spec) -> None:
    """The first call's update refuses the second, though neither has run."""
    rules = [{"tool": "look", "update": [{"tool": "buy", "effect": "forbid"}]}, {"tool": "buy"}]
    tasks = build_tasks({"kind": "guarded", "of": spec, "rules": rules}, seed=0).train
    play = new_episode(tasks, tasks[0])
    play.reset()
    assert "a rule forbids" in play.step(block(call("look")) + block(call("buy", what="tea"))).observation
    assert play.step(block(call("buy", what="tea")) + block(call("look"))).observation.startswith("bought 1")
    assert "a rule forbids" in play.step(call("buy", what="tea")).observation


def test_what_is_malformed_is_refused_at_the_door(spec) -> None:
    for changes, sentence in (
        ({}, "needs either rules, a file or a list, or a guard"),
        ({"rules": TEA, "guard": {"part": "guards.Privileges"}}, "needs either rules"),
        ({"rules": [{"tool": "x", "arguments": {"a": {"multipleOf": 2}}}]}, r"tasks.rules\[0\].*'multipleOf'"),
        ({"rules": "none.yaml"}, "none.yaml does not exist"),
        ({"guard": {"part": "credit.RelativeAdvantage"}}, "guard must be a guard"),
        ({"guard": {"part": "guards.Privilege"}}, "did you mean 'Privileges'"),
        ({"rules": TEA, "penalty": -1}, "penalty = -1"),
    ):
        with pytest.raises((ConfigError, ValueError), match=sentence):
            parse_world({"kind": "guarded", "of": spec, **changes}, "tasks")
    chains = {"kind": "chains", "train": 10, "heldout": 5}
    with pytest.raises(ConfigError, match="calls no tools that could be guarded"):
        build_tasks({"kind": "guarded", "of": chains, "rules": TEA}, seed=0)
    Path("rules.yaml").write_text("- tool: look\n")
    assert parse_world({"kind": "guarded", "of": spec, "rules": "rules.yaml"})


def test_a_guard_of_ones_own(spec) -> None:
    Path("mine.py").write_text(
        "from polopt.guards import Guard, GuardVerdict\n\n\nclass Twice(Guard):\n"
        "    def forward(self, call, memory=()):\n"
        "        return GuardVerdict(len(memory) < 2, 'two calls are enough')\n"
    )
    tasks = build_tasks({"kind": "guarded", "of": spec, "guard": {"part": "mine.py:Twice"}}, seed=0).train
    play = new_episode(tasks, tasks[0])
    play.reset()
    found = [play.step(call("look")).observation for _ in range(3)]
    assert found[:2] == ['["tea", "cake"]'] * 2
    assert "two calls are enough" in found[2]


def test_injected_orders_do_harm_until_a_guard_is_there() -> None:
    """Orders work in the office without a guard, and through a guard that leaves one hole."""
    free, safe = outcomes(None, 0, 60), outcomes(Privileges(rules=list(RULES)), 0, 60)
    assert free.harmed > 0.2
    assert safe == (1.0, 1.0, 0.0)

    class Hole(Guard):
        def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
            return GuardVerdict(True) if call.name == "set_payee" else Privileges(rules=list(RULES))(call, memory)

    assert outcomes(Hole(), 0, 60).harmed > 0


def test_a_tools_own_mistake_is_the_worlds(spec) -> None:
    class Broken:
        def tools(self) -> dict[str, Callable[[], Any]]:
            return {"look": lambda: 1 / 0}

        def score(self, answer: str) -> float:
            return 0.0

    split = tool_environment(lambda task: Broken(), train=["a"], heldout=["b"])
    play = new_episode(split.train, Task("a", "task", "a", None, {}))
    play.reset()
    with pytest.raises(WorldError, match=r"ToolEpisode\.step raised ZeroDivisionError"):
        play.step(call("look"))
