"""Preference pairs whose probabilities are known exactly."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.objectives import PairedObjective

ANSWERS = [(0,), (1, 0), (1, 1, 0), (1, 1, 1), (2, 0), (2, 1)]


def every_preference(worth: list[int]) -> tuple[TokenTree, TabularPolicy, Experience]:
    """Returns six answers of one to three tokens, a reference policy, and all pairs of a Bradley-Terry model with
    rewards log worth.

    The pairs are enumerated: of two answers the one of worth a is preferred a times, the one of worth b is preferred b
    times.
    """
    tree = TokenTree(3, ANSWERS, lambda _, answer: 0.0)
    reference = TabularPolicy(tree, spread=1.0, seed=3)
    pairs = [
        pair
        for i, j in itertools.combinations(range(len(worth)), 2)
        for pair in [(i, j)] * worth[i] + [(j, i)] * worth[j]
    ]
    return tree, reference, paired(tree, reference, pairs)


def paired(tree: TokenTree, reference: TabularPolicy, pairs: list[tuple[int, int]]) -> Experience:
    """Returns the batch of these pairs (preferred leaf, rejected leaf), in the form of `sampling.PreferencePairs`."""
    rows = torch.tensor(pairs).flatten()
    batch = tree.leaves()[rows]
    return batch.replace(
        rollout_logp=None,
        outcome=torch.tensor([1.0, 0.0], dtype=torch.double).repeat(len(pairs)),
        group=torch.arange(len(pairs)).repeat_interleave(2),
        ref_logp=reference.evaluate(batch).logp.detach(),
    )


def descended(algorithm: Algorithm, batch: Experience, policy: TabularPolicy, rate: float, steps: int) -> None:
    """Takes plain gradient steps on one batch with the algorithm's advantages."""
    batch = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    for _ in range(steps):
        loss = algorithm.objective(batch, policy.evaluate(batch)).loss
        (gradient,) = torch.autograd.grad(loss, policy.logits)
        with torch.no_grad():
            policy.logits.sub_(rate * gradient)


def fitted(algorithm: Algorithm, batch: Experience, policy: TabularPolicy) -> None:
    """Takes one Newton step on a batch with the algorithm's advantages: the minimiser, nearest to the policy, of a loss
    that is quadratic in the parameters, as losses of differences of log-ratios at one node are."""
    batch = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    (parameter,) = policy.parameters()
    loss = algorithm.objective(batch, policy.evaluate(batch)).loss
    (slope,) = torch.autograd.grad(loss, parameter, create_graph=True)
    rows = [torch.autograd.grad(one, parameter, retain_graph=True)[0].flatten() for one in slope.flatten()]
    with torch.no_grad():
        step = torch.linalg.pinv(torch.stack(rows), hermitian=True, rtol=1e-10) @ slope.flatten()
        parameter.sub_(step.view_as(parameter))


def distance(tree: TokenTree, policy: TabularPolicy, target: Tensor) -> float:
    """Total variation between the policy's answers and these probabilities."""
    return (tree.log_probabilities(policy).detach().exp()[0] - target).abs().sum().item() / 2


def length_and_reward(
    algorithm: Algorithm, prompts: int = 60, seed: int = 0, steps: int = 20, rate: float = 10.0
) -> float:
    """Returns the correlation of an answer's length with its implicit reward, over the answers of all pairs, after
    training.

    Answers have 1 to 6 tokens of three, with a uniform policy at first; the lengths of a prompt's two answers are
    random.
    """
    tree = TokenTree.full(3, 6, lambda prompt, answer: 0.0, stop=2, prompts=prompts)
    policy, lengths = TabularPolicy(tree), torch.tensor([len(answer) for answer in tree.answers])
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for prompt in range(prompts):
        of_length = torch.stack([(lengths == n).double() for n in (torch.randperm(6, generator=g)[:2] + 1).tolist()])
        chosen, rejected = torch.multinomial(of_length, 1, generator=g)[:, 0].tolist()
        pairs.append((chosen + prompt * len(lengths), rejected + prompt * len(lengths)))
    batch = paired(tree, policy, pairs)
    descended(algorithm, batch, policy, rate=rate, steps=steps)
    objective = algorithm.objective
    assert isinstance(objective, PairedObjective)
    reward = objective.implicit(batch, policy.evaluate(batch)).detach()
    return float(torch.corrcoef(torch.stack([batch.lengths.double(), reward]))[0, 1])


def labelled(
    tree: TokenTree, reference: TabularPolicy, rows: Tensor, good: Tensor, *, generator: torch.Generator
) -> Experience:
    """Returns the batch of these leaves [N] with their labels [N], in the form of `sampling.RatedAnswers` with answers
    of other rows: each row's leaf is put together with the answer of another one, drawn by the generator."""
    answers = len(tree.answers)
    other = rows // answers * answers + rows[torch.randperm(len(rows), generator=generator)] % answers
    batch = tree.leaves()[torch.cat([rows, other])]
    return batch.replace(
        rollout_logp=None,
        outcome=torch.cat([good.double(), torch.zeros(len(rows), dtype=torch.double)]),
        group=torch.arange(len(rows)).repeat(2),
        ref_logp=reference.evaluate(batch).logp.detach(),
        extras={"mismatched": torch.arange(2 * len(rows)) >= len(rows)},
    )
