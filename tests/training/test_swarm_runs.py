"""Others' answers in language runs: read, encoded, paid and judged by the node itself; and runs that share a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_replay_runs import LONG
from tiny_runs import DIGITS, Digits, Stop, StopAt, lines, outcome, policy, recipe

from polopt.backends import FolderPool, LocalPool, PublishedGroup
from polopt.methods.sapo_swarm import Swarm
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.training.episode_player import EpisodePlayer
from polopt.training.launch import resume, train
from polopt.training.source import LanguageSource
from polopt.worlds import GuessNumber


def source_of(world: Any, limit: int, rows: int = 16) -> LanguageSource:
    """A policy that often says digits and often stops."""
    player = EpisodePlayer(policy("float64", world=world, config=LONG), world, limit)
    tokenizer, head = player.policy.tokenizer, player.policy.model.lm_head
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0], dtype=torch.float64))
    head.bias.data[tokenizer.convert_tokens_to_ids([*"123456789", "<|end|>"])] = 6.0
    return LanguageSource(player, rows=rows, seed=0, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("exactly", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("support", [Support(), Support(temperature=0.7)], ids=str)
def test_what_was_answered_can_be_received(support: Support, exactly: bool) -> None:
    """Many turns, limits that cut answers off, several tasks: the rows come back as they were, but for who asks."""
    source = source_of(GuessNumber(1, 9, turns=3, size=6), limit=6)
    batch = source.rollout(RolloutRequest(source.take(5), 6, support))
    assert batch.truncated.any()
    assert (batch.turn.amax(1) > 0).any()
    tasks = batch.extras["index"][torch.arange(5) * 6]
    said: list[Any] = source.answers(batch)
    assert [turns[-1] for turns in said] == batch.extras["answer"]
    if exactly:
        said = [
            [batch.extras["tokens"][row][batch.mask[row] & (batch.turn[row] == turn)].tolist() for turn in range(n)]
            for row, n in enumerate(map(len, said))
        ]
    again = source.import_answers(tasks, [said[6 * i : 6 * i + 6] for i in range(5)], support)
    for name in ("mask", "turn", "outcome", "reward", "group", "terminated", "truncated"):
        assert torch.equal(getattr(again, name), getattr(batch, name)), name
    assert torch.equal(again.extras["tokens"], batch.extras["tokens"])
    assert torch.equal(again.extras["index"], batch.extras["index"])
    for name in ("answer", "feedback", "task", "kind"):
        assert again.extras[name] == batch.extras[name]
    # The policy of now is the one that sampled.
    for a, b in ((again.rollout_logp, batch.rollout_logp), (again.entropy, batch.entropy)):
        torch.testing.assert_close(a[batch.mask], b[batch.mask], rtol=0, atol=1e-9)
    assert source.task_ids(tasks) == [source.player.tasks[int(i)].id for i in tasks]


def test_answers_of_others_are_paid_cut_off_and_left_as_they_end() -> None:
    source = source_of(Digits(5), limit=3)
    tasks = torch.tensor([2, 4])
    batch = source.import_answers(tasks, [[["4"], ["7"], ["4444"]], [["2", "beyond its end"], [[]]]], Support())
    assert batch.outcome.tolist() == pytest.approx([1.0, 0.5, 0.0, 1.0, 0.0])
    assert batch.truncated.tolist() == [False, False, True, False, True]
    assert batch.terminated.tolist() == [True, True, False, True, False]
    assert batch.lengths.tolist() == [2, 2, 3, 2, 0]
    assert batch.group.tolist() == [0, 0, 0, 1, 1]
    assert batch.extras["index"].tolist() == [2, 2, 2, 4, 4]


def swarm(node: str, folder: Path, **changes: Any) -> Any:
    stages = {
        "warmup": {"method": "sft", "steps": 6, "rows": 16, "optimiser": {"lr": 0.03}},
        "rl": {
            "method": {"name": "sapo-swarm", "node": node, "pool": str(folder), **changes},
            "steps": 5,
            "rows": 16,
            "group": 4,
            "minibatches": 2,
            "micro_rows": 5,
        },
    }
    return recipe(stages=stages, checkpoint=2, seed=len(node), tasks={**DIGITS, "seed": 7})


@pytest.mark.parametrize("correct", [False, True])
def test_runs_share_a_folder(correct: bool, tmp_path: Path) -> None:
    """One after the other, so that the second knows the first's last batches; processes at once are tested on a tree.
    A run that is stopped and resumed publishes and learns the same."""
    pool = tmp_path / "pool"
    train(swarm("one", pool, correct=correct), tmp_path / "one")
    assert all(m["external"] == 0 for m in lines(tmp_path / "one", "metrics") if m["stage"] == "rl")
    one = FolderPool(path=str(pool)).read("one", 99)
    assert list(one) == [0, 1, 2, 3, 4]
    assert all((group.ids is None) != correct for groups in one.values() for group in groups)
    train(swarm("second", pool, correct=correct), tmp_path / "second")
    steps = [m for m in lines(tmp_path / "second", "metrics") if m["stage"] == "rl"]
    assert sum(m["external"] for m in steps) > 0
    assert all(m["rows"] == 16 for m in steps)
    second = FolderPool(path=str(pool)).read("second", 99)
    with pytest.raises(Stop):
        train(swarm("second", pool, correct=correct), tmp_path / "again", watchers=(StopAt(9),))
    resume(tmp_path / "again")
    assert outcome(tmp_path / "again") == outcome(tmp_path / "second")
    assert FolderPool(path=str(pool)).read("second", 99) == second


def test_tokens_of_another_tokenizer_are_passed_over() -> None:
    """They would say something else here than whoever published them meant."""
    source = source_of(Digits(5), limit=3, rows=8)
    encode = source.player.dialogue.answer
    said = {"right": ["4", "7"], "other": ["4", "7"]}
    for name, texts in said.items():
        ids = [[encode(text if name == "right" else "12"[i])] for i, text in enumerate(texts)]
        group = PublishedGroup(
            task=2, name=source.task_ids(torch.tensor([2]))[0], answers=[[t] for t in texts], outcomes=[1.0, 0.5],
            ids=ids, logp=[[-1.0, -0.5]] * 2,
        )  # fmt: skip
        pool = LocalPool(name=f"tokenizer {name}")
        pool.publish("them", 0, [group])
        batch = Swarm(group=2, node="me", pool=pool, correct=True, share=0.5)(source)
        outside = batch[batch.extras["external"]]
        assert len(outside) == (2 if name == "right" else 0)
        assert outside.rollout_logp[outside.mask].tolist() == ([-1.0, -0.5] * 2 if name == "right" else [])
        pool.clear()
