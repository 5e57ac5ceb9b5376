"""These programs measure what the paper of SDPO claims."""

import torch

from polopt.claim import Finding, claim
from polopt.lab import TreeSource, TreeTeacher, flat_gradient
from polopt.lab.problems import one_decisive
from polopt.methods.grpo import grpo
from polopt.methods.sdpo import sdpo
from polopt.objectives import PolicyGradient, SampledDistillation, Surrogate
from polopt.teachers import TEACHER_FIELDS, SelfTeacher


@claim("Credit lands on the decision that decides.", kind="part", baseline="GRPO: the same advantage on every decision")
def localised() -> Finding:
    tree, policy = one_decisive(success=0.3)
    found = {}
    for reader in ("decisive", "all"):
        algorithm = sdpo()
        teacher = TreeTeacher(policy, algorithm.teacher or SelfTeacher(), sees=reader)
        batch = algorithm.sampling(TreeSource(tree, policy, rows=64, needs=algorithm.required_fields))
        batch = teacher.teach(batch, TEACHER_FIELDS)
        rows, at = batch.extras["has_teacher_signal"], tree.start + 1
        gap = torch.where(batch.mask, batch.extras["teacher_logp"] - batch.old_logp, 0)[rows].abs()
        elsewhere = torch.cat([gap[:, :at], gap[:, at + 1 :]], 1)
        found[f"{reader}: decisive"], found[f"{reader}: elsewhere"] = gap[:, at].mean().item(), elsewhere.max().item()
        even = grpo(kl=0).compute_advantages(batch).advantage[rows]
        spread = (even - even[:, at, None])[batch.mask[rows]].abs().max().item()
    return Finding(
        measured={**found, "GRPO, differences": spread},
        criterion="understanding reader: |log q - logp| > 0.1 on average where it decides, < 1e-6 elsewhere; GRPO: 0",
        holds=found["decisive: decisive"] > 0.1 and found["decisive: elsewhere"] < 1e-6 and spread == 0,
        note="So much is the teacher's merit, not the loss's: one that copies the sibling token by token ('all') moves "
        "the decisions that do not matter as much as the one that does.",
    )


@claim(
    "Sampled, at alpha 1, it is REINFORCE with the advantage log q - log p on each decision.",
    kind="identity",
    baseline="REINFORCE's loss",
)
def sampled() -> Finding:
    tree, policy = one_decisive(success=0.3)
    algorithm = sdpo()
    teacher = TreeTeacher(policy, algorithm.teacher or SelfTeacher())
    batch = teacher.teach(
        algorithm.sampling(TreeSource(tree, policy, rows=64, needs=algorithm.required_fields)), TEACHER_FIELDS
    )
    rows = batch.extras["has_teacher_signal"][:, None]
    gap = torch.where(batch.mask & rows, batch.extras["teacher_logp"] - batch.rollout_logp, 0)
    gradients = []
    for trust in (SampledDistillation(), PolicyGradient()):
        loss = Surrogate(ratio=None, trust=trust)(batch.replace(advantage=gap), policy.evaluate(batch)).loss
        gradients.append(flat_gradient(loss, policy))
    off = ((gradients[0] - gradients[1]).norm() / gradients[1].norm()).item()
    return Finding(measured={"relative error": off}, criterion="< 1e-12", holds=off < 1e-12)
