"""Fine-tuning on filtered successes and policy gradient are one loop with other switches: first gradients on a tree.

The equality is from the survey of `polopt.tags.AGENTS`: fitting the successes of the policy's own rollouts is, up to
scale, REINFORCE with a reward of 0 or 1 and no baseline.
"""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource, flat_gradient
from polopt.objectives import PolicyGradient, SequenceSum, TokenMean
from polopt.sampling import TopK, UniqueAnswers

ROWS = 64


def problem(half: bool = False) -> tuple[TokenTree, TabularPolicy]:
    """A tree of answers of up to three tokens, right where they add up to a multiple of three; or half right."""
    tree = TokenTree.full(
        3, 3, lambda p, a: float((sum(a) + p) % 3 == 0) + 0.5 * half * float((sum(a) + p) % 3 == 1), stop=2, prompts=2
    )
    return tree, TabularPolicy(tree, spread=0.7, seed=1)


def sampled(tree: TokenTree, policy: TabularPolicy) -> Experience:
    return po.method("reinforce").but(**{"sampling.group": 8}).sampling(TreeSource(tree, policy, rows=ROWS, seed=3))


def gradient(algorithm: Algorithm, policy: TabularPolicy, batch: Experience) -> tuple[torch.Tensor, int]:
    """-d loss of an algorithm on a batch, and the rows that it learns from."""
    learned = algorithm.compute_advantages(batch.replace(sampled_by=None))
    loss = algorithm.objective(learned, policy.evaluate(learned)).loss
    return -flat_gradient(loss, policy), len(learned)


def filtered(*more: UniqueAnswers, threshold: float = 1.0) -> Algorithm:
    return po.method("rft").but(
        **{
            "sampling.select": [TopK(count=100, threshold=threshold), *more],
            "objective.aggregate": SequenceSum(length=1),
        }
    )


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The sine of the angle between two gradients."""
    cosine = torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=0)
    return float((1 - cosine.clamp(max=1.0) ** 2).sqrt())


def test_fitting_successes_is_reinforce_of_zero_and_one() -> None:
    tree, policy = problem()
    batch = sampled(tree, policy)
    fit, kept = gradient(filtered(), policy, batch)
    plain, rows = gradient(po.method("reinforce"), policy, batch)
    assert 0 < kept < rows == ROWS
    torch.testing.assert_close(fit * kept, plain * rows, rtol=1e-6, atol=1e-9)
    assert float(plain.norm()) > 0.01


def test_what_breaks_the_equality() -> None:
    tree, policy = problem()
    batch = sampled(tree, policy)
    plain, _ = gradient(po.method("reinforce"), policy, batch)
    assert apart(gradient(filtered(), policy, batch)[0], plain) < 1e-6
    different, _ = gradient(filtered(UniqueAnswers()), policy, batch)
    with_baseline = po.method("reinforce").but(**{"credit.baseline": GroupMean()})
    weighed, _ = gradient(with_baseline, policy, batch)
    by_token, _ = gradient(filtered().but(**{"objective.aggregate": TokenMean()}), policy, batch)
    assert min(apart(different, plain), apart(weighed, plain)) > 0.01
    # A mean over tokens divides all rows by one number, so that only the scale differs.
    assert apart(by_token, plain) < 1e-6
    tree, policy = problem(half=True)
    batch = sampled(tree, policy)
    assert apart(gradient(filtered(), policy, batch)[0], gradient(po.method("reinforce"), policy, batch)[0]) > 0.01
    kept_half = gradient(filtered(threshold=0.5), policy, batch)[0]
    assert apart(kept_half, gradient(po.method("reinforce"), policy, batch)[0]) > 0.01


@pytest.mark.parametrize("slug", ["grpo", "dr-grpo", "rloo"])
def test_a_ratio_changes_nothing_in_the_first_step(slug: str) -> None:
    """The surrogate with ratios, at the policy that sampled, has the policy gradient of its advantages."""
    tree, policy = problem()
    batch = sampled(tree, policy)
    algorithm = po.method(slug, **({} if slug == "dr-grpo" else {"kl": 0.0}))
    bare = algorithm.but(**{"objective.ratio": None, "objective.trust": PolicyGradient()})
    one, other = (gradient(each, policy, batch.replace(old_logp=batch.rollout_logp))[0] for each in (algorithm, bare))
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    assert float(one.norm()) > 0.01
