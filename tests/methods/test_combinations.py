"""Two methods that change different parts of GRPO combine: pairs drawn at random, built by `but`, trained on a tree."""

from __future__ import annotations

import functools
import hashlib
import itertools
from typing import Any

import pytest
import torch

import polopt as po
from polopt import lab
from polopt.capabilities import UnprovidedError
from polopt.lab.problems import digits

GROUP, PAIRS = 4, 40


def sentence(slug: str) -> po.Algorithm:
    """The method with the common group size, so that this is no difference."""
    common: dict[str, Any] = {"group": GROUP, "kl": 0.0}
    return po.method(slug, **{k: v for k, v in common.items() if k in po.find(slug).settings()})


BASE = sentence("grpo")


def changes(slug: str) -> dict[str, Any]:
    return {path: there for path, _, there in po.diff(BASE, sentence(slug))}


def apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether no path of the one lies inside, or is, a path of the other."""
    inside = lambda a, b: f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")  # noqa: E731
    return not any(inside(a, b) for a, b in itertools.product(one, other))


def playable(slug: str) -> bool:
    """Whether a tree can say all that the method reads, and read what it says."""
    tree, policy = digits()
    algorithm = sentence(slug)
    try:
        lab.train(algorithm, tree, policy, steps=1, rate=0.0, rows=2, reference=policy)
    except (po.ExperienceError, UnprovidedError):
        return False
    except ValueError as error:
        if not str(error).startswith("TreeSource:"):
            raise
        return False
    return True


# latr: on so small a tree all of its answers are alike. gtalign: answers without its blocks are paid nothing.
# rlcm-scaling pays more than 1, which some credits refuse; knapsack-rl and v0 refuse groups of one.
ELSEWHERE = {"gtalign", "knapsack-rl", "latr", "rlcm-scaling", "v0"}
ALL = {slug: found for slug in po.slugs("algorithm") if slug not in ELSEWHERE and (found := changes(slug))}
# Returns below 0 for a rate of successes, and opponents of answers that do not begin as plain prompts do.
REFUSED = [("dapo", "v0-5"), ("nash-md", "pope"), ("pope", "spo-self-play")]
DISJOINT = [(a, b) for a, b in itertools.combinations(ALL, 2) if apart(ALL[a], ALL[b]) and (a, b) not in REFUSED]


@functools.cache
def chosen() -> list[tuple[str, str]]:
    """PAIRS pairs of methods that a tree can play, drawn at random; a new method leaves most of them as they are."""
    pairs = sorted(DISJOINT, key=lambda pair: hashlib.sha256(" ".join(pair).encode()).digest())
    played = functools.cache(playable)
    return list(itertools.islice((pair for pair in pairs if all(map(played, pair))), PAIRS))


def test_there_are_pairs() -> None:
    assert len(chosen()) == PAIRS


@pytest.mark.parametrize("number", range(PAIRS))
def test_pair(number: int) -> None:
    one, other = chosen()[number]
    both = BASE.but(ALL[one]).but(ALL[other])
    again = BASE.but(ALL[other]).but(ALL[one])
    assert po.diff(both, again) == []
    assert {path for path, *_ in po.diff(BASE, both)} == {*ALL[one], *ALL[other]}
    tree, policy = digits()
    before = policy.logits.detach().clone()
    lab.train(both, tree, policy, steps=6, rate=0.5, rows=2, epochs=2, reference=digits(spread=0.3)[1])
    assert policy.logits.isfinite().all()
    assert not torch.equal(policy.logits, before)


@pytest.mark.parametrize(("one", "other"), REFUSED)
def test_a_pair_that_cannot_be_is_refused(one: str, other: str) -> None:
    tree, policy = digits()
    with pytest.raises(ValueError, match=r"; set \w+"):
        lab.train(BASE.but(ALL[one]).but(ALL[other]), tree, policy, steps=6, rate=0.5, rows=2, epochs=2)
