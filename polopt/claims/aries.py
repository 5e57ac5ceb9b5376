"""These programs measure what the paper of ARIES claims."""

import itertools
from typing import Any

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, More, effect
from polopt.methods.aries import aries
from polopt.problems import ThoughtGraphs, thought_graph
from polopt.solvers import ErringAgent, VotedActions
from polopt.solvers import voting as voting_solvers

SUCCESS = 0.95


def _problem(seed: int) -> ThoughtGraphs:
    """Returns a task of 16 or 32 elements, and a reasoner of random accuracy, which mends better than it solves."""
    draw = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.double).tolist()
    size = 16 if draw[0] < 0.5 else 32
    return thought_graph(size=size, accuracy=0.85 + 0.1 * draw[1], repair=0.9 + 0.08 * draw[2])


def _policy(solver: VotedActions, problem: ThoughtGraphs, asked: int | None = None) -> Tensor:
    state = solver.begin(problem)
    for _ in range((asked or solver.voters) - 1):
        state = solver.iterate(problem, state)
    return solver.solution(problem, state)


@effect(
    "An agent that names the wrong action in 30 % of its answers, asked five times, solves tasks with at most 0.75 "
    "times the requests of the fixed schedule of the fewest requests that solves 95 %.",
    kind="headline",
    method=aries,
    controls={"the best fixed schedule": lambda: None},
    criteria=[Less("requests", times=0.75), More("success", by=-0.02)],
    seeds=10,
    note="Schedules are split, tried, refined and refined as a whole up to six times; each seed has a task of 16 or 32 "
    "elements and a reasoner of its own. Requests are the reasoner's; with those of the agent, five an action, there "
    "are more than the schedule's, which asks nobody.",
)
def fewer_requests(side: Any, *, seed: int) -> dict[str, float]:
    problem = _problem(seed)
    if side is not None:
        found = problem.played(_policy(side, problem))
        return {**found, "requests of both": found["requests"] + side.voters * found["actions"]}
    schedule = problem.best_schedule(SUCCESS)
    if schedule is None:
        raise ValueError(f"no schedule of the grid solves 95 % of the tasks of seed {seed}")
    fixed = problem.scheduled(schedule)
    return {**fixed, "requests of both": fixed["requests"]}


@claim(
    "The more answers are counted, the fewer requests the policy takes and the more tasks it solves; an agent that is "
    "wrong more often than right has nothing of it.",
    kind="part",
    baseline="one answer",
)
def votes_help() -> Finding:
    rising = falling = True
    gain, harm = 1.0, 1.0
    for seed in range(5):
        problem = _problem(seed)
        found = [problem.measure(_policy(aries(voters=9), problem, asked)) for asked in (1, 3, 5, 7, 9)]
        rising &= all(b["success"] >= a["success"] - 1e-12 for a, b in itertools.pairwise(found))
        falling &= all(b["value"] < a["value"] for a, b in itertools.pairwise(found))
        gain = min(gain, found[0]["value"] - found[-1]["value"])
        bad = [problem.measure(_policy(aries(voters=9, error=0.9), problem, asked))["value"] for asked in (1, 9)]
        harm = min(harm, bad[1] - bad[0])
    return Finding(
        measured={"least gain by nine votes": gain, "least loss of a bad agent": harm},
        criterion="the loss of value falls with each two votes and success never falls, on 5 problems; nine votes lose "
        "value for an agent that is wrong in 90 %",
        holds=rising and falling and gain > 0 and harm > 0,
    )


@claim(
    "The chance of each choice to win a vote is the sum over all ways to vote.",
    kind="identity",
    baseline="the choice that one voter takes most often wins always",
)
def votes_are_counted() -> Finding:
    draw = torch.Generator().manual_seed(3)
    chances = torch.rand(4, 3, generator=draw, dtype=torch.double)
    chances = chances / chances.sum(1, keepdim=True)
    error = plain = 0.0
    for voters in (1, 2, 3, 4, 5):
        wanted = torch.zeros_like(chances)
        for votes in itertools.product(range(3), repeat=voters):
            counts = [votes.count(i) for i in range(3)]
            winners = [i for i in range(3) if counts[i] == max(counts)]
            for i in winners:
                wanted[:, i] += chances[:, list(votes)].prod(1) / len(winners)
        error = max(error, float((voting_solvers.majority(chances, voters) - wanted).abs().max()))
        plain = max(plain, float((torch.eye(3).double()[chances.argmax(1)] - wanted).abs().max()))
    return Finding(
        measured={"largest error": error, "of the likeliest choice": plain},
        criterion="error < 1e-12 up to five voters on four random triples, > 0.1 of the likeliest choice",
        holds=error < 1e-12 and plain > 0.1,
    )


@claim(
    "Of a task in one part, the best policy solves it once, and mends it until it is right: 1 + (1 - p) / q requests.",
    kind="limit",
    baseline="solving it anew until it is right, in 1 / p requests",
)
def one_part_in_closed_form() -> Finding:
    problem = ThoughtGraphs(size=4, accuracy=0.8, repair=0.9, depth=0, limit=400)
    p, q = 0.8**4, 0.9**4
    found = problem.played(problem.best_policy)
    again = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=torch.double).expand(len(problem.states), 4)
    other = problem.played(again)
    error = max(abs(found["requests"] - 1 - (1 - p) / q), abs(other["requests"] - 1 / p), abs(found["success"] - 1))
    return Finding(
        measured={"largest error": error, "requests": found["requests"], "solved anew": other["requests"]},
        criterion="errors < 1e-9, and solving anew takes more",
        holds=error < 1e-9 and other["requests"] > found["requests"] + 0.1,
    )


@mutation("Ties are won by the first choice.", kills=votes_are_counted)
def first_of_a_tie(replace: Replace) -> None:
    def counted(chances: Tensor, voters: int) -> Tensor:
        found = torch.zeros_like(chances)
        for votes in itertools.product(range(chances.shape[-1]), repeat=voters):
            winner = max(range(chances.shape[-1]), key=votes.count)
            found[..., winner] += chances[..., list(votes)].prod(-1)
        return found

    replace(voting_solvers, "majority", counted)


@mutation("All votes are the first one again.", kills=votes_help)
def one_vote(replace: Replace) -> None:
    replace(voting_solvers, "majority", lambda chances, voters: chances)


@mutation("The agent never errs, so that votes change nothing.", kills=votes_help)
def never_errs(replace: Replace) -> None:
    replace(ErringAgent, "chances", lambda self, problem: problem.best_policy)
