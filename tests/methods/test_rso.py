"""RSO: what is accepted, by enumeration; which rows are paired, by hand; and the losses, against TRL's."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from trl_oracle import BETA, trl_dpo

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.methods.rso import FirstRound, RejectionSampled, Tournament, accepted


def chance_of_first(score: list[float]) -> list[float]:
    """The probability of each candidate to be the first accepted: the best one ends a pass, so that there is one."""
    best, found = max(score), [0.0] * len(score)
    orders = list(itertools.permutations(range(len(score))))
    for order in orders:
        going = 1.0
        for i in order:
            chance = math.exp(score[i] - best)
            found[i] += going * chance / len(orders)
            going *= 1 - chance
    return found


def test_the_first_accepted_by_enumeration() -> None:
    score, texts = [0.0, -0.4, -1.5, -0.9], torch.arange(4)
    g, trials = torch.Generator().manual_seed(0), 4000
    counts = torch.zeros(4)
    for _ in range(trials):
        (one,) = accepted(torch.tensor(score, dtype=torch.double), texts, 1, g)
        counts[one] += 1
    for share, expected in zip((counts / trials).tolist(), chance_of_first(score), strict=True):
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def test_an_answer_is_accepted_once_and_what_has_no_weight_never() -> None:
    score = torch.tensor([0.0, 0.0, -0.1, -math.inf], dtype=torch.double)
    for seed in range(20):
        found = accepted(score, torch.tensor([0, 0, 1, 2]), 4, torch.Generator().manual_seed(seed))
        assert sorted(found) in ([0, 2], [1, 2])


def candidates(groups: int = 6, each: int = 8) -> po.Experience:
    g, rows = torch.Generator().manual_seed(1), groups * each
    mask = torch.arange(3) < torch.randint(1, 4, (rows, 1), generator=g)
    logp, ref = (-3 * torch.rand(rows, 3, generator=g, dtype=torch.double) for _ in range(2))
    return po.Experience(
        mask=mask,
        rollout_logp=logp,
        ref_logp=ref,
        outcome=torch.randn(rows, generator=g, dtype=torch.double),
        group=torch.arange(groups).repeat_interleave(each),
        extras={"answer": [str(i) for i in range(rows)], "row": torch.arange(rows)},
    )


def test_with_a_small_beta_the_best_answers_by_reward_are_kept() -> None:
    batch = candidates()
    algorithm = po.method("rso", count=3, beta=1e-6)
    kept = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    best = po.sampling.TopK(count=3)(batch)
    assert sorted(kept.extras["row"].tolist()) == best.extras["row"].tolist()
    for group in range(6):
        assert sorted(kept.extras["seat"][kept.group == group].tolist()) == [0, 1, 2]


def test_the_ratio_to_the_reference_is_in_the_score() -> None:
    batch = candidates().replace(advantage=torch.zeros(48, 3, dtype=torch.double))
    ratio = torch.where(batch.mask, batch.ref_logp - batch.rollout_logp, 0).sum(1)
    assert torch.equal(RejectionSampled()._scores(batch), ratio)
    assert RejectionSampled(law="sampler")._scores(batch).abs().max() == 0


def test_pairs_of_both_rankings_by_hand() -> None:
    """Five seats: 0-1, 2-3 and 4 free; then the winners of both, then the best of these and seat 4. A tie is no
    pair."""
    seats, value = torch.tensor([4, 0, 3, 1, 2, 0, 1]), torch.tensor([5.0, 2.0, 4.0, 3.0, 1.0, 6.0, 6.0])
    rows = po.Experience(
        mask=torch.ones(7, 1, dtype=torch.bool), group=torch.tensor([0] * 5 + [1] * 2), extras={"seat": seats}
    )
    listed = lambda found: sorted(zip(*(x.tolist() for x in found), strict=True))  # noqa: E731
    assert listed(FirstRound()(rows, value)) == [(2, 4), (3, 1)]
    assert listed(Tournament()(rows, value)) == [(0, 2), (2, 3), (2, 4), (3, 1)]
    assert FirstRound().partners(rows, value).tolist() == [0, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(("loss", "name"), [("sigmoid", "sigmoid"), ("hinge", "hinge")])
def test_the_loss_of_pairs_is_trls(loss: str, name: str) -> None:
    g, pairs = torch.Generator().manual_seed(0), 5
    mask = torch.arange(4) < torch.randint(1, 5, (2 * pairs, 1), generator=g)
    logp, ref = (torch.where(mask, -3 * torch.rand(2 * pairs, 4, generator=g, dtype=torch.double), 0) for _ in range(2))
    expected, _ = trl_dpo(mask, logp.clone().requires_grad_(), ref, name)
    value = torch.tensor([1.0, 0.0], dtype=torch.double).repeat_interleave(pairs)
    batch = po.Experience(
        mask=mask,
        ref_logp=ref,
        advantage=value[:, None] * mask,
        group=torch.arange(pairs).repeat(2),
        extras={"seat": torch.tensor([0, 1]).repeat_interleave(pairs)},
    )
    found = po.method("rso", gamma=BETA, loss=loss).objective(batch, po.Evaluation(logp=logp)).loss
    assert found.item() == pytest.approx(expected.item(), abs=1e-10)


@pytest.mark.parametrize("ranking", ["first_round", "tournament", "every_pair"])
def test_it_learns_from_its_own_candidates(ranking: str) -> None:
    tree = TokenTree.bandit([0.0, 1.0, 0.2, 0.1])
    policy, reference = TabularPolicy(tree), TabularPolicy(tree)
    algorithm = po.method("rso", group=8, count=3, gamma=0.5, ranking=ranking)
    train(algorithm, tree, policy, steps=60, rate=2.0, rows=4, seed=0, reference=reference)
    assert tree.log_probabilities(policy).exp()[0, 1] > 0.6


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"need count >= 1 and beta > 0, found 0 and 0\.5"):
        po.method("rso", count=0)
    with pytest.raises(ValueError, match=r"need count >= 1 and beta > 0, found 8 and 0\.0"):
        po.method("rso", beta=0.0)
