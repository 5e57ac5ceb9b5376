"""These programs measure what the paper of VAS (the sampling of MMR1) claims."""

import torch

import polopt.methods.vas as module
from polopt import ops
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab.budgets import graded, solved_at, solved_in_two, success, until
from polopt.lab.source import TreeSource
from polopt.methods.grpo import grpo
from polopt.methods.vas import VariancePromotingSampler, vas


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


@claim(
    "It needs 80 % of the batches, and no more rollouts with those that measure.",
    kind="headline",
    baseline="GRPO, tasks in turn",
    refuted=True,
)
def sooner() -> Finding:
    measured: dict[str, float] = {}
    stairs = torch.linspace(-4, 4, 64, dtype=torch.double).sigmoid()
    problems = {"even mixture": lambda seed: solved_in_two(stairs), "mostly hard": lambda seed: graded(64, seed)}
    for name, problem in problems.items():
        effort = torch.zeros(2, 2, dtype=torch.double)
        for seed in range(3):
            for row, algorithm in enumerate((vas(kl=0.0), grpo(group=8, kl=0))):
                tree, policy = problem(seed)
                goal = success(tree, policy) + 0.2
                found = until(algorithm, tree, policy, success, goal, limit=200, rate=16.0, prompts=16, seed=seed)
                effort[row] += torch.tensor(found)
        quotient = (effort[0] / effort[1]).tolist()
        measured |= {f"{name}: batches": quotient[0], f"{name}: rollouts": quotient[1]}
    return Finding(
        measured=measured,
        criterion="batches <= 0.8x and rollouts <= 1x, on both pools",
        holds=all(x <= (0.8 if "batches" in n else 1.0) for n, x in measured.items()),
        note="64 tasks, 16 x 8 rollouts a batch, to 0.2 more success. Fewer batches, but not a fifth fewer: every task "
        "is learned by itself here, so that those in turn are all needed in the end. Measuring doubles the cost.",
    )


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
