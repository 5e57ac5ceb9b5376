"""These programs measure what the paper of CHORD claims."""

import copy
import statistics

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TreeSource, flat_gradient, train
from polopt.lab.demonstrations import another_style
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, uneven
from polopt.methods import chord as sentence
from polopt.methods.chord import UncertaintyWeight, chord
from polopt.methods.sft import sft


def course(*stages: tuple[Algorithm, float], steps: int = 100, rate: float = 80.0) -> tuple[list[float], float]:
    """Expected reward along training on an expert with another style, and the entropy in the end. Each algorithm gets
    an equal share of the steps, at its multiple of the rate."""
    tree, policy, demonstrations = another_style()
    seen = [tree.value(policy).item()]
    for algorithm, times in stages:
        seen += train(
            algorithm,
            tree,
            policy,
            steps=steps // len(stages),
            rate=times * rate,
            rows=tree.prompts,
            demonstrations=demonstrations,
            watch=lambda: tree.value(policy).item(),
        )
    return seen, tree.entropy(policy).item()


@claim(
    "No dip while an expert of another style is mixed in, and nothing lost in the end.",
    kind="part",
    baseline="SFT, then RL; GRPO, which has no dip either",
)
def no_dip() -> Finding:
    alone = chord(mu=0.0)
    (phi, _), (after, _), (grpo, _) = course((chord(), 1.0)), course((sft(), 0.1), (alone, 1.0)), course((alone, 1.0))
    plain, slow = (course((chord(weight=None), 1.0), rate=rate)[0] for rate in (80.0, 20.0))
    measured = {"lowest": min(phi), "SFT then GRPO: lowest": min(after), "without weight: lowest": min(plain)}
    measured |= {"without weight, a quarter of the rate: lowest": min(slow)}
    measured |= {
        "GRPO: lowest": min(grpo),
        "final": phi[-1],
        "SFT then GRPO: final": after[-1],
        "GRPO: final": grpo[-1],
    }
    return Finding(
        measured=measured,
        criterion="lowest >= 0.75 where SFT first falls below 0.6; final >= the better of the others - 0.01",
        holds=min(phi) >= 0.75 and min(after) < 0.6 and phi[-1] >= max(after[-1], grpo[-1]) - 0.01,
        note="GRPO without the expert does as well: the mix does no harm here, and no good. Without p (1 - p) the same "
        "share dips too, unless the rate is small enough for RL to keep up.",
    )


@claim("It ends with at least twice the entropy of the plain mix.", kind="part", baseline="no weight", refuted=True)
def entropy_kept() -> Finding:
    (_, phi), (_, plain) = course((chord(), 1.0), rate=20.0), course((chord(weight=None), 1.0), rate=20.0)
    return Finding(
        measured={"entropy": phi, "without weight": plain},
        criterion=">= 2x without weight",
        holds=phi >= 2 * plain,
        note="There is no dip because the expert is not followed: of a style of probability 0.01 a token weighs 0.01. "
        "The policy stays in its own style and grows certain of it; the plain mix goes over to the expert's, which it "
        "is still learning.",
    )


def _by_hand(batch: Experience, logp: Tensor, mu: float) -> Tensor:
    """The paper's loss, row by row and token by token."""
    rows, expert = range(len(batch)), batch.extras["is_demonstration"].tolist()
    losses: dict[bool, list[Tensor]] = {True: [], False: []}
    for row in rows:
        alike = [i for i in rows if not expert[i] and batch.group[i] == batch.group[row]]
        rewards = [batch.outcome[i].item() for i in alike]
        for t in batch.mask[row].nonzero().flatten().tolist():
            p = logp[row, t].detach().exp()
            if expert[row]:
                losses[True].append(-p * (1 - p) * logp[row, t])
                continue
            gain = (batch.outcome[row].item() - statistics.mean(rewards)) / (statistics.stdev(rewards) + 1e-6)
            ratio = (logp[row, t] - batch.rollout_logp[row, t]).exp()
            losses[False].append(torch.maximum(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)))
    rollouts, demonstrations = (torch.stack(losses[kind]).mean() for kind in (False, True))
    return (1 - mu) * rollouts + mu * demonstrations


@effect(
    "With an expert's right answers in the batches it learns more than without them, and than from an unweighed mix.",
    kind="headline",
    method=lambda: chord(),
    controls={"grpo": lambda: chord(mu=0.0), "without the weight": lambda: chord(weight=None)},
    step_sizes=(64.0, 128.0, 256.0, 512.0, 1024.0),
    criteria=[More("mean success", by=0.0)],
    cost="slow",
    refuted=True,
    note="A token of the expert that the policy hardly knows weighs little by p (1 - p), and those are what it lacks: "
    "the unweighed mix learns more. That the expert is always right is in its favour.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(algorithm, uneven(seed), steps=40, step_size=step_size, seed=seed)


@claim(
    "The loss is the paper's: both means apart, weighed 1 - mu and mu, an expert's token by p (1 - p).",
    kind="identity",
    baseline="the same without the weight of a token",
)
def one_loss() -> Finding:
    tree, policy, demonstrations = another_style()
    algorithm = chord(mu=0.3)
    source = TreeSource(
        tree, policy, rows=8 * tree.prompts, demonstrations=demonstrations, needs=algorithm.required_fields
    )
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    moved, g = copy.deepcopy(policy), torch.Generator().manual_seed(1)
    with torch.no_grad():
        moved.logits.add_(0.5 * torch.randn(moved.logits.shape, generator=g, dtype=torch.double))
    exact = flat_gradient(_by_hand(batch, moved.evaluate(batch).logp, mu=0.3), moved)
    both = (algorithm, chord(mu=0.3, weight=None))
    found, plain = (flat_gradient(a.objective(batch, moved.evaluate(batch)).loss, moved) for a in both)
    off, apart = (((x - exact).norm() / exact.norm()).item() for x in (found, plain))
    return Finding(
        measured={"relative error of the gradient": off, "without the weight": apart},
        criterion="error < 1e-6 on a batch that another policy sampled, mu 0.3; without the weight > 0.1",
        holds=off < 1e-6 and apart > 0.1,
    )


@mutation("The share of the rollouts is ignored: they always count fully.", kills=one_loss)
def rollouts_count_fully(replace: Replace) -> None:
    original = sentence.with_imitation
    replace(sentence, "with_imitation", lambda *given, rollout_weight, **ways: original(*given, **ways))


@mutation("An expert's token has the weight p.", kills=one_loss)
def weight_is_p(replace: Replace) -> None:
    def forward(self: UncertaintyWeight, experience: Experience, evaluation: Evaluation) -> Tensor:
        return evaluation.logp.detach().exp()

    replace(UncertaintyWeight, "forward", forward)
