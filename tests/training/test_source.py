"""Episodes as token ids: what the policy decided, what it read, and how episodes end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from tiny_runs import Digits, policy

from polopt import ops
from polopt.policies import engine
from polopt.policies.rollout_record import Sampled
from polopt.sampling.parts import RolloutRequest
from polopt.support import ByEntropy, Support, SupportError
from polopt.training.episode_player import EpisodePlayer
from polopt.training.episode_record import EpisodeRecord, to_experience
from polopt.training.measure import show
from polopt.training.source import LanguageSource
from polopt.worlds import GuessNumber, Task

GUESS = GuessNumber(1, 9, turns=3, size=5, hidden=[4])
LONG = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 256, "initializer_range": 0.3}


class Script:
    """Stands in for the sampler: each episode's answers, in order; an answer that ends with "..." is cut off."""

    def __init__(self, player: EpisodePlayer, *episodes: Sequence[str]) -> None:
        self.player, self.answers = player, [iter(answers) for answers in episodes]
        self.contexts: list[list[list[int]]] = []
        self.open = list(range(len(episodes)))

    def __call__(
        self, model: Any, contexts: Sequence[Sequence[int]], *, group: Sequence[int], **_: Any
    ) -> list[Sampled]:
        self.contexts.append([list(c) for c, n in zip(contexts, group, strict=True) for _ in range(n)])
        assert sum(group) == len(self.open)
        return [self.say(self.answers[i]) for i in self.open]

    def say(self, answers: Iterator[str]) -> Sampled:
        text = next(answers)
        dialogue = self.player.dialogue
        stopped = not text.endswith("...")
        ids = dialogue.answer(text) if stopped else dialogue.answer(text.removesuffix("..."))[:-1]
        return Sampled(ids, [-0.5] * len(ids), [0.1] * len(ids), stopped, None)


def player_of(world: Any, *, limit: int = 4, config: Any = None) -> EpisodePlayer:
    return EpisodePlayer(policy("float32", world=world, config=config), world, limit)


def play(monkeypatch: pytest.MonkeyPatch, *episodes: Sequence[str]) -> tuple[EpisodePlayer, list[EpisodeRecord]]:
    player = player_of(GUESS)
    script = Script(player, *episodes)
    lengths = [len(e) for e in episodes]

    def scripted(*args: Any, **kwargs: Any) -> list[Sampled]:
        turn = len(script.contexts)
        script.open = [i for i, n in enumerate(lengths) if turn < n]
        return script(*args, **kwargs)

    monkeypatch.setattr(engine, "sample", scripted)
    rows = player.play([GUESS[0]], len(episodes), Support(), torch.Generator())
    # Every context is what the episode's transcript looked like at that turn: ids are only ever appended.
    for turn, contexts in enumerate(script.contexts):
        going = [i for i, n in enumerate(lengths) if turn < n]
        for i, context in zip(going, contexts, strict=True):
            assert rows[i].ids[: len(context)] == context
    return player, rows


def test_a_transcript_of_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    player, (row,) = play(monkeypatch, ["7", "two", "4"])
    dialogue = player.dialogue
    stop = player.policy.tokenizer.eos_token_id
    parts = [
        (dialogue.opening(GUESS.prompt), -1),
        (dialogue.answer("7"), 0),
        (dialogue.reply("lower", stop), -1),
        (dialogue.answer("two"), 1),
        (dialogue.reply("write one whole number from 1 to 9", stop), -1),
        (dialogue.answer("4"), 2),
    ]
    assert row.ids == [i for ids, _ in parts for i in ids]
    assert row.turn == [turn for ids, turn in parts for _ in ids]
    assert row.decided == [turn >= 0 for turn in row.turn]
    assert row.logp == [-0.5 if d else 0.0 for d in row.decided]
    assert (row.reward, row.terminated, row.truncated, row.turns) == (1.0, True, False, 3)
    assert row.answer == "4"
    assert [(i, paid) for i, paid in enumerate(row.rewards) if paid] == [(len(row.ids) - 1, 1.0)]
    shown = show(row, player.policy.tokenizer)["completion"]
    assert shown == "7 ▸ lower ▸ two ▸ write one whole number from 1 to 9 ▸ 4"


def test_three_ways_to_end_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved; out of the world's patience; out of tokens, where the answer never reaches the world."""
    player, rows = play(monkeypatch, ["4"], ["1", "9", "5"], ["1", "4..."], ["4..."])
    ends = [(row.terminated, row.truncated, row.reward, row.turns) for row in rows]
    assert ends == [(True, False, 1.0, 1), (False, True, 0.0, 3), (False, True, 0.0, 2), (False, True, 0.0, 1)]
    experience = to_experience(rows, Support(), horizon=player.horizon, policy=player.policy)
    assert experience.terminated.tolist() == [True, False, False, False]
    assert experience.truncated.tolist() == [False, True, True, True]
    assert experience.outcome.tolist() == experience.reward.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert experience.horizon == 4 * 3
    # What is over has nothing more to read: the last id of each row is the policy's own.
    for b, row in enumerate(rows):
        assert row.decided[-1]
        n = len(row.ids)
        assert experience.extras["tokens"][b].tolist() == row.ids + [-1] * (experience.mask.shape[1] - n)
        assert experience.mask[b].tolist() == row.decided + [False] * (experience.mask.shape[1] - n)
        assert experience.turn[b, :n].tolist() == row.turn
        assert (experience.turn[b, n:] == -1).all()
    assert experience.extras["answer"] == ["4", "5", "4", "4"]
    assert experience.extras["kind"] == [row.task.kind for row in rows]


def test_ids_are_kept_as_sampled_whatever_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "number" letter by letter is not what the tokenizer would have made of it; the next turn reads the letters."""
    player = player_of(GUESS, limit=8)
    tokenizer = player.policy.tokenizer
    spelled = tokenizer.convert_tokens_to_ids(list("number"))
    assert spelled != player.dialogue.answer("number")[:-1]
    turns = iter([[*spelled, tokenizer.eos_token_id], player.dialogue.answer("4")])
    contexts = []

    def scripted(model: Any, read: Sequence[list[int]], **_: Any) -> list[Sampled]:
        contexts.append(list(read[0]))
        ids = next(turns)
        return [Sampled(ids, [0.0] * len(ids), [0.0] * len(ids), True, None)]

    monkeypatch.setattr(engine, "sample", scripted)
    (row,) = player.play([GUESS[0]], 1, Support(), torch.Generator())
    assert contexts[1][len(contexts[0]) :][: len(spelled)] == spelled
    assert row.ids[: len(contexts[1])] == contexts[1]


BY_ENTROPY = Support(by_entropy=ByEntropy(strength=0.5, lowest=-1.0, pivot=0.5, highest=1.5))


@pytest.mark.parametrize(
    "support", [Support(), Support(temperature=1.3, top_k=20, top_p=0.9), BY_ENTROPY], ids=range(3)
)
def test_real_episodes_of_many_turns_have_ratio_1(support: Support) -> None:
    world = GuessNumber(1, 9, turns=3, size=6)
    player = player_of(world, limit=6, config=LONG)
    # A bias towards digits and the stop token, so that episodes do last several turns.
    tokenizer, head = player.policy.tokenizer, player.policy.model.lm_head
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0]))
    head.bias.data[tokenizer.convert_tokens_to_ids([*"123456789", "<|end|>"])] = 6.0
    rows = player.play([world[i] for i in range(6)], 4, support, torch.Generator().manual_seed(0))
    assert {row.turns for row in rows} >= {1, 2, 3}
    assert [row.group for row in rows] == [i for i in range(6) for _ in range(4)]
    batch = to_experience(rows, support, horizon=player.horizon, policy=player.policy)
    assert int(batch.lengths.max()) <= batch.horizon
    with torch.no_grad():
        found = player.policy.evaluate(batch, {"entropy"})
    torch.testing.assert_close(found.logp[batch.mask], batch.rollout_logp[batch.mask], atol=1e-5, rtol=0)
    torch.testing.assert_close(found.entropy[batch.mask], batch.entropy[batch.mask], atol=1e-5, rtol=0)
    if support.by_entropy is not None:
        heat = batch.extras["temperature"]
        assert (heat[~batch.mask] == 0).all()
        torch.testing.assert_close(
            heat[batch.mask], ops.temperatures(support, batch.extras["plain_entropy"][batch.mask]), atol=1e-6, rtol=0
        )
        assert heat[batch.mask].max() - heat[batch.mask].min() > 0.1
    else:
        assert "temperature" not in batch.extras
    stop = tokenizer.eos_token_id
    for b, row in enumerate(rows):
        starts = [t for t in range(1, len(row.ids)) if row.decided[t] and row.turn[t] != row.turn[t - 1]]
        assert len(starts) == row.turns
        ends = [t for t in range(len(row.ids)) if row.decided[t] and row.ids[t] == stop]
        assert len(ends) == row.turns - (row.truncated and row.ids[-1] != stop)
        assert batch.turn[b].max() == row.turns - 1


def test_demonstrations_of_many_turns() -> None:
    world = GuessNumber(1, 9, turns=4, size=9)
    player = player_of(world)
    tasks = [world[i] for i in range(9)]
    rows = player.demonstrate(tasks)
    for task, row in zip(tasks, rows, strict=True):
        assert (row.terminated, row.reward) == (True, 1.0)
        text = player.policy.tokenizer.decode([i for i, d in zip(row.ids, row.decided, strict=True) if d])
        guesses = [int(g) for g in text.split("<|end|>")[:-1]]
        low, high, expected = 1, 9, []
        while not expected or expected[-1] != task.row["number"]:
            middle = (low + high) // 2
            expected.append(middle)
            low, high = (middle + 1, high) if middle < task.row["number"] else (low, middle - 1)
        assert guesses == expected
    batch = LanguageSource(player, rows=4, seed=0, generator=torch.Generator()).demonstrate(4)
    assert batch.rollout_logp is None
    assert batch.horizon is None
    assert (batch.outcome == 1).all()


def test_a_world_without_solutions_cannot_be_imitated() -> None:
    class Silent(Digits):
        def __getitem__(self, index: int) -> Task:
            return Task("silent/0", "digit", "?", None, {})

    with pytest.raises(ValueError, match="task silent/0 comes with no solution"):
        player_of(Silent(3)).demonstrate([Silent(3)[0]])


def test_episodes_of_one_group_must_open_alike() -> None:
    class Fickle(Digits):
        def episode(self, task: Task) -> Any:
            episode = super().episode(task)
            reset, self.size = episode.reset, self.size + 1
            episode.reset = lambda n=self.size: f"{reset()} {n}"  # type: ignore[method-assign]
            return episode

    world = Fickle(3)
    with pytest.raises(ValueError, match="one observation, found 2"):
        player_of(world).play([world[0]], 2, Support(), torch.Generator())


def test_tasks_come_in_shuffled_epochs_and_a_position_says_where() -> None:
    """F10: 1,000 tasks in batches of 128; after 8 updates the next is number 24 of the second epoch."""
    world = Digits(1000)
    player = player_of(world)
    take = lambda start, count: _source(player, start)._next(count)  # noqa: E731
    one = _source(player, 0)
    taken = [index for _ in range(16) for index in one._next(128)]
    assert [t.id for t in one._tasks(taken[:9])] == [f"digit/0/{index}" for index in taken[:9]]
    assert one.position == 16 * 128
    first, second = taken[:1000], taken[1000:2000]
    assert sorted(first) == sorted(second) == list(range(1000))
    assert first != second != list(range(1000))
    # Resumed after update 8, the ninth batch is the same.
    assert divmod(8 * 128, 1000) == (1, 24)
    assert take(8 * 128, 128) == taken[1024:1152] == second[24:152]
    # The order is a function of the seed, whatever torch's global generator did.
    torch.manual_seed(1)
    assert take(0, 1000) == first
    other = LanguageSource(player, rows=1, seed=7, generator=torch.Generator())._next(1000)
    assert other != first


def _source(player: EpisodePlayer, position: int) -> LanguageSource:
    made = LanguageSource(player, rows=128, seed=3, generator=torch.Generator())
    made.load({"position": position, "texts": 0})
    return made


def test_rollouts_move_the_position_and_greedy_answers_do_not() -> None:
    world = Digits(50)
    player = player_of(world)
    made = LanguageSource(player, rows=8, seed=0, generator=torch.Generator().manual_seed(0))
    state = made.generator.get_state()
    first = made.greedy([world[0], world[1]])
    assert first == made.greedy([world[0], world[1]])
    assert made.position == 0
    assert torch.equal(made.generator.get_state(), state)
    batch = made.rollout(RolloutRequest(made.take(2), 4, Support()))
    assert made.position == 2
    assert batch.group.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len(batch.extras["answer"]) == 8


def test_temperatures_that_nobody_told_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    player, rows = play(monkeypatch, ["4"], ["7", "4"])
    with pytest.raises(SupportError, match="did not report each token's temperature"):
        to_experience(rows, BY_ENTROPY, horizon=player.horizon, policy=player.policy)
