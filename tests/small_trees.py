"""Token trees that tests of several folders sample from."""

from __future__ import annotations

from polopt.lab import TokenTree


def stop_tree(prompts: int = 2) -> TokenTree:
    """Returns the tree of answers of up to three tokens from a vocabulary of three, in which token 2 ends an answer."""
    return TokenTree.full(3, 3, lambda p, a: float((sum(a) + p) % 3 == 0) + 0.1 * len(a), stop=2, prompts=prompts)
