"""Arms that are compared with each other by a table of probabilities, which need not come from any reward."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.measure import training
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.problems import PreferenceGame, preference_game, random_preference_game
from polopt.rewards import Preference

CYCLE = tuple(map(tuple, preference_game().preference.tolist()))


class TablePreference(Preference):
    """P(i, j) = table[answer of i][answer of j], of the answers of one tree by their number.

    table: [answers][answers], by default that of `problems.preference_game`.
    """

    table: tuple[tuple[float, ...], ...] = CYCLE

    reads = frozenset({"extras.leaf"})

    def forward(self, experience: Experience, first: Tensor, second: Tensor) -> Tensor:
        table = torch.tensor(self.table, dtype=torch.double)
        answer = experience.extras["leaf"] % len(table)
        return table[answer[first], answer[second]]


def bradley_terry(table: Tensor, steps: int = 2000) -> Tensor:
    """Returns the rewards [answers], of mean 0, whose Bradley-Terry probabilities are the likeliest for comparisons of
    every two answers, each as often: what a reward model would learn."""
    reward = torch.zeros(len(table), dtype=torch.double)
    for _ in range(steps):  # the loss is convex, and its curvature at most half the number of answers
        margin = torch.sigmoid(reward[:, None] - reward[None])
        reward += 2 / len(table) * (table - margin).sum(1)
    return reward - reward.mean()


def compared_arms() -> tuple[TokenTree, TabularPolicy]:
    """Returns the answers of `problems.preference_game` as arms, whose outcomes are the Bradley-Terry rewards, and the
    uniform policy."""
    tree = TokenTree.bandit(bradley_terry(preference_game().preference).tolist())
    return tree, TabularPolicy(tree)


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedSequences:
    """Answers of several tokens to one prompt, compared by a table of probabilities.

    tree: of the answers, whose outcomes are the Bradley-Terry rewards of the comparisons. reference: the policy that
    training starts from. game: the preference game of the answers, with the reference's probabilities of whole answers.
    """

    tree: TokenTree
    reference: TabularPolicy
    game: PreferenceGame

    @property
    def preference(self) -> TablePreference:
        """The comparisons as a part."""
        return TablePreference(table=tuple(map(tuple, self.game.preference.tolist())))


def compared_sequences(seed: int, *, tokens: int = 2, choices: int = 3, tau: float = 0.1) -> ComparedSequences:
    """Returns answers of `tokens` tokens whose preferences are those of `problems.random_preference_game`, mostly
    intransitive, and a random reference policy."""
    preference = random_preference_game(seed, choices**tokens).preference
    tree = TokenTree.full(choices, tokens, bradley_terry(preference)[None])
    reference = TabularPolicy(tree, spread=1.0, seed=seed)
    game = PreferenceGame(preference, tree.log_probabilities(reference).detach()[0].exp(), tau, name="sequences")
    return ComparedSequences(tree, reference, game)


def cyclic_arms(tau: float = 0.1) -> ComparedSequences:
    """Returns the answers of `problems.preference_game` as arms, with its reference (0.7, 0.2, 0.1)."""
    tree, policy = compared_arms()
    game = preference_game(tau=tau)
    return ComparedSequences(tree, policy.set_probabilities(game.reference), game)


def played(
    algorithm: Algorithm,
    problem: ComparedSequences,
    *,
    steps: int,
    step_size: float,
    rows: int,
    seed: int,
) -> dict[str, float]:
    """Trains from the reference by gradient descent on batches of `rows` prompts, and returns, exactly:

    gap, kl      of the last policy in the regularised game
    exploited    the gap of the last policy without regularisation
    mean policy  the gap, without regularisation, of the mean over batches of the policies
    answers      sampled
    """
    policy, game = copy.deepcopy(problem.reference), problem.game
    free = dataclasses.replace(game, tau=0.0)
    total, last, drawn = torch.zeros_like(game.reference), game.reference, 0
    ways: dict[str, Any] = {"rate": step_size, "rows": rows, "seed": seed, "reference": problem.reference}
    for _, source in itertools.islice(training(algorithm, problem.tree, policy, **ways), steps):
        last, drawn = problem.tree.log_probabilities(policy).detach()[0].exp(), source.drawn
        total = total + last / steps
    return {
        "gap": game.duality_gap(last),
        "kl": float(game.divergence(last)),
        "exploited": free.duality_gap(last),
        "mean policy": free.duality_gap(total),
        "answers": float(drawn),
    }
