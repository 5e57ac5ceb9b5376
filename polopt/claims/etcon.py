"""These programs measure what the paper of EtCon claims."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

import polopt.methods.etcon as method_file
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.facts import Facts, SubjectPolicy, copied, drift, edited, edits
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import train
from polopt.lab.claims import push
from polopt.lab.effects import Less, More, compared, effect
from polopt.methods.etcon import etcon
from polopt.methods.sft import sft
from polopt.objectives import Clip, Surrogate
from polopt.rewards import Reward, SumOfRewards
from polopt.worlds import Task

# The layers that are edited.
LAYERS = ("hidden", "out")


def edit(algorithm: Algorithm, seed: int, rate: float = 0.3, early: bool = False) -> tuple[Facts, Facts]:
    """The network before, and after 60 batches of five epochs; or, `early`, as soon as all five edits are the likeliest
    values."""
    before, tree, subjects, new, demonstrations = edits(seed=seed)
    after = copied(before)
    for batch in range(60):
        if early and edited(after, subjects, new)[0] == 1:
            break
        policy = SubjectPolicy(after, subjects, LAYERS)
        train(algorithm, tree, policy, steps=1, rate=rate, rows=5, epochs=5, seed=batch, demonstrations=demonstrations)
    return before, after


@claim(
    "A token that has grown by more than the clip has no gradient; the first step is SFT's.",
    kind="identity",
    baseline="SFT",
)
def stops() -> Finding:
    ours, plain = etcon(stage=1).objective, sft().objective
    assert isinstance(ours, Surrogate)
    assert isinstance(plain, Surrogate)
    found = {f"pull at ratio {ratio}": push(ours.trust, ratio) for ratio in (0.5, 1.0, 1.19, 1.21)}
    found["SFT's"] = push(plain.trust, 1.21)
    return Finding(
        measured=found,
        criterion="0.5, 1, 1.19 and then 0; SFT's is 1 everywhere",
        holds=all(abs(a - b) < 1e-12 for a, b in zip(found.values(), (0.5, 1.0, 1.19, 0.0, 1.0), strict=True)),
        note="Below 1 it pulls less than SFT, where the token is still rare: the ratio is its weight.",
    )


@effect(
    "When all edits are made, what was not edited has moved at most half as far.",
    kind="headline",
    method=lambda: etcon(stage=1),
    controls={"sft": sft},
    step_sizes=(0.01, 0.03, 0.1, 0.3),
    criteria=[Less("KL", times=0.5)],
    seeds=5,
    trials=2,
    cost="slow",
    refuted=True,
    note="Both stop as soon as all edits are made. A limit on each batch makes the way longer, not another one: where "
    "the edits are the same, so is what else has moved.",
)
def local(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    before, after = edit(algorithm, seed, step_size, early=True)
    _, _, subjects, new, _ = edits(seed=seed)
    made = edited(after, subjects, new)[0] == 1
    return {"KL": drift(after, before, subjects)[0] if made else math.nan}


def _free(seed: int) -> dict[str, tuple[float, float]]:
    """How often free answers have the edits, from stage 1 and from SFT: after both stages, after one of them."""
    before, tree, subjects, new, _ = edits(seed=seed)

    def consolidated(start: Facts) -> Facts:
        facts = copied(start)
        reference = SubjectPolicy(copied(start), subjects)
        ways: dict[str, Any] = {"steps": 60, "rate": 0.3, "rows": 5, "reference": reference, "seed": seed}
        train(etcon(), tree, SubjectPolicy(facts, subjects), **ways)
        return facts

    first = [edit(etcon(stage=1), seed)[1], edit(sft(), seed)[1]]
    sides = {
        "method": [consolidated(facts) for facts in first],
        "stage 1 alone": first,
        "stage 2 alone": [consolidated(before)] * 2,
    }
    free = {name: [edited(facts, subjects, new)[1] for facts in found] for name, found in sides.items()}
    return {name: (from_stage_1, from_sft) for name, (from_stage_1, from_sft) in free.items()}


@claim(
    "Free answers, which think first, take the edits up in stage 2, at least 30 points more often; after SFT as after "
    "stage 1.",
    kind="part",
    baseline="stage 1 alone, and stage 2 alone",
    cost="slow",
)
def consolidates() -> Finding:
    found = [_free(seed) for seed in range(10)]
    names = ("free", "free, from SFT")
    table = {
        side: {name: np.array([row[side][place] for row in found]) for place, name in enumerate(names)}
        for side in found[0]
    }
    note = (
        "So it shows the second stage's effect, not that of the first one's clip. What was not edited is asked by "
        "neither stage, and drifts further in the second."
    )
    return compared(table, [More(name, by=0.3) for name in names], note=note)


@claim(
    "The reward of stage 2 is 0.7 correct + 0.05 form + 0.15 clean + 0.1 consistent, and 0 without form.",
    kind="identity",
    baseline="answers that lack one of the four",
)
def bundled() -> Finding:
    box, thought = (
        r"<answer>\boxed{Rome}</answer>",
        "Re-evaluate Knowledge Network: it is Boston, outdated. Synthesize. ",
    )
    wrong = box.replace("Rome", "Oslo")
    answers = {
        thought + box: 1.0,
        thought + wrong: 0.3,
        thought + box.replace("boxed", "\\boxed"): 1 - 0.05 * 0.1,
        thought + box + " and more": 1 - 0.15 * 0.6,
        box: 0.9,
        "Rome": 0.0,
    }
    task = Task("t", "k", "Where?", "Rome", {"old": "it is Boston"})
    batch = Experience(
        mask=torch.ones(len(answers), 1, dtype=torch.bool),
        outcome=torch.zeros(len(answers), dtype=torch.double),
        extras={"answer": list(answers), "task": [task] * len(answers)},
    )
    found = etcon(bundle=True).reward(batch).double()
    off = (found - torch.tensor(list(answers.values()), dtype=torch.double)).abs().max().item()
    return Finding(
        measured={"largest error": off, "largest reward without form": found[-1].item()},
        criterion="error < 1e-6 on six answers, one with all four and each of the others without one of them",
        holds=off < 1e-6,
    )


@mutation("A token that has become rarer by more than the clip has no gradient either.", kills=stops)
def both_sides(replace: Replace) -> None:
    def forward(self: Clip, log_ratio: Tensor, experience: Experience, _: Evaluation) -> tuple[Tensor, Tensor]:
        ratio = log_ratio.exp()
        return -experience.advantage * ratio.clamp(1 - self.low, 1 + self.high), torch.zeros_like(ratio)

    replace(Clip, "forward", forward)


@mutation("The weights of form and cleanness are swapped.", kills=bundled)
def swapped(replace: Replace) -> None:
    def combined(*, terms: list[Reward], weights: list[float]) -> SumOfRewards:
        right, form, clean, kept = weights
        return SumOfRewards(terms=terms, weights=[right, clean, form, kept])

    replace(method_file, "SumOfRewards", combined)
