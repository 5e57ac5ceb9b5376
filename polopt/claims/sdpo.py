"""These programs measure what the paper of SDPO claims."""

import torch

import polopt.methods.sdpo as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import TreeSource, TreeTeacher, flat_gradient
from polopt.lab.effects import More, effect
from polopt.lab.problems import decisive_tokens, one_decisive
from polopt.lab.progress import learned
from polopt.methods.grpo import grpo
from polopt.methods.sdpo import sdpo
from polopt.objectives import Distillation, ImportanceWeight, PolicyGradient, SampledDistillation, Surrogate
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


@claim(
    "Its loss is the divergence of the two distributions, at most `cap` times, over the rows with a right sibling.",
    kind="identity",
    baseline="the divergence to what the policy is without the sibling: 0",
)
def by_hand() -> Finding:
    """Candidates are all three tokens, so that nothing is left for the bucket."""
    tree, policy = one_decisive(success=0.3)
    algorithm = sdpo(alpha=0.3)
    teacher = TreeTeacher(policy, algorithm.teacher or SelfTeacher())
    source = TreeSource(tree, policy, rows=64, needs=algorithm.required_fields)
    batch = algorithm.compute_advantages(teacher.teach(algorithm.sampling(source), TEACHER_FIELDS))
    with torch.no_grad():  # the policy has moved since
        policy.logits.add_(torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(0)).double())
    evaluation = policy.evaluate(batch, algorithm.objective.required_outputs | {"logits"})
    found = algorithm.objective(batch, evaluation).loss.item()
    p, total, learns, capped = evaluation.logits.softmax(-1), 0.0, 0, 0
    for row, place in batch.mask.nonzero().tolist():
        if not batch.extras["has_teacher_signal"][row]:
            continue
        ids = batch.extras["candidates"][row, place]
        own, other = p[row, place, ids], batch.extras["teacher_candidate_logp"][row, place].exp()
        mixture = 0.7 * own + 0.3 * other
        divergence = 0.3 * (other * (other / mixture).log()).sum() + 0.7 * (own * (own / mixture).log()).sum()
        ratio = (evaluation.logp - batch.rollout_logp)[row, place].exp().item()
        total += min(ratio, 2.0) * divergence.item()
        learns, capped = learns + 1, capped + int(ratio > 2)
    return Finding(
        measured={"loss": found, "by hand": total / learns, "decisions": float(learns), "above the cap": float(capped)},
        criterion="relative error < 1e-6; 5 decisions or more above the cap of 2",
        holds=abs(found * learns / total - 1) < 1e-6 and capped >= 5,
    )


@mutation("Importance weights have no upper bound.", kills=by_hand)
def without_cap(replace: Replace) -> None:
    replace(module, "ImportanceWeight", lambda high: ImportanceWeight(high=1e6))


@mutation("The divergence takes the teacher for the policy.", kills=by_hand)
def the_other_way(replace: Replace) -> None:
    replace(module, "Distillation", lambda alpha: Distillation(alpha=1 - alpha))


@effect(
    "It learns more than GRPO in as many answers, where a teacher understands which token decides.",
    kind="headline",
    method=sdpo,
    controls={"grpo": lambda: grpo(group=8, kl=0)},
    step_sizes=(512.0, 2048.0, 8192.0, 32768.0),
    criteria=[More("mean success", by=0.02)],
    seeds=5,
    trials=2,
    budget="answers",
    cost="slow",
    refuted=True,
    note="Only groups with a right answer are distilled, as only they learn under GRPO. Its divergence is bounded, an "
    "advantage of a rare right answer is not. The paper's margin is that of language models.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = decisive_tokens(seed)
    teacher = TreeTeacher(policy, algorithm.teacher, sees="decisive") if algorithm.teacher is not None else None
    return learned(algorithm, (tree, policy), steps=40, step_size=step_size, seed=seed, teacher=teacher)
