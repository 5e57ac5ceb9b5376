"""SPO in self-play: whose answers are in the queue, for how long, and what an answer is worth against them."""

from __future__ import annotations

import copy

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.comparisons import TablePreference
from polopt.methods.spo_self_play import RecentAnswers
from polopt.sampling import Rollouts


def source_of(rows: int, prompts: int = 3, seed: int = 0) -> TreeSource:
    tree = TokenTree.full(3, 2, lambda prompt, answer: float(sum(answer)), prompts=prompts)
    return TreeSource(tree, TabularPolicy(tree, spread=1.0, seed=1), rows=rows, seed=seed)


def test_the_queue_holds_the_last_answers_to_each_prompt() -> None:
    """Kept by hand beside the part: what was sampled in earlier batches, per prompt, the last five."""
    source, part = source_of(rows=4), Rollouts(group=2, mix=[RecentAnswers(size=5)])
    kept: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(12):
        batch = part(source)
        own = batch[~batch.is_opponent]
        assert len(own) == 4
        for group in own.group.unique():
            here = batch.group == group
            (task,) = batch.extras["index"][here].unique().tolist()
            assert batch.extras["leaf"][here & batch.is_opponent].tolist() == kept[task]
            assert batch.extras["opponents"][here].tolist() == [len(kept[task])] * int(here.sum())
        for task, leaf in zip(own.extras["index"].tolist(), own.extras["leaf"].tolist(), strict=True):
            kept[task] = [*kept[task], leaf][-5:]
    assert all(len(answers) == 5 for answers in kept.values())
    assert source.drawn == 12 * 4  # earlier answers are not sampled again


def test_the_oldest_leave_a_full_queue() -> None:
    source, part = source_of(rows=6, prompts=3), RecentAnswers(size=2, capacity=3)
    batches = [Rollouts(group=2)(source) for _ in range(3)]
    for batch in batches:
        part(batch, source)
    (queue,) = part.queue.batches()
    assert queue.extras["leaf"].tolist() == batches[-1].extras["leaf"].tolist()[-3:]


def test_evaluation_does_not_fill_it_and_state_restores_it() -> None:
    source, part = source_of(rows=4), Rollouts(group=2, mix=[RecentAnswers(size=5)])
    for _ in range(4):
        part(source)
    state = copy.deepcopy(part.state_dict())
    part.eval()(source)
    assert {k: v.tolist() for k, v in part.state_dict().items()} == {k: v.tolist() for k, v in state.items()}
    again = Rollouts(group=2, mix=[RecentAnswers(size=5)])
    again.load_state_dict(state)
    first, second = source_of(rows=4, seed=9), source_of(rows=4, seed=9)
    one, other = part(first), again(second)
    assert torch.equal(one.extras["leaf"], other.extras["leaf"])
    assert torch.equal(one.is_opponent, other.is_opponent)
    assert one.is_opponent.any()


TABLE = ((0.5, 0.9, 0.2), (0.1, 0.5, 0.8), (0.8, 0.2, 0.5))


def compared(leaves: list[int], opponents: list[bool], group: list[int]) -> po.Experience:
    rows = len(leaves)
    return po.Experience(
        mask=torch.ones(rows, 1, dtype=torch.bool),
        rollout_logp=torch.full((rows, 1), -1.0, dtype=torch.double),
        outcome=torch.zeros(rows, dtype=torch.double),
        group=torch.tensor(group),
        extras={"leaf": torch.tensor(leaves), "is_opponent": torch.tensor(opponents)},
    )


def test_an_answer_is_worth_its_share_of_wins() -> None:
    preference = TablePreference(table=TABLE)
    batch = compared([0, 1, 2, 2], [False, False, True, True], [0, 0, 0, 0])
    found = po.method("spo-self-play", group=2, queue=2, preference=preference).with_advantages(batch)
    wins = [(0.9 + 0.2 + 0.2) / 3, (0.1 + 0.8 + 0.8) / 3]
    assert found.reward.tolist() == pytest.approx(wins, abs=1e-12)
    expected = [wins[0] - wins[1], wins[1] - wins[0]]  # each has the other's as its baseline
    assert found.advantage[:, 0].tolist() == pytest.approx(expected, abs=1e-12)
    single = po.method("spo-self-play", group=1, preference=preference)
    alone = single.with_advantages(compared([0, 2, 1], [False, True, True], [0, 0, 0]))
    assert alone.advantage[:, 0].tolist() == pytest.approx([(0.2 + 0.9) / 2 - 0.5], abs=1e-12)


def test_refused() -> None:
    with pytest.raises(ValueError, match="set group to 2 or more, or queue to 1 or more, found 1 and 0"):
        po.method("spo-self-play", group=1, queue=0)
    with pytest.raises(ValueError, match="need 1 <= size <= capacity, found 0 and 10000"):
        RecentAnswers(size=0)
    with pytest.raises(ValueError, match="need 1 <= size <= capacity, found 4 and 3"):
        RecentAnswers(size=4, capacity=3)
