"""Trees of rollouts as a sampling part, on an exact tree, where their bias can be measured."""

from __future__ import annotations

import pytest
import torch
from sentences import same

import polopt as po
from polopt.claims.problems.crossroads import crossroads
from polopt.config import ConfigError
from polopt.lab import TabularPolicy, TokenTree, TreeSource, training
from polopt.lab.problems import digits
from polopt.methods.latr import LookaheadRollouts
from polopt.part_diff import diff
from polopt.policies.vllm import VLLMSpec
from polopt.sampling import Lookahead
from polopt.sampling.parts import RolloutRequest
from polopt.schedules import Schedule
from polopt.support import Support

WIDE = Lookahead(edit=None, least=0.0, apart=1.0, windows=(99,))


def test_share_0_is_grpo_number_for_number() -> None:
    found = []
    for sentence in (po.method("grpo", group=8, kl=0), po.method("latr", share=((0, 0.0),), kl=0.0, group=8)):
        tree, policy = digits()
        loop = training(sentence, tree, policy, rate=0.5, rows=4, seed=3)
        for _ in range(4):
            assert len(next(loop)[0]) == 32
        found.append(policy.logits.detach())
    assert torch.equal(*found)
    assert {p for p, *_ in diff(po.method("latr"), po.method("grpo", group=8, kl=0.01))} == {"sampling"}
    assert {p for p, *_ in diff(po.method("latr"), po.method("grpo", group=8, kl=0))} == {
        "sampling",
        "objective.regularise",
    }


def test_leaves_are_marked_and_the_share_falls() -> None:
    tree, policy = digits()
    source = TreeSource(tree, policy, rows=24)
    part = LookaheadRollouts(group=8, look=WIDE, share=Schedule(knots=[(0, 1.0), (1, 0.5), (2, 0.0)], shape="step"))
    for leaves in (8, 4, 0, 0):
        batch = part(source)
        assert len(batch) == 24
        assert batch.extras["explored"].view(3, 8).sum(1).tolist() == [leaves] * 3
        assert batch.extras["explored"].view(3, 8)[:, :leaves].all()
        same(batch.rollout_logp[batch.mask], policy.evaluate(batch).logp[batch.mask].detach())
        part.step()


def test_a_tree_takes_the_likeliest_answers() -> None:
    """With open thresholds, two tokens and depth two: the four answers of the two likeliest tokens at each node."""
    tree = TokenTree.full(3, 2, lambda p, a: float(sum(a) == p), prompts=2)
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    source = TreeSource(tree, policy, rows=8)
    batch = LookaheadRollouts(group=4, look=WIDE)(source)
    for g in (0, 1):
        rows = batch[batch.group == g]
        prompt = int(rows.extras["index"][0])
        table = policy.evaluate(tree.leaves()).logp
        likely = set()
        for first in _two_best(tree, table, prompt, 0, None):
            likely |= {(first, second) for second in _two_best(tree, table, prompt, 1, first)}
        assert set(rows.extras["answer"]) == {f"{a} {b}" for a, b in likely}
        assert (rows.extras["index"] == prompt).all()


def _two_best(tree: TokenTree, table: torch.Tensor, prompt: int, depth: int, first: int | None) -> list[int]:
    said = {}
    for leaf, answer in enumerate(tree.answers):
        if depth == 0 or answer[0] == first:
            said[answer[depth]] = table[prompt * len(tree.answers) + leaf, tree.start + depth].item()
    return sorted(said, key=said.__getitem__)[-2:]


def gradient(share: float, batches: int) -> torch.Tensor:
    """Mean pull of REINFORCE on whole groups, without a baseline."""
    tree, policy, _ = crossroads(filler=2)
    source = TreeSource(tree, policy, rows=8, seed=1)
    sentence = po.method("reinforce").but(
        sampling=LookaheadRollouts(group=8, look=Lookahead(least=0.15, windows=(2,), decay=0.0), share=share)
    )
    total = torch.zeros_like(policy.logits)
    for _ in range(batches):
        batch = sentence.compute_advantages(sentence.sampling(source))
        loss = sentence.objective(batch, policy.evaluate(batch)).loss
        total -= torch.autograd.grad(loss, policy.logits)[0] / batches
    return total.flatten()


def test_leaves_are_biased_and_independent_rows_are_not() -> None:
    """Against the exact gradient: sampling error alone without trees, a bias far beyond it with them."""
    tree, policy, _ = crossroads(filler=2)
    exact = tree.gradient(policy)
    scale = gradient(0.0, 400)
    # reinforce divides by a constant length; both are compared as directions and up to that constant.
    unit = float(scale @ exact / exact.square().sum())
    plain = (scale / unit - exact).norm() / exact.norm()
    trees = (gradient(1.0, 4) / unit - exact).norm() / exact.norm()
    mixed = (gradient(0.5, 100) / unit - exact).norm() / exact.norm()
    assert plain < 0.25
    assert trees > 1.0  # right in one of 8 rows, where the policy is in one of 18
    assert plain < mixed < trees


def test_what_a_tree_cannot_do_is_refused() -> None:
    tree, policy = digits()
    source = TreeSource(tree, policy, rows=8)
    part = LookaheadRollouts(group=4, look=WIDE)
    with pytest.raises(ValueError, match="a look ahead begins at the prompt"):
        source.rollout(
            RolloutRequest(
                source.take(1),
                4,
                Support(),
                max_decisions=1,
                lookahead=po.sampling.lookahead.LookaheadConfig(WIDE, 1.0),
            )
        )
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], found 2.0"):
        LookaheadRollouts(share=2.0)
    with pytest.raises(ValueError, match="a branch may begin with a token that top-k"):
        LookaheadRollouts(support=Support(top_k=2))
    with pytest.raises(ConfigError, match="LookaheadRollouts steers rollouts token by token"):
        VLLMSpec().check({"rl": po.Algorithm(sampling=part)}, dtype="float32", device="cuda", evaluation=Support())
