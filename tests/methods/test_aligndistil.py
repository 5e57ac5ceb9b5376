"""A teacher of two policies against numpy, its special cases, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

import polopt as po
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeContrast, TreeTeacher, tree_teacher
from polopt.lab.measure import train
from polopt.lab.soft_values import soft_optimum
from polopt.methods.aligndistil import ExtrapolationWeight, aligndistil
from polopt.objectives import Distillation
from polopt.part_diff import diff
from polopt.sampling import Demonstrations, Rollouts
from polopt.teachers import CONTRAST_FIELDS, ContrastTeacher, SelfTeacher
from polopt.training.provided import LANGUAGE


def two(tree: TokenTree) -> dict[str, TabularPolicy]:
    return {name: TabularPolicy(tree, spread=1.0, seed=i) for i, name in enumerate(("reference", "dpo", "reverse"))}


def of(policy: TabularPolicy, leaves: Experience) -> np.ndarray:
    table: np.ndarray = policy.table().detach().log_softmax(-1)[policy.tree.nodes].numpy()
    return table


@pytest.mark.parametrize("top", [2, 4, 5, 100])
def test_the_teacher_by_numpy(top: int) -> None:
    """Of five choices the likeliest under p are candidates, and the others one more; all five are the formula."""
    tree = TokenTree.full(5, 2, lambda *_: 0.0)
    policies, leaves = two(tree), tree.leaves()
    spec = ContrastTeacher(kappa=3.0, floor=0.1, top=top)
    found = TreeContrast(spec, policies).teach(leaves, CONTRAST_FIELDS).extras
    p, q = (of(policies[name], leaves) for name in ("dpo", "reverse"))
    for row, t in leaves.mask.nonzero().tolist():
        ids = np.argsort(-p[row, t], kind="stable")[:top]
        assert found["candidates"][row, t].tolist() == ids.tolist()
        a, b = p[row, t][ids], q[row, t][ids]
        if top < 5:
            a, b = (np.append(x, np.log1p(-np.exp(x).sum())) for x in (a, b))
        weight = 3.0 * np.abs(np.exp(a) - np.exp(b)).sum() + 0.1
        expected = log_softmax(a + weight * (a - b))[: len(ids)]
        np.testing.assert_allclose(found["teacher_candidate_logp"][row, t].numpy(), expected, rtol=1e-10, atol=1e-12)
        assert found["extrapolation"][row, t].item() == pytest.approx(weight, rel=1e-12)
    assert found["has_teacher_signal"].all()
    assert (found["candidates"][~leaves.mask] == -1).all()
    assert set(TreeContrast(spec, policies).teach(leaves, frozenset({"extras.extrapolation"})).extras) == {
        *leaves.extras,
        "extrapolation",
    }


def test_in_float32_rounding_of_the_rest_is_not_extrapolated() -> None:
    """All choices are candidates: what is left of both sums is rounding, and its quotient may be anything."""
    g = torch.Generator().manual_seed(0)
    p, q = (3 * torch.randn(2, 500, 64, generator=g)).log_softmax(-1)
    spec = ContrastTeacher(kappa=15.0)
    logp, weight = spec(p, q)
    exact = (p.double() + weight[..., None].double() * (p.double() - q.double())).log_softmax(-1)
    torch.testing.assert_close(logp.double().exp(), exact.exp(), atol=1e-4, rtol=0)


def test_without_contrast_it_distils_the_dpo_policy() -> None:
    tree = TokenTree.full(3, 3, lambda *_: 0.0)
    policies, leaves = two(tree), tree.leaves()
    spec = ContrastTeacher(kappa=0.0, floor=1e-13)
    found = TreeContrast(spec, policies).teach(leaves, CONTRAST_FIELDS).extras
    own = policies["dpo"].evaluate(leaves, top=100).extras["candidate_logp"]
    torch.testing.assert_close(found["teacher_candidate_logp"][leaves.mask], own[leaves.mask].detach())


def test_against_the_reference_it_is_the_optimum_where_one_token_is_the_answer() -> None:
    tree = TokenTree.bandit([0.3, -1.0, 0.7, 0.2])
    reference = TabularPolicy(tree, spread=1.0, seed=4)
    policies = {"reference": reference, "dpo": soft_optimum(tree, reference, 0.5)[0]}
    spec = aligndistil(beta=0.5, kappa=0.0, floor=2.0, contrast="reference").teacher
    assert isinstance(spec, ContrastTeacher)
    best, _ = soft_optimum(tree, reference, 0.5 / 3)
    leaves = tree.leaves()
    found = TreeContrast(spec, policies).teach(leaves, CONTRAST_FIELDS).extras
    expected = best.evaluate(leaves, top=100).extras["candidate_logp"]
    order = [
        x.gather(-1, ids.long().argsort(-1))
        for x, ids in (
            (found["teacher_candidate_logp"][:, -1], found["candidates"][:, -1]),
            (expected[:, -1], best.evaluate(leaves, top=100).extras["candidates"][:, -1]),
        )
    ]
    torch.testing.assert_close(order[0], order[1].detach())


def test_it_learns_the_teacher_on_its_own_answers() -> None:
    tree = TokenTree.full(3, 2, lambda *_: 0.0)
    policies = two(tree)
    policy, algorithm = TabularPolicy(tree), aligndistil(beta=1.0, kappa=0.5, floor=0.5)
    teacher = tree_teacher(policy, algorithm.teacher, policies)
    train(algorithm, tree, policy, steps=800, rate=3.0, rows=32, teacher=teacher, policies=policies)
    p, q = (policies[name].table().detach().log_softmax(-1) for name in ("dpo", "reverse"))
    weight = 0.5 * (p.exp() - q.exp()).abs().sum(-1, keepdim=True) + 0.5
    torch.testing.assert_close(
        policy.table().detach().softmax(-1), (p + weight * (p - q)).softmax(-1), atol=2e-3, rtol=0
    )


def test_on_preferred_answers() -> None:
    off = aligndistil(offline=True)
    assert [path for path, *_ in diff(off, aligndistil())] == ["sampling", "teacher.kappa"]
    assert isinstance(off.sampling, Demonstrations)
    assert isinstance(aligndistil().sampling, Rollouts)
    assert isinstance(off.teacher, ContrastTeacher)
    assert off.teacher.kappa == 10.0


def test_the_weight_is_beta_over_w() -> None:
    mask = torch.tensor([[True, False]])
    batch = Experience(mask=mask, extras={"extrapolation": torch.tensor([[4.0, 0.0]], dtype=torch.double)})
    assert ExtrapolationWeight(beta=0.2)(batch, Evaluation(logp=torch.zeros(1, 2)))[0, 0].item() == 0.05


def test_what_makes_no_teacher_is_refused() -> None:
    for settings, found in (({"kappa": -1.0}, "-1.0, 0.001 and 100"), ({"floor": 0.0}, "15.0, 0.0 and 100")):
        with pytest.raises(ValueError, match=f"need kappa >= 0, floor > 0 and top >= 1, found {found}"):
            ContrastTeacher(**settings)
    with pytest.raises(ValueError, match="plain name"):
        aligndistil(contrast="the reverse")
    with pytest.raises(ValueError, match="beta must be > 0, found 0"):
        aligndistil(beta=0.0)
    refused = LANGUAGE.refusals(aligndistil().but(teacher=None))
    assert any("teacher: {part: teachers.ContrastTeacher}" in sentence for sentence in refused)
    tree = TokenTree.bandit([0.0, 1.0])
    policy = TabularPolicy(tree)
    with pytest.raises(TypeError, match="spec must be a SelfTeacher"):
        TreeTeacher(policy, ContrastTeacher())
    assert isinstance(tree_teacher(policy, SelfTeacher(), {}), TreeTeacher)
    assert tree_teacher(policy, None, {}) is None
    objective = po.method("aligndistil").objective
    assert any(isinstance(part, Distillation) for part in objective.parts())
