"""These programs measure what the paper of Stratified GRPO claims."""

import torch

import polopt.methods.stratified_grpo as module
from polopt import ops
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupMean, RelativeAdvantage, WeightedAdvantage
from polopt.experience import Experience
from polopt.features.groupings import Strata, WholeBatch
from polopt.features.rows import DecisionCount, RowField
from polopt.lab import train
from polopt.lab.shapes import coin, two_routes
from polopt.methods.stratified_grpo import stratified_grpo


@claim(
    "Comparing within strata takes exactly the variance between strata out of the advantage.",
    kind="identity",
    baseline="the group's mean",
)
def variance() -> Finding:
    generator = torch.Generator().manual_seed(0)
    returns = torch.randn(64, generator=generator, dtype=torch.double)
    stratum = torch.randint(0, 5, (64,), generator=generator)
    batch = Experience(
        mask=torch.ones(64, 1).bool(), reward=returns, group=torch.zeros(64).long(), extras={"stratum": stratum}
    )
    strata = Strata(by=RowField(name="stratum"))
    within = RelativeAdvantage(baseline=GroupMean(within=strata), scale=None)(batch)[:, 0]
    plain = RelativeAdvantage(baseline=GroupMean(), scale=None)(batch)[:, 0]
    between = (ops.group_mean(returns, stratum) - returns.mean()).square().mean().item()
    taken = plain.var(correction=0).item() - within.var(correction=0).item()
    return Finding(
        measured={"variance taken out": taken, "variance between strata": between, "difference": abs(taken - between)},
        criterion="difference < 1e-12",
        holds=abs(taken - between) < 1e-12,
    )


@claim(
    "Finds the better of two routes that must be learned before it pays; pure strata never choose a route.",
    kind="headline",
    baseline="GRPO (alpha 0)",
    cost="slow",
)
def routes() -> Finding:
    worth, searched = {}, {}
    for alpha in (0.0, 0.8, 1.0):
        tree, policy = two_routes(10)
        algorithm = stratified_grpo(alpha=alpha, by=DecisionCount())
        # Ten runs side by side: the loss is their mean, so ten times the rate of one.
        train(algorithm, tree, policy, steps=1500, rate=6.0, rows=10, seed=0, draw=coin)
        p = tree.log_probabilities(policy).detach().exp()
        worth[alpha], searched[alpha] = (p * tree.outcome).sum(1), 1 - p[:, 0]
    solved = {alpha: int((v > 0.8).sum()) for alpha, v in worth.items()}
    drift = (searched[1.0] - 0.5).abs().max().item()
    measured: dict[str, float] = {f"runs of 10 above 0.8, alpha {a:g}": n for a, n in solved.items()}
    measured |= {f"mean worth, alpha {a:g}": v.mean().item() for a, v in worth.items()}
    return Finding(
        measured={**measured, "largest change of P(search), alpha 1": drift},
        criterion="alpha 0.8 in 9 of 10 runs, GRPO in 2 at most; alpha 1 does not change P(search) by 1e-9",
        holds=solved[0.8] >= 9 and solved[0.0] <= 2 and drift < 1e-9,
        note="It needs small steps: at 2.5 times the rate, 600 steps, 7 of the 10 runs of alpha 0.8 get there.",
    )


@claim(
    "An advantage is 0.8 of the z-score among the answers of as many decisions, and 0.2 of that in the group.",
    kind="identity",
    baseline="GRPO",
)
def blended() -> Finding:
    """Two prompts whose rows have one decision or two."""
    generator = torch.Generator().manual_seed(0)
    returns = torch.randn(16, generator=generator, dtype=torch.double)
    group, second = torch.arange(2).repeat_interleave(8), torch.arange(16) % 3 == 0
    batch = Experience(mask=torch.stack([torch.ones(16).bool(), second], 1), reward=returns, group=group)
    found = stratified_grpo(alpha=0.8, by=DecisionCount()).credit(batch)[:, 0]
    off = between = 0.0
    for prompt in range(2):
        whole = returns[group == prompt]
        for longer in (False, True):
            rows = (group == prompt) & (second == longer)
            stratum = returns[rows]
            within, plain = (returns[rows] - stratum.mean()) / stratum.std(), (stratum - whole.mean()) / whole.std()
            off = max(off, (found[rows] - 0.8 * within - 0.2 * plain).abs().max().item())
            between = max(between, (found[rows] - plain).abs().max().item())
    return Finding(
        measured={"largest error": off, "largest distance to GRPO": between},
        criterion="error < 1e-5 (the z-scores' epsilon), distance to GRPO > 0.1",
        holds=off < 1e-5 and between > 0.1,
    )


@mutation("The two parts have each other's weights.", kills=blended)
def weights_swapped(replace: Replace) -> None:
    replace(
        module,
        "WeightedAdvantage",
        lambda credit, weight: WeightedAdvantage(credit=credit, weight=round(1 - weight, 9)),
    )


@mutation("Strata hold answers to other prompts, too.", kills=blended)
def strata_of_all_prompts(replace: Replace) -> None:
    replace(module, "Strata", lambda by: Strata(by=by, within=WholeBatch()))
