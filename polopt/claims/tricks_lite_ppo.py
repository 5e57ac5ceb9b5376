"""These programs measure what the paper of Lite PPO claims."""

import torch

import polopt.methods.tricks_lite_ppo as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.groupings import SamePrompt
from polopt.lab.effects import More, effect
from polopt.lab.shapes import noisy_labels, norms_in_one_batch
from polopt.methods.dr_grpo import dr_grpo
from polopt.methods.grpo import grpo
from polopt.methods.tricks_lite_ppo import tricks_lite_ppo
from polopt.objectives import TokenMean


@claim(
    "One right answer among eight weighs less than under GRPO, and hard prompts pull no more than without a std.",
    kind="part",
    baseline="GRPO with a token mean; Dr. GRPO",
)
def rare_answers() -> Finding:
    right = torch.cat([torch.arange(8) < k for k in (1, 4, 7)]).double()
    batch = Experience(mask=torch.ones(24, 1).bool(), reward=right, group=torch.arange(3).repeat_interleave(8))
    sentences = {"lite": tricks_lite_ppo(), "grpo": _token_mean(), "dr-grpo": dr_grpo()}
    measured = {f"largest advantage, {n}": s.credit(batch).max().item() for n, s in sentences.items() if n != "dr-grpo"}
    ratio = {}
    for name, algorithm in sentences.items():
        hard, medium, _ = norms_in_one_batch(algorithm, [0.02, 0.5, 0.98])
        ratio[name] = hard / medium
    measured |= {f"pull of success 0.02 over 0.5, {name}": value for name, value in ratio.items()}
    lite, other = measured["largest advantage, lite"], measured["largest advantage, grpo"]
    return Finding(
        measured=measured,
        criterion="largest advantage < 0.75x GRPO's; pull within 5 % of Dr. GRPO's, GRPO's more than 1.3x",
        holds=lite < 0.75 * other
        and abs(ratio["lite"] / ratio["dr-grpo"] - 1) < 0.05
        and ratio["grpo"] > 1.3 * ratio["dr-grpo"],
        note="Exact expectations. GRPO's excess grows with the group: 8 answers at success 0.02 are mostly unanimous.",
    )


@claim(
    "Under GRPO hard prompts pull more than twice as much as without a std.",
    kind="limit",
    baseline="Dr. GRPO",
    refuted=True,
)
def pulls_twice() -> Finding:
    ratio = {}
    for name, algorithm in (("grpo", _token_mean()), ("dr-grpo", dr_grpo())):
        hard, medium, _ = norms_in_one_batch(algorithm, [0.02, 0.5, 0.98])
        ratio[name] = hard / medium
    quotient = ratio["grpo"] / ratio["dr-grpo"]
    return Finding(
        measured={f"pull of success 0.02 over 0.5, {n}": x for n, x in ratio.items()} | {"quotient": quotient},
        criterion="quotient > 2 (groups of 8)",
        holds=quotient > 2,
        note="Exact. Groups of 8 at success 0.02 are mostly unanimous, so that the expected pull is 1.4 times as much; "
        "the excess grows with the group.",
    )


def _token_mean() -> Algorithm:
    return grpo(group=8, kl=0).but(**{"objective.aggregate": TokenMean()})


@effect(
    "Where every third near-unanimous group has one wrong label, it ends with more true reward.",
    kind="headline",
    method=tricks_lite_ppo,
    controls={"grpo with a token mean": _token_mean, "dr-grpo": dr_grpo},
    step_sizes=(2.0, 8.0, 32.0, 128.0),
    criteria=[More("success", by=0.01)],
    trials=2,
    cost="slow",
    refuted=True,
    note="At small steps, equal for both, it leads by two points: near-unanimous groups make the batch's std small, "
    "and its steps large. At each side's own step size a tenth of a point is left.",
)
def label_noise(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """10 easy prompts of success 0.99, one label of 8 wrong in 30 % of their groups, and 10 of success 0.3."""
    return {"success": noisy_labels(algorithm, 0.99, 0.0436, step_size, seeds=1, first=seed)}


@mutation("The std is the group's.", kills=rare_answers)
def std_of_the_group(replace: Replace) -> None:
    replace(module, "WholeBatch", SamePrompt)
