"""Problems with demonstrations or with raw texts: single decisions, or a style token followed by a fact token.

Each problem is a tree, an initial policy, and the frequency [prompts, answers] of each answer among the demonstrations.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree

Problem = tuple[TokenTree, TabularPolicy, Tensor]


def two_kinds(known: bool = True, half: int = 10, arms: int = 200) -> Problem:
    """Returns bandits of two kinds. In half of the prompts 20 arms have rewards from 1.0 to 0.2, and 0.8 is
    demonstrated; in the others one arm of 200 has reward 1, and is demonstrated.

    known: the policy starts on the rewarded arms of the first half, instead of off them; it always starts off the
        single arm.
    """
    worth = torch.zeros(2 * half, arms, dtype=torch.double)
    worth[:half, :20] = torch.linspace(1.0, 0.2, 20, dtype=torch.double)
    worth[half:, 0] = 1.0
    tree = TokenTree.bandit(worth.tolist())
    policy = TabularPolicy(tree)
    with torch.no_grad():
        policy.logits[:half, :20] = 4.0 if known else -4.0
        policy.logits[half:, 0] = -4.0
    demonstrations = torch.zeros_like(worth)
    demonstrations[:half, int((worth[0] - 0.8).abs().argmin())] = 1.0
    demonstrations[half:, 0] = 1.0
    return tree, policy, demonstrations


def noisy_labels(classes: int = 10, wrong: int = 10, share: float = 0.2) -> Problem:
    """Returns a bandit with a right arm for each prompt, and demonstrations of which a fraction shows one of `wrong`
    arms that are never right."""
    tree = TokenTree.bandit(torch.eye(classes, classes + wrong).tolist())
    demonstrations = (1 - share) * torch.eye(classes, classes + wrong, dtype=torch.double)
    demonstrations[:, classes:] = share / wrong
    return tree, TabularPolicy(tree), demonstrations


def an_interval(seed: int = 0, prompts: int = 1, grid: int = 64) -> Problem:
    """Returns a problem whose answers are a start and an end on a grid, with the intersection over union with a right
    interval as reward.

    The right interval is a third to a half of the grid long, and is demonstrated. Start and end are decided
    independently, and uniformly at first.
    """
    generator = torch.Generator().manual_seed(seed)
    length = torch.randint(grid // 3, grid // 2, (prompts,), generator=generator)
    start = (torch.rand(prompts, generator=generator) * (grid - length)).long()
    right = torch.stack([start, start + length], 1)
    places = torch.cartesian_prod(torch.arange(grid), torch.arange(grid))
    worth = interval_iou(places.double(), right[:, None].double())
    tree = TokenTree(grid, [(int(a), int(b)) for a, b in places], worth, prompts)
    tied = torch.zeros(len(tree.choices), dtype=torch.long)
    prompt = torch.arange(prompts).repeat_interleave(grid**2)
    tied[tree.nodes[:, tree.start]], tied[tree.nodes[:, tree.start + 1]] = 2 * prompt, 2 * prompt + 1
    demonstrations = (places == right[:, None]).all(-1).double()
    return tree, TabularPolicy(tree, tied=tied), demonstrations


def another_style(prompts: int = 20, facts: int = 10) -> Problem:
    """Returns a problem in which any style is right, if the fact is, and an expert demonstrates another style than the
    policy's.

    The policy has 80 % of the facts right in its own style, which it takes 99 % of the time; the expert's style, in
    which the policy is untrained, demonstrates 90 %. All prompts share one parameter of style, so the style changes
    much faster than the facts are learned.
    """
    right = _facts(prompts, facts)
    tree = _styled(prompts, facts, lambda prompt, style, fact: float(fact == right[prompt]))
    root, leaf = tree.nodes[:, tree.start], tree.nodes[:, tree.start + 1]
    prompt, style = _rows(tree, facts)
    tied = torch.zeros(len(tree.choices), dtype=torch.long)
    tied[root], tied[leaf] = 0, 1 + prompt + prompts * style
    policy = TabularPolicy(tree, tied=tied)
    with torch.no_grad():
        policy.logits[0, facts] = math.log(0.99 / 0.01)
        policy.logits[1 + torch.arange(prompts), right] = math.log(0.8 / 0.2 * (facts - 1))
    demonstrations = torch.zeros(prompts, 2, facts, dtype=torch.double)
    demonstrations[:, 1] = 0.1 / (facts - 1)
    demonstrations[torch.arange(prompts), 1, right] = 0.9
    return tree, policy, demonstrations.flatten(1)


def read_or_guess(keys: int = 25, facts: int = 400, style: float = 0.2) -> Problem:
    """Returns questions, then texts, about the same keys.

    A question rewards the right one of 400 facts in the second style, which the policy takes with probability `style`;
    a text contains the fact in the first style. Questions and texts share the facts' parameters in both styles; each
    has a style parameter of its own. Sampling alone hardly ever finds a fact.
    """
    right = _facts(keys, facts).repeat(2)
    tree = _styled(
        2 * keys, facts, lambda prompt, style, fact: float(prompt < keys and style == 1 and fact == right[prompt])
    )
    prompt, _ = _rows(tree, facts)
    tied = torch.zeros(len(tree.choices), dtype=torch.long)
    tied[tree.nodes[:, tree.start]] = (prompt >= keys).long()
    tied[tree.nodes[:, tree.start + 1]] = 2 + prompt % keys
    policy = TabularPolicy(tree, tied=tied)
    with torch.no_grad():
        policy.logits[0, facts + 1] = math.log(style / (1 - style))
    texts = torch.zeros(2 * keys, 2 * facts, dtype=torch.double)
    texts[torch.arange(keys, 2 * keys), right[:keys]] = 1.0
    return tree, policy, texts


def overrated(seed: int, prompts: int = 20, arms: int = 64) -> tuple[TokenTree, TabularPolicy, TabularPolicy, Tensor]:
    """Returns a tree whose reward is a proxy of the truth, with a little noise, and 10 too much on 5 % of the arms.

    The policy starts a little better than chance. The result is the tree, the policy, a copy of it for a reference, and
    the truth [prompts, arms].
    """
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(prompts, arms, generator=generator, dtype=torch.double)
    proxy = truth + 0.1 * torch.randn(prompts, arms, generator=generator, dtype=torch.double)
    chosen = torch.rand(prompts, arms, generator=generator).argsort(1)[:, : arms // 20]
    tree = TokenTree.bandit(proxy.scatter_add(1, chosen, torch.full(chosen.shape, 10.0, dtype=torch.double)).tolist())
    policies = [TabularPolicy(tree, critic=True) for _ in range(2)]
    with torch.no_grad():
        for policy in policies:
            policy.logits.copy_(truth)
    return tree, policies[0], policies[1], truth


def _facts(keys: int, facts: int) -> Tensor:
    return torch.randint(facts, (keys,), generator=torch.Generator().manual_seed(0))


def _styled(prompts: int, facts: int, worth: Callable[[int, int, int], float]) -> TokenTree:
    """Returns the tree of answers of a style token and a fact token, with reward `worth(prompt, style, fact)`."""
    answers = [(facts + style, fact) for style in (0, 1) for fact in range(facts)]
    return TokenTree(facts + 2, answers, lambda prompt, a: worth(prompt, a[0] - facts, a[1]), prompts)


def _rows(tree: TokenTree, facts: int) -> tuple[Tensor, Tensor]:
    """Returns the prompt and the style of each of the tree's rows."""
    row = torch.arange(tree.prompts * len(tree.answers))
    return row // len(tree.answers), row % len(tree.answers) // facts


def interval_iou(found: Tensor, true: Tensor) -> Tensor:
    """Intersection over union of intervals [..., 2], each (start, end): 1 for the same one, 0 for disjoint ones.

    An interval that ends before it starts is empty, and so is an empty intersection: 0. Two points are the same
    interval if they are the same point.
    """
    start, end = torch.maximum(found[..., 0], true[..., 0]), torch.minimum(found[..., 1], true[..., 1])
    shared = (end - start).clamp(min=0)
    union = (found[..., 1] - found[..., 0]).clamp(min=0) + (true[..., 1] - true[..., 0]).clamp(min=0) - shared
    same = (found == true).all(-1).to(shared.dtype)
    return torch.where(union > 0, shared / torch.where(union > 0, union, 1), same)
