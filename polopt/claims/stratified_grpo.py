"""These programs measure what the paper of Stratified GRPO claims."""

import torch

import polopt.methods.stratified_grpo as module
from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupMean, RelativeAdvantage, WeightedAdvantage
from polopt.experience import Experience
from polopt.features.groupings import Strata, WholeBatch
from polopt.features.rows import DecisionCount, RowField
from polopt.lab import train
from polopt.lab.effects import More, effect
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


@effect(
    "Finds the better of two routes that must be learned before it pays.",
    kind="headline",
    method=lambda: stratified_grpo(by=DecisionCount()),
    controls={"grpo (alpha 0)": lambda: stratified_grpo(alpha=0.0, by=DecisionCount())},
    step_sizes=(0.3, 0.6, 1.2),
    criteria=[More("runs that find it", by=0.5)],
    seeds=5,
    trials=1,
    cost="slow",
    note="Six runs a seed, 1500 batches of 16. The second route is worth 0.056 at first and 0.9 when it is learned, "
    "the first 0.4; a run has found it above 0.8.",
)
def routes(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = two_routes(6)
    # Runs side by side: the loss is their mean, so that many times the rate of one.
    train(algorithm, tree, policy, steps=1500, rate=6 * step_size, rows=6, seed=seed, draw=coin)
    worth = (tree.log_probabilities(policy).detach().exp() * tree.outcome).sum(1)
    return {"runs that find it": (worth > 0.8).double().mean().item(), "worth": worth.mean().item()}


@claim(
    "Strata alone never choose between routes: with alpha 1 their probabilities do not move.",
    kind="limit",
    baseline="alpha 0.8",
)
def pure_strata() -> Finding:
    moved = {}
    for alpha in (1.0, 0.8):
        tree, policy = two_routes(6)
        algorithm = stratified_grpo(alpha=alpha, by=DecisionCount())
        train(algorithm, tree, policy, steps=60, rate=6.0, rows=6, seed=0, draw=coin)
        moved[alpha] = (tree.log_probabilities(policy).detach().exp()[:, 0] - 0.5).abs().max().item()
    return Finding(
        measured={f"largest change of P(direct), alpha {alpha:g}": x for alpha, x in moved.items()},
        criterion="alpha 1 < 1e-9, alpha 0.8 > 0.05 (60 batches)",
        holds=moved[1.0] < 1e-9 and moved[0.8] > 0.05,
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
