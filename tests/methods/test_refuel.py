"""REFUEL: which turns begin anew, what of them is learned, and what it costs."""

from __future__ import annotations

import itertools

import pytest
import torch
from sentences import same, slope

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.methods.rebel import rebel
from polopt.methods.refuel import TurnRestarts, refuel
from polopt.part_diff import diff


def conversations(turn: int = 2) -> tuple[TokenTree, TabularPolicy]:
    """Every answer of one to five tokens of three, 2 the end, in turns of two tokens."""
    tree = TokenTree.full(3, 5, lambda _, answer: sum(answer) + 0.1 * len(answer), stop=2, prompts=2)
    tree = tree.in_turns(turn)
    return tree, TabularPolicy(tree, spread=0.7, seed=1)


def sampled(algorithm: po.Algorithm, rows: int = 60, turn: int = 2) -> tuple[po.Experience, TreeSource]:
    tree, policy = conversations(turn)
    source = TreeSource(tree, policy, rows=rows, seed=3, needs=algorithm.required_fields)
    return algorithm.sampling(source), source


def test_a_conversation_has_turns() -> None:
    tree, _ = conversations()
    leaves = tree.leaves()
    for answer, turns in zip(tree.answers * 2, leaves.turn[:, tree.start :].tolist(), strict=True):
        assert turns == [t // 2 if t < len(answer) else -1 for t in range(5)]
    assert (TokenTree.bandit([0.0, 1.0]).leaves().turn[:, 1] == 0).all()


@pytest.mark.parametrize(("reuse", "group"), [(True, 2), (False, 2), (True, 3)])
def test_rows_depart_with_one_turn(reuse: bool, group: int) -> None:
    algorithm = refuel(group=group).but({"sampling.reuse": reuse})
    batch, source = sampled(algorithm)
    tokens, marked, turn = batch.extras["tokens"], batch.extras["restarted"], batch.turn
    assert len(batch) == 60
    assert batch.group.tolist() == [i // group for i in range(60)]
    begins = set[int]()
    for rows in torch.arange(60).split(group):
        own = {int(turn[row, t]) for row in rows.tolist() for t in marked[row].nonzero().flatten().tolist()}
        assert len(own) == 1
        (number,) = own
        begin = source.tree.start + 2 * number
        begins.add(number)
        for row in rows.tolist():
            expected = [bool(batch.mask[row, t]) and begin <= t < begin + 2 for t in range(tokens.shape[1])]
            assert marked[row].tolist() == expected
            assert tokens[row, :begin].tolist() == tokens[rows[0], :begin].tolist()
    assert begins >= {0, 1}
    assert source.drawn == 60 + (0 if reuse else 60 // group)


def test_the_last_turn_is_the_last_of_the_conversation() -> None:
    batch, _ = sampled(refuel().but({"sampling.turn": "last"}))
    first = batch[torch.arange(0, len(batch), 2)]
    assert (torch.where(first.extras["restarted"], first.turn, -1).amax(1) == first.turn.amax(1)).all()


def test_the_loss_by_hand() -> None:
    """Pairs of returns of whole conversations, and of log-ratios of the marked turn alone."""
    eta, group = 2.0, 3
    algorithm = refuel(eta=eta, group=group)
    batch, source = sampled(algorithm, rows=30)
    tree, other = source.tree, TabularPolicy(source.tree, spread=0.7, seed=9)
    now, terms = other.evaluate(tree.leaves()).logp, list[float]()
    moved = []
    for row in range(30):
        columns = batch.extras["restarted"][row].nonzero().flatten().tolist()
        leaf = int(batch.extras["leaf"][row])
        moved.append(sum(float(now[leaf, t] - batch.rollout_logp[row, t]) for t in columns))
    for start in range(0, 30, group):
        for i, j in itertools.combinations(range(start, start + group), 2):
            gap = float(batch.outcome[i] - batch.outcome[j])
            terms.append(((moved[i] - moved[j]) / eta - gap) ** 2)
    ready = algorithm.compute_advantages(batch)
    found = algorithm.objective(ready, other.evaluate(ready)).loss
    assert found.item() == pytest.approx(sum(terms) / len(terms), rel=1e-12)


def test_of_one_turn_it_is_rebel() -> None:
    assert diff(refuel(eta=3.0).objective, rebel(eta=3.0).objective) == []
    algorithm = refuel(eta=3.0)
    batch, source = sampled(algorithm, turn=5)
    assert torch.equal(batch.extras["restarted"], batch.mask)
    same(slope(algorithm, batch, source.policy), slope(rebel(eta=3.0), batch, source.policy))


@pytest.mark.parametrize(("reuse", "group"), [(True, 2), (False, 2), (True, 4)])
def test_the_overhead_is_what_is_sampled(reuse: bool, group: int) -> None:
    """Conversations of four turns of one token: a continuation from turn 0, 1, 2 or 3 has 2.5 turns on average."""
    tree = TokenTree.full(2, 4, lambda _, answer: float(sum(answer))).in_turns(1)
    source = TreeSource(tree, TabularPolicy(tree), rows=8000, seed=0)
    part = TurnRestarts(group=group, reuse=reuse)
    batch = part(source)
    anew = (1 + (group - reuse) * 2.5 / 4) / group
    assert source.decided / int(batch.mask.sum()) == pytest.approx(anew, rel=0.02)
    assert part.sampling_overhead(1.0, 4.0) == pytest.approx(anew, rel=0.2)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"methods\.refuel\.TurnRestarts: group must be >= 2, found 1"):
        refuel(group=1)
    with pytest.raises(ValueError, match=r"rebel: eta must be > 0"):
        refuel(eta=0.0)


def test_a_source_without_turns_is_refused() -> None:
    tree, policy = conversations()
    tree._leaves = tree._leaves.replace(turn=None)
    source = TreeSource(tree, policy, rows=8)
    with pytest.raises(po.ExperienceError, match=r"TurnRestarts.*needs experience\.turn"):
        TurnRestarts()(source)
