"""Votes on the next action of a thought graph, by agents that are simulated or asked over a wire."""

from __future__ import annotations

import pytest
import torch
from chat_server import served

from polopt.backends import Chat
from polopt.methods.aries import aries
from polopt.problems import FixedSchedule, ThoughtGraphError, ThoughtGraphs, find, majority, thought_graph
from polopt.solvers import ChatAgent, ErringAgent, VotedActions

SMALL = thought_graph(size=4, depth=1, accuracy=0.8, repair=0.9)


def test_states_and_moves_by_hand() -> None:
    names = [str(state) for state in SMALL.states]
    assert names[:3] == ["1 part: 1 unsolved, 0 wrong, 0 right", "1 part: 0 unsolved, 1 wrong, 0 right", "solved"]
    assert len(names) == 3 + 6
    start, wrong, solved = SMALL.states[:3]
    assert SMALL.outcomes(start, "decompose") == (2, {(2, 2, 0): 1.0})
    assert SMALL.outcomes(start, "solve") == (1, {solved: 0.8**4, wrong: 1 - 0.8**4})
    assert SMALL.outcomes(start, "aggregate") is None
    assert SMALL.outcomes(start, "refine") is None
    assert SMALL.outcomes(solved, "solve") is None
    both_wrong = next(state for state in SMALL.states if state == (2, 0, 2))
    assert SMALL.outcomes(both_wrong, "aggregate") == (1, {wrong: 1.0})
    requests, after = SMALL.outcomes(both_wrong, "refine") or (0, {})
    assert (requests, after[(2, 0, 1)]) == (1, pytest.approx(0.9**2))


def test_a_policy_is_played_as_by_chance() -> None:
    """10,000 episodes of a policy that errs, drawn one by one."""
    policy = ErringAgent(error=0.4).chances(SMALL)
    draw = torch.Generator().manual_seed(0)
    number = {state: i for i, state in enumerate(SMALL.states)}
    done, requests = 0, 0
    for _ in range(10_000):
        state = SMALL.states[0]
        for _ in range(SMALL.limit):
            if state.over:
                break
            action = SMALL.actions[int(torch.multinomial(policy[number[state]], 1, generator=draw))]
            found = SMALL.outcomes(state, action)
            assert found is not None
            requests += found[0]
            after = [*found[1]]
            state = after[int(torch.multinomial(torch.tensor([*found[1].values()]), 1, generator=draw))]
        done += state.over
    played = SMALL.played(policy)
    assert done / 10_000 == pytest.approx(played["success"], abs=0.005)
    assert requests / 10_000 == pytest.approx(played["requests"], rel=0.03)


def test_the_best_policy_is_the_best() -> None:
    best = SMALL.measure(SMALL.best_policy)
    assert best["value"] == pytest.approx(0.0, abs=1e-9)
    draw = torch.Generator().manual_seed(1)
    for _ in range(20):
        other = torch.rand(len(SMALL.states), 4, generator=draw, dtype=torch.double)
        assert SMALL.measure(other / other.sum(1, keepdim=True))["value"] > 0


def test_schedules_by_hand() -> None:
    fixed = SMALL.scheduled(FixedSchedule(splits=1, tries=2, refinements=1, last=1))
    part = 1 - (1 - 0.8**2) ** 2 * (1 - 0.9**2)
    assert fixed["success"] == pytest.approx(1 - (1 - part**2) * (1 - 0.9**4))
    assert fixed["requests"] == 2 + 2 * 3 + 1 + 1
    best = SMALL.best_schedule(0.9)
    assert best is not None
    assert SMALL.scheduled(best)["success"] >= 0.9
    assert SMALL.best_schedule(1.0) is None


def test_a_chat_model_names_the_actions() -> None:
    """It solves at first, mends what is wrong, once asked in vain, and says nothing of use elsewhere."""

    def reply(question: str) -> str:
        if "1 unsolved" in question:
            return "I would rather refine, no: solve." if "request 1" in question else "Solve it"
        return "Refine." if "1 wrong" in question else "?"

    with served(reply) as server:
        chat = Chat(url=server.url, model="tiny", temperature=1.0, backoff=0.01)
        solver = aries(voters=3).but(agent=ChatAgent(chat=chat, samples=2))
        chances = solver.agent.chances(SMALL)
        asked = len(server.seen)
    column = {action: i for i, action in enumerate(SMALL.actions)}
    assert chances[0, column["solve"]] == 1  # refine is named first, and is not possible there
    assert chances[1, column["refine"]] == 1
    even = SMALL.states.index(next(state for state in SMALL.states if state == (2, 2, 0)))
    assert chances[even].tolist() == [1.0 if a == "solve" else 0.0 for a in SMALL.actions]
    assert asked == 2 * int(SMALL.possible.any(1).sum())


def test_votes_are_added_one_by_one() -> None:
    solver = VotedActions(agent=ErringAgent(error=0.3), voters=3)
    state = solver.begin(SMALL)
    seen = []
    for _ in range(5):
        seen.append(int(state["asked"]))
        state = solver.iterate(SMALL, state)
    assert seen == [1, 2, 3, 3, 3]
    assert torch.allclose(majority(state["chances"], 3).sum(1), torch.ones(len(SMALL.states), dtype=torch.double))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"size": 4, "depth": 3}, "at least 2\\^depth"),
        ({"accuracy": 0.0}, "accuracy and repair"),
        ({"repair": 1.5}, "accuracy and repair"),
        ({"price": -1.0}, "price >= 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ThoughtGraphError, match=said):
        find({"name": "thought-graph", **settings})


def test_solvers_and_agents_refuse_what_they_cannot_be() -> None:
    with pytest.raises(ValueError, match="voters must be >= 1"):
        aries(voters=0)
    with pytest.raises(ValueError, match="error must be"):
        aries(error=1.5)
    with pytest.raises(ThoughtGraphError, match="actions must be"):
        ThoughtGraphs(actions=("solve",))
    with pytest.raises(TypeError, match="ThoughtGraphs"):
        aries().begin(find("tool-plans"))
