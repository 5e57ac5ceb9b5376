"""Problems that nobody solves alone, and what helps: a lock, a dead end, a book of rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.measure import learning
from polopt.lab.policy import TabularPolicy
from polopt.lab.source import TreeSource
from polopt.lab.teacher import HintedPolicy
from polopt.lab.tree import TokenTree
from polopt.ops import NOTHING


def lock(steps: int = 12, choices: int = 4, easy: int = 0) -> tuple[TokenTree, TabularPolicy]:
    """A combination lock: of `choices` tokens one is right at each of `steps` steps, and the first wrong one ends the
    answer. It pays 1 if it opens. easy: so many other prompts open after the first right step."""
    code = torch.randint(choices, (steps,), generator=torch.Generator().manual_seed(0)).tolist()
    wrong = [(*code[:k], w) for k in range(steps) for w in range(choices) if w != code[k]]
    opened = lambda prompt, answer: float(len(answer) > 1 if prompt else list(answer) == code)  # noqa: E731
    tree = TokenTree(choices, [*wrong, tuple(code)], opened, 1 + easy)
    return tree, TabularPolicy(tree)


def dead_end(wrong: float = 0.98, arms: int = 4) -> tuple[TokenTree, TabularPolicy]:
    """Two tokens: the first takes a way, and behind way 1 one of `arms` arms pays 1. Behind way 0, which the policy
    takes with probability `wrong`, none does."""
    answers = [(way, arm) for way in (0, 1) for arm in range(arms)]
    tree = TokenTree(arms, answers, lambda prompt, answer: float(answer == (1, arms - 1)))
    policy = TabularPolicy(tree)
    with torch.no_grad():
        policy.logits[tree.nodes[0, tree.start], 0] = math.log(wrong / (1 - wrong))
    return tree, policy


def rulebook(rules: int = 8, actions: int = 64, seed: int = 0) -> tuple[TokenTree, TabularPolicy, Tensor]:
    """Which of `actions` is right for each of `rules` prompts is said in a book alone: [prompts] the actions."""
    right = torch.randint(actions, (rules,), generator=torch.Generator().manual_seed(seed))
    tree = TokenTree.bandit(torch.nn.functional.one_hot(right, actions).double().tolist())
    return tree, TabularPolicy(tree), right


class Reading(nn.Module):
    """The same table with the book open: the action that it names gains `pull` nats. right: [prompts] tokens."""

    def __init__(self, policy: TabularPolicy, right: Tensor, pull: float = 5.0) -> None:
        super().__init__()
        self.reader, self.right = HintedPolicy(policy, pull, "all"), right

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """As `TabularPolicy.evaluate`."""
        tree = self.reader.policy.tree
        told = self.right[experience.extras["leaf"] // len(tree.answers)]
        hint = torch.where(experience.mask, told[:, None], -1)
        return self.reader.evaluate(experience.replace(extras={"hint": hint}), needs)


def course(
    algorithm: Algorithm, source: TreeSource, rate: float, most: int, goal: float = 2.0
) -> tuple[int, list[float]]:
    """Rollouts that were sampled, and each prompt's value then: once the mean value is `goal`, or after `most`."""
    tree, policy = source.tree, source.policy
    for _ in learning(algorithm, source, policy, rate=rate):
        with torch.no_grad():
            values = (tree.log_probabilities(policy).exp() * tree.outcome).sum(1)
        if source.drawn >= most or values.mean() >= goal:
            break
    return source.drawn, values.tolist()


def pooled(tree: TokenTree, old: TabularPolicy, begin: Sequence[int], share: float) -> tuple[Experience, Tensor]:
    """Every answer twice, once from the policy and once from a probe whose answers all begin with these tokens and go
    on as the policy does, with how often each of them comes if a share of the rows is the probe's. One prompt."""
    leaves = tree.leaves()
    with torch.no_grad():
        said = torch.where(leaves.mask, old.evaluate(leaves).logp, 0)
    told = torch.full(leaves.mask.shape, -1)
    told[:, tree.start : tree.start + len(begin)] = torch.tensor(begin)
    forced = torch.where(leaves.extras["tokens"] == told, 0.0, NOTHING).double()
    probed = torch.where((told >= 0) & leaves.mask, forced, said)
    twice = torch.arange(2 * len(leaves)) % len(leaves)
    kind = torch.arange(2 * len(leaves)) >= len(leaves)
    extras = {"probe": kind, "policy_logp": said[twice], "probe_logp": probed[twice]}
    odds = torch.cat([(1 - share) * said.sum(1).exp(), share * probed.sum(1).exp()])
    return leaves[twice].replace(extras=extras), odds
