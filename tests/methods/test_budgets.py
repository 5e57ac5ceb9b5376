"""Choices of tasks and budgets of rollouts: identities, and formulas against loops."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from sentences import same, slope

import polopt as po
from polopt.evaluation import Evaluation
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.budgets import graded
from polopt.methods.gvm import GradientVarianceAllocator
from polopt.methods.knapsack_rl import KnapsackAllocator
from polopt.methods.vade import PosteriorScore
from polopt.methods.vas import VariancePromotingSampler
from polopt.objectives import Aggregate, PolicyGradient, PromptMean, SequenceMean, SequenceSum, Surrogate
from polopt.part_diff import diff
from polopt.sampling import Curriculum, SuccessCounts, UniformTasks, apportioned, knapsack, neyman
from polopt.sampling.diversity import distinct, mean_edit_distance, self_bleu
from polopt.sampling.parts import RolloutRequest
from polopt.sampling.task_samplers import foremost
from polopt.schedules import Schedule

TASKS = 24


def source(rows: int = 64, seed: int = 0) -> TreeSource:
    tree, policy = graded(TASKS, 0)
    return TreeSource(tree, policy, rows=rows, seed=seed)


def seen(index: list[int], outcome: list[float], **extras: Any) -> po.Experience:
    """Rollouts of these tasks, with these outcomes."""
    count = len(index)
    return po.Experience(
        mask=torch.ones(count, 1, dtype=torch.bool),
        outcome=torch.tensor(outcome, dtype=torch.double),
        group=torch.tensor(index),
        extras={"index": torch.tensor(index), **extras},
    )


class Fixed:
    """A source whose tasks have known outcomes and gradients."""

    def __init__(self, outcomes: torch.Tensor, norms: torch.Tensor) -> None:
        self.outcomes, self.norms, self.size, self.bought = outcomes, norms, len(outcomes), []
        self.generator = torch.Generator().manual_seed(0)

    def buy(self, copies: torch.Tensor) -> po.Experience:
        self.bought.append(copies.tolist())
        group = torch.arange(self.size).repeat_interleave(copies)
        place = torch.cat([torch.arange(int(n)) for n in copies]) if len(group) else group
        outcome = self.outcomes[group, place % self.outcomes.shape[1]].double()
        return seen(group.tolist(), outcome.tolist())

    def gradient_norms(self, experience: po.Experience, block: str | None = "") -> torch.Tensor:
        assert (experience.outcome >= 1).all()
        return self.norms[experience.extras["index"]] * (2 if block == "twice" else 1)


# What is known of a task.


def test_success_is_a_last_rate_a_moving_average_or_beta_counts() -> None:
    batches = [([0, 0, 0, 1], [1.0, 0.0, 1.0, 1.0]), ([0, 2], [0.0, 0.25]), ([1, 1], [0.0, 1.0])]
    right, wrong = torch.zeros(4).double(), torch.zeros(4).double()
    success = SuccessCounts(prior=(1.0, 2.0), keep_all=0.9, keep_used=0.5)
    last, counts = SuccessCounts(prior=(0.0, 0.0), keep_used=0.0), SuccessCounts()
    for part in (success, last, counts):
        part.counts(4)
        for batch in batches:
            part.observe(seen(*batch))
    for index, outcome in batches:
        right, wrong = right * 0.9, wrong * 0.9
        for task in set(index):
            right[task], wrong[task] = right[task] * 0.5, wrong[task] * 0.5
        for task, share in zip(index, outcome, strict=True):
            right[task], wrong[task] = right[task] + share, wrong[task] + 1 - share
    torch.testing.assert_close(success.rates(4), (1 + right) / (3 + right + wrong), rtol=1e-13, atol=0)
    assert last.rates(4).tolist()[:3] == [0.0, 0.5, 0.25]
    assert last.rates(4)[3].isnan()
    torch.testing.assert_close(
        counts.rates(4), torch.tensor([3 / 6, 3 / 5, 1.25 / 3, 0.5], dtype=torch.double), rtol=1e-13, atol=0
    )


def test_success_moves_in_training_only_and_leaves_out_rollouts_that_were_helped() -> None:
    success = SuccessCounts()
    success.counts(2)
    success.eval().observe(seen([0], [1.0]))
    assert success.rates(2).tolist() == [0.5, 0.5]
    given, hinted = torch.tensor([0, 3, 0]), torch.tensor([False, False, True])
    success.train().observe(seen([0, 0, 1], [0.0, 1.0, 1.0], given=given, hinted=hinted))
    assert success.rates(2).tolist() == [1 / 3, 0.5]


def test_success_draws_from_the_beta_posterior() -> None:
    success = SuccessCounts(prior=(2.0, 3.0))
    p = success.drawn(200_000, torch.Generator().manual_seed(0))
    assert p.mean().item() == pytest.approx(0.4, abs=0.002)
    assert p.var().item() == pytest.approx(2 * 3 / (25 * 6), abs=0.0005)
    again = success.drawn(200_000, torch.Generator().manual_seed(0))
    assert torch.equal(p, again)


@pytest.mark.parametrize(
    "settings", [{"prior": (-1.0, 1.0)}, {"prior": (0.0, 1.0)}, {"keep_all": 1.5}, {"keep_used": -0.1}]
)
def test_success_refuses_what_makes_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"sampling\.SuccessCounts"):
        SuccessCounts(**settings)


# Which tasks.


def test_level_tasks_come_by_lot_and_again_only_when_all_have_come() -> None:
    generator = torch.Generator().manual_seed(0)
    firsts = {int(foremost(torch.zeros(4), 1, generator)) for _ in range(60)}
    assert firsts == {0, 1, 2, 3}
    many = foremost(torch.tensor([1.0, 3.0, 2.0]), 7, generator)
    assert many.tolist() == [1, 2, 0, 1, 2, 0, 1]


def test_posterior_means_and_curricula_are_filters_by_difficulty() -> None:
    rates = torch.linspace(0.02, 0.98, TASKS).double()
    for choice, wanted in (
        (PosteriorScore(draw=False), (rates * (1 - rates) ** 2).topk(5).indices),
        (PosteriorScore(draw=False, by="variance"), (rates * (1 - rates)).topk(5).indices),
        (Curriculum(target=0.7), (rates - 0.7).abs().topk(5, largest=False).indices),
        (Curriculum(target=Schedule(knots=[(0, 0.2), (2, 0.1)])), (rates - 0.2).abs().topk(5, largest=False).indices),
    ):
        record = choice.success.table.sized(TASKS)
        record.column("right").copy_(1e6 * rates)
        record.column("wrong").copy_(1e6 * (1 - rates))
        assert sorted(choice(source(), 5).tolist()) == sorted(wanted.tolist())
        drawn = choice.but(draw=True, success=choice.success.but())  # sure of itself, so hardly another order
        drawn.success.table.sized(TASKS).column("right").copy_(1e6 * rates)
        drawn.success.table.column("wrong").copy_(1e6 * (1 - rates))
        assert len(set(drawn(source(), 5).tolist()) & set(wanted.tolist())) >= 4


def test_untried_tasks_are_preferred_to_hopeless_ones() -> None:
    choice, start = PosteriorScore(draw=False), source()
    assert sorted(choice(start, TASKS).tolist()) == list(range(TASKS))
    choice.observe(seen(list(range(12)) * 8, [0.0] * 96))
    assert set(choice(start, 12).tolist()) == set(range(12, TASKS))


def test_choices_by_rate_need_a_prior() -> None:
    with pytest.raises(ValueError, match=r"methods\.vade\.PosteriorScore: success needs a prior"):
        PosteriorScore(success=SuccessCounts(prior=(0.0, 0.0)))


def test_vade_takes_tasks_without_repeating_and_counts_what_it_bought() -> None:
    algorithm, start = po.method("vade", group=4, keep_all=1.0, keep_used=1.0), source(rows=32)
    right = torch.zeros(TASKS).double()
    for _ in range(5):
        batch = algorithm.sampling(start)
        index = batch.extras["index"].view(8, 4)
        assert (index == index[:, :1]).all()
        assert len(index[:, 0].unique()) == 8
        right.index_add_(0, batch.extras["index"], batch.outcome)
    torch.testing.assert_close(algorithm.sampling.choice.success.table.column("right"), right)
    assert [path for path, *_ in diff(po.method("grpo", group=8, kl=0), po.method("vade"))] == ["sampling.choice"]


def test_vas_without_a_share_is_grpo_number_for_number() -> None:
    ours, theirs = source(rows=32), source(rows=32)
    algorithm, base = po.method("vas", group=4, share=0.0), po.method("grpo", group=4, kl=0.01)
    for _ in range(3):
        assert torch.equal(algorithm.sampling(ours).extras["leaf"], base.sampling(theirs).extras["leaf"])
    assert ours.drawn == 3 * 32


def test_vas_takes_tasks_in_turn_where_no_task_varies() -> None:
    tree = TokenTree.bandit([[1.0, 1.0]] * 12)
    start = TreeSource(tree, TabularPolicy(tree), rows=24)
    algorithm = po.method("vas", group=4)
    index = [algorithm.sampling(start).extras["index"].view(6, 4)[:, 0] for _ in range(2)]
    assert sorted(torch.cat(index).tolist()) == list(range(12))


def test_variance_promoting_weighs_tasks_by_the_variance_of_fresh_rollouts() -> None:
    choice, start = VariancePromotingSampler(share=1.0, rollouts=16, every=2), source()
    twin = copy.deepcopy(start)
    batch = choice(start, 2000)
    assert start.drawn == TASKS * 16
    p = twin.rollout(RolloutRequest(torch.arange(TASKS), 16, po.Support())).outcome.view(TASKS, 16).mean(1)
    score = p * (1 - p)
    weight = (score - score.min()) / (score.max() - score.min() + 1e-8)
    torch.testing.assert_close(choice.table.column("weight"), weight, rtol=1e-12, atol=0)
    found, odds = batch.bincount(minlength=TASKS) / 2000, weight / weight.sum()
    assert (found - odds).abs().max() < 4 * (odds * (1 - odds) / 2000).sqrt().max()
    # Measured again after two batches that were learned from, however often it is asked in between.
    for learned, drawn in ((0, 1), (1, 1), (2, 2), (3, 2), (4, 3)):
        choice(start, 8)
        choice(start, 8)
        assert start.drawn == drawn * TASKS * 16, learned
        choice.step()


def test_variance_promoting_keeps_a_share_of_its_old_weights_and_stands_still_in_evaluation() -> None:
    choice, start = VariancePromotingSampler(share=0.5, momentum=0.75, every=1), source()
    choice.eval()(start, 8)
    assert start.drawn == 0
    choice.train()(start, 8)
    before = choice.table.column("weight").clone()
    choice.step()
    fresh, twin = VariancePromotingSampler(share=0.5), copy.deepcopy(start)
    fresh(twin, 8)
    choice(start, 8)
    new = fresh.table.column("weight")
    torch.testing.assert_close(choice.table.column("weight"), 0.75 * before + 0.25 * new, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("measure", ["distinct", "self-bleu", "edit distance"])
def test_diversity_is_measured_on_each_tasks_answers(measure: Any) -> None:
    tree = TokenTree.full(3, 4, lambda prompt, answer: float(answer[0] == prompt), stop=2, prompts=3)
    start = TreeSource(tree, TabularPolicy(tree, spread=1.0, seed=1), rows=12)
    twin = copy.deepcopy(start)
    choice = VariancePromotingSampler(rollouts=6, variance=0.8, diversity=0.2, measure=measure)
    scores = choice.scores(start)
    batch = twin.rollout(RolloutRequest(torch.arange(3), 6, po.Support()))
    for task in range(3):
        mine = batch[batch.extras["index"] == task]
        answers = [[int(t) for t in text.split()] for text in mine.extras["answer"]]
        spread = {
            "distinct": distinct(answers),
            "self-bleu": 1 - self_bleu(answers),
            "edit distance": mean_edit_distance(answers) / max(map(len, answers)),
        }[measure]
        p = mine.outcome.mean().item()
        assert scores[task].item() == pytest.approx(0.8 * p * (1 - p) + 0.2 * spread, rel=1e-12)


# How many rollouts.


def test_knapsack_without_room_is_grpo_number_for_number() -> None:
    ours, theirs = source(), source()
    a, b = po.method("knapsack-rl", low=8, up=8), po.method("grpo", group=8, kl=0)
    for _ in range(3):
        assert torch.equal(a.sampling(ours).extras["leaf"], b.sampling(theirs).extras["leaf"])
    assert [path for path, *_ in diff(b, po.method("knapsack-rl"))] == ["sampling.budget"]


def test_knapsack_buys_by_the_last_visits_rate() -> None:
    algorithm, start = po.method("knapsack-rl", group=8), source(rows=TASKS * 8)
    rates = torch.full((TASKS,), math.nan).double()
    for step in range(4):
        batch = algorithm.sampling(start)
        index, sizes = batch.extras["index"], batch.group.bincount(minlength=TASKS)
        order = torch.stack([index[batch.group == g][0] for g in range(TASKS)])
        assert torch.equal(sizes, knapsack(rates[order], 8)), step
        assert sizes.sum() == TASKS * 8
        rates = torch.stack([batch.outcome[index == task].mean() for task in range(TASKS)])
    assert sizes.max() > 8 > sizes.min() >= 2


def test_budgets_refuse_a_group_out_of_reach() -> None:
    with pytest.raises(ValueError, match="set group between low and up"):
        po.method("knapsack-rl", group=1)
    with pytest.raises(ValueError, match="raise group"):
        po.method("gvm", group=1, least=2)
    with pytest.raises(ValueError, match="1 <= low <= up"):
        KnapsackAllocator(low=9, up=3)
    with pytest.raises(ValueError, match="confidence"):
        KnapsackAllocator(confidence=1.0)


def test_gradient_variance_shares_out_by_its_first_round() -> None:
    outcomes = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    norms, p = torch.tensor([1.0, 2.0, 5.0, 0.5]).double(), torch.tensor([1.0, 0.25, 0.0, 0.5])
    tasks = torch.arange(4)
    for settings, expected in (
        ({}, apportioned(neyman(torch.where(p > 0, norms, 0), p, 1e-3), 48)),
        ({"alpha": 0.0, "block": "twice"}, apportioned(neyman(torch.where(p > 0, norms, 0), p), 48)),
        ({"least": 2}, 2 + apportioned(neyman(torch.where(p > 0, norms, 0), p, 1e-3), 40)),
        ({"most": 0.6}, apportioned(neyman(torch.tensor([0, 2, 0, 0.5]), p, 1e-3), 48)),
        ({"enough": 5.0}, apportioned(neyman(torch.tensor([1.0, 2.0, 0, 0]), p, 1e-3), 48)),
    ):
        start = Fixed(outcomes, norms)
        batch = GradientVarianceAllocator(first=4, **settings)(start, tasks, 12, start.buy)  # type: ignore[arg-type]
        assert start.bought == [[4] * 4, expected.tolist()], settings
        assert len(batch) == 48


def test_gradient_variance_is_even_among_equals_and_where_nothing_is_right() -> None:
    for outcomes, norms in ((torch.ones(3, 2), torch.full((3,), 0.7)), (torch.zeros(3, 2), torch.ones(3))):
        start = Fixed(outcomes, norms)
        GradientVarianceAllocator(first=2)(start, torch.arange(3), 5, start.buy)  # type: ignore[arg-type]
        assert start.bought == [[2] * 3, [5] * 3]


def test_gvm_pays_for_its_first_round_and_learns_from_right_answers_alone() -> None:
    start = source()
    batch = po.method("gvm", block="", first=4, group=8).sampling(start)
    assert start.drawn == 8 * 4 + 8 * 8
    assert 0 < len(batch) < 64
    assert (batch.outcome == 1).all()


def test_gvm_of_groups_that_are_alike_is_raft_over_rows() -> None:
    tree = TokenTree.bandit([[1.0, 0.0, 1.0]] * 6)
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    batch = TreeSource(tree, policy, rows=24).rollout(RolloutRequest(torch.arange(6), 4, po.Support()))
    gvm, raft = po.method("gvm"), po.method("raft", keep=None, threshold=1.0)
    rows = gvm.sampling.select[0](batch)
    per_row = raft.but(**{"objective.aggregate": SequenceSum(length=1)})
    counts = rows.group.bincount(minlength=6)
    slopes = [slope(per_row, rows[rows.group == g], policy) for g in range(6) if counts[g]]
    same(slope(gvm, rows, policy), torch.stack(slopes).mean(0))


def test_prompt_mean_is_the_mean_over_prompts_of_the_mean_over_their_rows() -> None:
    g = torch.Generator().manual_seed(0)
    mask = torch.rand(9, 5, generator=g) < 0.6
    mask[4] = False
    group = torch.tensor([0, 0, 0, 3, 3, 7, 7, 7, 7])
    logp = -torch.randn(9, 5, generator=g, dtype=torch.double).abs()
    batch = po.Experience(mask=mask, group=group, advantage=torch.randn(9, 5, generator=g, dtype=torch.double))

    def loss(aggregate: Aggregate, batch: po.Experience) -> torch.Tensor:
        objective = Surrogate(ratio=None, trust=PolicyGradient(), aggregate=aggregate)
        return objective(batch, Evaluation(logp=logp)).loss

    for decisions in ("mean", "sum"):
        prompts = []
        for number in (0, 3, 7):
            rows = [i for i in range(9) if group[i] == number and mask[i].any()]
            terms = [-(batch.advantage[i] * logp[i])[mask[i]] for i in rows]
            prompts.append(sum(t.mean() if decisions == "mean" else t.sum() for t in terms) / len(rows))
        torch.testing.assert_close(loss(PromptMean(decisions=decisions), batch), sum(prompts) / 3)  # type: ignore[arg-type]
    level = batch.replace(group=torch.arange(9) // 3, mask=torch.ones_like(mask))
    same(loss(PromptMean(), level), loss(SequenceMean(), level))


# State.


@pytest.mark.parametrize("slug", ["knapsack-rl", "vade", "vas"])
def test_what_is_remembered_resumes_bit_for_bit(slug: str) -> None:
    algorithm, start = po.method(slug, group=4), source(rows=32)
    for _ in range(3):
        algorithm.sampling(start)
        algorithm.step()
    other = po.method(slug, group=4)
    other.load_state_dict(algorithm.state_dict())
    twin = copy.deepcopy(start)
    for _ in range(4):
        a, b = algorithm.sampling(start), other.sampling(twin)
        assert torch.equal(a.extras["leaf"], b.extras["leaf"])
        algorithm.step()
        other.step()


def test_the_record_of_another_world_is_refused() -> None:
    choice = PosteriorScore()
    choice(source(), 4)
    tree, policy = graded(TASKS + 1, 0)
    with pytest.raises(ValueError, match="tasks"):
        choice(TreeSource(tree, policy, rows=8), 4)


def test_uniform_is_what_everybody_had_before() -> None:
    assert diff(po.method("grpo"), po.method("grpo").but(**{"sampling.choice": UniformTasks()})) == []
