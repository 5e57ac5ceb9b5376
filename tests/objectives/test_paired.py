"""Losses of preferences, against TRL's own, closed forms, sums pair by pair, and themselves however they are split."""

from __future__ import annotations

import itertools
import types
from typing import Any

import pytest
import torch
import wrong_parts as wrong
from battery import random_batch
from torch import Tensor
from torch.nn.functional import logsigmoid
from trl_oracle import BETA, trl_dpo

import polopt as po
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.objectives import (
    HingeLink,
    LogisticLink,
    LogProbReward,
    LogRatioReward,
    Objective,
    PairedObjective,
    SquaredLink,
)

PAIRS, WIDTH = 7, 6


def stacked() -> tuple[Tensor, Tensor, Tensor]:
    """Rows as TRL stacks them, all chosen ones and then all rejected ones: mask, logp, ref_logp, [2 pairs, T]."""
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, WIDTH + 1, (2 * PAIRS, 1), generator=g)
    mask = torch.arange(WIDTH) < lengths
    logp, ref = (-torch.rand(2 * PAIRS, WIDTH, generator=g, dtype=torch.float64) * 3 for _ in range(2))
    return mask, torch.where(mask, logp, 0), torch.where(mask, ref, 0)


def ours(objective: Objective, mask: Tensor, logp: Tensor, ref: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss, gradient [2 pairs, T] and metrics, of the same rows in another order, with NaN off the mask."""
    order = torch.randperm(2 * PAIRS, generator=torch.Generator().manual_seed(1))
    experience = Experience(
        mask=mask,
        ref_logp=ref.masked_fill(~mask, torch.nan),
        outcome=torch.arange(2 * PAIRS).lt(PAIRS).double(),
        group=100 - torch.arange(2 * PAIRS) % PAIRS,
    )[order]
    leaf = logp.clone().requires_grad_()
    found = objective(experience, Evaluation(logp=leaf.masked_fill(~mask, torch.nan)[order]))
    return found.loss.detach(), torch.autograd.grad(found.loss, leaf)[0], found.metrics


DPO = PairedObjective(implicit=LogRatioReward(scale=BETA))
IPO = SquaredLink(target=1 / (2 * BETA))


@pytest.mark.parametrize(
    ("loss_type", "objective"),
    [
        ("sigmoid", DPO),
        ("hinge", DPO.but(link=HingeLink())),
        ("ipo", DPO.but({"implicit.scale": 1.0, "implicit.decisions": "mean", "link": IPO})),
        ("sigmoid_norm", DPO.but({"implicit.decisions": "mean"})),
    ],
)
def test_the_losses_of_trls_dpo_trainer(loss_type: str, objective: Objective) -> None:
    mask, logp, ref = stacked()
    leaf = logp.clone().requires_grad_()
    expected, told = trl_dpo(mask, leaf, ref, loss_type)
    (slope,) = torch.autograd.grad(expected, leaf)
    loss, gradient, metrics = ours(objective, mask, logp, ref)
    torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(gradient, torch.where(mask, slope, 0), rtol=0, atol=1e-10)
    assert gradient.abs().max() > 1e-3
    if loss_type == "sigmoid":  # TRL measures every loss by these rewards
        names = {"accuracy": "accuracies", "margin": "margins", "chosen": "chosen", "rejected": "rejected"}
        for name, theirs in names.items():
            assert float(metrics[f"pairs/{name}"]) == pytest.approx(told[f"rewards/{theirs}"], abs=1e-6)
        assert 0 < told["rewards/accuracies"] < 1


@pytest.mark.parametrize(
    ("settings", "objective"),
    [
        (
            {"loss_type": "simpo", "beta": 2.5, "simpo_gamma": 0.7},
            PairedObjective(implicit=LogProbReward(scale=2.5), link=LogisticLink(shift=0.7)),
        ),
        (
            {"loss_type": "sigmoid", "beta": 0.4, "label_smoothing": 0.2},
            PairedObjective(implicit=LogProbReward(scale=0.4, decisions="sum"), link=LogisticLink(label_smoothing=0.2)),
        ),
        (
            {"loss_type": "hinge", "beta": 0.4},
            PairedObjective(implicit=LogProbReward(scale=0.4, decisions="sum"), link=HingeLink()),
        ),
        (
            {"loss_type": "ipo", "beta": 0.4},
            PairedObjective(implicit=LogProbReward(scale=1.0, decisions="sum"), link=SquaredLink(target=1.25)),
        ),
    ],
)
def test_the_losses_of_trls_cpo_trainer(settings: dict[str, Any], objective: Objective) -> None:
    """SimPO, conservative labels, SLiC and IPO without a reference."""
    pytest.importorskip("trl", minversion="1.16")
    from trl.experimental.cpo import CPOTrainer

    trainer: Any = types.SimpleNamespace(
        alpha=0.0, accelerator=types.SimpleNamespace(device="cpu"), **{"label_smoothing": 0.0, **settings}
    )
    mask, logp, ref = stacked()
    leaf = logp.clone().requires_grad_()
    said = leaf.sum(1) / mask.sum(1) if settings["loss_type"] == "simpo" else leaf.sum(1)
    expected = CPOTrainer.cpo_loss(trainer, *said.chunk(2))[0].mean()
    (slope,) = torch.autograd.grad(expected, leaf)
    loss, gradient, _ = ours(objective, mask, logp, ref)
    torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(gradient, torch.where(mask, slope, 0), rtol=0, atol=1e-10)


def test_every_two_rows_that_are_not_level_are_a_pair() -> None:
    """Groups of several rows, with level ones, rows without decisions and rows alone: a sum pair by pair."""
    batch = random_batch(seed=2, clean=True)
    experience, logp = batch.experience, batch.leaves["logp"].detach()
    outcome = torch.tensor([2.0, 1, 0, 1, 1, 0, 0, 0, 1], dtype=torch.float64)
    mask = experience.mask.clone()
    mask[8] = False
    experience = experience.replace(mask=mask, outcome=outcome)
    terms = []
    reward = [0.1 * float((logp - experience.ref_logp)[i][mask[i]].sum()) for i in range(9)]
    for i, j in itertools.permutations(range(9), 2):
        if experience.group[i] == experience.group[j] and outcome[i] > outcome[j] and mask[i].any() and mask[j].any():
            terms.append(-float(logsigmoid(torch.tensor(reward[i] - reward[j], dtype=torch.float64))))
    assert len(terms) >= 4
    found = PairedObjective()(experience, Evaluation(logp=logp)).loss
    assert float(found) == pytest.approx(sum(terms) / len(terms), rel=1e-12)
    paired = PairedObjective().contributes(experience)
    assert not paired[[2, 7, 8]].any(), "alone, and without decisions"
    assert paired[[0, 1]].all()


def listed_pairs(tree: TokenTree, worth: list[int]) -> Experience:
    """Every two answers i and j, worth_i times with i preferred and worth_j times with j: preferences of
    Bradley-Terry with rewards log worth, listed."""
    order, groups = [], itertools.count()
    group, outcome = [], []
    for i, j in itertools.combinations(range(len(worth)), 2):
        for better, worse in ((i, j), (j, i)):
            for _ in range(worth[better]):
                order += [better, worse]
                outcome += [1.0, 0.0]
                group += [next(groups)] * 2
    batch = tree.leaves()[torch.tensor(order)]
    return batch.replace(group=torch.tensor(group), outcome=torch.tensor(outcome, dtype=torch.float64))


def minimised(objective: Objective, batch: Experience, tree: TokenTree, reference: TabularPolicy) -> Tensor:
    """[answers] probabilities of the policy of least loss."""
    batch = batch.replace(ref_logp=reference.evaluate(batch).logp.detach())
    policy = TabularPolicy(tree)
    optimiser = torch.optim.LBFGS(
        policy.parameters(), max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=0
    )

    def closure() -> float:
        optimiser.zero_grad()
        loss = objective(batch, policy.evaluate(batch)).loss
        loss.backward()
        return float(loss)

    optimiser.step(closure)
    return tree.log_probabilities(policy).detach().exp()[0]


def test_dpo_finds_the_optimum_of_the_regularised_reward() -> None:
    """With every preference listed its minimiser is ref exp(r / beta) / Z, whatever the depth of the answers."""
    worth, beta = [1, 3, 2, 1, 4, 2], 0.5
    answers = [(0,), (1, 0), (1, 1, 0), (1, 1, 1), (2, 0), (2, 1)]
    tree = TokenTree(3, answers, lambda _, answer: 0.0)
    reference = TabularPolicy(tree, spread=1.0, seed=3)
    found = minimised(PairedObjective(implicit=LogRatioReward(scale=beta)), listed_pairs(tree, worth), tree, reference)
    base = tree.log_probabilities(reference).detach()[0]
    optimum = (base + torch.tensor(worth, dtype=torch.float64).log() / beta).softmax(0)
    assert (found - optimum).abs().sum() / 2 < 1e-5
    assert (base.exp() - optimum).abs().sum() / 2 > 0.2, "there was something to learn"


def test_ipo_stays_at_a_finite_distance() -> None:
    """Two answers, one preferred with probability p: log (pi / ref) differs by (2 p - 1) / (2 tau), and by 1 / (2 tau)
    where it is always preferred, which sends DPO to infinity."""
    tree, tau = TokenTree.bandit([0.0, 0.0]), 0.25
    reference = TabularPolicy(tree, spread=1.0, seed=0)
    base = tree.log_probabilities(reference).detach()[0]
    objective = PairedObjective(implicit=LogRatioReward(scale=1.0), link=SquaredLink(target=1 / (2 * tau)))
    for worth, share in (([3, 1], 0.75), ([2, 0], 1.0)):
        ratio = minimised(objective, listed_pairs(tree, worth), tree, reference).log() - base
        assert float(ratio[0] - ratio[1]) == pytest.approx((2 * share - 1) / (2 * tau), abs=1e-6)


def gradient(objective: Objective, pieces: list[Experience], logp: Tensor) -> Tensor:
    leaf = logp.detach().clone().requires_grad_()
    places = [slice(None) if (place := piece.place()) is None else place for piece in pieces]
    losses = [objective(e, Evaluation(logp=leaf[at])).loss for e, at in zip(pieces, places, strict=True)]
    return torch.autograd.grad(torch.stack(losses).sum(), leaf)[0]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("seed", range(3))
def test_a_split_that_parts_pairs_is_wrong_and_refused(rows: int, seed: int) -> None:
    """Whole groups give the batch's gradient; rows as they stand another, or the loss refuses them."""
    batch = random_batch(seed, clean=True)
    experience, logp = batch.experience.replace(outcome=torch.arange(9.0)), batch.leaves["logp"]
    careless = wrong.UndeclaredPairs()
    for objective in (PairedObjective(implicit=LogRatioReward(scale=1.0)), careless):
        whole = gradient(objective, [experience], logp)
        pieces = list(experience.split(rows, binds="group"))
        torch.testing.assert_close(gradient(objective, pieces, logp), whole, rtol=1e-12, atol=1e-14)
    if rows == 9:
        return
    parted = list(experience.split(rows))
    assert (gradient(careless, parted, logp) - whole).norm() / whole.norm() > 0.1
    with pytest.raises(ExperienceError, match="holds a part of one"):
        gradient(PairedObjective(), parted, logp)


def test_settings_that_mean_nothing() -> None:
    with pytest.raises(ValueError, match="scale must be > 0"):
        LogRatioReward(scale=0.0)
    with pytest.raises(ValueError, match="label_smoothing must be in"):
        LogisticLink(label_smoothing=0.6)


def test_log_probabilities_over_another_support() -> None:
    batch = random_batch(clean=True)
    said = Evaluation(logp=batch.leaves["logp"], support=po.Support(temperature=0.5))
    with pytest.raises(po.SupportError, match="evaluate the policy with the batch's support"):
        PairedObjective()(batch.experience, said)
