"""These programs measure what the paper of EtCon claims."""

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
from polopt.methods.etcon import etcon
from polopt.methods.sft import sft
from polopt.objectives import Clip, Surrogate
from polopt.rewards import Reward, SumOfRewards
from polopt.worlds import Task

# The layers that are edited.
LAYERS = ("hidden", "out")


def edit(algorithm: Algorithm, seed: int, early: bool = False) -> tuple[Facts, Facts]:
    """The network before, and after 60 batches of five epochs; or, `early`, as soon as all five edits are the likeliest
    values."""
    before, tree, subjects, new, demonstrations = edits(seed=seed)
    after = copied(before)
    for batch in range(60):
        if early and edited(after, subjects, new)[0] == 1:
            break
        policy = SubjectPolicy(after, subjects, LAYERS)
        train(algorithm, tree, policy, steps=1, rate=0.3, rows=5, epochs=5, seed=batch, demonstrations=demonstrations)
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


@claim(
    "However long it learns from one batch, no token moves much beyond the clip.",
    kind="part",
    baseline="SFT",
    refuted=True,
)
def holds_back() -> Finding:
    grown = {}
    for name, algorithm in (("EtCon", etcon(stage=1)), ("SFT", sft())):
        before, tree, subjects, new, demonstrations = edits()
        after = copied(before)
        policy = SubjectPolicy(after, subjects, LAYERS)
        train(algorithm, tree, policy, steps=1, rate=0.03, rows=5, epochs=33, demonstrations=demonstrations)
        rows = torch.arange(len(subjects))
        grown[name] = (after.log_probs() - before.log_probs())[subjects, 0][rows, new].exp().max().item()
    return Finding(
        measured={f"largest growth, {name}": value for name, value in grown.items()},
        criterion="EtCon's < 1.3 with clip 0.2; SFT's > 2",
        holds=grown["EtCon"] < 1.3 and grown["SFT"] > 2,
        note="A token beyond the clip has no gradient of its own, and those that have not got there yet carry it on "
        "where they share its layers. It stays far behind SFT's.",
    )


@claim(
    "With all edits made, what was not edited has moved at most half as far.",
    kind="headline",
    baseline="SFT on the same layers",
    cost="slow",
    refuted=True,
)
def local() -> Finding:
    found: dict[str, list[float]] = {}
    for seed in range(2):
        for name, algorithm, early in (
            ("EtCon", etcon(stage=1), False),
            ("SFT", sft(), False),
            ("EtCon, stopped early", etcon(stage=1), True),
            ("SFT, stopped early", sft(), True),
        ):
            before, after = edit(algorithm, seed, early)
            _, _, subjects, new, _ = edits(seed=seed)
            moved, right = drift(after, before, subjects)
            for what, value in (("KL", moved), ("right", right), ("edits made", edited(after, subjects, new)[0])):
                found.setdefault(f"{what}, {name}", []).append(value)
    mean = {name: sum(values) / len(values) for name, values in found.items()}
    return Finding(
        measured=mean,
        criterion="all edits made by both; EtCon's KL <= half of SFT's, after as many batches and stopped early",
        holds=all(value == 1 for name, value in mean.items() if name.startswith("edits"))
        and mean["KL, EtCon"] <= 0.5 * mean["KL, SFT"]
        and mean["KL, EtCon, stopped early"] <= 0.5 * mean["KL, SFT, stopped early"],
        note="A limit on each batch makes the way longer, not another one: where the edits are the same, so is what "
        "else has moved. Stopping early helps both alike.",
    )


@claim(
    "Free answers, which think first, take the edits up in stage 2: at least 30 points more often.",
    kind="headline",
    baseline="stage 1 alone, and stage 2 alone",
)
def consolidates() -> Finding:
    before, after = edit(etcon(stage=1), 0)
    _, tree, subjects, new, _ = edits()
    made, free = edited(after, subjects, new)
    measured = {"stage 1: edits made": made, "stage 1: free": free}
    for name, start in (("both stages", after), ("stage 2 alone", before)):
        facts = copied(start)
        reference = SubjectPolicy(copied(start), subjects)
        train(etcon(), tree, SubjectPolicy(facts, subjects), steps=60, rate=0.3, rows=5, reference=reference)
        measured[f"{name}: free"] = edited(facts, subjects, new)[1]
    return Finding(
        measured=measured,
        criterion="edits made 1; both stages >= stage 1 + 0.3 and >= stage 2 alone + 0.3",
        holds=made == 1 and measured["both stages: free"] >= max(free, measured["stage 2 alone: free"]) + 0.3,
        note="What was not edited is asked by neither stage, and drifts further in the second.",
    )


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
