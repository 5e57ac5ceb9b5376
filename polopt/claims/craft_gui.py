"""These programs measure what the paper of CRAFT-GUI claims."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TokenTree, train
from polopt.lab.effects import More, effect
from polopt.lab.policy import LinearPolicy, TabularPolicy
from polopt.lab.source import TreeSource
from polopt.methods.craft_gui import craft_gui
from polopt.methods.grpo import grpo
from polopt.rewards import Judge
from polopt.rewards.judges import Judgement
from polopt.sampling import KindCurriculum

# Steps that count of a task of each kind; skills that a step may need, and actions of which one is right for it.
LENGTHS = {"easy": 1, "medium": 2, "hard": 5}
SKILLS, ACTIONS, EACH, FEATURES = 16, 4, 12, 12
BATCHES, TASKS = 60, 12
ORDER = tuple((kind,) for kind in LENGTHS)


def _skilled(seed: int) -> tuple[TokenTree, LinearPolicy, torch.Tensor]:
    """Returns tasks of three lengths that need the same skills, a uniform policy that reads of each step which skill it
    needs, and the form of every answer, which is right, [prompts, answers]."""
    draw = torch.Generator().manual_seed(seed)
    kinds = [kind for kind in LENGTHS for _ in range(EACH)]
    right = torch.randint(ACTIONS, (SKILLS,), generator=draw)
    need = torch.randint(SKILLS, (len(kinds), max(LENGTHS.values())), generator=draw)
    wanted = right[need].tolist()

    def worth(prompt: int, answer: tuple[int, ...]) -> float:
        steps = LENGTHS[kinds[prompt]]
        return float(list(answer[:steps]) == wanted[prompt][:steps])

    full = TokenTree.full(ACTIONS, max(LENGTHS.values()), lambda p, a: 0.0)
    tree = TokenTree(ACTIONS, full.answers, worth, len(kinds), kinds=kinds)
    skills = torch.randn(SKILLS, FEATURES, generator=draw, dtype=torch.double) / FEATURES**0.5
    at = torch.zeros(len(tree.choices), FEATURES, dtype=torch.double)
    for step in range(need.shape[1]):
        at[tree.nodes[:, tree.start + step]] = skills[need[tree.leaves().group, step]]
    return tree, LinearPolicy(tree, at), torch.ones(len(kinds), len(tree.answers), dtype=torch.double)


def _of_kind(tree: TokenTree, policy: LinearPolicy, kind: str) -> float:
    probability = tree.log_probabilities(policy).detach().exp()
    success = (probability * tree.outcome).sum(1)
    return success[torch.tensor([one == kind for one in tree.kinds])].mean().item()


def curriculum(order: Sequence[Sequence[str]]) -> Algorithm:
    return craft_gui(levels=order, batches=BATCHES // len(LENGTHS), kl=0.0, form=0.0)


@effect(
    "More of the hard tasks is learned in stages from easy to hard than from all tasks mixed, or from hard to easy.",
    kind="headline",
    method=lambda: curriculum(ORDER),
    controls={"mixed": lambda: grpo(group=8, kl=0.0), "hard first": lambda: curriculum(ORDER[::-1])},
    step_sizes=(2.0, 6.0, 18.0, 54.0, 162.0),
    criteria=[More("hard", by=0.1)],
    trials=5,
    seeds=10,
    cost="slow",
    refuted=True,
    note="12 tasks of each of three kinds, of 1, 2 and 5 steps that need one of 16 skills each, which share "
    "parameters; success at the start 1/4, 1/16 and 1/1024. 60 batches of 8 answers to 12 tasks, 20 in each stage."
    " Easy tasks need a few of the skills alone, and mixed tasks teach all of them throughout.",
)
def learns_hard_tasks(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, form = _skilled(seed)
    ways = {"rate": step_size, "rows": TASKS, "seed": seed, "signals": {"format": form}}
    train(algorithm, tree, policy, steps=BATCHES, **ways)  # type: ignore[arg-type]
    return {kind: _of_kind(tree, policy, kind) for kind in LENGTHS}


def _kinds_taken(algorithm: Algorithm, batches: int) -> list[dict[str, int]]:
    """Returns how many tasks of each kind each batch has."""
    tree = TokenTree.bandit([[1.0, 0.0]] * 12)
    tree.kinds = ["a"] * 3 + ["b"] * 6 + ["c"] * 3
    source = TreeSource(tree, TabularPolicy(tree), rows=8 * 4)
    found = []
    for _ in range(batches):
        choice: Any = algorithm.sampling.choice  # type: ignore[assignment]
        tasks = choice(source, 4)
        kinds = source.kinds_of(tasks)
        found.append({kind: kinds.count(kind) for kind in "abc"})
        algorithm.step()
    return found


@claim(
    "Each stage has the tasks of its kind alone, and with a review the given share of earlier ones.",
    kind="identity",
    baseline="tasks in random order",
)
def takes_kinds_in_order() -> Finding:
    plain = _kinds_taken(craft_gui(batches=2), 6)
    expected = [{"a": 4, "b": 0, "c": 0}] * 2 + [{"a": 0, "b": 4, "c": 0}] * 2 + [{"a": 0, "b": 0, "c": 4}] * 2
    review = _kinds_taken(craft_gui(batches=2, levels=(("c",), ("a", "b")), review=0.25), 5)
    wanted = [{"c": 4}] * 2 + [{"c": 1}] * 3
    mixed = _kinds_taken(grpo(), 6)
    wrong = sum(one != other for one, other in zip(plain, expected, strict=True))
    wrong += sum(one["c"] != other["c"] for one, other in zip(review, wanted, strict=True))
    differs = sum(one != other for one, other in zip(mixed, expected, strict=True))
    return Finding(
        measured={"batches that are wrong": float(wrong), "in random order": float(differs)},
        criterion="none of 11; more than 3 in random order",
        holds=wrong == 0 and differs > 3,
    )


class _Half(Judge):
    """A judge that gives 0.5; what it was given last is `seen`."""

    seen: ClassVar[list[str]] = []

    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        _Half.seen[:] = answers
        return Judgement(torch.full((len(answers),), 0.5, dtype=torch.double), [{}] * len(answers))


class _Asked:
    prompt = "what is shown?"


@claim(
    "The judge's score takes the place of the outcome for tasks of its kinds, and no other answer is judged.",
    kind="identity",
    baseline="rules alone",
)
def judges_its_kinds() -> Finding:
    batch = Experience(
        mask=torch.ones(4, 1, dtype=torch.bool),
        outcome=torch.tensor([1.0, 0.0, 1.0, 0.0]).double(),
        extras={
            "signal_format": torch.tensor([1.0, 1.0, 0.0, 0.0]).double(),
            "kind": ["click", "question", "question", "click"],
            "answer": ["a", "b", "c", "d"],
            "task": [_Asked()] * 4,
        },
    )
    found = craft_gui(judge=_Half(), judged=("question",)).reward(batch)
    rules = craft_gui().reward(batch)
    off = (found - torch.tensor([0.8 + 0.2, 0.4 + 0.2, 0.4, 0.0]).double()).abs().max().item()
    moved = (rules - torch.tensor([0.8 + 0.2, 0.4 + 0.2, 0.4, 0.0]).double()).abs().max().item()
    return Finding(
        measured={"largest error": off, "by rules alone": moved, "answers judged": float(len(_Half.seen))},
        criterion="error < 1e-6 with two of four answers judged, > 0.3 by rules alone",
        holds=off < 1e-6 and _Half.seen == ["b", "c"] and moved > 0.3,
    )


@mutation("Stages end a batch late.", kills=takes_kinds_in_order)
def late(replace: Replace) -> None:
    def stage(self: KindCurriculum, levels: int) -> int:
        return min(max(int(self.get_buffer("learned")) - 1, 0) // self.batches, levels - 1)

    replace(KindCurriculum, "stage", stage)


@mutation("A stage has the tasks of all stages before it, too.", kills=takes_kinds_in_order)
def cumulative(replace: Replace) -> None:
    own = KindCurriculum.forward

    def forward(self: KindCurriculum, source: TreeSource, count: int) -> torch.Tensor:
        kinds = [tuple(level) for level in self.levels] or [(kind,) for kind in source.kinds]
        levels = tuple(sum(kinds[: i + 1], ()) for i in range(len(kinds)))
        other = KindCurriculum(levels=levels, batches=self.batches, review=self.review)
        other.get_buffer("learned").copy_(self.get_buffer("learned"))
        return own(other, source, count)

    replace(KindCurriculum, "forward", forward)
