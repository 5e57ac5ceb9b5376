"""Policies over thought graphs by a vote of an agent that is asked several times."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems.thought_graph import GraphState, ThoughtGraphs, majority
from polopt.solvers.solver import Solver, State


class ThoughtAgent(Part):
    """Base of agents that name the next action of a thought graph."""

    def chances(self, problem: ThoughtGraphs) -> Tensor:
        """Returns the chance that the agent, asked once, names each action, [S, A], 0 for those that are not
        possible."""
        raise NotImplementedError


class ErringAgent(ThoughtAgent):
    """An agent that names the best action but for a share `error` of the time, when it names any other possible one."""

    error: float = 0.3

    def setup(self) -> None:
        if not 0 <= self.error <= 1:
            raise ValueError(f"solvers.ErringAgent: error must be in [0, 1], found {self.error}")

    def chances(self, problem: ThoughtGraphs) -> Tensor:
        best, possible = problem.best_policy, problem.possible
        others = possible & (best == 0)
        error = torch.where(others.any(1, keepdim=True), self.error, 0.0).double()
        wrong = others / others.sum(1, keepdim=True).clamp(min=1)
        return torch.where(possible.any(1, keepdim=True), (1 - error) * best + error * wrong, best)


class ChatAgent(ThoughtAgent):
    """A chat model that is asked for the next action in each state, `samples` times; its chances are the shares of its
    replies. The action that a reply names first counts, and a reply that names none counts for all that are possible.

    chat: the client, as `backends.Chat`, with a temperature above 0 for other replies to the same question.
    """

    chat: Part
    samples: int = 8

    def setup(self) -> None:
        if self.samples < 1:
            raise ValueError(f"solvers.ChatAgent: samples must be >= 1, found {self.samples}")

    def chances(self, problem: ThoughtGraphs) -> Tensor:
        going = [i for i in range(len(problem.states)) if problem.possible[i].any()]
        asked = [(i, n) for i in going for n in range(self.samples)]
        replies = self.chat([[_question(problem, i, n)] for i, n in asked])
        found = torch.zeros(problem.possible.shape, dtype=torch.double)
        for (i, _), reply in zip(asked, replies, strict=True):
            named = [a for a in problem.actions if reply is not None and a in reply.text.lower()]
            able = [a for a in named if problem.possible[i, problem.actions.index(a)]]
            first = min(able, key=reply.text.lower().index) if able else None
            row = problem.possible[i].double() if first is None else _one_hot(problem, first)
            found[i] += row / row.sum() / self.samples
        return torch.where(problem.possible.any(1, keepdim=True), found, 1 / len(problem.actions))


def _one_hot(problem: ThoughtGraphs, action: str) -> Tensor:
    return torch.tensor([float(name == action) for name in problem.actions], dtype=torch.double)


def _question(problem: ThoughtGraphs, number: int, sample: int) -> dict[str, str]:
    """Returns the message that shows a state and asks for an action. sample: number of the request, so that a cache
    keeps one reply for each."""
    state: GraphState = problem.states[number]
    able = [a for a, there in zip(problem.actions, problem.possible[number].tolist(), strict=True) if there]
    text = (
        f"A task of {problem.size} elements is worked on by parts: {state}. decompose splits all parts in two, solve "
        "works on one, refine mends a wrong one, aggregate joins solved parts. Each request costs "
        f"{problem.price:g} of a reward of 1 for the solved task. Name the next action: {', '.join(able)}.\n"
        f"(request {sample + 1})"
    )
    return {"role": "user", "content": text}


class VotedActions(Solver):
    """A policy over thought graphs: in each state the action that most of an agent's answers name, of equals any. Each
    iteration asks once more, up to `voters` times.

    State: `chances` [S, A] of the agent's answers, and `asked`, how often it is asked in each state.
    """

    agent: ThoughtAgent = ErringAgent()
    voters: int = 5

    solves: ClassVar[type] = ThoughtGraphs

    def setup(self) -> None:
        if self.voters < 1:
            raise ValueError(f"solvers.VotedActions: voters must be >= 1, found {self.voters}")

    def start(self, problem: ThoughtGraphs) -> dict[str, Tensor]:  # type: ignore[override]
        return {"chances": self.agent.chances(problem), "asked": torch.ones((), dtype=torch.int64)}

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        return {**state, "asked": (state["asked"] + 1).clamp(max=self.voters)}

    def solution(self, problem: Any, state: State) -> Tensor:
        return majority(state["chances"], int(state["asked"]))
