"""Small problems that several claims share."""

from __future__ import annotations

import torch

from polopt.lab.policy import LinearPolicy, TabularPolicy, TinyTransformer
from polopt.lab.tree import TokenTree


def lengths() -> tuple[TokenTree, TabularPolicy]:
    """Returns answers of 1, 4 and 16 tokens: the first token decides the length, the last one can be right or wrong."""
    answers = [(0,), (1, 0, 0, 0), (1, 0, 0, 1), (2, *[0] * 15), (2, *[0] * 14, 1)]
    worth = {(0,): 0.3, answers[2]: 1.0, answers[4]: 1.0}
    tree = TokenTree(3, answers, lambda prompt, answer: worth.get(answer, 0.0))
    return tree, TabularPolicy(tree, spread=0.5, seed=1)


def wrong_lengths() -> tuple[TokenTree, TabularPolicy]:
    """Returns one right answer of 2 tokens, and wrong ones of 2 and of 16 tokens, all three equally likely."""
    answers = [(0, 0), (1, 0), (2, *[0] * 15)]
    tree = TokenTree(3, answers, lambda prompt, answer: float(answer[0] == 0))
    return tree, TabularPolicy(tree)


def longer_is_better(prompts: int = 1) -> tuple[TokenTree, TabularPolicy]:
    """Returns answers of 1, 2, 4, 8 and 16 tokens, worth 0.3, 0.4, ... 0.7: the first token decides the length."""
    answers = [(k, *[0] * (2**k - 1)) for k in range(5)]
    tree = TokenTree(5, answers, lambda prompt, answer: 0.3 + 0.1 * answer[0], prompts)
    return tree, TabularPolicy(tree)


def many_right(right: int = 8, arms: int = 32, seed: int = 2) -> tuple[TokenTree, TabularPolicy]:
    """Returns a bandit on which the first `right` of `arms` arms have reward 1, the others 0, and a policy of random
    logits."""
    tree = TokenTree.bandit([1.0] * right + [0.0] * (arms - right))
    return tree, TabularPolicy(tree, spread=0.5, seed=seed, critic=True)


def many_right_sequences(right: int = 8) -> tuple[TokenTree, TabularPolicy]:
    """Returns answers of four tokens out of three, of which `right` random sequences of the 81 have reward 1."""
    rewarded = set(torch.randperm(81, generator=torch.Generator().manual_seed(3))[:right].tolist())
    number = lambda answer: sum(token * 3**i for i, token in enumerate(reversed(answer)))  # noqa: E731
    tree = TokenTree.full(3, 4, lambda prompt, answer: float(number(answer) in rewarded))
    return tree, TabularPolicy(tree, spread=0.5, seed=2)


def digits(spread: float = 0.7) -> tuple[TokenTree, TabularPolicy]:
    """Returns two prompts with answers of one or two tokens of three; token 2 stops, and an answer is right if the sum
    of its tokens plus the prompt's number is divisible by 3."""
    tree = TokenTree.full(3, 2, lambda prompt, answer: float((sum(answer) + prompt) % 3 == 0), stop=2, prompts=2)
    return tree, TabularPolicy(tree, spread=spread, seed=1, critic=True)


def contexts(count: int, arms: int = 8) -> tuple[TokenTree, TabularPolicy]:
    """Returns a contextual bandit with a uniform policy: in context c arm c modulo `arms` has reward 1, the others
    0."""
    tree = TokenTree.bandit(torch.eye(arms).repeat(-(-count // arms), 1)[:count].tolist())
    return tree, TabularPolicy(tree)


def corridor(length: int = 60, door: int = 20, width: int = 5, leave: float = 0.04) -> tuple[TokenTree, TabularPolicy]:
    """Returns a walk of at most `length` steps: token 0 continues, token 1 leaves.

    Leaving has reward 1 at the `width` doors from step `door` on, 0 elsewhere. The policy leaves with probability
    `leave` at every step, and its critic returns 0.
    """
    answers = [(*[0] * k, 1) for k in range(length)] + [(0,) * length]
    tree = TokenTree(2, answers, lambda prompt, a: float(a[-1] == 1 and door <= len(a) - 1 < door + width))
    policy = TabularPolicy(tree, critic=True)
    return tree, policy.set_probabilities(torch.tensor([1 - leave, leave], dtype=torch.double))


def one_decisive(success: float = 0.05) -> tuple[TokenTree, TabularPolicy]:
    """Returns answers of four tokens of three, right if the second is token 2, of probability `success`; the others do
    not matter."""
    tree = TokenTree.full(3, 4, lambda prompt, answer: float(answer[1] == 2))
    policy = TabularPolicy(tree, spread=0.5, seed=2)
    with torch.no_grad():
        at = tree.nodes[:, tree.start + 1].unique()
        others = policy.logits[at, :2].logsumexp(1)
        policy.logits[at, 2] = others + torch.logit(torch.tensor(success, dtype=torch.double))
    return tree, policy


def decisive_tokens(
    seed: int, prompts: int = 8, tokens: int = 7, success: float = 0.05, features: int = 128
) -> tuple[TokenTree, LinearPolicy]:
    """Returns prompts whose answers of `tokens` tokens of two are right if one token is the right one, of probability
    `success` at first; the others do not matter.

    Which token it is differs from prompt to prompt. Prefixes share parameters by random features, so that what is
    learned of the others disturbs.
    """
    generator = torch.Generator().manual_seed(seed)
    place = torch.randint(tokens, (prompts,), generator=generator)
    key = torch.randint(2, (prompts,), generator=generator)
    tree = TokenTree.full(2, tokens, lambda p, answer: float(answer[place[p]] == key[p]), prompts=prompts)
    start = TabularPolicy(tree).table().detach()
    nodes = tree.nodes.view(prompts, len(tree.answers), -1)
    for prompt in range(prompts):
        at = nodes[prompt, :, tree.start + int(place[prompt])].unique()
        start[at, key[prompt]] = torch.logit(torch.tensor(success, dtype=torch.double))
    shared = torch.randn(len(start), features, generator=generator, dtype=torch.double) / features**0.5
    return tree, LinearPolicy(tree, shared, start=start)


def modular_sums(seed: int, base: int = 5) -> tuple[TokenTree, TinyTransformer]:
    """Returns the sums of two digits modulo `base` as a tree, and an untrained transformer of four layers."""
    right = lambda prompt, answer: float(answer[0] == (prompt // base + prompt % base) % base)  # noqa: E731
    tree = TokenTree.full(base, 1, right, prompts=base**2)
    return tree, TinyTransformer(tree, width=16, layers=4, seed=seed)
