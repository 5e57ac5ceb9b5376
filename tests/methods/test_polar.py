"""POLAR, and what its parts and problems are, exactly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import polopt as po
from polopt.backends import choose_same, prefers
from polopt.claims.problems.bigrams import Bigrams, BigramSource, spelled
from polopt.part_diff import diff
from polopt.rewards import Judge, JudgedReward
from polopt.rewards.judges import Judgement
from polopt.sampling.parts import RolloutRequest


class Match(Judge):
    """1 for the reference itself."""

    compares = True

    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        pairs = zip(answers, references or (), strict=True)
        return Judgement(torch.tensor([float(a == r) for a, r in pairs]), [{} for _ in answers])


def test_polar_is_grpo_with_another_reward() -> None:
    assert [path for path, *_ in diff(po.method("grpo", group=8, kl=0), po.method("polar"))] == ["reward"]


def test_a_judge_that_says_what_the_world_says_makes_it_grpo() -> None:
    target = Bigrams.any(1)
    source = BigramSource(Bigrams.any(2), target, rows=32, length=1, size=3)
    batch = source.rollout(RolloutRequest(source.take(4), 8))
    paid = [float(a == task.solution) for a, task in zip(batch.extras["answer"], batch.extras["task"], strict=True)]
    batch = batch.replace(outcome=torch.tensor(paid, dtype=torch.double))
    assert 0 < sum(paid) < 32
    ours, theirs = po.method("polar", judge=Match()), po.method("grpo", group=8, kl=0)
    torch.testing.assert_close(
        ours.compute_advantages(batch).advantage, theirs.compute_advantages(batch).advantage, rtol=1e-12, atol=0
    )
    assert ours.reward(batch).tolist() == paid


def test_the_optimum_of_pre_training_is_a_log_density_ratio() -> None:
    """Two policies of three texts, in parts of 6: all pairs in their exact proportions. The loss has no slope there."""
    mine, others = torch.tensor([3, 2, 1]), torch.tensor([1, 1, 4])
    ratio = (mine.double().log() - others.double().log() + 0.7).requires_grad_()  # any constant will do
    same, cross = torch.arange(3).repeat_interleave(mine), torch.arange(3).repeat_interleave(others)
    pairs = torch.cartesian_prod(same, cross)
    slope = torch.autograd.grad(prefers(ratio[pairs[:, 0]], ratio[pairs[:, 1]]), ratio)[0]
    assert slope.abs().max() < 1e-15
    elsewhere = torch.zeros(3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.grad(prefers(elsewhere[pairs[:, 0]], elsewhere[pairs[:, 1]]), elsewhere)[0].abs().max() > 0.05


def test_with_an_expert_and_a_learner_alone_it_discriminates_between_them() -> None:
    who, _, _, other = choose_same(2, 100, 4, torch.Generator().manual_seed(0)).T
    assert torch.equal(other, 1 - who)


def test_a_group_of_one_reference_is_blind_to_what_its_scores_share() -> None:
    """What a scorer adds for each (prompt, reference) is none of the policy's doing."""

    class Shifted(Match):
        def forward(self, prompts, answers, references=None):
            found = super().forward(prompts, answers, references)
            return found._replace(scores=found.scores + torch.tensor([ord(r[0]) for r in references]))

    source = BigramSource(Bigrams.any(2), Bigrams.any(1), rows=32, length=1, size=3)
    batch = source.rollout(RolloutRequest(source.take(4), 8))
    plain, shifted = (
        po.method("polar", judge=judge).compute_advantages(batch).advantage for judge in (Match(), Shifted())
    )
    assert plain.abs().max() > 0.5
    torch.testing.assert_close(shifted, plain, rtol=1e-4, atol=1e-5)


class TestBigrams:
    def test_the_divergence_is_that_of_the_long_run(self) -> None:
        one, other = Bigrams.any(3, letters=3), Bigrams.any(4, letters=3)
        law, theirs = one.logits.softmax(-1).detach(), other.logits.softmax(-1).detach()
        values, vectors = torch.linalg.eig(law.T)
        where = vectors[:, (values.real - 1).abs().argmin()].real
        where = where / where.sum()
        wanted = sum(where[i] * law[i, j] * (law[i, j] / theirs[i, j]).log() for i in range(3) for j in range(3))
        assert one.kl(other) == pytest.approx(wanted.item(), rel=1e-10)
        assert one.kl(one) == pytest.approx(0.0, abs=1e-15)

    def test_what_it_writes_has_the_probabilities_that_it_says(self) -> None:
        policy = Bigrams.any(5, letters=2)
        source = BigramSource(policy, policy, rows=4000, length=2)
        batch = source.rollout(RolloutRequest(source.take(1), 4000))
        assert not batch.mask[:, 0].any()
        assert batch.mask[:, 1:].all()
        for text in ("aa", "ab", "ba", "bb"):
            rows = [i for i, answer in enumerate(batch.extras["answer"]) if answer == text]
            for first in (0, 1):
                mine = [i for i in rows if batch.extras["tokens"][i, 0] == first]
                said = batch.rollout_logp[mine[0]].sum().exp().item()
                starts = (batch.extras["tokens"][:, 0] == first).sum().item()
                assert len(mine) / starts == pytest.approx(said, abs=0.04)
        assert spelled(batch.extras["tokens"][:1, 1:]) == batch.extras["answer"][:1]

    def test_tasks_come_with_the_targets_texts(self) -> None:
        source = BigramSource(Bigrams.any(0), Bigrams.any(1), rows=4, length=9, size=5)
        batch = source.rollout(RolloutRequest(torch.tensor([4, 0]), torch.tensor([1, 3])))
        assert batch.group.tolist() == [0, 1, 1, 1]
        assert [task.id for task in batch.extras["task"]] == ["bigrams/4"] + ["bigrams/0"] * 3
        assert {len(task.solution) for task in source.tasks} == {9}
        assert isinstance(JudgedReward(judge=Match())(batch), torch.Tensor)
