"""Problems that unaided policies hardly ever solve, and forms of help: a lock, a dead end, a book of rules."""

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
    """Returns a combination lock: at each of `steps` steps one of `choices` tokens is right, and the first wrong one
    ends the answer.

    The outcome is 1 if the lock opens.

    easy: number of further prompts, which open after the first right step.
    """
    code = torch.randint(choices, (steps,), generator=torch.Generator().manual_seed(0)).tolist()
    wrong = [(*code[:k], w) for k in range(steps) for w in range(choices) if w != code[k]]
    opened = lambda prompt, answer: float(len(answer) > 1 if prompt else list(answer) == code)  # noqa: E731
    tree = TokenTree(choices, [*wrong, tuple(code)], opened, 1 + easy)
    return tree, TabularPolicy(tree)


def dead_end(wrong: float = 0.98, arms: int = 4) -> tuple[TokenTree, TabularPolicy]:
    """Returns a problem of two tokens: the first chooses a branch, and in branch 1 one of `arms` arms has reward 1.

    In branch 0, which the policy takes with probability `wrong`, no arm has a reward.
    """
    answers = [(way, arm) for way in (0, 1) for arm in range(arms)]
    tree = TokenTree(arms, answers, lambda prompt, answer: float(answer == (1, arms - 1)))
    policy = TabularPolicy(tree)
    with torch.no_grad():
        policy.logits[tree.nodes[0, tree.start], 0] = math.log(wrong / (1 - wrong))
    return tree, policy


def rulebook(rules: int = 8, actions: int = 64, seed: int = 0) -> tuple[TokenTree, TabularPolicy, Tensor]:
    """Returns a bandit with one right action of `actions` for each of `rules` prompts, a policy, and the right actions
    [prompts].

    The right actions are random, so that they cannot be inferred from the prompts.
    """
    right = torch.randint(actions, (rules,), generator=torch.Generator().manual_seed(seed))
    tree = TokenTree.bandit(torch.nn.functional.one_hot(right, actions).double().tolist())
    return tree, TabularPolicy(tree), right


class Reading(nn.Module):
    """A tabular policy with the rules in its prompt: the right action gains `pull` nats.

    right: [prompts] the right tokens.
    """

    def __init__(self, policy: TabularPolicy, right: Tensor, pull: float = 5.0) -> None:
        super().__init__()
        self.reader, self.right = HintedPolicy(policy, pull, "all"), right

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates the rows as `TabularPolicy.evaluate` does, with the rules in the prompt."""
        tree = self.reader.policy.tree
        rules = self.right[experience.extras["leaf"] // len(tree.answers)]
        hint = torch.where(experience.mask, rules[:, None], -1)
        return self.reader.evaluate(experience.replace(extras={"hint": hint}), needs)


def course(
    algorithm: Algorithm, source: TreeSource, rate: float, most: int, goal: float = 2.0
) -> tuple[int, list[float]]:
    """Returns the sampled rollouts and each prompt's value once the mean value is `goal`, or after `most` rollouts."""
    tree, policy = source.tree, source.policy
    for _ in learning(algorithm, source, policy, rate=rate):
        with torch.no_grad():
            values = (tree.log_probabilities(policy).exp() * tree.outcome).sum(1)
        if source.drawn >= most or values.mean() >= goal:
            break
    return source.drawn, values.tolist()


def pooled(tree: TokenTree, old: TabularPolicy, begin: Sequence[int], share: float) -> tuple[Experience, Tensor]:
    """Returns every answer twice, once under the policy and once under a probe, and the probability of each row.

    All answers of the probe begin with the tokens `begin` and continue as the policy does; a fraction `share` of the
    rows is the probe's. The tree has one prompt.
    """
    leaves = tree.leaves()
    with torch.no_grad():
        policy_logp = torch.where(leaves.mask, old.evaluate(leaves).logp, 0)
    forced_tokens = torch.full(leaves.mask.shape, -1)
    forced_tokens[:, tree.start : tree.start + len(begin)] = torch.tensor(begin)
    forced = torch.where(leaves.extras["tokens"] == forced_tokens, 0.0, NOTHING).double()
    probed = torch.where((forced_tokens >= 0) & leaves.mask, forced, policy_logp)
    twice = torch.arange(2 * len(leaves)) % len(leaves)
    kind = torch.arange(2 * len(leaves)) >= len(leaves)
    extras = {"probe": kind, "policy_logp": policy_logp[twice], "probe_logp": probed[twice]}
    probs = torch.cat([(1 - share) * policy_logp.sum(1).exp(), share * probed.sum(1).exp()])
    return leaves[twice].replace(extras=extras), probs
