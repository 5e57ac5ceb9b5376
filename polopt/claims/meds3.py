"""These programs measure what the paper of MedS3 claims."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import More, effect
from polopt.lab.measure import training
from polopt.lab.source import TreeSource
from polopt.methods.meds3 import StepValueLoss, StepValueSearch, VoteSum, meds3
from polopt.objectives import ValueLoss
from polopt.sampling.tree_search import SearchNode

TASKS, STOP, CHOICES = 8, 0, 3


def _tempting(seed: int) -> tuple[TokenTree, TabularPolicy]:
    """Returns tasks of four tokens, in two steps, and a stop token, in each of which one wrong answer is likelier than
    the right one: 0.4 and 0.3."""
    draw = torch.Generator().manual_seed(seed)
    keys = torch.stack([torch.randperm(CHOICES, generator=draw)[:2] for _ in range(4 * TASKS)]).view(TASKS, 4, 2)
    right, wrong = keys[..., 0].tolist(), keys[..., 1].tolist()
    answers = [(*a, STOP) for a in _words(4)]
    tree = TokenTree(CHOICES, answers, lambda p, answer: float([*answer[:4]] == right[p]), TASKS)
    policy = TabularPolicy(tree, critic=True)
    leaves = tree.leaves()
    first = tree.nodes[:, tree.start]
    begun = {"right": 0.3, "wrong": 0.4}
    with torch.no_grad():
        for row, task in enumerate(leaves.group.tolist()):
            answer = leaves.extras["tokens"][row, tree.start : tree.start + 4].tolist()
            for name, way in (("right", right[task]), ("wrong", wrong[task])):
                policy.logits[first[row], way[0]] = torch.tensor(begun[name]).log()
                for place in range(1, 4):
                    if answer[:place] == way[:place]:  # who goes this way goes on with it nearly always
                        policy.logits[tree.nodes[row, tree.start + place], way[place]] = 5.0
            rest = next(t for t in range(CHOICES) if t not in (right[task][0], wrong[task][0]))
            policy.logits[first[row], rest] = torch.tensor(1 - sum(begun.values())).log()
    return tree, policy


def _words(length: int) -> list[tuple[int, ...]]:
    return [tuple(row) for row in torch.cartesian_prod(*[torch.arange(CHOICES)] * length).tolist()]


def _search(**settings: Any) -> Algorithm:
    return meds3(expansions=4, width=4, step_length=2, **settings)


@effect(
    "Answers that vote with the process model's scores are right more often than a majority of as many, where one "
    "wrong answer is likelier than the right one.",
    kind="headline",
    method=lambda: VoteSum(candidates=8),
    controls={"majority": lambda: VoteSum(candidates=8, votes="count"), "one answer": lambda: VoteSum(candidates=1)},
    criteria=[More("right", by=0.05)],
    seeds=10,
    cost="slow",
    note="8 tasks of two steps; the right answer has 0.3 and a wrong one 0.4 of the probability at first. Policy and "
    "process model learn from 30 batches of searches of 16 rollouts, the process model 40 times faster; then each side "
    "selects one of 8 answers, 50 times, from the same policy.",
)
def votes_with_scores(side: VoteSum, *, seed: int) -> dict[str, float]:
    tree, policy = _tempting(seed)
    algorithm = _search(weight=40.0)
    ways: dict[str, Any] = {"rate": 2.0, "rows": TASKS * 16, "seed": seed}
    source: Any = None
    for step, (_, made) in enumerate(training(algorithm, tree, policy, **ways)):
        source = made
        if step == 29:
            break
    source.refresh()
    tasks = torch.arange(TASKS)
    right = sum(float(side(source, tasks).outcome.mean()) for _ in range(50)) / 50
    return {"right": right, "right alone": tree.value(policy).item()}


def _searched(source: TreeSource) -> tuple[Experience, list[SearchNode]]:
    sampling: Any = _search().sampling
    rows, trees = sampling.search(source, source.take(TASKS))
    return sampling.learned(source, rows, trees), trees


@claim(
    "Labels are unbiased estimates of the chance to end right from a step, with the variance of as many completions, "
    "wherever the search went.",
    kind="theory",
    baseline="the mean of all rollouts through a step, which depends on where the search went on",
)
def labels_are_values() -> Finding:
    tree, policy = _tempting(3)
    exact = tree.state_values(policy)
    own: list[float] = []
    through: list[float] = []
    expected = 0.0
    source = TreeSource(tree, policy, rows=TASKS * 16, seed=3)
    for _ in range(300):
        found, trees = _searched(source)
        seen: set[tuple[int, ...]] = set()
        for row, column in (found.extras["step_labelled"] & ~_last(found)).nonzero().tolist():
            place = (int(found.group[row]), *found.extras["tokens"][row, tree.start : column].tolist())
            if place not in seen:
                seen.add(place)
                value = float(exact[int(found.extras["leaf"][row]), column])
                own.append(float(found.extras["step_label"][row, column]) - value)
                through.append(_node(trees[place[0]], place[1:]).value - value)
                expected += value * (1 - value) / 4
    errors = torch.tensor([own, through], dtype=torch.double)
    mean, standard = errors.mean(1), errors.std(1) / len(own) ** 0.5
    square = float(errors[0].square().sum()) / expected
    return Finding(
        measured={
            "mean error, standard errors": float(mean[0] / standard[0]),
            "of all rollouts through": float(mean[1] / standard[1]),
            "square error over p (1 - p) / 4": square,
            "labels": float(len(own)),
        },
        criterion="labels' mean error within 3.5 standard errors, that of all rollouts beyond 2.5, a square error of "
        "0.85 to 1.2 times p (1 - p) / 4",
        holds=abs(float(mean[0] / standard[0])) < 3.5
        and abs(float(mean[1] / standard[1])) > 2.5
        and 0.85 <= square <= 1.2,
    )


def _node(root: SearchNode, tokens: tuple[int, ...]) -> SearchNode:
    """Returns the node that these tokens lead to, by steps of two."""
    node = root
    for i in range(0, len(tokens), 2):
        node = node.children[tokens[i : i + 2]]
    return node


def _last(rows: Experience) -> Tensor:
    return rows.mask & ~rows.mask.roll(-1, 1)


@claim(
    "The loss is that of right answers over all tokens, and the cross-entropy of the labels over their number.",
    kind="identity",
    baseline="the squared error of the critic",
)
def loss_is_the_formula() -> Finding:
    tree, policy = _tempting(5)
    with torch.no_grad():
        noise = torch.randn(len(policy.values), generator=torch.Generator().manual_seed(1), dtype=torch.double)  # type: ignore[arg-type]
        policy.values.copy_(noise)  # type: ignore[union-attr]
    algorithm = _search(weight=0.7)
    batch, _ = _searched(TreeSource(tree, policy, rows=TASKS * 16, seed=2))
    credited = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    with torch.no_grad():
        evaluation = policy.evaluate(credited, frozenset({"value"}))
        loss = float(algorithm.objective(credited, evaluation).loss)
    imitated = scored = squared = 0.0
    tokens = labels = 0
    for row in range(len(batch)):
        for column in batch.mask[row].nonzero().flatten().tolist():
            tokens += 1
            imitated -= float(batch.outcome[row]) * float(evaluation.logp[row, column])
            v = float(batch.extras["step_label"][row, column])
            if v == v:
                labels += 1
                p = 1 / (1 + float((-evaluation.value[row, column]).exp()))
                log = torch.tensor([p, 1 - p], dtype=torch.double).log().tolist()
                scored -= v * log[0] + (1 - v) * log[1]
                squared += (float(evaluation.value[row, column]) - v) ** 2 / 2
    expected = imitated / tokens + 0.7 * scored / labels
    other = imitated / tokens + 0.7 * squared / labels
    return Finding(
        measured={"error": abs(loss - expected), "of squares": abs(loss - other), "labels": float(labels)},
        criterion="error < 1e-9, > 0.01 of squares, over more than 50 labels",
        holds=abs(loss - expected) < 1e-9 and abs(loss - other) > 0.01 and labels > 50,
    )


@claim(
    "Looking back lowers the label of a step that is worse than the one before it, and raises that of a better one, "
    "within 0 and 1.",
    kind="identity",
    baseline="the values themselves",
)
def looks_back() -> Finding:
    values = [0.5, 0.9, 0.4, 0.6, 1.0, 0.0, math.nan, 0.7]  # NaN of a step that no completion was drawn from
    found = StepValueSearch(look_back=0.5).labels(values)
    wanted = [0.5, 0.9, 0.4 - 0.25, 0.6 + 0.1, 1.0, 0.0, math.nan, 0.7]
    plain = StepValueSearch().labels(values)
    error, without = (
        max(_apart(a, b) for a, b in zip(got, told, strict=True)) for got, told in ((found, wanted), (plain, values))
    )
    return Finding(
        measured={"error": error, "without": without},
        criterion="both 0",
        holds=error < 1e-12 and without == 0,
    )


def _apart(a: float, b: float) -> float:
    """Returns the distance of two labels: 0 of two that are missing, infinite if one is."""
    if math.isnan(a) or math.isnan(b):
        return 0.0 if math.isnan(a) and math.isnan(b) else math.inf
    return abs(a - b)


@mutation("A step's label is the mean of all rollouts through it.", kills=labels_are_values)
def through_the_step(replace: Replace) -> None:
    own = StepValueSearch.learned

    def learned(self: StepValueSearch, source: Any, rows: Experience, trees: Sequence[SearchNode]) -> Experience:
        for tree in trees:
            for node in tree.walk():
                node.drawn = node.value
        return own(self, source, rows, trees)

    replace(StepValueSearch, "learned", learned)


@mutation("The process model learns by squares.", kills=loss_is_the_formula)
def squares(replace: Replace) -> None:
    def forward(self: StepValueLoss, experience: Experience, evaluation: Evaluation) -> Tensor:
        label = experience.extras["step_label"]
        target = experience.replace(value=evaluation.value.detach(), value_target=label)
        return torch.where(label.isnan(), 0, ValueLoss(clip=None).forward(target, evaluation))

    replace(StepValueLoss, "forward", forward)


@mutation("All answers have one vote.", kills=votes_with_scores)
def equal_votes(replace: Replace) -> None:
    own = VoteSum.chosen
    replace(VoteSum, "chosen", lambda self, answers, score: own(self, answers, [1.0] * len(score)))


@mutation("A step is compared with the one after it.", kills=looks_back)
def looks_ahead(replace: Replace) -> None:
    own = StepValueSearch.labels
    replace(StepValueSearch, "labels", lambda self, values: own(self, values[::-1])[::-1])
