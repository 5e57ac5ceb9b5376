"""SPO: degraded copies counted by hand, and the classifier against Bayes' rule with SciPy's densities."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from tiny_models import tiny

import polopt as po
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.methods.spo_selfsup import DegradedCopies, DegreeClassification, DiscriminantHead, TfIdf
from polopt.policies.language import LanguagePolicy


def batch_of(rows: list[list[int]]) -> Experience:
    """Answers behind a prompt of one token, padded with -1."""
    width = 1 + max(map(len, rows))
    tokens = torch.tensor([[9, *row, *[-1] * (width - 1 - len(row))] for row in rows])
    mask = torch.arange(width) < 1 + torch.tensor([len(row) for row in rows])[:, None]
    mask[:, 0] = False
    outcome = (torch.arange(len(rows)) % 2 == 0).double()
    return Experience(mask=mask, outcome=outcome, group=torch.arange(len(rows)) // 2, extras={"tokens": tokens})


ROWS = [[1, 2, 2, 5, 3, 0], [1, 2, 4, 3, 0], [1, 2, 6, 0], [3, 0]]


def test_importance_is_tf_idf() -> None:
    batch = batch_of(ROWS)
    found = TfIdf()(batch.extras["tokens"], batch.mask)
    have = {t: sum(t in row for row in ROWS) for t in range(7)}
    for i, row in enumerate(ROWS):
        expected = [row.count(t) * np.log(5 / (1 + have[t])) for t in row]
        np.testing.assert_allclose(found[i, 1 : 1 + len(row)].numpy(), expected, atol=1e-12)
    assert (found[~batch.mask] == 0).all()


def test_copies_replace_the_most_important_tokens_first() -> None:
    batch = batch_of(ROWS)
    out = DegradedCopies(degrees=3, share=0.5).filtered(batch)
    degree, tokens = out.extras["degree"], out.extras["tokens"]
    # Half of 5, 4, 3 and 1 tokens before the last: 3, 2, 2 and 1 are key, of which ceil(1/3) and ceil(2/3) are taken.
    assert degree.tolist() == [0] * 4 + [1] * 4 + [2] * 3
    assert out.group[4:].tolist() == [0, 0, 1, 1, 0, 0, 1]
    assert torch.equal(tokens[:4], batch.extras["tokens"])
    source = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    changed = [
        set((row != batch.extras["tokens"][i]).nonzero().flatten().tolist())
        for row, i in zip(tokens[4:], source, strict=True)
    ]
    # By tf-idf: 5 and then a 2, of which there are two; 4, and 6, and then the first of the others; the 3 alone.
    expected = [{4}, {3}, {3}, {1}, {4, 2}, {3, 1}, {3, 1}]
    assert all(found <= places for found, places in zip(changed, expected, strict=True))
    assert any(changed)
    # Ordinary tokens take their places: none of the key ones, 5, 4 and 6, and no last token, 0.
    assert not {0, 5, 4, 6} & {int(row[t]) for row, found in zip(tokens[4:], changed, strict=True) for t in found}
    assert torch.equal(out.mask[4:], batch.mask[source])


def test_one_degree_and_answers_of_one_token_make_no_copies() -> None:
    assert len(DegradedCopies(degrees=1).filtered(batch_of(ROWS))) == 4
    alone = DegradedCopies(degrees=4).filtered(batch_of([[3], [4]]))
    assert alone.extras["degree"].tolist() == [0, 0]


@pytest.mark.parametrize("dimensions", [3, 40])
def test_the_head_is_linear_discriminant_analysis(dimensions: int) -> None:
    """With 20 states, so that both Gram matrices are used."""
    g = torch.Generator().manual_seed(0)
    degree = torch.tensor([0, 1, 2, 2] * 5)
    states = torch.randn(20, dimensions, generator=g, dtype=torch.double) + degree[:, None]
    queries = torch.randn(7, dimensions, generator=g, dtype=torch.double)
    means = torch.stack([states[degree == k].mean(0) for k in range(3)])
    within = states - means[degree]
    covariance = within.T @ within / 20 + 0.7 * within.square().mean() * torch.eye(dimensions, dtype=torch.double)
    normal = scipy.stats.multivariate_normal
    joint = np.stack(
        [normal(m.numpy(), covariance.numpy()).logpdf(queries.numpy()) + np.log(p)
         for m, p in zip(means, (0.25, 0.25, 0.5), strict=True)], 1
    )  # fmt: skip
    expected = torch.from_numpy(joint).log_softmax(1)
    logits = DiscriminantHead(shrinkage=0.7)(states, degree, queries, 4)
    assert (logits[:, 3] == -torch.inf).all()  # a degree without states
    torch.testing.assert_close(logits[:, :3].log_softmax(1), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
def test_the_language_policy_gives_the_hidden_state_before_each_decision(kind: str) -> None:
    """Of a decoder of our own, of transformers' forward pass, and of a model that caps its logits."""
    policy = LanguagePolicy(tiny(kind), None)
    tokens = torch.tensor([[1, 5, 7, 4, 6], [1, 8, 3, 2, -1]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 1, 0]]).bool()
    found = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens}), {"extras.hidden"}).extras["hidden"]
    for i in range(2):
        row = tokens[i : i + 1, : 5 - i]
        states = policy.model(row, use_cache=False, output_hidden_states=True).hidden_states[-1][0]
        at = mask[i].nonzero().flatten()
        torch.testing.assert_close(found[i, at], states[at - 1])
        assert (found[i, ~mask[i]] == 0).all()


def test_bad_input_is_named() -> None:
    for settings, name in (
        ({"weight": -1.0}, "weight"),
        ({"degrees": 0}, "degrees"),
        ({"share": 0.0}, "share"),
        ({"shrinkage": 0.0}, "shrinkage"),
    ):
        with pytest.raises(ValueError, match=name):
            po.method("spo-selfsup", **settings)
    with pytest.raises(ExperienceError, match="degree"):
        DegreeClassification()(batch_of(ROWS), po.Evaluation(logp=torch.zeros(4, 7)))
    with pytest.raises(ExperienceError, match="tokens"):
        DegradedCopies().degraded(Experience(mask=torch.ones(2, 3).bool()))
