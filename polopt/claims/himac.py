"""These programs measure what the paper of HiMAC claims."""

import itertools
from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
from polopt.lab.policy import LinearPolicy
from polopt.lab.source import TreeSource
from polopt.methods.grpo import grpo
from polopt.methods.himac import PlansAndExecutions, himac

PLANS, STEPS, ACTIONS, TASKS, FEATURES = 6, 3, 3, 12, 24
SECOND_BEST = 0.4


def _planned(seed: int) -> tuple[TokenTree, LinearPolicy]:
    """Returns tasks of a plan, one turn, and of three steps, another one, and a uniform policy whose nodes share
    parameters. Where the steps are right, which are the same for all plans of a task, the outcome is 1 for the right
    plan and 0.4 for any other; else it is 0."""
    draw = torch.Generator().manual_seed(seed)
    plan = torch.randint(PLANS, (TASKS,), generator=draw).tolist()
    right = torch.randint(ACTIONS, (TASKS, STEPS), generator=draw).tolist()
    widths = [PLANS, *[ACTIONS] * STEPS]
    answers = list(itertools.product(*map(range, widths)))

    def worth(prompt: int, answer: tuple[int, ...]) -> float:
        return (list(answer[1:]) == right[prompt]) * (1.0 if answer[0] == plan[prompt] else SECOND_BEST)

    tree = TokenTree(PLANS, answers, worth, TASKS)
    turn = torch.where(tree.leaves().mask, (tree.leaves().mask.cumsum(1) > 1).long(), -1)
    tree._leaves = tree.leaves().replace(turn=turn)
    own = torch.randn(len(tree.choices), FEATURES, generator=draw, dtype=torch.double) / FEATURES**0.5
    # The steps are known by task and step, and by what was done before, half and half.
    group = tree.leaves().group
    for step in range(STEPS):
        nodes = tree.nodes[:, tree.start + 1 + step]
        shared = torch.randn(TASKS, FEATURES, generator=draw, dtype=torch.double) / FEATURES**0.5
        own[nodes] = (own[nodes] + shared[group]) / 2**0.5
    return tree, LinearPolicy(tree, own)


@effect(
    "More is learned from as many episodes than without the two phases, and than with any plan instead of the best.",
    kind="headline",
    method=lambda: himac(kl=0.0),
    controls={"GRPO": lambda: grpo(group=8, kl=0.0), "any plan": lambda: himac(kl=0.0, plan="random")},
    step_sizes=(2.0, 6.0, 18.0, 54.0, 162.0),
    criteria=[More("outcome", by=0.02)],
    trials=5,
    seeds=10,
    cost="slow",
    refuted=True,
    note="12 tasks with 6 plans and three steps of 3 actions; 60 batches of 8 episodes of each task."
    " Plans and executions are each learned from half of the batches.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = _planned(seed)
    train(algorithm, tree, policy, steps=60, rate=step_size, rows=TASKS, seed=seed)
    return {"outcome": tree.value(policy).item()}


def _batches(algorithm: Algorithm, count: int) -> tuple[TokenTree, list[Experience]]:
    tree, _ = _planned(1)
    policy = TabularPolicy(tree)
    source = TreeSource(tree, policy, rows=8 * TASKS, seed=3)
    algorithm.train()
    found = []
    for _ in range(count):
        found.append(algorithm.with_advantages(algorithm.sampling(source)))
        algorithm.step()
    return tree, found


@claim(
    "Batches alternate: plans alone are learned, then executions alone, each of the plan of the highest outcome of the "
    "batch before, the first of several, in the same tasks.",
    kind="identity",
    baseline="the first plan of each task",
)
def phases_alternate() -> Finding:
    tree, batches = _batches(himac(), 6)
    wrong = differs = 0
    for macro, micro in zip(batches[::2], batches[1::2], strict=True):
        plan = tree.start
        wrong += not macro.extras["macro"].all() or bool(micro.extras["macro"].any())
        wrong += int(macro.mask[:, plan + 1 :].sum()) + int(micro.mask[:, : plan + 1].sum())
        wrong += not bool(macro.mask[:, plan].all()) or int(micro.mask.sum()) != len(micro) * STEPS
        for task in range(TASKS):
            before, after = macro.group == task, micro.group == task
            index = macro.extras["index"][before]
            best = macro.outcome[before].argmax()
            tokens = macro.extras["tokens"][before, plan]
            wrong += bool((micro.extras["index"][after] != index[0]).any()) or int(after.sum()) != 8
            wrong += bool((micro.extras["tokens"][after, plan] != tokens[best]).any())
            differs += int(tokens[0] != tokens[best])
    return Finding(
        measured={"wrong": float(wrong), "tasks in which the first plan is another": float(differs)},
        criterion="none wrong in three pairs of batches, the first plan is another in 3 tasks or more",
        holds=wrong == 0 and differs >= 3,
    )


@claim(
    "In each phase the learned decisions have the z-score of their row's outcome in its group, and none is learned in "
    "both.",
    kind="identity",
    baseline="the outcome itself",
)
def z_scores_in_each_phase() -> Finding:
    _, batches = _batches(himac(), 2)
    off, moved, varied = 0.0, 0.0, 0
    for batch in batches:
        for task in range(TASKS):
            rows = batch.group == task
            outcome, mask = batch.outcome[rows], batch.mask[rows]
            expected = ((outcome - outcome.mean()) / (outcome.std() + 1e-6))[:, None].expand(mask.shape)
            found = batch.advantage[rows]
            off = max(off, (found - expected)[mask].abs().max().item())
            moved = max(moved, (found - outcome[:, None])[mask].abs().max().item())
            varied += int(outcome.std() > 0)
    apart = int((batches[0].mask & batches[1].mask).sum())
    return Finding(
        measured={"largest error": off, "from the outcome": moved, "groups of unequal outcomes": float(varied)},
        criterion="error < 1e-9, > 0.1 from the outcome, no decision in both phases, more than 3 unequal groups",
        holds=off < 1e-9 and moved > 0.1 and apart == 0 and varied > 3,
    )


@mutation("The first plan is executed.", kills=phases_alternate)
def first_plan(replace: Replace) -> None:
    own = PlansAndExecutions._keep

    def keep(self: PlansAndExecutions, rows: Experience, *given: Any) -> None:
        own(self, rows.replace(outcome=torch.ones_like(rows.outcome)), *given)

    replace(PlansAndExecutions, "_keep", keep)


@mutation("Whole rows are learned in both phases.", kills=phases_alternate)
def whole_rows(replace: Replace) -> None:
    import polopt.methods.himac as here

    own = here._learned
    replace(here, "_learned", lambda rows, mask, *, macro: own(rows, rows.mask, macro=macro))
