"""Predicting success from a context: the arithmetic against plain loops and scipy, and what must not matter."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from polopt.part import from_yaml
from polopt.sampling import BaseRate, History, InContext, fit, predictor_loss
from polopt.sampling.predictor import ngrams, posterior

WORDS = ("carry", "prime", "shoe", "rope", "stack", "coin", "train", "clock")


def draw(seed: int, n: int = 40, d: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    return normal(n, d), torch.rand(n, generator=g, dtype=torch.float64), normal(d), normal(d).exp()


@pytest.mark.parametrize("seed", range(4))
def test_the_weights_are_the_likeliest(seed: int) -> None:
    x, y, prior, precision = draw(seed)
    evidence = 1.0 + seed

    def loss(w: np.ndarray) -> float:
        z = x.numpy() @ w
        fit = (np.logaddexp(0, z) - y.numpy() * z).sum()
        return float(evidence * fit + 0.5 * (precision.numpy() * (w - prior.numpy()) ** 2).sum())

    expected = minimize(loss, np.zeros(5), tol=1e-14).x
    weight, curvature = posterior(x, y, prior, precision, evidence)
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5, atol=1e-6)
    slope = evidence * x.T @ ((x @ weight).sigmoid() - y) + precision * (weight - prior)
    assert slope.abs().max() < 1e-10
    p = (x @ weight).sigmoid()
    by_hand = sum(evidence * p[i] * (1 - p[i]) * torch.outer(x[i], x[i]) for i in range(len(x))) + precision.diag()
    torch.testing.assert_close(curvature, by_hand, rtol=1e-6, atol=1e-8)


def test_newton_settles_where_the_classes_can_be_told_apart() -> None:
    x = torch.cat([torch.randn(200, 6, generator=torch.Generator().manual_seed(0)).double() * 5, torch.ones(200, 1)], 1)
    y = (x[:, 0] > 0).double()
    precision = torch.full((7,), 0.01, dtype=torch.float64)
    weight, _ = posterior(x, y, torch.zeros(7, dtype=torch.float64), precision, steps=12)
    slope = x.T @ ((x @ weight).sigmoid() - y) + precision * weight
    assert slope.abs().max() < 1e-8


def test_where_all_prompts_look_alike_the_answer_is_the_base_rate() -> None:
    y = torch.tensor([1.0, 0.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    nothing = torch.full((1,), 1e-13, dtype=torch.float64)
    weight, _ = posterior(torch.ones(5, 1).double(), y, torch.zeros(1).double(), nothing, steps=20)
    torch.testing.assert_close(weight.sigmoid(), y.mean(0, keepdim=True), rtol=1e-11, atol=0)


def test_gradients_pass_through_the_head() -> None:
    x, y, prior, precision = draw(1, n=12, d=3)
    assert torch.autograd.gradcheck(
        lambda x, prior, precision: posterior(x, y, prior, precision, steps=8)[0],
        (x.requires_grad_(), prior.requires_grad_(), precision.requires_grad_()),
    )


def test_runs_of_bytes_are_all_there() -> None:
    buckets, text = 1 << 20, "añ ab"
    data = text.encode()
    found = ngrams(text, 3, buckets).tolist()
    assert len(found) == sum(len(data) - n + 1 for n in (1, 2, 3))
    runs = [data[i : i + n] for n in (1, 2, 3) for i in range(len(data) - n + 1)]
    assert len({*zip(runs, found, strict=True)}) == len(set(runs)) == len(set(found))  # equal runs, equal places
    assert all(0 <= place < buckets for place in found)
    assert ngrams("ab", 9, buckets).tolist() == ngrams("ab", 2, buckets).tolist()
    assert len(ngrams("", 3, buckets)) == 0


def test_the_answer_is_the_papers_approximation_of_a_mean() -> None:
    model = InContext(width=6)
    prompts, scores = [f"{a} {b}" for a in WORDS for b in WORDS][:30], draw(3, n=30)[1]
    x, q = model.see(prompts), model.see(["shoe rope", "coin"])
    weight, curvature = posterior(
        x, scores, model.prior.double(), model.precision.double().exp(), model.evidence.double().exp()
    )
    found = model(prompts, scores, ["shoe rope", "coin"])
    for i in range(2):
        variance = float(q[i] @ torch.linalg.inv(curvature) @ q[i])
        logit = float(q[i] @ weight) / math.sqrt(1 + math.pi * variance / 8)
        assert float(found[i]) == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-9)
    assert x.norm(dim=1) == pytest.approx(math.sqrt(2) * np.ones(30))  # a unit vector and the bias


def test_only_the_pairs_matter_not_their_order_nor_the_other_questions() -> None:
    model = InContext(width=8)
    prompts, scores = [f"{a} {b}" for a in WORDS for b in WORDS], draw(2, n=64)[1]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    here = model(prompts, scores, WORDS)
    torch.testing.assert_close(model([prompts[i] for i in order], scores[order], WORDS), here, rtol=1e-9, atol=0)
    torch.testing.assert_close(model(prompts, scores, WORDS[3:4]), here[3:4], rtol=1e-9, atol=0)
    assert (model(prompts, scores[order], WORDS) - here).abs().max() > 0.01
    assert (model([], torch.zeros(0), WORDS) == 0.5).all()  # it knows nothing yet


def test_the_loss_by_hand() -> None:
    logits = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    scores = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    sigmoid = lambda z: 1 / (1 + math.exp(-z))  # noqa: E731
    pairs = [(0, 1), (0, 2), (2, 1)]
    order = sum(-math.log(sigmoid(float(logits[i] - logits[j]))) for i, j in pairs) / 3
    rates = -math.log(sigmoid(0.3)) - math.log(1 - sigmoid(-1.0))
    rates -= 0.5 * math.log(sigmoid(2.0)) + 0.5 * math.log(1 - sigmoid(2.0))
    assert float(predictor_loss(logits, scores)) == pytest.approx(0.25 * order + 0.75 * rates / 3, rel=1e-12)
    level = predictor_loss(logits, torch.full((3,), 0.5).double(), pairwise=1.0)
    assert float(level) == 0  # no pair to order


def test_fit_learns_what_the_histories_share_and_a_folder_holds_it(tmp_path: Path) -> None:
    """All policies fail at prompts with "shoe" in them and solve the others: it answers so without a context."""
    prompts = [f"{a} {b}" for a in WORDS for b in WORDS]
    scores = torch.tensor([float("shoe" not in p) for p in prompts]).double()
    model, told = InContext(width=8, buckets=512), []
    histories = [History(prompts, scores)] * 2
    fit(model, histories, steps=120, context=4, queries=16, rate=0.05, watch=lambda step, loss: told.append(step))
    assert told == list(range(120))
    asked = ["rope shoe clock", "rope train clock"]
    found = model([], torch.zeros(0), asked)
    assert found[0] < 0.3 < 0.7 < found[1]
    assert not any(p.requires_grad for p in model.parameters())

    model.save(tmp_path / "v0")
    again = InContext.load(tmp_path / "v0")
    assert torch.equal(again([], torch.zeros(0), asked), found)
    assert (again.width, again.buckets) == (8, 512)
    assert torch.equal(from_yaml(again.to_yaml())([], torch.zeros(0), asked), found)


def test_fit_is_the_same_twice() -> None:
    prompts = [f"{a} {b}" for a in WORDS for b in WORDS]
    histories = [History(prompts, draw(seed, n=64)[1]) for seed in range(3)]
    one, two = (fit(InContext(width=4), histories, steps=3).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_base_rate() -> None:
    scores = torch.tensor([1.0, 1.0, 0.0])
    assert BaseRate(rate=0.5, mass=1.0)(["a", "b", "c"], scores, ["d", "e"]).tolist() == [0.625, 0.625]
    assert BaseRate(rate=0.3, mass=2.0)([], torch.zeros(0), ["d"]).tolist() == [0.3]


def test_what_cannot_be_learned_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a score, found 1 and 2"):
        InContext()(["a"], torch.ones(2), ["b"])
    with pytest.raises(ValueError, match=r"scores must be in \[0, 1\], found -1"):
        InContext()(["a"], -torch.ones(1), ["b"])
    with pytest.raises(ValueError, match=r"holds no predictor\.json"):
        InContext(model=str(tmp_path))
    with pytest.raises(ValueError, match="at least one history"):
        fit(InContext(), [])
    with pytest.raises(ValueError, match="history 0 needs two prompts"):
        fit(InContext(), [History(["a"], torch.ones(1))])
    with pytest.raises(ValueError, match="width, longest and buckets"):
        InContext(width=0)
    with pytest.raises(ValueError, match="rate in"):
        BaseRate(rate=2.0)
