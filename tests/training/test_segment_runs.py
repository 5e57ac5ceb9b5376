"""Values inside the rows of a language policy: cuts, trees, and whole runs with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_extend import GREEDY, source_of
from test_runs import Stop, StopAt
from tiny_runs import GUESS, outcome, recipe

import polopt as po
from polopt.methods.spo import SegmentAdvantage, SegmentRollouts
from polopt.methods.spo_tree import TreeRollouts
from polopt.sampling import PartialRollouts
from polopt.support import Support
from polopt.training.launch import resume, train

CONFIG = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 96, "initializer_range": 0.2}


def test_of_one_possible_answer_every_state_is_worth_its_end() -> None:
    source = source_of(sure=True)
    batch = SegmentRollouts(group=2, threshold=1.01, interval=1, rollouts=2, support=GREEDY)(source)
    assert torch.equal(batch.extras["cut"], batch.mask)
    assert set(batch.outcome.tolist()) == {0.0, 1.0}
    assert torch.equal(batch.extras["cut_value"][batch.mask], batch.outcome[:, None].expand_as(batch.mask)[batch.mask])
    assert SegmentAdvantage()(batch).count_nonzero() == 0


def test_cuts_in_the_middle_of_turns() -> None:
    """Values lie between 0 and 1, those of one state are one number, and turns that are over stay over."""
    source = source_of()
    batch = SegmentRollouts(group=4, interval=2, rollouts=3)(source)
    value = batch.extras["cut_value"][batch.extras["cut"]]
    assert set((value * 3).round(decimals=4).tolist()) <= {0.0, 1.0, 2.0, 3.0}
    assert set(batch.turn[batch.extras["cut"]].tolist()) >= {0, 1}
    first = batch.extras["cut"].int().argmax(1)
    starts = {(int(g), int(t)): set() for g, t in zip(batch.group, first, strict=True)}
    for g, t, v in zip(batch.group, first, batch.extras["cut_value"].gather(1, first[:, None])[:, 0], strict=True):
        starts[int(g), int(t)].add(float(v))
    assert all(len(found) == 1 for (_, t), found in starts.items() if t == int(first.min()))


@pytest.mark.parametrize("support", [Support(), Support(temperature=1.3, top_k=20, top_p=0.9)], ids=str)
def test_edges_are_on_policy_and_hold_their_own_decisions(support: Support) -> None:
    source = source_of()
    source.rows = 2 * (3 + 6 + 12)
    batch = TreeRollouts(factors=(3, 2, 2), window=2, support=support)(source)
    assert set(batch.extras["level"].tolist()) == {0, 1, 2}
    assert (batch.lengths[batch.extras["level"] < 2] <= 2).all()
    ended = batch.terminated | batch.truncated
    assert ended[batch.extras["level"] == 2].all()
    assert not ended.all()
    with torch.no_grad():
        said = source.player.policy.evaluate(batch).logp
    torch.testing.assert_close(said[batch.mask], batch.rollout_logp[batch.mask], atol=2e-5, rtol=0)
    # What an edge is worth is what its leaves were paid: on the first level, a share of them.
    top = batch[batch.extras["level"] == 0]
    assert ((top.outcome * 4 - (top.outcome * 4).round()).abs() < 1e-5).all()
    algorithm = po.method("spo-tree", factors=(3, 2, 2), window=2).but(**{"sampling.support": support})
    judged = algorithm.compute_advantages(batch)
    assert (judged.advantage[judged.mask] != 0).all()


RUNS: dict[str, dict[str, Any]] = {
    "chain": {"method": {"name": "spo", "rollouts": 2, "interval": 2}, "group": 4, "rows": 8},
    "tree": {"method": {"name": "spo-tree", "factors": [3, 2], "window": 1}, "rows": 18},
    "windows": {"method": {"name": "t-ppo", "window": 2}, "rows": 12, "epochs": 2},
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_resume_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    stages = {
        "warmup": {"method": "sft", "steps": 20, "rows": 16, "optimiser": {"lr": 0.02}},
        "rl": {**RUNS[name], "steps": 3, "minibatches": 2, "micro_rows": 3, "optimiser": {"lr": 0.005}},
    }
    settings = recipe(policy={"config": CONFIG}, tasks=GUESS, stages=stages, limit=4, checkpoint=21)
    train(settings, tmp_path / "whole")
    with pytest.raises(Stop):
        train(settings, tmp_path / "run", watchers=(StopAt(21),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    steps = outcome(tmp_path / "whole")["metrics"][20:]
    assert any(m.get("grad_norm", 0) > 0 for m in steps)
    assert any("unfinished" in m for m in steps) == (name != "chain")


def test_windows_of_episodes_of_many_turns() -> None:
    """Rows wait in the middle of turns and between them; each window holds at most so many of the policy's tokens."""
    source, part = source_of(), PartialRollouts(window=2)
    source.rows = 12
    turns = set()
    for step in range(6):
        batch = part(source)
        over = batch.terminated | batch.truncated
        window = batch.extras["window"]
        assert (window.sum(1) <= 2).all()
        assert (window.sum(1)[~over] == 2).all()
        turns |= set(batch.turn[window].tolist())
        assert (step == 0) == bool((batch.mask == window).all())
        with torch.no_grad():
            said = source.player.policy.evaluate(batch).logp
        torch.testing.assert_close(said[batch.mask], batch.rollout_logp[batch.mask], atol=2e-5, rtol=0)
        assert len(batch.extras["task"]) == len(batch.extras["answer"]) == 12
        assert batch.extras["task"] == [source.player.tasks[i] for i in batch.extras["index"].tolist()]
    assert turns >= {0, 1}
