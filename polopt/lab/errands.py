"""Tasks of two errands, which a policy does by subgoals that it keeps for some turns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from polopt.lab.tree import Answer, TokenTree
from polopt.sections import ACTION, KEEP, SUBGOAL, SWITCH

CHOICES = 2  # subgoals, and actions


def errands(seed: int, *, prompts: int = 8, turns: int = 5, length: int = 2) -> tuple[TokenTree, Tensor]:
    """Returns tasks, one a prompt, and the number of each node's state, [nodes].

    A turn is a choice to keep the subgoal (0) or to switch (1), a subgoal if there is a new one, and an action; the
    first turn begins with a subgoal. Each of two errands takes `length` right actions in turn, while the subgoal is the
    errand's; other actions change nothing. The outcome is 1 if both are done within the turns. Subgoals and actions
    that are right are drawn by `seed`. The state is what remains to be done, the subgoal, and what is decided.
    """
    draw = torch.Generator().manual_seed(seed)
    goals = torch.randint(CHOICES, (prompts, 2), generator=draw).tolist()
    right = torch.randint(CHOICES, (prompts, 2 * length), generator=draw).tolist()

    def played(prompt: int, answer: Answer) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
        """Yields each decision's turn, its section, and (done before the turn, subgoal, kind of decision)."""
        done, subgoal, at = 0, -1, 0
        for turn in range(turns):
            before, switches = done, turn == 0
            if turn:
                switches = bool(answer[at])
                yield turn, SWITCH if switches else KEEP, (before, subgoal, 0)
                at += 1
            if switches:
                yield turn, SUBGOAL, (before, -1, 1)
                subgoal, at = answer[at], at + 1
            yield turn, ACTION, (before, subgoal, 2)
            if done < 2 * length and subgoal == goals[prompt][done // length] and answer[at] == right[prompt][done]:
                done += 1
            at += 1
        yield turns, -1, (done, -1, 3)

    def outcome(prompt: int, answer: Answer) -> float:
        *_, (_, _, (done, _, _)) = played(prompt, answer)
        return float(done == 2 * length)

    def state(prompt: int, known: tuple[int, int, int]) -> int:
        done, subgoal, kind = known
        return ((prompt * (2 * length + 1) + done) * (CHOICES + 1) + subgoal + 1) * 3 + kind

    tree = TokenTree(CHOICES, _answers(turns), outcome, prompts)
    states = torch.zeros(len(tree.choices), dtype=torch.long)
    for row, (prompt, answer) in enumerate(itertools.product(range(prompts), tree.answers)):
        found = [state(prompt, known) for _, _, known in played(prompt, answer)][: len(answer)]
        states[tree.nodes[row, tree.start : tree.start + len(answer)]] = torch.tensor(found)

    def describe(prompt: int, answer: Answer) -> list[tuple[int, int, int]]:
        decisions = [*played(prompt, answer)][: len(answer)]
        first = {turn: state(prompt, known) for turn, _, known in reversed(decisions)}
        return [(turn, first[turn], section) for turn, section, _ in decisions]

    return tree.in_sections(describe), states.unique(return_inverse=True)[1]


def _answers(turns: int) -> list[Answer]:
    """Returns all answers, decision by decision."""
    chosen, kept = itertools.product(range(CHOICES), repeat=2), ((a,) for a in range(CHOICES))
    began = [*chosen]
    later = [*((0, *a) for a in kept), *((1, *both) for both in began)]
    return [tuple(itertools.chain(*parts)) for parts in itertools.product(began, *[later] * (turns - 1))]
