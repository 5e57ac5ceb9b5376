"""These programs measure what the paper of VAS (the sampling of MMR1) claims."""

import torch

import polopt.methods.vas as module
from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab.budgets import solved_at, solved_in_two
from polopt.lab.effects import Less, effect
from polopt.lab.progress import learned, uneven
from polopt.lab.source import TreeSource
from polopt.methods.grpo import grpo
from polopt.methods.vas import VariancePromotingSampler, vas

STEP_SIZES = (32.0, 64.0, 128.0, 256.0, 512.0)


@claim(
    "A task's expected gradient is short where its reward varies little.",
    kind="theory",
    baseline="none: exact, 64 tasks",
)
def bounded() -> Finding:
    tree, policy = solved_in_two(torch.linspace(-4, 4, 64, dtype=torch.double).sigmoid())
    p = (tree.log_probabilities(policy).exp() * tree.outcome).sum(1)
    norms = [torch.autograd.grad(x, policy.logits, retain_graph=True)[0].square().sum() for x in p]
    varies, square = (p * (1 - p)).detach(), torch.stack(norms)
    # The score of a softmax is never longer than sqrt(2), and its squares add up over the decisions.
    ranks = torch.stack([square, varies]).argsort(1).argsort(1).double()
    largest, spearman = (square / varies).max().item(), torch.corrcoef(ranks)[0, 1].item()
    return Finding(
        measured={"largest |gradient|^2 / variance": largest, "rank correlation": spearman},
        criterion="|gradient|^2 <= 2 T Var[R] for every task (T = 2 decisions), rank correlation > 0.9",
        holds=largest <= 2 * tree.horizon and spearman > 0.9,
    )


@effect(
    "It needs 80 % of the batches, and no more rollouts, with those that measure.",
    kind="headline",
    method=lambda: vas(kl=0.0),
    controls={"grpo, tasks in turn": lambda: grpo(group=8, kl=0)},
    step_sizes=STEP_SIZES,
    criteria=[Less("steps", times=0.8), Less("answers", times=1.0)],
    seeds=6,
    trials=2,
    cost="slow",
    refuted=True,
    note="Parameters are shared among tasks. Measuring 64 tasks every four batches of 16 doubles the cost of each "
    "batch.",
)
def sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """Until 0.6 of 64 tasks of very different difficulty are solved, 16 groups a batch; 200 batches at most."""
    ways = {"steps": 200, "step_size": step_size, "seed": seed, "rows": 16, "goal": 0.6}
    return learned(algorithm, uneven(seed, tasks=64), **ways)  # type: ignore[arg-type]


@claim(
    "Half of a batch comes in proportion to p (1 - p), measured anew when the policy has changed.",
    kind="identity",
    baseline="weights of before the change",
)
def follows() -> Finding:
    before = torch.tensor([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.5], dtype=torch.double)
    after = torch.tensor([0.5, 0.98, 0.9, 0.02, 0.1, 0.5, 0.5, 0.02], dtype=torch.double)
    tree, policy = solved_at(before)
    algorithm = vas(kl=0.0, every=1, rollouts=2000)
    source, off = TreeSource(tree, policy, rows=8 * 8000), dict[str, float]()
    choice, drawn = algorithm.sampling.choice, []
    assert isinstance(choice, VariancePromotingSampler)
    for p in (before, after):
        policy.set_probabilities(torch.stack([p, 1 - p], 1))
        source.refresh()
        # The first half is drawn, the other comes in turn.
        drawn.append(torch.bincount(choice(source, 8000)[:4000], minlength=len(p)) / 4000)
        choice.on_step()
    for name, p in (("", after), (" of before", before)):
        weights = p * (1 - p) - (p * (1 - p)).min()
        off[f"total variation to the weights{name}"] = (drawn[1] - weights / weights.sum()).abs().sum().item() / 2
    return Finding(
        measured=off,
        criterion="< 0.05 after the change (4,000 draws of 8 tasks, 2,000 rollouts of each), to those of before > 0.3",
        holds=off["total variation to the weights"] < 0.05 and off["total variation to the weights of before"] > 0.3,
    )


@mutation("Momentum is the share of what is new, so that by default weights never change.", kills=follows)
def momentum_backwards(replace: Replace) -> None:
    replace(
        module,
        "VariancePromotingSampler",
        lambda momentum, **settings: VariancePromotingSampler(momentum=1 - momentum, **settings),
    )


@mutation("Tasks of high success are drawn, not of high variance.", kills=follows)
def by_success(replace: Replace) -> None:
    def score(self: VariancePromotingSampler, experience: Experience) -> torch.Tensor:
        return ops.group_mean(experience.outcome.double(), experience.group)[ops.group_first(experience.group)]

    replace(VariancePromotingSampler, "_score", score)
