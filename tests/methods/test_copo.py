"""COPO: two clipped losses blended by the entropy of the answers, and the advantages that it keeps apart."""

from __future__ import annotations

import math
import statistics
from collections import Counter

import pytest
import torch
from batches import random_batch
from graded_groups import SEEDS, by_group, close
from loops import clipped, decisions
from sentences import batch_of, same, slope

import polopt as po
from polopt.credit import RelativeAdvantage, WeightedAdvantage
from polopt.features.rows import AnswerEntropy, Logistic
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy
from polopt.lab.problems import digits
from polopt.methods.copo import AcrossGroups, MultiAdvantage, PerAdvantageSurrogate
from polopt.objectives import Surrogate


def answer_entropy(answers: list[str], base: float) -> float:
    return -sum(n / len(answers) * math.log(n / len(answers), base) for n in Counter(answers).values())


@pytest.mark.parametrize("seed", SEEDS)
def test_copo_is_two_clipped_losses_blended_by_the_entropy_of_the_answers(seed: int) -> None:
    """Loss and gradient by every logp, from loops over rows and tokens; off policy, in groups of three sizes."""
    batch = random_batch(seed, B=18, clean=True)
    algorithm = po.method("copo", slope=3.0, centre=0.5)
    e = algorithm.compute_advantages(batch.experience.replace(reward=None))
    rows, R = decisions(e), e.outcome.tolist()
    mean = {g: statistics.fmean(R[i] for i in members) for g, members in by_group(e).items()}
    centre, spread = statistics.fmean(mean.values()), statistics.stdev(mean.values())
    logp, old = batch.leaves["logp"].tolist(), e.rollout_logp.tolist()
    count, loss, grad = sum(map(bool, rows)), 0.0, torch.zeros(e.mask.shape, dtype=torch.double)
    for g, members in by_group(e).items():
        values = [R[i] for i in members]
        std = statistics.stdev(values) if len(values) > 1 else 0.0
        w = 1 / (1 + math.exp(-3.0 * (answer_entropy([e.extras["answer"][i] for i in members], 2) - 0.5)))
        between = (mean[g] - centre) / (spread + 1e-6)
        for i in members:
            for t in rows[i]:
                r = math.exp(logp[i][t] - old[i][t])
                for weight, A in ((w, (R[i] - mean[g]) / (std + 1e-6)), (1 - w, between)):
                    term, pull = clipped(r, A, 0.2, 0.2, dual=3.0)
                    loss += weight * term / len(rows[i]) / count
                    grad[i, t] += weight * pull * r / len(rows[i]) / count
    found = algorithm.objective(e, batch.evaluation())
    assert found.loss.item() == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(torch.autograd.grad(found.loss, batch.leaves["logp"])[0], grad, rtol=1e-9, atol=1e-12)


def test_copo_at_its_two_ends() -> None:
    tree, policy = digits()
    behaviour = TabularPolicy(tree, spread=0.9, seed=7, critic=True)
    batch = batch_of(tree, policy, behaviour=behaviour)
    grpo = po.method("grpo", kl=0).but(**{"objective.trust.dual": 3.0})
    same(slope(po.method("copo", centre=-100.0), batch, policy), slope(grpo, batch, policy))
    across = grpo.but(credit=AcrossGroups())
    same(slope(po.method("copo", centre=100.0), batch, policy), slope(across, batch, policy))


def test_answer_entropy_and_its_weights() -> None:
    extras = {"answer": list("aabc") + list("xxxx") + ["a", "a", "b"]}
    group = torch.tensor([0] * 4 + [1] * 4 + [2] * 3)
    batch = po.Experience(mask=torch.ones(11, 1).bool(), group=group, extras=extras)
    expected = [1.5] * 4 + [0.0] * 4 + [answer_entropy(["a", "a", "b"], 2)] * 3
    assert AnswerEntropy()(batch).tolist() == pytest.approx(expected)
    assert AnswerEntropy(base=math.e)(batch)[0].item() == pytest.approx(1.5 * math.log(2))
    up, down = (Logistic(of=AnswerEntropy(), slope=s, centre=1.0)(batch) for s in (20.0, -20.0))
    torch.testing.assert_close(up + down, torch.ones_like(up))
    assert up[0].item() == pytest.approx(1 / (1 + math.exp(-10)))
    with pytest.raises(ValueError, match="base must be > 1"):
        AnswerEntropy(base=1.0)


def test_across_groups_counts_each_group_once() -> None:
    reward = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]).double()
    group = torch.tensor([3, 3, 3, 3, 1, 1, 2])
    batch = po.Experience(mask=torch.ones(7, 1).bool(), reward=reward, group=group)
    std = statistics.stdev([1.0, 0.0, 1.0]) + 1e-6
    up, down = (1 - 2 / 3) / std, (0 - 2 / 3) / std
    close(AcrossGroups()(batch), [up] * 4 + [down] * 2 + [up])
    assert AcrossGroups()(batch[:4]).count_nonzero() == 0
    with pytest.raises(ValueError, match="eps must be > 0"):
        AcrossGroups(eps=0.0)


def test_voices_are_refused_where_nobody_left_them() -> None:
    batch = random_batch(0)
    bare = po.Experience(
        mask=batch.mask, rollout_logp=batch.experience.rollout_logp, advantage=batch.experience.advantage
    )
    with pytest.raises(ExperienceError, match=r"PerAdvantageSurrogate needs experience.extras\['advantages'\]"):
        Surrogate(trust=PerAdvantageSurrogate())(bare, batch.evaluation())


def test_voices_stay_with_their_rows_and_add_up() -> None:
    part = MultiAdvantage(
        shares=[
            WeightedAdvantage(credit=RelativeAdvantage(), weight=0.25),
            WeightedAdvantage(credit=AcrossGroups(), weight=2.0),
        ]
    )
    batch = random_batch(2).experience
    credited = part.credited(batch)
    advantages = credited.extras["advantages"]
    torch.testing.assert_close(advantages[..., 0], 0.25 * RelativeAdvantage()(batch))
    torch.testing.assert_close(advantages.sum(-1), credited.advantage)
    assert torch.equal(credited[[3, 1]].extras["advantages"], advantages[[3, 1]])
