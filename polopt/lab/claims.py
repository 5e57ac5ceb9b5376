"""Measurements that claims of several methods share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.measure import LeafGradient, train, training
from polopt.lab.policy import TabularPolicy
from polopt.lab.problems import contexts, many_right
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree, flat_gradient
from polopt.objectives import Ratio, Surrogate, SurrogateTerm


def norms_by_success(algorithm: Algorithm, power: float) -> float:
    """Returns the largest relative error of |expected gradient| against (p (1 - p))^power, over success rates 0.1, 0.5
    and 0.9.

    Both are relative to p = 0.5. The expectation is exact: a group of two kinds of answers is a binomial count.
    """
    group = algorithm.sampling.group_size
    tree = TokenTree.bandit([1.0, 0.0])
    norms = {}
    for p in (0.1, 0.5, 0.9):
        policy = TabularPolicy(tree).set_probabilities(torch.tensor([p, 1 - p], dtype=torch.double))
        leaf_table, _ = TreeSource(tree, policy, rows=group).leaf_table()
        probe = LeafGradient(algorithm, tree, policy, leaf_table.support)
        weights = torch.distributions.Binomial(group, torch.tensor(p).double()).log_prob(torch.arange(group + 1)).exp()
        counts = (weights > 1e-6).nonzero().flatten()
        leaf_gradients = [
            probe(algorithm.compute_advantages(leaf_table[(torch.arange(group) >= right).long()])) for right in counts
        ]
        norms[p] = (weights[counts] @ probe.vjp(torch.stack(leaf_gradients))).norm().item()
    return max(abs(norms[p] / norms[0.5] / (4 * p * (1 - p)) ** power - 1) for p in norms)


# Batches after which a measurement that waits for something gives up: a method that is broken must fail, not hang.
MOST_BATCHES = 2000


def rare_arm(algorithm: Algorithm, steps: int, probability: float = 0.01, rate: float = 0.05) -> float:
    """Returns the growth of a rare right arm's probability over `steps` on one batch that contains it; mean of 8
    batches. NaN if fewer than 8 of `MOST_BATCHES` make it grow."""
    tree = TokenTree.bandit([1.0] + [0.0] * 9)
    probs = torch.tensor([probability] + [(1 - probability) / 9] * 9, dtype=torch.double)
    growth: list[float] = []
    for seed in range(MOST_BATCHES):
        policy = TabularPolicy(tree).set_probabilities(probs)
        train(algorithm, tree, policy, steps=1, epochs=steps, rate=rate, seed=seed)
        after = tree.value(policy).item()
        if after > 1.01 * probability:
            growth.append(after / probability)
        if len(growth) == 8:
            return sum(growth) / len(growth)
    return math.nan


def unanimous(algorithm: Algorithm) -> tuple[float, float]:
    """Returns the fraction of groups without any advantage, and the mean gradient norm, when 7 of 10 prompts are always
    right or always wrong."""
    rates = torch.tensor([0.0] * 4 + [1.0] * 3 + [0.5] * 3, dtype=torch.double)
    tree = TokenTree.bandit([[1.0, 0.0]] * 10)
    policy = TabularPolicy(tree).set_probabilities(torch.stack([rates, 1 - rates], 1))
    source = TreeSource(tree, policy, rows=10 * algorithm.sampling.group_size)
    idle, groups, norms = 0, 0, []
    for _ in range(20):
        batch = algorithm.compute_advantages(algorithm.sampling(source))
        for group in batch.group.unique():
            idle += int((batch.advantage[batch.group == group].abs() < 1e-9).all())
            groups += 1
        norms.append(flat_gradient(algorithm.objective(batch, policy.evaluate(batch)).loss, policy).norm().item())
    return idle / groups, sum(norms) / len(norms)


def ratio_variance(ratio: Ratio, tokens: int, noise: float, rows: int = 2000) -> float:
    """Variance of the importance weight between two policies that differ by independent noise on every
    log-probability."""
    draw = torch.randn(rows, tokens, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    batch = Experience(mask=torch.ones(rows, tokens, dtype=torch.bool), rollout_logp=noise * draw - 1)
    return ratio(batch, Evaluation(logp=torch.full_like(draw, -1.0))).exp().var().item()


def term_variance(trust: SurrogateTerm, tokens: int, noise: float, rows: int = 2000) -> float:
    """Variance of the surrogate terms of decisions with advantage 1, for two policies as in `ratio_variance`."""
    log_ratio = noise * torch.randn(rows, tokens, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    batch = Experience(mask=torch.ones(rows, tokens, dtype=torch.bool), advantage=torch.ones_like(log_ratio))
    return trust(log_ratio, batch, Evaluation(logp=log_ratio))[0].var().item()


def push(trust: SurrogateTerm, ratio: float) -> float:
    """Returns -d loss / d logp of one decision with advantage 1 at this ratio."""
    logp = torch.full((1, 1), -4.0, dtype=torch.double, requires_grad=True)
    old, one = torch.full_like(logp, -4.0 - math.log(ratio)), torch.ones_like(logp)
    batch = Experience(mask=one.bool(), rollout_logp=old.detach(), advantage=one.detach())
    loss = Surrogate(trust=trust)(batch, Evaluation(logp=logp)).loss
    return -torch.autograd.grad(loss, logp)[0].item()


def fitted(algorithm: Algorithm, counts: list[int]) -> tuple[float, float]:
    """Total variation between a policy and the demonstrations' frequencies, before and after fitting them.

    The answers are those of a tree of depth 2 with a stop token.
    """
    tree = TokenTree.full(3, 2, lambda prompt, answer: 1.0, stop=2)
    policy = TabularPolicy(tree, spread=0.5, seed=4)
    rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    batch = algorithm.compute_advantages(tree.leaves()[rows])
    target = torch.tensor(counts, dtype=torch.double) / sum(counts)

    def distance() -> float:
        return (tree.log_probabilities(policy).detach().exp()[0] - target).abs().sum().item() / 2

    before = distance()
    descend(algorithm, batch, policy, steps=200)
    return before, distance()


def descend(algorithm: Algorithm, batch: Experience, policy: TabularPolicy, steps: int) -> None:
    """Minimises the loss on one batch."""
    optimiser = torch.optim.LBFGS(policy.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = algorithm.objective(batch, policy.evaluate(batch)).loss
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]


def effective(tree: TokenTree, policy: TabularPolicy) -> float:
    """Effective number of right answers: exp of the entropy among them."""
    p = tree.log_probabilities(policy).detach().exp()[0][tree.outcome[0] > 0]
    p = p / p.sum()
    return torch.exp(-(p * p.clamp(min=1e-300).log()).sum()).item()


def collapse(
    algorithm: Algorithm,
    rate: float = 2.0,
    seeds: int | range = 24,
    steps: int = 1,
    problem: Callable[[], tuple[TokenTree, TabularPolicy]] = many_right,
) -> float:
    """Effective number of right answers, of 8, once the success rate has reached 0.95, with `steps` on each batch; mean
    over seeds. NaN if a seed does not reach it in `MOST_BATCHES`."""
    found = []
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        tree, policy = problem()
        source = TreeSource(
            tree, policy, rows=algorithm.sampling.group_size, seed=seed, needs=algorithm.required_fields
        )
        for _ in range(MOST_BATCHES):
            if tree.value(policy) >= 0.95:
                break
            source.refresh()
            batch = algorithm.compute_advantages(algorithm.sampling(source))
            for _ in range(steps):
                evaluation = policy.evaluate(batch, algorithm.objective.required_outputs)
                loss = algorithm.objective(batch, evaluation).loss
                with torch.no_grad():
                    policy.logits.sub_(rate * torch.autograd.grad(loss, policy.logits)[0])
        found.append(effective(tree, policy) if tree.value(policy) >= 0.95 else math.nan)
    return sum(found) / len(found)


def right_entropy(algorithm: Algorithm, seeds: int | range = 4) -> float:
    """Effective number of right answers, of 8 of unequal probabilities, of the policy fitted to one batch; mean over
    seeds, each of a bandit and a batch."""
    found = []
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        tree, policy = many_right(seed=seed)
        with torch.no_grad():
            policy.logits.mul_(3)
        source = TreeSource(tree, policy, rows=algorithm.sampling.group_size, seed=seed)
        batch = algorithm.compute_advantages(algorithm.sampling(source))
        descend(algorithm, batch, policy, steps=10)
        found.append(effective(tree, policy))
    return sum(found) / len(found)


def with_exact_critic(tree: TokenTree, policy: TabularPolicy) -> tuple[TokenTree, TabularPolicy]:
    """Returns the tree and the policy, with the true value of every node in the policy's critic."""
    mask = tree.leaves().mask
    with torch.no_grad():
        policy.values[tree.nodes[mask]] = tree.state_values(policy)[mask]  # type: ignore[index]
    return tree, policy


def drift(algorithm: Algorithm, steps: int = 20, rate: float = 1.0, seeds: int = 5) -> float:
    """KL(before || after) of many steps on one batch of a bandit; mean over seeds."""
    found = []
    for seed in range(seeds):
        (tree, before), (_, after) = many_right(), many_right()
        train(algorithm, tree, after, steps=1, epochs=steps, rate=rate, seed=seed)
        found.append(tree.kl(before, after).item())
    return sum(found) / len(found)


def samples_to(build: Callable[[], Algorithm], goal: float, epochs: int, rate: float = 2.0, seeds: int = 5) -> float:
    """Mean number of sampled answers until the policy's success rate on 8 contexts of 8 arms reaches `goal`, over
    seeds."""
    total = 0
    for seed in range(seeds):
        tree, policy = contexts(8)
        for _, source in training(build(), tree, policy, rows=8, rate=rate, epochs=epochs, seed=seed):
            if tree.value(policy) >= goal:
                total += source.drawn
                break
    return total / seeds


def effort(build: Callable[[], Algorithm], tree: TokenTree, goal: float, seeds: int = 5) -> tuple[float, float]:
    """Updates of Adam, and sampled tokens, until the value of an untrained policy reaches `goal`, at most 200 updates;
    median over seeds."""
    found = []
    for seed in range(seeds):
        policy, algorithm = TabularPolicy(tree), build()
        source = TreeSource(tree, policy, rows=algorithm.sampling.group_size, seed=seed)
        optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
        updates = 0
        while updates < 200 and tree.value(policy) < goal:
            updates += 1
            source.refresh()
            batch = algorithm.compute_advantages(algorithm.sampling(source))
            optimiser.zero_grad()
            algorithm.objective(batch, policy.evaluate(batch)).loss.backward()
            optimiser.step()
        found.append((updates, source.decided))
    middle = torch.tensor(found).median(0).values
    return middle[0].item(), middle[1].item()
