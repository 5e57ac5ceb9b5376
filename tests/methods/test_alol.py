"""A-LoL: which given answers are learned from and how much, its value of a prompt, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from sentences import same

import polopt as po
from polopt.credit import ConstantBaseline, GroupMean, PromptValue
from polopt.lab import TabularPolicy, TokenTree, TreeSource, train
from polopt.methods.alol import alol
from polopt.methods.sft import sft
from polopt.objectives import SequenceSum

LENGTHS = torch.tensor([3, 2, 1, 3, 2])
SCORE = torch.tensor([0.9, 0.2, 0.6, 0.4, 0.4], dtype=torch.double)
VALUE = torch.tensor([0.5, 0.5, 0.1, 0.4, 0.7], dtype=torch.double)


def batch_of() -> tuple[po.Experience, po.Evaluation]:
    """Five given answers, of which the first and the third are better than the critic's value; NaN off the mask."""
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(3) < LENGTHS[:, None]
    ref, logp, value = -2 * torch.rand(3, 5, 3, generator=g, dtype=torch.double)
    hidden = lambda x: torch.where(mask, x, torch.nan)  # noqa: E731
    value[:, 0] = VALUE
    batch = po.Experience(
        mask=mask, ref_logp=hidden(ref), outcome=SCORE, value=hidden(value), group=torch.tensor([0, 0, 1, 2, 3])
    )
    evaluation = po.Evaluation(
        logp=hidden(logp).requires_grad_(), value=hidden(value + 0.3 * torch.rand(5, 3, generator=g)).requires_grad_()
    )
    return batch, evaluation


@pytest.mark.parametrize("variant", ["sequence", "tokens", "none", "kl"])
@pytest.mark.parametrize("clip", [0.9, 0.2])
def test_loss_and_gradient_by_hand(variant: str, clip: float) -> None:
    batch, evaluation = batch_of()
    algorithm = alol(variant=variant, clip=clip, kl=0.3, fit=0.7)
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    found = algorithm.objective(ready, evaluation).loss
    slopes = torch.autograd.grad(found, [evaluation.logp, evaluation.value])
    bounded = lambda x: min(max(math.exp(x), 1 - clip), 1 + clip)  # noqa: E731
    loss, expected = 0.0, torch.zeros(5, 3, dtype=torch.double)
    for row in (0, 2):
        advantage = float(SCORE[row] - VALUE[row])
        moved = [float(evaluation.logp[row, t] - batch.ref_logp[row, t]) for t in range(LENGTHS[row])]
        for t, log_ratio in enumerate(moved):
            weight = {"sequence": bounded(sum(moved)), "tokens": bounded(log_ratio)}.get(variant, 1.0)
            loss -= advantage * weight * float(evaluation.logp[row, t]) / 2
            expected[row, t] = -advantage * weight / 2
            if variant == "kl":
                loss += 0.3 * log_ratio / 2
                expected[row, t] += 0.3 / 2
    errors = [float(evaluation.value[row, 0] - SCORE[row]) for row in range(5)]
    assert found.item() == pytest.approx(loss + 0.7 * sum(e * e for e in errors) / 5, rel=1e-12)
    torch.testing.assert_close(slopes[0], expected, rtol=1e-12, atol=0)
    of_value = torch.zeros(5, 3, dtype=torch.double)
    of_value[:, 0] = torch.tensor([2 * 0.7 * e / 5 for e in errors], dtype=torch.double)
    torch.testing.assert_close(slopes[1], of_value, rtol=1e-12, atol=0)


def test_equal_advantages_without_a_ratio_are_the_likelihood() -> None:
    batch, evaluation = batch_of()
    batch = batch.replace(outcome=torch.ones(5, dtype=torch.double))
    ours = alol(variant="none", value=ConstantBaseline())
    likelihood = sft().but({"objective.aggregate": SequenceSum(length=1)})
    slopes = [
        torch.autograd.grad(a.objective(a.compute_advantages(a.sampling.mark(batch)), evaluation).loss, evaluation.logp)
        for a in (ours, likelihood)
    ]
    same(slopes[0][0], slopes[1][0])


def test_the_kl_variant_lowers_the_advantage() -> None:
    """Of rows that stay better than the reference: the same gradient from a value that is kl higher, by hand."""
    batch, evaluation = batch_of()
    batch = batch[torch.tensor([0, 2])]
    evaluation = po.Evaluation(logp=evaluation.logp[[0, 2]].detach().requires_grad_())
    sides = (
        alol(variant="kl", kl=0.2, value=ConstantBaseline(value=0.1)),
        alol(variant="none", value=ConstantBaseline(value=0.3)),
    )
    slopes = [
        torch.autograd.grad(a.objective(a.compute_advantages(a.sampling.mark(batch)), evaluation).loss, evaluation.logp)
        for a in sides
    ]
    same(slopes[0][0], slopes[1][0])


def test_the_critic_learns_the_mean_score_of_all_answers_of_a_prompt() -> None:
    tree = TokenTree.full(3, 2, lambda prompt, answer: (answer[0] + prompt) / 4, prompts=2)
    reference = TabularPolicy(tree, spread=0.5, seed=1)
    policy = TabularPolicy(tree, spread=0.5, seed=1, critic=True)
    expected = (tree.log_probabilities(reference).exp() * tree.outcome).sum(1).detach()
    ways = {"behaviour": reference, "reference": reference}
    train(alol(), tree, policy, steps=400, rate=0.2, rows=64, seed=0, **ways)
    first = tree.nodes[[0, len(tree.answers)], tree.start]
    torch.testing.assert_close(policy.values.detach()[first], expected, atol=0.05, rtol=0)
    assert tree.value(policy) > tree.value(reference) + 0.1


def test_rows_that_are_not_better_need_no_evaluation_but_by_the_critic() -> None:
    batch, _ = batch_of()
    for value, expected in ((None, [True] * 5), (PromptValue(), [True, False, True, False, False])):
        algorithm = alol(value=value)
        ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
        assert algorithm.objective.contributes(ready).tolist() == expected
    algorithm = alol(value=GroupMean())
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    assert algorithm.objective.contributes(ready).tolist() == [True, False, False, False, False]


def test_what_it_reads() -> None:
    assert "ref_logp" in alol().required_fields
    assert {"ref_logp", "value"}.isdisjoint(alol(variant="none", value=GroupMean()).required_fields)
    tree = TokenTree.bandit([0.0, 1.0])
    source = TreeSource(
        tree, TabularPolicy(tree), rows=4, needs=alol(variant="none", value=GroupMean()).required_fields
    )
    assert alol(variant="none", value=GroupMean()).sampling(source).rollout_logp is None


def test_settings_are_checked() -> None:
    for settings in ({"clip": 1.5}, {"clip": -0.1}, {"kl": -1.0}, {"fit": -1.0}):
        with pytest.raises(ValueError, match=r"alol: need clip in \[0, 1\], kl >= 0 and fit >= 0, found"):
            alol(**settings)
    with pytest.raises((TypeError, ValueError), match="variant"):
        po.method("alol", variant="both")
