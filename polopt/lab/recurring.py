"""Problems of several turns in which one state is reached in different ways."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.lab.policy import LinearPolicy
from polopt.lab.tree import Answer, TokenTree


def lock(
    seed: int, *, prompts: int, length: int = 3, actions: int = 3, turns: int = 6, timed: bool = False
) -> tuple[TokenTree, Tensor]:
    """Returns locks, one a prompt, and the number of each node's state, [nodes].

    The right action at each of `length` places leads to the next, a wrong one back to the first; an answer of `turns`
    actions has outcome 1 if it ends at the last. The right actions are drawn by `seed`. timed: whether the turn is part
    of the state, which then determines what may still come.
    """
    draw = torch.Generator().manual_seed(seed)
    right = torch.randint(actions, (prompts, length), generator=draw).tolist()

    def place(prompt: int, answer: Answer) -> int:
        at = 0
        for action in answer:
            if at < length:
                at = at + 1 if action == right[prompt][at] else 0
        return at

    def state(prompt: int, answer: Answer) -> int:
        return 1 + place(prompt, answer) + (length + 1) * len(answer) * timed

    tree = TokenTree.full(actions, turns, lambda p, a: float(place(p, a) == length), prompts=prompts)
    return _with_states(tree.in_turns(1, state))


def contexts(
    seed: int, *, prompts: int = 16, chance: float = 0.3, gain: float = 0.05, actions: int = 3, features: int = 12
) -> tuple[TokenTree, LinearPolicy, Tensor]:
    """Returns tasks in which nature decides twice, then the policy once, in a state that shows neither; and which
    answers decide right, [prompts, answers].

    With x and y, +1 or -1, nature's draws, and the right action of the prompt drawn by `seed`, an answer's outcome is

        0.5 + chance x + chance y / 2 + gain (+1/2 if right, else -1/2).

    Nature's turns are decisions of the policy whose logits cannot change. The state before the last is x's, the state
    before that y's. Prompts share the weights of `features` random features.
    """
    draw = torch.Generator().manual_seed(seed)
    right = torch.randint(actions, (prompts,), generator=draw)
    answers = [(y, x, 0, a) for y in range(2) for x in range(2) for a in range(actions)]
    decides = torch.tensor([a for *_, a in answers]) == right[:, None]
    y, x = (torch.tensor([2.0 * answer[i] - 1 for answer in answers]).double() for i in (0, 1))
    outcome = 0.5 + chance * x + chance * y / 2 + gain * (decides.double() - 0.5)
    shown = {0: 1, 1: 10, 2: 20, 3: 30}
    tree = TokenTree(max(2, actions), answers, outcome, prompts).in_turns(
        1, lambda prompt, answer: shown[len(answer)] + (answer[-1] if len(answer) in (1, 2) else 0)
    )
    own = torch.randn(prompts, features, generator=draw, dtype=torch.double) / features**0.5
    at = torch.zeros(len(tree.choices), features, dtype=torch.double)
    at[tree.nodes[:, tree.start + 3]] = own[tree.leaves().group]
    return tree, LinearPolicy(tree, at), decides


def _with_states(tree: TokenTree) -> tuple[TokenTree, Tensor]:
    """Returns the tree and its nodes' states, numbered from 0 over all prompts, [nodes]."""
    leaves = tree.leaves()
    mask, state = leaves.mask, leaves.extras["turn_state"]
    group = leaves.group[:, None].expand(mask.shape)
    pairs = torch.stack([group[mask], state[mask]])
    _, number = torch.unique(pairs, dim=1, return_inverse=True)
    return tree, torch.zeros(len(tree.choices), dtype=torch.long).index_put((tree.nodes[mask],), number)


def sharing(tree: TokenTree, states: Tensor, *, seed: int, features: int = 24, critic: bool = False) -> LinearPolicy:
    """Returns a uniform policy whose logits are linear in random features, N(0, 1 / features), of a node's state, so
    that a step that is too long for some states harms others. critic: whether it has a table of values, too."""
    draw = torch.Generator().manual_seed(seed)
    own = torch.randn(int(states.max()) + 1, features, generator=draw, dtype=torch.double) / features**0.5
    return LinearPolicy(tree, own[states], critic=critic)
