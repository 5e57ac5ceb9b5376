"""These programs measure what the paper of step-level Q-value models claims."""

import copy
import itertools
import math
from typing import Any

import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
from polopt.lab.policy import LinearPolicy
from polopt.lab.source import TreeSource
from polopt.methods.step_q import AgentStepPairs, StepReranker, step_q

DEPTH, WIDTH, TASKS, FEATURES = 4, 5, 12, 48
KNOWN = 0.35


def _errands(seed: int) -> tuple[TokenTree, LinearPolicy]:
    """Returns tasks of four steps, of five actions each, whose outcome is the share of right steps before the first
    wrong one, and an agent that takes each right step with chance 0.35. Nodes share parameters by random features."""
    draw = torch.Generator().manual_seed(seed)
    right = torch.randint(WIDTH, (TASKS, DEPTH), generator=draw)
    wanted = right.tolist()

    def share(prompt: int, answer: tuple[int, ...]) -> float:
        same = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(answer, wanted[prompt], strict=True)))
        return len(same) / DEPTH

    tree = TokenTree.full(WIDTH, DEPTH, share, prompts=TASKS).in_turns(1)
    start = torch.zeros(len(tree.choices), WIDTH, dtype=torch.double)
    group = tree.leaves().group
    for step in range(DEPTH):
        nodes = tree.nodes[:, tree.start + step]
        start[nodes, right[group, step]] = math.log(KNOWN / (1 - KNOWN) * (WIDTH - 1))
    own = torch.randn(len(tree.choices), FEATURES, generator=draw, dtype=torch.double) / FEATURES**0.5
    return tree, LinearPolicy(tree, own, start=start)


def _reranked(tree: TokenTree, policy: TabularPolicy, agent: TabularPolicy, seed: int) -> float:
    """Returns the mean outcome of 40 episodes of each task by the agent with the policy's ranks."""
    source = TreeSource(tree, policy, rows=TASKS, seed=seed)
    weights = torch.cat([p.detach().flatten() for p in agent.parameters()])
    play = StepReranker()
    with torch.no_grad():
        return play(source, torch.arange(TASKS).repeat(40), weights).outcome.mean().item()


@effect(
    "An agent whose steps are ranked by a model of steps does better than by one that was trained on whole paths, and "
    "than alone.",
    kind="headline",
    method=step_q,
    controls={"paths": lambda: step_q(step_length=DEPTH), "the agent alone": lambda: None},
    step_sizes=(30.0, 100.0, 300.0, 1000.0, 3000.0),
    criteria=[More("outcome", by=0.05)],
    trials=3,
    seeds=10,
    cost="slow",
    note="12 tasks of four steps with 5 actions each, of which the agent takes the right one with chance 0.35; the "
    "outcome is the share of right steps before the first wrong one. 15 batches of searches of 150 rollouts of each "
    "task, and 5 candidates of each step.",
)
def ranks_steps(side: Any, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = _errands(seed)
    if side is None:
        return {"outcome": tree.value(policy).item()}
    agent = copy.deepcopy(policy)
    ways: dict[str, Any] = {"rate": step_size, "rows": TASKS * 75, "seed": seed, "reference": agent}
    train(side, tree, policy, steps=15, **ways)
    return {"outcome": _reranked(tree, policy, agent, seed)}


@claim(
    "The better step of a pair is the best path's, the worse one its sibling of the lowest mean outcome, at every "
    "depth where they differ.",
    kind="identity",
    baseline="the sibling of the highest mean outcome",
)
def pairs_are_of_the_best_path() -> Finding:
    def worth(prompt: int, answer: tuple[int, ...]) -> float:
        # No two answers are worth the same, so that one path is the best.
        number = 16 * answer[0] + 4 * answer[1] + answer[2]
        return sum(x == (i + prompt) % 4 for i, x in enumerate(answer)) / 3 + number / 1000

    tree = TokenTree.full(4, 3, worth, prompts=3).in_turns(1)
    sampling: Any = step_q(expansions=50).sampling
    source = TreeSource(tree, TabularPolicy(tree), rows=3 * 250, seed=1)
    rows, roots = sampling.search(source, torch.arange(3))
    pairs = sampling.learned(source, rows, roots)
    wrong, other, at = 0, 0, 0
    for task in range(3):
        here = rows.group == task
        tokens, outcome = rows.extras["tokens"][here, tree.start :], rows.outcome[here]
        best = tokens[outcome.argmax()]
        for depth in range(3):
            same = (tokens[:, :depth] == best[:depth]).all(1)
            means = {a: outcome[same & (tokens[:, depth] == a)].mean().item() for a in tokens[same, depth].tolist()}
            better = means[int(best[depth])]
            if better <= min(means.values()):
                continue
            mask = pairs.mask[at, tree.start :]
            found = pairs.extras["tokens"][at : at + 2, tree.start + depth].tolist()
            wrong += int(mask.sum()) != 1 or not bool(mask[depth])
            wrong += found[0] != int(best[depth]) or abs(means[found[1]] - min(means.values())) > 1e-9
            wrong += abs(pairs.outcome[at].item() - better) > 1e-9
            rest = [mean for a, mean in means.items() if a != int(best[depth])]
            other += max(rest) > min(rest) + 1e-9
            at += 2
    return Finding(
        measured={"wrong": float(wrong), "pairs": at / 2, "where the highest sibling differs": float(other)},
        criterion="none wrong and none left over, at least 6 pairs, the highest sibling differs in 2 or more",
        holds=wrong == 0 and at == len(pairs) >= 12 and other >= 2,
    )


@claim(
    "It is the agent that searches, however far the model has moved.",
    kind="identity",
    baseline="searches by the model",
)
def the_agent_searches() -> Finding:
    tree = TokenTree.full(3, 2, lambda p, a: float(a[0] == 0) / 2 + float(a[1] == 0) / 2).in_turns(1)
    found: list[Experience] = []
    for part in (step_q(expansions=3).sampling, step_q(expansions=3).sampling):
        policy = TabularPolicy(tree)
        source = TreeSource(tree, policy, rows=15, seed=5)
        part(source)
        if found:
            with torch.no_grad():
                policy.logits.add_(50 * torch.nn.functional.one_hot(torch.tensor(2), 3))
            source.refresh()
        source.generator.manual_seed(7)
        found.append(part(source))
    plain, moved = found
    same = torch.equal(plain.extras["tokens"], moved.extras["tokens"])
    alone = moved.rollout_logp[moved.mask].exp()
    return Finding(
        measured={"same pairs": float(same), "chance of steps under the agent": alone.mean().item()},
        criterion="the same pairs after the model has moved, each step with the agent's chance of 1/3",
        holds=same and bool((alone - 1 / 3).abs().max() < 1e-9),
    )


@claim(
    "With a model that is the agent all ranks are equal and the agent plays as it does; with exact values the best "
    "candidate is played.",
    kind="limit",
    baseline="the agent alone",
)
def ranks_decide() -> Finding:
    tree, known = _errands(3)
    table = known.table().detach()
    agent, exact = TabularPolicy(tree), TabularPolicy(tree)
    with torch.no_grad():
        agent.logits.copy_(table)
        # Sure of the right step at every node.
        exact.logits.copy_(table + 20 * (table > 0))
    plain = _reranked(tree, copy.deepcopy(agent), agent, 1)
    ranked = _reranked(tree, exact, agent, 1)
    chance = 1 - (1 - KNOWN) ** 5
    best = sum(chance**k for k in range(1, DEPTH + 1)) / DEPTH
    own = tree.value(agent).item()
    return Finding(
        measured={"equal ranks": plain, "the agent": own, "exact ranks": ranked, "expected": best},
        criterion="within 0.05 of the agent's value, and of the best of five candidates in each step",
        holds=abs(plain - own) < 0.05 and abs(ranked - best) < 0.05,
    )


@mutation("The worse step is the sibling of the highest mean outcome.", kills=pairs_are_of_the_best_path)
def highest_sibling(replace: Replace) -> None:
    from polopt.sampling import SearchNode, StepPairs

    def pairs(self: StepPairs, tree: SearchNode) -> Any:
        best = max(tree.leaves(), key=lambda way: way[-1].value)
        for node, better in zip([tree, *best[:-1]], best, strict=True):
            rest = [child for child in node.children.values() if child is not better]
            if rest and better.value > min(child.value for child in rest):
                yield better, max(rest, key=lambda child: child.value)

    replace(StepPairs, "pairs", pairs)


@mutation("The model itself searches.", kills=the_agent_searches)
def model_searches(replace: Replace) -> None:
    from polopt.sampling import StepPairs

    replace(AgentStepPairs, "forward", lambda self, source: StepPairs.forward(self, source))


@mutation("Candidates are ranked by the model's probability alone.", kills=ranks_decide)
def by_probability(replace: Replace) -> None:
    def gains(self: StepReranker, source: Any, rows: Experience, begin: Any, agent: Any) -> torch.Tensor:
        return torch.where(rows.mask, source.evaluate(rows).logp, 0).sum(1)

    replace(StepReranker, "gains", gains)
