"""These programs measure what the paper of iTool claims."""

import copy
import math
from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
from polopt.lab.policy import LinearPolicy
from polopt.lab.source import TreeSource
from polopt.methods.itool import HardestTasks, itool
from polopt.methods.online_dpo import online_dpo
from polopt.sampling import StepPairs, TreeSearch

PARTS, VALUES, TASKS, FEATURES = 4, 4, 24, 48
KNOWN, LACKING = 0.85, 0.08


def _calls(seed: int) -> tuple[TokenTree, LinearPolicy, torch.Tensor]:
    """Returns tasks whose answer is a call of a function with three parameters, each part one of 4 values; a policy
    that knows every part to 0.85 but the second parameter of one function, which it has to 0.08; and which tasks call
    that one, [tasks].

    The score is the share of parts that are right, 0 where the name is wrong. Tasks share parameters by features.
    """
    draw = torch.Generator().manual_seed(seed)
    right = torch.randint(VALUES, (TASKS, PARTS), generator=draw)
    right[:, 0] = torch.arange(TASKS) % VALUES
    lacking = right[:, 0] == 0
    wanted = right.tolist()

    def score(prompt: int, answer: tuple[int, ...]) -> float:
        same = [a == b for a, b in zip(answer, wanted[prompt], strict=True)]
        return sum(same) / PARTS if same[0] else 0.0

    tree = TokenTree.full(VALUES, PARTS, score, prompts=TASKS)
    group = tree.leaves().group
    start = torch.zeros(len(tree.choices), VALUES, dtype=torch.double)
    for part in range(PARTS):
        known = torch.where(lacking & (part == 2), LACKING, KNOWN)
        logit = torch.log(known / (1 - known) * (VALUES - 1)).double()
        nodes = tree.nodes[:, tree.start + part]
        start[nodes, right[group, part]] = logit[group]
    own = torch.randn(len(tree.choices), FEATURES, generator=draw, dtype=torch.double) / FEATURES**0.5
    return tree, LinearPolicy(tree, own, start=start), lacking


def whole_answers() -> Algorithm:
    return online_dpo(group=2)


@effect(
    "Pairs of steps teach more exact calls than pairs of whole answers, from as many rollouts.",
    kind="headline",
    method=lambda: itool(loss="dpo", step_length=1),
    controls={"whole answers": whole_answers},
    step_sizes=(10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0),
    criteria=[More("exact", by=0.05), More("exact elsewhere", by=-0.02)],
    trials=3,
    seeds=10,
    cost="slow",
    refuted=True,
    note="24 calls of 4 parts with 4 values each; one parameter of one function is right in 0.08, all else in 0.85. 30 "
    "batches of 768 rollouts: as pairs of answers, or as searches of 32 rollouts on the 24 hardest of 48 draws. The "
    "loss is DPO's on both sides."
    " A pair of whole answers takes two rollouts, one of steps four or more.",
)
def learns_fragments(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, lacking = _calls(seed)
    ways: dict[str, Any] = {"rate": step_size, "rows": 384, "seed": seed, "reference": copy.deepcopy(policy)}
    train(algorithm, tree, policy, steps=30, **ways)
    exact = tree.log_probabilities(policy).detach().exp() * (tree.outcome == 1)
    success = exact.sum(1)
    return {
        "exact": success.mean().item(),
        "exact with the lacking part": success[lacking].mean().item(),
        "exact elsewhere": success[~lacking].mean().item(),
    }


def _searched(sampling: TreeSearch, seed: int = 0) -> tuple[Any, Experience, list[Any]]:
    tree = TokenTree.full(3, 4, lambda p, a: float(sum(x == (i + p) % 3 for i, x in enumerate(a))) / 4, prompts=4)
    source = TreeSource(tree, TabularPolicy(tree), rows=4 * sampling.expansions * sampling.width, seed=seed)
    rows, trees = sampling.search(source, torch.arange(4))
    return source, rows, trees


@claim(
    "A node's Q is the mean outcome of the rollouts that begin with its steps, and as many nodes are expanded as the "
    "search may.",
    kind="identity",
    baseline="the outcome of a step's first rollout",
)
def trees_count_rollouts() -> Finding:
    sampling = StepPairs(expansions=12, width=3, step_length=1, exploration=0.5)
    source, rows, trees = _searched(sampling)
    off = moved = wrong = 0.0
    start = source.tree.start
    for task, tree in enumerate(trees):
        for node in tree.walk():
            end = rows.mask.shape[1] if node.column < 0 else node.column
            prefix = rows.extras["tokens"][node.row, :end]
            same = (rows.extras["tokens"][:, :end] == prefix).all(1) & (rows.group == task)
            if node is tree:
                same = rows.group == task
            off = max(off, abs(node.value - rows.outcome[same].mean().item()))
            wrong += node.visits != int(same.sum())
            wrong += node is not tree and node.begin != start + int((rows.mask[node.row, : node.begin]).sum())
            moved = max(moved, abs(node.value - rows.outcome[node.row].item()))
        expanded = [node for node in tree.walk() if node.expanded]
        wrong += len(expanded) != 12
    return Finding(
        measured={"largest error": off, "wrong counts": wrong, "of the first rollout": moved},
        criterion="error < 1e-12 and no wrong count in four trees of 12 expansions, > 0.1 of the first rollout",
        holds=off < 1e-12 and wrong == 0 and moved > 0.1,
    )


@claim(
    "Pairs share all tokens before the step and differ in it, the better step has the higher Q, and other decisions "
    "are out of the loss.",
    kind="identity",
    baseline="whole answers of the search, the best and the worst",
)
def pairs_differ_in_one_step() -> Finding:
    sampling = StepPairs(expansions=12, width=3, step_length=2)
    source, rows, trees = _searched(sampling)
    pairs = sampling.learned(source, rows, trees)
    wrong = 0
    for better, worse in zip(range(0, len(pairs), 2), range(1, len(pairs), 2), strict=True):
        mask = pairs.mask[better]
        tokens = pairs.extras["tokens"]
        begin = int(mask.int().argmax())
        wrong += not torch.equal(mask, pairs.mask[worse]) or int(mask.sum()) != 2
        wrong += not torch.equal(tokens[better, :begin], tokens[worse, :begin])
        wrong += bool((tokens[better, mask] == tokens[worse, mask]).all())
        wrong += not pairs.outcome[better] > pairs.outcome[worse]
    whole = sum(
        float((rows.outcome[rows.group == g].max() - rows.outcome[rows.group == g].min()) > 0) for g in range(4)
    )
    return Finding(
        measured={"wrong": float(wrong), "pairs": len(pairs) / 2, "pairs of whole answers": whole},
        criterion="none wrong, more than 8 pairs from 4 tasks",
        holds=wrong == 0 and len(pairs) > 16,
    )


@claim(
    "The tasks that are searched are those whose solutions the policy finds least likely.",
    kind="part",
    baseline="tasks in random order",
)
def takes_the_hardest() -> Finding:
    tree = TokenTree.bandit([[1.0, 0.0]] * 20)
    p = torch.linspace(0.05, 0.95, 20).double()
    policy = TabularPolicy(tree).set_probabilities(torch.stack([p, 1 - p], 1))
    source = TreeSource(tree, policy, rows=8)
    hard = HardestTasks(share=0.5)(source, 10)
    mean, plain = p[hard].mean().item(), p.mean().item()
    return Finding(
        measured={"chance of the solution, taken": mean, "of all": plain},
        criterion="the mean of the ten least likely of twenty, 0.263, within 1e-9",
        holds=math.isclose(mean, p[:10].mean().item(), abs_tol=1e-9) and plain > 0.4,
    )


@mutation("Q is the outcome of the last rollout.", kills=trees_count_rollouts)
def last_rollout(replace: Replace) -> None:
    from polopt.sampling import SearchNode

    def add(self: SearchNode, outcome: float) -> None:
        self.visits += 1
        self.value = outcome

    replace(SearchNode, "add", add)


@mutation("All decisions of a pair are learned.", kills=pairs_differ_in_one_step)
def whole_rows(replace: Replace) -> None:
    own = StepPairs.learned

    def learned(self: StepPairs, source: Any, rows: Experience, trees: Any) -> Experience:
        pairs = own(self, source, rows, trees)
        return pairs.replace(mask=pairs.extras["tokens"] >= 0)

    replace(StepPairs, "learned", learned)


@mutation("The easiest tasks are searched.", kills=takes_the_hardest)
def easiest(replace: Replace) -> None:
    own = HardestTasks.forward
    replace(HardestTasks, "forward", lambda self, source, count: own(self, source, 2 * count).flip(0)[:count])
