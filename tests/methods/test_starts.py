"""Rollouts with help: identities, formulas against plain loops, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt import Experience
from polopt.credit import Anchored, Relative, Together, Whitened
from polopt.lab.problems import digits
from polopt.objectives import Token
from polopt.part import diff
from polopt.rewards import Clipped, KLPenalty, Shaped, bent, interval_iou
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
    undone = {"sampling.mix": [], "credit": Relative(), "objective.ratio": Token()}
    assert diff(po.method("tempsamp-r1", way="raw").but(undone), grpo) == []
    changed = {"sampling.mix", "reward", "credit", "objective.ratio"}
    assert {path for path, *_ in diff(po.method("tempsamp-r1"), grpo)} == changed


def test_anchored_at_nothing_is_grpo_beside_solutions_without_weight() -> None:
    batch, _ = with_solutions()
    found = po.method("tempsamp-r1", way="anchored", factor=0.0, kl=0).judge(batch)
    own = batch[~batch.demonstrated]
    same(found.advantage[~batch.demonstrated], po.method("grpo", kl=0).judge(own).advantage)
    assert (found.advantage[batch.demonstrated] == 0).all()


def test_advantages_are_those_of_plain_loops() -> None:
    batch, _ = with_solutions()
    shown, outcome, group = batch.demonstrated, batch.outcome.tolist(), batch.group.tolist()
    found = {
        way: po.method("tempsamp-r1", way=way, kl=0).credited(batch) for way in ("shaped", "anchored", "discounted")
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
    """Whatever its `logp` field holds, and however far the policy has moved since."""
    batch, policy = with_solutions()
    algorithm = po.method("tempsamp-r1", kl=0)
    shown = batch.demonstrated
    spoilt = batch.replace(logp=torch.where(shown[:, None], 3.0, batch.logp))
    same(slope(algorithm, spoilt, policy), slope(algorithm, batch, policy))
    judged = algorithm.judge(batch)
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
        po.Algorithm(credit=Together(), reward=Clipped(reward=KLPenalty(), limit=1.0))
    # Inside another credit, and beside a reward that reads outcomes, it is shown them too.
    batch, _ = with_solutions()
    shown = batch.demonstrated
    assert (
        po.Algorithm(credit=Whitened(credit=Relative())).credited(batch).advantage[shown][batch.mask[shown]] == 1
    ).all()
    inside = po.Algorithm(credit=Whitened(credit=Together())).credited(batch)
    assert not (inside.advantage[shown][batch.mask[shown]] == 1).any()


def test_what_is_out_of_range_is_refused() -> None:
    for make in (lambda: Shaped(knee=2.0), lambda: Shaped(above=0.0), lambda: Anchored(factor=-1.0)):
        with pytest.raises(ValueError, match=r"need|must be"):
            make()


def test_a_group_that_is_all_wrong_learns_from_the_solution_only_if_it_is_judged_with_it() -> None:
    batch = Experience(
        mask=torch.ones(4, 1, dtype=torch.bool),
        outcome=torch.tensor([0.0, 0.0, 0.0, 1.0]),
        group=torch.zeros(4, dtype=torch.long),
        extras={"demonstrated": torch.arange(4) == 3},
    )
    assert (po.method("tempsamp-r1", way="anchored").credited(batch).advantage == 0).all()
    assert po.method("tempsamp-r1").credited(batch).advantage[3, 0] > 1
