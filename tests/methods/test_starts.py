"""Rollouts with help: identities, formulas against plain loops, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt import Evaluation, Experience
from polopt.credit import RelativeAdvantage, WhitenedAdvantage
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.demonstrations import interval_iou
from polopt.lab.problems import digits
from polopt.methods.rex_rag import MixtureRatio, trie_logp
from polopt.methods.tempsamp_r1 import AnchoredDemonstrations, BentReward, IncludeDemonstrations, bent
from polopt.objectives import TokenRatio
from polopt.ops import NOTHING
from polopt.part_diff import diff
from polopt.rewards import ClippedReward, KLPenalty
from polopt.sampling import WithSolutions

# TempSamp-R1 --------------------------------------------------------------------------------------------------


def with_solutions(group: int = 4) -> tuple[po.Experience, object]:
    tree, policy = digits()
    sampling = po.sampling.Rollouts(group=group, mix=[WithSolutions(gate=1.0)])
    return batch_of(tree, policy, group=group, sampling=sampling), policy


def test_without_a_solution_and_a_bend_tempsamp_is_grpo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    grpo = po.method("grpo", group=3)
    same(slope(po.method("tempsamp-r1", way="raw"), batch, policy), slope(grpo, batch, policy))
    same(slope(po.method("tempsamp-r1", way="anchored"), batch, policy), slope(grpo, batch, policy))
    undone = {"sampling.mix": [], "credit": RelativeAdvantage(), "objective.ratio": TokenRatio()}
    assert diff(po.method("tempsamp-r1", way="raw").but(undone), grpo) == []
    changed = {"sampling.mix", "reward", "credit", "objective.ratio"}
    assert {path for path, *_ in diff(po.method("tempsamp-r1"), grpo)} == changed


def test_anchored_at_nothing_is_grpo_beside_solutions_without_weight() -> None:
    batch, _ = with_solutions()
    algorithm = po.method("tempsamp-r1", way="anchored", factor=0.0, kl=0)
    found = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    own = batch[~batch.is_demonstration]
    same(found.advantage[~batch.is_demonstration], po.method("grpo", kl=0).compute_advantages(own).advantage)
    assert (found.advantage[batch.is_demonstration] == 0).all()


def test_advantages_are_those_of_plain_loops() -> None:
    batch, _ = with_solutions()
    shown, outcome, group = batch.is_demonstration, batch.outcome.tolist(), batch.group.tolist()
    found = {
        way: po.method("tempsamp-r1", way=way, kl=0).with_advantages(batch)
        for way in ("shaped", "anchored", "discounted")
    }
    seen = 0
    for row in range(len(batch)):
        mates = [i for i in range(len(batch)) if group[i] == group[row]]
        own = [i for i in mates if not shown[i]]

        def shape(r: float) -> float:
            if r >= 0.8:
                return 0.8 + 0.01 * math.log(1 + r - 0.8)
            return 0.8 - (math.exp(0.8 - r) - 1) / (math.e - 1)

        def score(value: float, values: list[float]) -> float:
            mean = sum(values) / len(values)
            std = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
            return 0.0 if value == mean else (value - mean) / (std + 1e-6)

        bends = {i: shape(outcome[i]) for i in mates}
        less = {i: 0.8 * outcome[i] if shown[i] else outcome[i] for i in mates}
        rollouts = [outcome[i] for i in own]
        anchored = 1.2 * max(score(r, rollouts) for r in rollouts) if shown[row] else score(outcome[row], rollouts)
        expected = {
            "shaped": score(bends[row], [bends[i] for i in mates]),
            "discounted": score(less[row], [less[i] for i in mates]),
            "anchored": anchored,
        }
        for way, value in expected.items():
            advantage = found[way].advantage[row][batch.mask[row]]
            torch.testing.assert_close(advantage, torch.full_like(advantage, value), rtol=1e-10, atol=1e-12)
            seen += value != 0
    assert seen > 20


def test_the_solution_is_learned_as_a_likelihood_of_its_advantage() -> None:
    """Whatever its `rollout_logp` holds, and however far the policy has moved since."""
    batch, policy = with_solutions()
    algorithm = po.method("tempsamp-r1", kl=0)
    shown = batch.is_demonstration
    spoilt = batch.replace(rollout_logp=torch.where(shown[:, None], 3.0, batch.rollout_logp))
    same(slope(algorithm, spoilt, policy), slope(algorithm, batch, policy))
    judged = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    said = policy.evaluate(judged)
    loss = algorithm.objective(judged, said).loss
    (found,) = torch.autograd.grad(loss, said.logp)
    expected = -judged.advantage / judged.lengths[:, None] / len(judged)
    same(found[shown][judged.mask[shown]], expected[shown][judged.mask[shown]])


def test_the_bend_is_continuous_and_rises() -> None:
    r = torch.linspace(-0.5, 1.2, 3401, dtype=torch.double)
    assert (bent(r).diff() > 0).all()
    assert bent(torch.tensor(0.8, dtype=torch.double)).item() == pytest.approx(0.8, abs=1e-15)
    at = torch.tensor([0.8 - 1e-9, 0.8 + 1e-9], dtype=torch.double, requires_grad=True)
    (slopes,) = torch.autograd.grad(bent(at).sum(), at)
    assert slopes.tolist() == pytest.approx([1 / (math.e - 1), 0.01], abs=1e-8)
    # Zero stays at or above 0.8 - (e^0.8 - 1) / (e - 1).
    assert bent(torch.zeros((), dtype=torch.double)).item() == pytest.approx(0.8 - math.expm1(0.8) / math.expm1(1))


def test_overlap_of_intervals_by_counting_cells() -> None:
    cells = torch.arange(12)
    ends = [(a, b) for a in range(12) for b in range(12)]
    found = torch.tensor(ends, dtype=torch.double)
    for true in ((2, 7), (0, 12), (5, 5)):
        overlap = interval_iou(found, torch.tensor(true, dtype=torch.double)).tolist()
        right = (cells >= true[0]) & (cells < true[1])
        for (a, b), value in zip(ends, overlap, strict=True):
            mine = (cells >= a) & (cells < b)
            union = (mine | right).sum().item()
            expected = (mine & right).sum().item() / union if union else float((a, b) == true)
            assert value == pytest.approx(expected, abs=1e-12)


def test_a_credit_that_judges_demonstrations_is_refused_what_nobody_recorded() -> None:
    with pytest.raises(ValueError, match=r"judges demonstrated rows.*logp"):
        po.Algorithm(credit=IncludeDemonstrations(), reward=ClippedReward(reward=KLPenalty(), limit=1.0))
    # Inside another credit, and beside a reward that reads outcomes, it is shown them too.
    batch, _ = with_solutions()
    shown = batch.is_demonstration
    assert (
        po.Algorithm(credit=WhitenedAdvantage(credit=RelativeAdvantage()))
        .with_advantages(batch)
        .advantage[shown][batch.mask[shown]]
        == 1
    ).all()
    inside = po.Algorithm(credit=WhitenedAdvantage(credit=IncludeDemonstrations())).with_advantages(batch)
    assert not (inside.advantage[shown][batch.mask[shown]] == 1).any()


def test_what_is_out_of_range_is_refused() -> None:
    for make in (
        lambda: BentReward(knee=2.0),
        lambda: BentReward(above=0.0),
        lambda: AnchoredDemonstrations(factor=-1.0),
    ):
        with pytest.raises(ValueError, match=r"need|must be"):
            make()


def test_a_group_that_is_all_wrong_learns_from_the_solution_only_if_it_is_judged_with_it() -> None:
    batch = Experience(
        mask=torch.ones(4, 1, dtype=torch.bool),
        outcome=torch.tensor([0.0, 0.0, 0.0, 1.0]),
        group=torch.zeros(4, dtype=torch.long),
        extras={"is_demonstration": torch.arange(4) == 3},
    )
    assert (po.method("tempsamp-r1", way="anchored").with_advantages(batch).advantage == 0).all()
    assert po.method("tempsamp-r1").with_advantages(batch).advantage[3, 0] > 1


# Ratios to a mixture ------------------------------------------------------------------------------------------


def two_kinds_of_rows(B: int = 6, T: int = 5) -> tuple[Experience, Evaluation]:
    draw = -torch.rand(3, B, T, dtype=torch.double, generator=torch.Generator().manual_seed(0)) - 0.1
    mask = torch.arange(T) < torch.tensor([5, 3, 4, 1, 2, 5])[:, None]
    extras = {"probe": torch.arange(B) % 3 == 0, "policy_logp": draw[0], "probe_logp": draw[1]}
    extras = {k: torch.where(mask, v, torch.nan) if v.ndim == 2 else v for k, v in extras.items()}
    return Experience(mask=mask, extras=extras), Evaluation(logp=torch.where(mask, draw[2], 0))


def test_the_mixture_is_that_of_plain_loops() -> None:
    batch, said = two_kinds_of_rows()
    token, row = (MixtureRatio(unit=unit)(batch, said).exp() for unit in ("token", "row"))
    share = 2 / 6
    for b in range(len(batch)):
        p, q, m = 1.0, 1.0, 1.0
        for t in range(int(batch.lengths[b])):
            now, old = math.exp(said.logp[b, t]), math.exp(batch.extras["policy_logp"][b, t])
            probed = math.exp(batch.extras["probe_logp"][b, t])
            p, q, m = p * now, q * old, m * probed
            expected = now / ((1 - share) * old + share * (probed if b % 3 == 0 else 0))
            assert token[b, t].item() == pytest.approx(expected, rel=1e-12)
        assert row[b, 0].item() == pytest.approx(p / ((1 - share) * q + share * m), rel=1e-12)
        assert (row[b] == row[b, 0]).all()


def test_a_probe_that_does_as_the_policy_does_is_the_policy() -> None:
    batch, said = two_kinds_of_rows()
    batch = batch.replace(extras={"probe_logp": batch.extras["policy_logp"]})
    plain = said.logp - batch.extras["policy_logp"]
    rows = batch.extras["probe"]
    for share in (0.0, 0.3, 1.0):
        same(MixtureRatio(share=share)(batch, said)[rows][batch.mask[rows]], plain[rows][batch.mask[rows]])
        whole = torch.where(batch.mask, plain, 0).sum(1)
        same(MixtureRatio(share=share, unit="row")(batch, said)[:, 0], whole)
    alone = MixtureRatio(share=0.0)(batch, said)[batch.mask]
    same(alone, plain[batch.mask])
    # A row that no probe made is sampled by the policy, which sampled only 1 - share of the batch.
    other = MixtureRatio(share=0.3)(batch, said)[~rows][batch.mask[~rows]]
    same(other.exp(), plain[~rows][batch.mask[~rows]].exp() / 0.7)


def test_the_balance_heuristic_is_unbiased_and_tokens_are_not() -> None:
    """Every answer of a tree, once as sampled by the policy and once by a probe that begins with token 1."""
    tree = TokenTree.full(3, 3, lambda prompt, answer: float((7 * sum(answer) + answer[0] * answer[2]) % 5))
    now, old = (TabularPolicy(tree, spread=0.8, seed=seed) for seed in (1, 2))
    leaves = tree.leaves()
    with torch.no_grad():
        said = torch.where(leaves.mask, old.evaluate(leaves).logp, 0)
        truth = tree.value(now).item()
        ours = now.evaluate(leaves).logp
    first = leaves.mask & (leaves.mask.cumsum(1) == 1)
    forced = torch.where(leaves.extras["tokens"] == 1, 0.0, float(NOTHING)).double()
    probed = torch.where(first, forced, said)
    twice = torch.arange(2 * len(leaves)) % len(leaves)
    for share in (0.1, 0.3, 0.6):
        kind = torch.arange(2 * len(leaves)) >= len(leaves)
        extras = {"probe": kind, "policy_logp": said[twice], "probe_logp": probed[twice]}
        batch = leaves[twice].replace(extras=extras)
        odds = torch.where(kind, share * probed[twice].sum(1).exp(), (1 - share) * said[twice].sum(1).exp())
        assert odds.sum().item() == pytest.approx(1, abs=1e-12)

        def mean(log_weight: torch.Tensor, odds: torch.Tensor = odds, batch: Experience = batch) -> float:
            return (odds * log_weight.exp() * batch.outcome).sum().item()

        evaluation = Evaluation(logp=ours[twice])
        assert mean(MixtureRatio(unit="row", share=share)(batch, evaluation)[:, 0]) == pytest.approx(truth, rel=1e-12)
        tokens = torch.where(batch.mask, MixtureRatio(share=share)(batch, evaluation), 0).sum(1)
        assert abs(mean(tokens) / truth - 1) > 0.1
        plain = torch.where(batch.mask, evaluation.logp - said[twice], 0).sum(1)
        assert abs(mean(plain) / truth - 1) > 0.01


def test_texts_are_as_likely_as_they_are_many() -> None:
    texts = [[1, 2, 3], [1, 2, 4, 5], [2, 2], [1, 3]]
    found = trie_logp(texts)
    for text, logp in zip(texts, found, strict=True):
        assert sum(logp) == pytest.approx(math.log(1 / 4), abs=1e-12)
        for end, value in enumerate(logp):
            alike = [t for t in texts if t[:end] == text[:end]]
            assert value == pytest.approx(math.log(sum(t[end] == text[end] for t in alike) / len(alike)))
