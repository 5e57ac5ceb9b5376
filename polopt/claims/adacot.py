"""These programs measure what the paper of AdaCoT claims."""

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.thinking import ThinkingPolicy, frontier, questions, taught
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.experience import Experience
from polopt.features.masks import AnswerMatches, RowMask, TaskKindIs
from polopt.lab.effects import Less, effect
from polopt.methods.adacot import MaskThinkDecision, ThinkOrNot, adacot

# On the lab's questions: no critic; the first token, 0 or 1, marks whether an answer was thought about.
BARE = {"credit": RelativeAdvantage(baseline=GroupMean(), scale=None), "objective.regularise": [], "sampling.group": 8}
THOUGHT, NEED = AnswerMatches(pattern="^1"), TaskKindIs(kinds=("hard",))


def _priced(miss: float, over: float, need: RowMask = NEED) -> Algorithm:
    return adacot(miss=miss, over=over, thought=THOUGHT, need=need).but(BARE, **{"reward.terms.1.malformed": None})


def _front(algorithms: Sequence[Algorithm], seed: int, step_size: float) -> dict[str, float]:
    """Of all algorithms, the least share of questions that are thought about, and how much accuracy at most is missing
    to the best with as many thoughts. Thought is labelled as needed beyond difficulty 0.65."""
    shares, missing = list[float](), list[float]()
    for algorithm in algorithms:
        tree, u = questions(needed=0.65)
        policy = taught(algorithm, tree, ThinkingPolicy(tree, u, free=True), steps=150, rate=step_size, seed=seed)
        shares.append(policy.log_odds(u).sigmoid().mean().item())
        missing.append(frontier(u, shares[-1]) - tree.value(policy).item())
    return {"share thought about": min(shares), "accuracy missing": max(missing)}


@effect(
    "Sweeping the penalty walks along the exact front of accuracy against thinking, to 0.42 of the thoughts.",
    kind="headline",
    method=lambda: [_priced(weight, weight) for weight in (0.0, 0.3, 0.65)],
    controls={"the outcome alone": lambda: [_priced(0.0, 0.0)]},
    step_sizes=(40.0, 80.0, 160.0, 320.0),
    criteria=[Less("share thought about", times=0.42), Less("accuracy missing", by=0.02)],
    best=Less("accuracy missing", by=0.0),
    seeds=5,
    trials=1,
    cost="slow",
    note="From 0.95 of the questions, 0.42 of it is 0.4. A penalty never asks for less thought than the labels do: "
    "labelled from 0.3 on, 0.7 of the questions is the least, whatever the weight.",
)
def pareto(algorithms: Sequence[Algorithm], *, seed: int, step_size: float) -> dict[str, float]:
    return _front(algorithms, seed, step_size)


@effect(
    "The labels bring it a hundredth nearer to the front than a price on every thought does.",
    kind="limit",
    method=lambda: [_priced(0.65, 0.65)],
    controls={"0.6 for every thought": lambda: [_priced(0.0, 0.6, need=TaskKindIs(kinds=("never",)))]},
    step_sizes=(40.0, 80.0, 160.0, 320.0),
    criteria=[Less("accuracy missing", by=-0.01)],
    trials=1,
    cost="slow",
    refuted=True,
    note="Without labels a price on every thought keeps those that are worth it, and so comes to the same front: as "
    "many questions are thought about, and the same ones.",
)
def labels_pay(algorithms: Sequence[Algorithm], *, seed: int, step_size: float) -> dict[str, float]:
    return _front(algorithms, seed, step_size)


@claim(
    "On tasks that always need thought, masking the deciding token keeps when to think; without, it is unlearned.",
    kind="part",
    baseline="the same stage without the mask",
)
def masking() -> Finding:
    tree, u = questions(least=0.7, count=6)
    easy = torch.linspace(0, 0.3, 31, dtype=torch.double)
    found, ends = {}, {}
    for name, select in (("masked", [MaskThinkDecision()]), ("not masked", [])):
        policy = ThinkingPolicy(tree, u)
        before = policy.log_odds(easy).sigmoid().mean().item()
        algorithm = adacot(stage=2).but(BARE, select=select)
        taught(algorithm, tree, policy, steps=250, rate=10.0)
        found[name] = policy.log_odds(easy).sigmoid().mean().item()
        ends[name] = policy.end[1].sigmoid().item()
    return Finding(
        measured={
            "thought about where u < 0.3, at first": before,
            **found,
            "masked: right ends": ends["masked"],
        },
        criterion="trained on u > 0.7: not masked > 0.9, masked within 0.05 of the start and right ends > 0.9",
        holds=found["not masked"] > 0.9 and abs(found["masked"] - before) <= 0.05 and ends["masked"] > 0.9,
    )


@claim("Each of the three faults has its own price.", kind="identity", baseline="the outcome alone")
def prices() -> Finding:
    tree, u = questions(count=4)
    batch = tree.leaves()
    algorithm = adacot(miss=0.1, over=0.3, form=1.0, thought=THOUGHT, need=NEED, malformed=AnswerMatches(pattern="0$"))
    found = algorithm.reward(batch)
    # The answers of a question are 00, 01, 10 and 11; the first begins a thought, the second ends right.
    exact = [
        outcome - (0.1 if x > 0.3 and not first else 0.3 if first and x <= 0.3 else 0.0) - (1.0 if not last else 0.0)
        for x, outcomes in zip(u.tolist(), tree.outcome.tolist(), strict=True)
        for outcome, (first, last) in zip(outcomes, tree.answers, strict=True)
    ]
    off = (found - found.new_tensor(exact)).abs().max().item()
    plain = (batch.outcome - found.new_tensor(exact)).abs().max().item()
    return Finding(
        measured={"largest error": off, "of the outcome alone": plain},
        criterion="error < 1e-12 for all answers to 4 questions at prices 0.1, 0.3 and 1; the outcome alone off by > 1",
        holds=off < 1e-12 and plain > 1,
    )


@mutation("A thought that was missing costs what a needless one should, and the other way round.", kills=prices)
def prices_swapped(replace: Replace) -> None:
    def forward(self: ThinkOrNot, experience: Experience) -> Tensor:
        thought, need = self.thought(experience), self.need(experience)
        cost = self.over * (need & ~thought).double() + self.miss * (thought & ~need).double()
        return -cost - (0 if self.malformed is None else self.form * self.malformed(experience).double())

    replace(ThinkOrNot, "forward", forward)


@mutation("The decision after the first is masked instead of the first.", kills=masking)
def masks_the_answer(replace: Replace) -> None:
    def forward(self: MaskThinkDecision, experience: Experience) -> Experience:
        number = experience.mask.cumsum(1)  # from 1: the first decision is number 1, not 0
        return experience.restrict(~(experience.mask & (number == self.count + 1)))

    replace(MaskThinkDecision, "forward", forward)
