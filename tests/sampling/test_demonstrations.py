"""Batches of rollouts and of what others decided: credit, selection, losses, and where the rows come from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from batches import random_batch

import polopt as po
from polopt import ops
from polopt.credit import GAE, ConstantAdvantage, GroupMean, MovingAverage, RelativeAdvantage, WhitenedAdvantage
from polopt.experience import Experience
from polopt.features.groupings import WholeBatch
from polopt.features.masks import IsDemonstration
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, TokenTree, TreeSource, expectation
from polopt.lab.problems import digits
from polopt.methods.spo import SegmentRollouts
from polopt.methods.unified_hpt import ReplacedBySolutions
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    PolicyGradient,
    SequenceMean,
    SequenceSum,
    Surrogate,
    TokenMean,
)
from polopt.rewards import KLPenalty, OutcomeReward, ScaledReward, SumOfRewards
from polopt.sampling import (
    Demonstrations,
    EntropyTemperature,
    MixedGroups,
    RawTexts,
    Replay,
    Rollouts,
    TopK,
    WithDemonstrations,
    WithSolutions,
    WithTexts,
)


def mixed(seed: int = 0, every: int = 3) -> Experience:
    """A random batch of which every so many rows were decided by somebody else; its group numbers do not tell."""
    batch = random_batch(seed, B=12).experience
    return batch.replace(extras={"is_demonstration": torch.arange(12) % every == 1})


# The batch ----------------------------------------------------------------------------------------------------


def test_a_batch_without_the_mark_holds_none() -> None:
    batch = random_batch(0).experience
    assert not batch.is_demonstration.any()
    assert batch.is_demonstration.shape == (9,)
    assert mixed()[4:8].is_demonstration.tolist() == [True, False, False, True]


@pytest.mark.parametrize("mark", [[True] * 9, torch.ones(9), torch.ones(9, 8, dtype=torch.bool)])
def test_a_mark_of_another_kind_is_refused(mark: Any) -> None:
    with pytest.raises(
        ExperienceError, match=r"extras\['is_demonstration'\] must be bool of shape \[B\] = \[9\], found"
    ):
        random_batch(0).experience.replace(extras={"is_demonstration": mark})


def test_join_keeps_groups_and_cat_does_not() -> None:
    batch = mixed()
    one, two = batch[:5], batch[5:]
    assert torch.equal(Experience.join([one, two]).group, batch.group)
    assert not set(Experience.cat([one, two]).group[:5].tolist()) & set(Experience.cat([one, two]).group[5:].tolist())
    with pytest.raises(ExperienceError, match=r"Experience\.join needs experience\.group"):
        Experience.join([one.replace(group=None), two.replace(group=None)])


def test_rows_are_counted_by_route() -> None:
    batch = mixed()
    narrowed = batch.restrict(~batch.is_demonstration)
    assert (batch.row_count, narrowed.row_count) == (12, 8)
    assert narrowed.restrict(torch.arange(12) < 6).row_count == 4
    assert narrowed.restrict(torch.ones_like(batch.mask)).row_count == 8  # decisions, not rows
    assert narrowed[:6].row_count == 4
    assert narrowed.to(torch.float32).row_count == 8
    assert sum(piece.row_count for piece in narrowed.split(5)) == 8


# Credit and selection -----------------------------------------------------------------------------------------

SENTENCES = {
    "grpo": po.Algorithm(),
    "batch": po.Algorithm(credit=RelativeAdvantage(baseline=GroupMean(within=WholeBatch()), scale=None)),
    "whitened": po.Algorithm(credit=WhitenedAdvantage(credit=RelativeAdvantage())),
    "gae": po.Algorithm(credit=GAE(cut="zero"), reward=SumOfRewards(terms=[OutcomeReward(), KLPenalty()])),
    "moving": po.Algorithm(credit=RelativeAdvantage(baseline=MovingAverage(), scale=None), reward=ScaledReward()),
    "constant": po.Algorithm(credit=ConstantAdvantage(value=0.25)),
}


@pytest.mark.parametrize("name", SENTENCES)
@pytest.mark.parametrize("seed", range(4))
def test_rollouts_are_credited_as_if_alone(name: str, seed: int) -> None:
    """Twice, so that whatever the sentence remembers of the first batch shows in the second."""
    together, alone = SENTENCES[name].but(), SENTENCES[name].but()
    for offset in (0, 10):
        batch = mixed(seed + offset)
        shown = batch.is_demonstration
        found, expected = together.with_advantages(batch), alone.with_advantages(batch[~shown])
        for field in ("advantage", "reward", "rollout_logp", "group"):
            torch.testing.assert_close(
                getattr(found, field)[~shown], getattr(expected, field), rtol=0, atol=0, equal_nan=True
            )
        assert torch.equal(found.advantage[shown], batch.mask[shown].double())
        paid = found.reward[shown] if found.reward.ndim == 1 else found.reward[shown].sum(1)
        assert torch.equal(
            paid, torch.where(batch.mask[shown].any(1) | (found.reward.ndim == 1), batch.outcome[shown], 0)
        )
        assert torch.equal(found.extras["row"], batch.extras["row"])


def test_nothing_but_demonstrations() -> None:
    batch = mixed(every=1).replace(extras={"is_demonstration": torch.ones(12, dtype=torch.bool)})
    algorithm = po.Algorithm(reward=ScaledReward())
    found = algorithm.compute_advantages(batch)
    assert torch.equal(found.advantage, batch.mask.float())
    assert int(algorithm.reward.get_buffer("count")) == 0  # type: ignore[attr-defined]


def test_a_selection_is_shown_the_rollouts() -> None:
    batch = mixed().replace(reward=None)
    algorithm = po.Algorithm(select=[TopK()])
    found = algorithm.compute_advantages(batch)
    kept = TopK()(batch[~batch.is_demonstration]).extras["row"].tolist()
    assert 0 < len(kept) < 8
    assert found.extras["row"].tolist() == [*kept, 1, 4, 7, 10]


def test_replaced() -> None:
    batch = mixed().replace(group=torch.tensor([0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 5, 4]))
    # Shown are rows 1, 4, 7 and 10, in groups 0, 2, 3 and 5.
    assert ReplacedBySolutions()(batch).extras["row"].tolist() == [1, 3, 4, 7, 9, 10, 11]
    found = po.Algorithm(select=[ReplacedBySolutions()]).compute_advantages(batch)
    assert found.extras["row"].tolist() == [1, 3, 4, 7, 9, 10, 11]
    assert ReplacedBySolutions()(random_batch(0).experience).extras["row"].tolist() == list(range(9))


@pytest.mark.parametrize("aggregate", [TokenMean(), SequenceMean(), SequenceSum(), SequenceSum(length=3)])
@pytest.mark.parametrize("rows", [None, 1, 5])
def test_each_route_is_the_loss_of_its_rows_alone(aggregate: Any, rows: int | None) -> None:
    said = random_batch(3, B=12)
    batch = po.Algorithm().with_advantages(
        said.experience.replace(extras={"is_demonstration": torch.arange(12) % 3 == 1})
    )
    own, others = (
        Surrogate(trust=Clip(), aggregate=aggregate),
        Surrogate(ratio=None, trust=PolicyGradient(), aggregate=aggregate),
    )
    both = BranchedObjective(
        routes=[
            Branch(objective=own, rows=IsDemonstration(invert=True), weight=0.7),
            Branch(objective=others, rows=IsDemonstration(), weight=0.3),
        ]
    )
    evaluation = lambda index: said.rows(index).evaluation()  # noqa: E731
    pieces = [batch] if rows is None else list(batch.split(rows))
    index = torch.arange(12).split(rows or 12)
    found = sum(both(piece, evaluation(i)).loss for piece, i in zip(pieces, index, strict=True))
    shown = batch.is_demonstration.nonzero().flatten()
    rest = (~batch.is_demonstration).nonzero().flatten()
    expected = 0.7 * own(batch[rest], evaluation(rest)).loss + 0.3 * others(batch[shown], evaluation(shown)).loss
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


# Where the rows come from -------------------------------------------------------------------------------------


def source(rows: int = 16, seed: int = 0, **kwargs: Any) -> tuple[TokenTree, TreeSource]:
    tree, policy = digits()
    return tree, TreeSource(tree, policy, rows=rows, seed=seed, **kwargs)


def prompt_of(tree: TokenTree, batch: Experience) -> torch.Tensor:
    return batch.extras["leaf"] // len(tree.answers)


@pytest.mark.parametrize(("each", "count"), [(0.25, 4), (0.01, 1), (1.0, 16), (1.6, 26)])
def test_with_demonstrations(each: float, count: int) -> None:
    tree, deals = source()
    batch = Rollouts(group=4, mix=[WithDemonstrations(each=each)])(deals)
    shown = batch.is_demonstration
    assert shown.tolist() == [False] * 16 + [True] * count
    assert (batch.outcome[shown] == 1).all()
    assert (tree.outcome.flatten()[batch.extras["leaf"][shown]] == 1).all()
    assert (batch.rollout_logp[shown] == 0).all()
    assert (batch.rollout_logp[~shown][batch.mask[~shown]] < 0).all()
    assert not set(batch.group[shown].tolist()) & set(batch.group[~shown].tolist())
    assert len(batch.group[shown].unique()) == count


@pytest.mark.parametrize("gate", [-1.0, 0.0, 0.25, 0.5, 1.0])
def test_with_solutions(gate: float) -> None:
    for seed in range(5):
        tree, deals = source(rows=24, seed=seed)
        batch = Rollouts(group=4, mix=[WithSolutions(gate=gate)])(deals)
        shown = batch.is_demonstration
        rates = {int(g): batch.outcome[(batch.group == g) & ~shown].mean().item() for g in batch.group.unique()}
        assert sorted(batch.group[shown].tolist()) == [g for g, rate in rates.items() if rate <= gate]
        for row in shown.nonzero().flatten().tolist():
            same = (batch.group == batch.group[row]) & ~shown
            assert set(prompt_of(tree, batch)[same].tolist()) == {int(prompt_of(tree, batch)[row])}
            assert tree.outcome.flatten()[batch.extras["leaf"][row]] == 1


def test_solutions_after_demonstrations_look_at_rollouts_only() -> None:
    _, deals = source(rows=24)
    batch = Rollouts(group=4, mix=[WithDemonstrations(each=0.5), WithSolutions(gate=1.0)])(deals)
    assert int(batch.is_demonstration.sum()) == 12 + 6
    assert len(batch.group.unique()) == 6 + 12


def test_with_texts_draws_from_the_source() -> None:
    mix = WithTexts(rows=3, probability=0.3)
    _, deals = source()
    first = Rollouts(group=4)(deals)
    state = deals.generator.get_state()
    drawn = [len(mix(first, deals)) for _ in range(4000)]
    assert set(drawn) == {16, 19}
    # Binomial, 5 standard errors.
    assert abs(drawn.count(19) / 4000 - 0.3) < 5 * math.sqrt(0.21 / 4000)
    deals.generator.set_state(state)
    assert [len(mix(first, deals)) for _ in range(50)] == drawn[:50]


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_certainty_draws_nothing(probability: float) -> None:
    _, deals = source(texts=torch.ones(2, 7, dtype=torch.double))
    state = deals.generator.get_state()
    batch = Rollouts(group=4)(deals)
    after = deals.generator.get_state()
    deals.generator.set_state(state)
    deals._queue.clear()
    found = Rollouts(group=4, mix=[WithTexts(rows=2, probability=probability)])(deals)
    assert torch.equal(found.extras["leaf"][:16], batch.extras["leaf"])
    assert len(found) == 16 + 2 * int(probability)
    if not probability:
        assert torch.equal(deals.generator.get_state(), after)


def test_texts_come_in_proportion() -> None:
    written = torch.zeros(2, 7, dtype=torch.double)
    written[0, 3], written[1, 5] = 3.0, 1.0
    _, deals = source(rows=4000, texts=written)
    batch = RawTexts()(deals)
    assert set(batch.extras["leaf"].tolist()) == {3, 7 + 5}
    assert abs((batch.extras["leaf"] == 3).double().mean().item() - 0.75) < 5 * math.sqrt(0.1875 / 4000)
    assert (batch.outcome == 1).all()
    assert not batch.is_demonstration.any()  # as if the policy had decided them


def test_mixing_comes_after_filters_and_refills() -> None:
    _, deals = source(rows=16)
    batch = Rollouts(group=4, select=[MixedGroups()], refills=20, mix=[WithDemonstrations(each=0.5)])(deals)
    assert batch.is_demonstration.tolist() == [False] * 16 + [True] * 8
    own = batch[~batch.is_demonstration]
    assert (ops.group_std(own.outcome, own.group) > 0).all()


def test_what_the_sampler_knows_is_blank() -> None:
    tree, policy = digits()
    deals = TreeSource(tree, policy, rows=8, reference=policy, needs=frozenset({"entropy", "value"}))
    batch = Rollouts(group=4, support=po.Support(temperature=0.7), mix=[WithDemonstrations()])(deals)
    shown = batch.is_demonstration
    assert batch.support == po.Support(temperature=0.7)
    assert batch.horizon == tree.horizon
    assert (batch.entropy[shown] == 0).all()
    assert (batch.entropy[~shown][batch.mask[~shown]] > 0).all()


def test_what_only_rollouts_know_is_blank_in_the_others() -> None:
    one = mixed().replace(extras={"age": torch.arange(12), "cold": torch.ones(12, 8)})
    other = one[:3]
    other = other.replace(turn=None, final_value=None, truncated=None, extras={"new": [1, 2, 3]})
    other = other.replace(prev_logp=None)
    del other.extras["age"], other.extras["answer"], other.extras["cold"]
    found = other.with_missing_fields_of(one)
    assert (found.turn == -1).all()
    assert found.final_value.shape == (3,)
    assert not found.truncated.any()
    assert not found.prev_logp.any()
    assert found.extras["age"].tolist() == [-1] * 3
    assert found.extras["answer"] == [None] * 3
    assert not found.extras["cold"].any()
    assert found.extras["new"] == [1, 2, 3]
    assert torch.equal(found.extras["row"], other.extras["row"])


def test_demonstrations_join_what_is_replayed() -> None:
    _, deals = source(rows=16)
    part = Replay(group=4, share=1.0, mix=[WithDemonstrations(each=0.5)])
    for _ in range(3):
        batch = part(deals)
        assert batch.is_demonstration.tolist() == [False] * 16 + [True] * 8
    ages = batch.extras["age"]
    assert (ages[:16] > 0).any()
    assert (ages[16:] == -1).all()
    # Memory holds rollouts alone.
    assert not any("is_demonstration" in kept.extras for kept in part.memory.batches())


def test_solutions_join_what_is_cut() -> None:
    _, deals = source(rows=16)
    batch = SegmentRollouts(group=4, rollouts=2, mix=[WithSolutions(gate=1.0)])(deals)
    shown = batch.is_demonstration
    assert shown.tolist() == [False] * 16 + [True] * 4
    assert batch.extras["cut"][~shown].any()
    assert not batch.extras["cut"][shown].any()


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: WithDemonstrations(each=0.0), "WithDemonstrations: each must be > 0, found 0.0"),
        (lambda: WithTexts(rows=0), "WithTexts: rows and length must be >= 1, found 0 and 512"),
        (lambda: WithTexts(probability=1.1), r"WithTexts: probability must be in \[0, 1\], found 1.1"),
        (lambda: RawTexts(length=0), "Texts: length must be >= 1, found 0"),
        (
            lambda: Rollouts(support=po.Support(top_k=5), mix=[WithDemonstrations()]),
            r"WithDemonstrations\(\) adds decisions of others, which may have no probability under .*found .*top_k=5",
        ),
        (
            lambda: Rollouts(adapt=EntropyTemperature(), mix=[WithTexts()]),
            r"WithTexts\(\) adds decisions of others, .* no temperature of their own; .*EntropyTemperature\(\)",
        ),
    ],
)
def test_wrong_settings_are_one_sentence(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


def test_a_mixed_batch_is_not_listed() -> None:
    tree, policy = digits()
    with pytest.raises(ValueError, match="texts, and what joins rollouts, are drawn"):
        expectation(po.Algorithm(sampling=Rollouts(group=2, mix=[WithSolutions()])), tree, policy)


def test_demonstrations_alone_are_the_policys_own() -> None:
    _, deals = source(rows=5)
    assert not Demonstrations()(deals).is_demonstration.any()


def test_tied_nodes_share_their_logits() -> None:
    tree = TokenTree.full(2, 2, lambda p, a: float(sum(a)))
    tied = torch.tensor([0, 1, 1])
    policy = TabularPolicy(tree, spread=1.0, tied=tied)
    assert policy.logits.shape == (2, 2)
    logp = tree.log_probabilities(policy)[0]
    second = policy.logits[1].log_softmax(-1)
    root = policy.logits[0].log_softmax(-1)
    torch.testing.assert_close(logp, (root[:, None] + second[None]).flatten())
