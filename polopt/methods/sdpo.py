"""SDPO: the policy, having seen a right answer, teaches itself token by token."""

import torch

from polopt.algorithm import Algorithm
from polopt.lab import TreeSource, TreeTeacher, flat_gradient
from polopt.lab.problems import one_decisive
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Distillation,
    HasTeacher,
    ImportanceWeight,
    PolicyGradient,
    SampledDistillation,
    Surrogate,
    TokenMean,
)
from polopt.sampling import Rollouts
from polopt.teachers import TAUGHT, SelfTeacher, Sibling


@method(
    paper=Paper(
        title="Reinforcement Learning via Self-Distillation",
        authors="Hübotter, Jonas and others",
        year=2026,
        arxiv="2601.20802",
    ),
    changes="Each decision moves to what the averaged policy would say there, had it seen a right answer.",
    room="objectives",
    tier="faithful",
)
def sdpo(*, group: int = 8, alpha: float = 0.5, top: int = 100, rate: float = 0.05, cap: float = 2.0) -> Algorithm:
    """q_t = pi_avg(. | prompt + a right sibling's answer, y_<t), p_t = pi(. | prompt, y_<t), on the policy's answers y:

        L = (1 / sum_i |y_i|) sum_it min(exp(logp_it - behaviour logp_it), cap) D_alpha(q_it, p_it)

    over the rows that have a right sibling, D the generalised Jensen-Shannon divergence on the teacher's `top`
    likeliest ids and one bucket for the rest; pi_avg moves by `rate` to the policy after every batch. No advantage is
    read. The authors take the candidates from the student (`teacher.chosen_by`) and tell feedback of the world where no
    sibling is right (`teachers.First`); a world says it in `Step.info["feedback"]`.
    """
    surrogate = Surrogate(
        ratio=None,
        trust=Distillation(alpha=alpha),
        weights=[ImportanceWeight(high=cap - 1)],
        aggregate=TokenMean(),
    )
    return Algorithm(
        sampling=Rollouts(group=group),
        objective=BranchedObjective(routes=[Branch(objective=surrogate, rows=HasTeacher())]),
        teacher=SelfTeacher(hint=Sibling(), rate=rate, top=top),
    )


@sdpo.claim("Credit lands on the decision that decides.", baseline="GRPO: the same advantage on every decision")
def localised() -> Finding:
    tree, policy = one_decisive(success=0.3)
    found = {}
    for reader in ("decisive", "all"):
        algorithm = sdpo()
        teacher = TreeTeacher(policy, algorithm.teacher or SelfTeacher(), sees=reader)
        batch = algorithm.sampling(TreeSource(tree, policy, rows=64, needs=algorithm.all_needs))
        batch = teacher.teach(batch, TAUGHT)
        rows, at = batch.extras["taught"], tree.start + 1
        gap = torch.where(batch.mask, batch.extras["teacher_logp"] - batch.old_logp, 0)[rows].abs()
        elsewhere = torch.cat([gap[:, :at], gap[:, at + 1 :]], 1)
        found[f"{reader}: decisive"], found[f"{reader}: elsewhere"] = gap[:, at].mean().item(), elsewhere.max().item()
        even = grpo(kl=0).judge(batch).advantage[rows]
        spread = (even - even[:, at, None])[batch.mask[rows]].abs().max().item()
    return Finding(
        measured={**found, "GRPO, differences": spread},
        criterion="understanding reader: |log q - logp| > 0.1 on average where it decides, < 1e-6 elsewhere; GRPO: 0",
        holds=found["decisive: decisive"] > 0.1 and found["decisive: elsewhere"] < 1e-6 and spread == 0,
        note="So much is the teacher's merit, not the loss's: one that copies the sibling token by token ('all') moves "
        "the decisions that do not matter as much as the one that does.",
    )


@sdpo.claim(
    "Sampled, at alpha 1, it is REINFORCE with the advantage log q - log p on each decision.",
    baseline="REINFORCE's loss",
)
def sampled() -> Finding:
    tree, policy = one_decisive(success=0.3)
    algorithm = sdpo()
    teacher = TreeTeacher(policy, algorithm.teacher or SelfTeacher())
    batch = teacher.teach(algorithm.sampling(TreeSource(tree, policy, rows=64, needs=algorithm.all_needs)), TAUGHT)
    rows = batch.extras["taught"][:, None]
    gap = torch.where(batch.mask & rows, batch.extras["teacher_logp"] - batch.logp, 0)
    slopes = []
    for trust in (SampledDistillation(), PolicyGradient()):
        loss = Surrogate(ratio=None, trust=trust)(batch.replace(advantage=gap), policy.evaluate(batch)).loss
        slopes.append(flat_gradient(loss, policy))
    off = ((slopes[0] - slopes[1]).norm() / slopes[1].norm()).item()
    return Finding(measured={"relative error": off}, criterion="< 1e-12", holds=off < 1e-12)
