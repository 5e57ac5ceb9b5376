"""Problems that look alike and are solved in different ways; and problems some of which need a long answer."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.lab.measure import learning
from polopt.lab.policy import TabularPolicy
from polopt.lab.shapes import coin
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree

PROBLEMS, WAYS = 32, 8


class Alike(TreeSource):
    """Deals the plain prompts; the others are those with a hint behind them."""

    @property
    def size(self) -> int:
        return PROBLEMS


def alike() -> tuple[TokenTree, TabularPolicy, Tensor]:
    """32 problems that the policy cannot distinguish, and the same with each of 8 hints appended, which it can. Four
    neighbours each are solved by one of 8 ways, every second problem by the next way too. Also: [32, 8] which."""
    solves = torch.zeros(PROBLEMS, WAYS, dtype=torch.double)
    problem = torch.arange(PROBLEMS)
    solves[problem, problem // 4] = 1
    solves[problem[::2], (problem[::2] // 4 + 1) % WAYS] = 1
    tree = TokenTree.bandit(solves.repeat(1 + WAYS, 1).tolist())
    kind = torch.zeros(len(tree.choices), dtype=torch.long)
    prompts = torch.arange(tree.prompts) * len(tree.answers)
    kind[tree.nodes[prompts, tree.start]] = torch.arange(tree.prompts) // PROBLEMS
    return tree, TabularPolicy(tree, critic=True, tied=kind), solves


def ways(algorithm: Algorithm, texts: list[str], batches: int, seed: int, rate: float) -> tuple[Tensor, Tensor]:
    """[1 + 8, 8] how likely each way is without a hint and with each of the texts, after so many batches; [32, 8] which
    way solves which problem."""
    tree, policy, solves = alike()
    variants = {text: torch.arange(PROBLEMS) + PROBLEMS * (1 + i) for i, text in enumerate(texts)}
    needs = algorithm.required_fields
    source = Alike(tree, policy, rows=8 * algorithm.sampling.group_size, seed=seed, variants=variants, needs=needs)
    for _, _ in zip(range(batches), learning(algorithm, source, policy, rate=rate), strict=False):
        pass
    return policy.logits.detach().softmax(1), solves


def solved_by(probs: Tensor, solves: Tensor) -> float:
    """Share of the problems that are solved by one answer of each of the policies `probs` [K, 8]."""
    return (1 - (1 - probs @ solves.T).prod(0)).mean().item()


def thinking(problems: int = 20, easy: int = 14, tokens: int = 20) -> tuple[TokenTree, TabularPolicy]:
    """Problems of which the first `easy` ones a direct answer of 2 tokens solves as often, 0.95, as one of `tokens`
    tokens that begins by thinking; the others it solves with chance 0.05, thinking with 0.95. The first token shows
    which it is; both are equally likely."""
    answers = [(0, 0), (1, *[0] * (tokens - 1))]
    chance = torch.tensor([[0.95, 0.95]] * easy + [[0.05, 0.95]] * (problems - easy)).double()
    tree = TokenTree(2, answers, chance, problems)
    return tree, TabularPolicy(tree, critic=True)


def switched(algorithm: Algorithm, batches: int, seed: int, rate: float) -> tuple[float, float, float, float]:
    """Exact mean tokens and chance of success of what a policy has come to, and those of thinking always."""
    tree, policy = thinking()
    source = TreeSource(
        tree, policy, rows=20 * algorithm.sampling.group_size, seed=seed, draw=coin, needs=algorithm.required_fields
    )
    for _, _ in zip(range(batches), learning(algorithm, source, policy, rate=rate), strict=False):
        pass
    probs = tree.log_probabilities(policy).detach().exp()
    lengths = torch.tensor([len(a) for a in tree.answers]).double()
    always = tree.outcome[:, 1].mean().item()
    return (probs @ lengths).mean().item(), tree.value(policy).item(), lengths[1].item(), always
