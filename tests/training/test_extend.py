"""Going on from where episodes stand: in windows, and from the middle of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_source import LONG
from tiny_runs import policy
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.batch_buffer import packed, unpacked
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.training.episode_player import EpisodePlayer
from polopt.training.source import LanguageSource
from polopt.worlds import GuessNumber

GREEDY = Support(top_k=1)


class Moody(GuessNumber):
    """Says something else at every play."""

    plays = 0

    def episode(self, task: Any) -> Any:
        episode = super().episode(task)
        self.plays += 1
        hint, mood = episode._hint, " ok" * self.plays
        episode._hint = lambda *a: hint(*a) + mood  # type: ignore[attr-defined]
        return episode


def source_of(limit: int = 6, world: Any = None, sure: bool = False) -> LanguageSource:
    """A policy that guesses numbers of a few digits, so that episodes last several turns. sure: it has far larger
    weights, and its likeliest episodes differ from each other."""
    world = GuessNumber(1, 9, turns=3, size=6) if world is None else world
    made = policy("float32", world=world, config={**LONG, "initializer_range": 1.0 if sure else 0.3})
    player = EpisodePlayer(made, world, limit)
    tokenizer, head = made.tokenizer, made.model.lm_head
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0]))
    head.bias.data[tokenizer.convert_tokens_to_ids([*"123456789"])] = 30.0 if sure else 6.0
    head.bias.data[tokenizer.eos_token_id] = 36.0 if sure else 6.0
    return LanguageSource(player, rows=24, seed=0, generator=torch.Generator().manual_seed(0))


def row_of(batch: Experience, b: int) -> dict[str, Any]:
    """What is on record of a row, without padding."""
    n = int((batch.extras["tokens"][b] >= 0).sum())
    of = lambda x: x[b, :n].tolist()  # noqa: E731
    return {
        "tokens": of(batch.extras["tokens"]),
        "mask": of(batch.mask),
        "turn": of(batch.turn),
        "ends": [bool(batch.terminated[b]), bool(batch.truncated[b])],
        "paid": [float(batch.outcome[b]), float(batch.reward[b])],
        "answer": batch.extras["answer"][b],
        "task": batch.extras["task"][b].id,
    }


def finished(batch: Experience) -> Tensor:
    return batch.terminated | batch.truncated


def logp_close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=2e-5, rtol=0)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_add_up_to_whole_episodes(window: int) -> None:
    """With one possible answer, windows of any width end with the rows that were never interrupted."""
    whole = source_of(sure=True).rollout(RolloutRequest(source_of(sure=True).take(6), 1, GREEDY))
    source = source_of(sure=True)
    rows, found, calls = source.rollout(RolloutRequest(source.take(6), 1, GREEDY, max_decisions=window)), {}, 0
    while True:
        assert (rows.lengths <= window * (calls + 1)).all()
        assert ((rows.lengths == window * (calls + 1)) | finished(rows)).all()
        done = finished(rows)
        found |= {rows.extras["task"][b].id: row_of(rows, b) for b in done.nonzero().flatten().tolist()}
        if done.all():
            break
        # Through what a checkpoint holds, tensors alone.
        rows, calls = source.extend(unpacked(packed(rows[~done])), 1, max_decisions=window), calls + 1
    assert calls >= 1
    assert found == {r["task"]: r for r in (row_of(whole, b) for b in range(6))}
    assert {sum(r["ends"]) for r in found.values()} == {1}
    assert {r["paid"][0] for r in found.values()} == {0.0, 1.0}


@pytest.mark.parametrize("support", [Support(), Support(temperature=1.3, top_k=20, top_p=0.9)], ids=str)
def test_windows_keep_what_each_decision_was_sampled_with(support: Support) -> None:
    source = source_of()
    rows = source.rollout(RolloutRequest(source.take(6), 4, support, max_decisions=2))
    while not finished(rows).all():
        before = rows[~finished(rows)]
        rows = source.extend(before, 1, max_decisions=2)
        width = min(before.mask.shape[1], rows.mask.shape[1])
        old = before.mask[:, :width]
        assert torch.equal(rows.mask[:, :width] & old, old)
        assert torch.equal(rows.rollout_logp[:, :width][old], before.rollout_logp[:, :width][old])
        assert torch.equal(rows.entropy[:, :width][old], before.entropy[:, :width][old])
        assert torch.equal(rows.group, before.group)
        with torch.no_grad():
            logp_close(source.player.policy.evaluate(rows).logp[rows.mask], rows.rollout_logp[rows.mask])


def test_a_window_that_ends_with_the_limit_truncates() -> None:
    """The episode is over when the answer's limit is reached, not open for another window."""
    source = source_of(limit=4)
    head, stop = source.player.policy.model.lm_head, source.player.policy.tokenizer.eos_token_id
    head.bias.data[stop] = -100.0
    assert source.rollout(RolloutRequest(source.take(3), 2, Support(), max_decisions=4)).truncated.all()
    rows = source.rollout(RolloutRequest(source.take(3), 2, Support(), max_decisions=3))
    assert not finished(rows).any()
    rows = source.extend(rows, 1, max_decisions=3)
    assert rows.truncated.all()
    assert rows.lengths.tolist() == [4] * 6


def test_every_decision_can_be_branched_from() -> None:
    """With one possible answer each branch ends as the row that it left."""
    source = source_of(sure=True)
    batch = source.rollout(RolloutRequest(source.take(6), 1, GREEDY))
    rows, columns = batch.mask.nonzero(as_tuple=True)
    found = source.extend(batch[rows], 2, at=columns)
    assert len(found) == 2 * len(rows)
    for i, b in enumerate(rows.tolist()):
        for copy in (2 * i, 2 * i + 1):
            assert row_of(found, copy) == row_of(batch, b)
    assert torch.equal(found.group, batch.group[rows].repeat_interleave(2))
    assert found.extras["index"].tolist() == batch.extras["index"][rows].repeat_interleave(2).tolist()
    assert set(batch.turn[batch.mask].tolist()) == {0, 1, 2}


def test_branches_share_their_beginning_and_nothing_else() -> None:
    source = source_of()
    batch = source.rollout(RolloutRequest(source.take(6), 2, Support(temperature=1.5)))
    rows, columns = batch.mask.nonzero(as_tuple=True)
    found = source.extend(batch[rows], 4, at=columns)
    different = 0
    for i, (b, t) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        mine = found[torch.arange(4 * i, 4 * i + 4)]
        assert (mine.extras["tokens"][:, :t] == batch.extras["tokens"][b, :t]).all()
        assert (mine.rollout_logp[:, :t] == batch.rollout_logp[b, :t]).all()
        assert mine.mask[:, t].all()
        different += len({tuple(x) for x in mine.extras["tokens"].tolist()}) > 1
    assert different > len(rows) / 2
    with torch.no_grad():
        logp_close(source.player.policy.evaluate(found).logp[found.mask], found.rollout_logp[found.mask])
    assert finished(found).all()


def test_a_world_that_answers_otherwise_is_refused() -> None:
    source = source_of(world=Moody(1, 9, turns=3, size=6))
    batch = source.rollout(RolloutRequest(source.take(6), 4, Support()))
    later = (batch.turn.amax(1) > 0).nonzero().flatten()
    assert len(later)
    at = torch.where(batch.mask[later] & (batch.turn[later] == 1), 1, 0).argmax(1)
    with pytest.raises(ValueError, match=r"task guess-number/\d/0/\d cannot go on from where it stood: .* its world"):
        source.extend(batch[later], 1, at=at)


def test_rows_that_have_ended_do_not_go_on() -> None:
    source = source_of()
    with pytest.raises(ValueError, match="some rows have ended; leave them out"):
        source.extend(source.rollout(RolloutRequest(source.take(2), 1, Support())), 1)
