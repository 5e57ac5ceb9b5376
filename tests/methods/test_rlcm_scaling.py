"""Rewards of classification in parts, and the lab's classification under a rule."""

from __future__ import annotations

import itertools

import pytest
import torch

import polopt as po
from polopt.claims.problems.moderation import ATTRIBUTES, MEANING, WORDINGS, Reasoner, contents, violates
from polopt.part_diff import diff


def answers(*texts: str, paid: list[float], lengths: list[int], rubric: list[float]) -> po.Experience:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    extras = {"answer": list(texts), "signal_rubric": torch.tensor(rubric, dtype=torch.float64)}
    return po.Experience(mask=mask, outcome=torch.tensor(paid, dtype=torch.float64), extras=extras)


def test_the_reward_is_the_sum_of_its_parts() -> None:
    batch = answers(
        "<reasoning>rude</reasoning><label>1</label>",
        "<label>1</label>",
        "<reasoning>kind</reasoning>\n<label>0</label>",
        paid=[1.0, 1.0, 0.0],
        lengths=[10, 2, 30],
        rubric=[0.75, 0.0, 0.5],
    )
    algorithm = po.method("rlcm-scaling", accuracy=2.0, form=0.5, length=0.25, rubric=1.0, lengths=(0, 4, 20, 40))
    # Lengths: 10 lies within, 2 is half of the way up, 30 half of the way down.
    expected = [2 + 0.5 + 0.25 + 0.75, 2 + 0.125, 0.5 + 0.125 + 0.5]
    torch.testing.assert_close(algorithm.reward(batch).double(), torch.tensor(expected).double(), rtol=1e-7, atol=1e-7)


def test_the_label_alone_is_grpo() -> None:
    alone = po.method("rlcm-scaling", form=0.0, length=0.0)
    assert diff(alone, po.method("grpo", group=8, kl=0.0)) == []
    assert {path for path, *_ in diff(po.method("rlcm-scaling"), alone)} == {"reward"}
    with pytest.raises(ValueError, match="some weight"):
        po.method("rlcm-scaling", accuracy=0.0, form=0.0, length=0.0)


def test_the_rule_by_hand() -> None:
    for bits in itertools.product((0, 1), repeat=ATTRIBUTES):
        a, b, c, d, e, f = map(bool, bits)
        assert bool(violates(torch.tensor(bits))) == ((a and b) or (c and not d and e) or (f and not a))


def test_the_reasoners_accuracy_is_the_expectation_over_all_it_may_say() -> None:
    """By the tree's own leaves, before training and after some."""
    wordings, label = contents(3, seed=5)
    reasoner = Reasoner(wordings, label)
    assert reasoner.tree.value(reasoner.policy).item() == pytest.approx(0.5, abs=1e-12)
    with torch.no_grad():
        reasoner.policy.logits.add_(
            torch.randn(reasoner.policy.logits.shape, generator=torch.Generator().manual_seed(0))
        )
    by_leaves = reasoner.tree.value(reasoner.policy).item()
    assert reasoner.accuracy(wordings, label) == pytest.approx(by_leaves, rel=1e-10)
    assert abs(by_leaves - 0.5) > 0.01


def test_it_reads_what_it_read_before() -> None:
    """The first attribute's probability of being said is 0.9 where its wording says so."""
    wordings, label = contents(4, seed=1)
    reasoner = Reasoner(wordings, label)
    leaves = reasoner.tree.leaves()
    said = reasoner.policy.evaluate(leaves).logp[:, reasoner.tree.start].exp()
    prompt = torch.arange(len(leaves)) // len(reasoner.tree.answers)
    right = leaves.extras["tokens"][:, reasoner.tree.start] == MEANING[wordings[prompt, 0]]
    torch.testing.assert_close(said, 0.1 + 0.8 * right.double(), rtol=1e-10, atol=0)
    assert int(MEANING.sum()) == WORDINGS // 2
