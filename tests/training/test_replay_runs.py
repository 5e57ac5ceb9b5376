"""Whole runs that remember: replayed rows are what was sampled, and resuming is an equality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_runs import Stop, StopAt, one_thread  # noqa: F401
from tiny_runs import GUESS, lines, outcome, policy, recipe

from polopt.sampling import Replay
from polopt.sampling.batch_buffer import packed, unpacked
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.training.episode_player import EpisodePlayer
from polopt.training.language import LanguageDomain
from polopt.training.launch import resume, train
from polopt.training.source import LanguageSource
from polopt.training.stage_learning import StageLearning
from polopt.worlds import GuessNumber

LONG = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 256, "initializer_range": 0.3}
# Replays, compares with both anchors, and is born again after 6 of 9 batches.
REMIX: dict[str, Any] = {
    "stages": {
        "warmup": {"method": "sft", "steps": 4, "rows": 8, "optimiser": {"lr": 0.01}},
        "rl": {
            "method": {"name": "remix", "group": 2, "kl": 0.2, "restart": 6, "share": 0.6, "entropy": 0.01},
            "steps": 9,
            "rows": 12,
            "epochs": 2,
            "minibatches": 2,
            "micro_rows": 5,
            "optimiser": {"lr": 0.005},
        },
    },
    "checkpoint": 3,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(recipe(**REMIX), folder)
    return outcome(folder)


def test_what_is_replayed_and_when_it_ends(undisturbed: dict[str, Any]) -> None:
    shares = [m["replayed"] for m in undisturbed["metrics"][4:]]
    assert shares[0] == 0
    assert max(shares[1:6]) > 0.3
    assert shares[6:] == [0, 0, 0]
    # Six groups of two a batch; every group that was not replayed took a task.
    fresh = sum(round(6 * (1 - share)) for share in shares)
    assert undisturbed["position"]["position"] == fresh < 9 * 6
    assert all(m["rows"] == 12 for m in undisturbed["metrics"][4:])


@pytest.mark.parametrize("at", [4, 7, 9, 10, 11])
def test_resuming_is_an_equality(at: int, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """Stopped before and after batches that replay, and on both sides of the restart."""
    with pytest.raises(Stop):
        train(recipe(**REMIX), tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_a_checkpoint_holds_memory_and_the_policies_that_move(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(recipe(**REMIX), tmp_path / "run", watchers=(StopAt(10),))
    folder = tmp_path / "run" / "checkpoints"
    before, after = (load_file(folder / name / "state.safetensors") for name in ("00000007", "00000010"))
    names = {k.removeprefix("policy.") for k in before if k.startswith("policy.")}
    start = load_file(folder.parent / "checkpoints" / "00000007" / "state.safetensors")
    for name in names:
        # Born again after 6 batches of the stage, at step 10.
        assert torch.equal(after[f"ref_logp.{name}"], after[f"policy.{name}"])
    assert any(not torch.equal(start[f"ref_logp.{n}"], start[f"policy.{n}"]) for n in names)
    assert any(not torch.equal(after[f"prev_logp.{n}"], after[f"policy.{n}"]) for n in names)
    assert int(before["algorithm.sampling.memory.count"]) == 2
    assert "algorithm.sampling.memory.1/extras/tokens" in before
    assert not (tmp_path / "run" / "reference-rl.safetensors").exists()  # it moves, so it is not kept once for all


def test_a_reference_that_never_moves_is_kept_once(tmp_path: Path) -> None:
    changes = {"stages": {"rl": {"method": "grpo", "group": 4, "rows": 8, "steps": 2}}}
    train(recipe(**changes), tmp_path / "run")
    assert (tmp_path / "run" / "reference-rl.safetensors").exists()
    state = load_file(tmp_path / "run" / "checkpoints" / "00000002" / "state.safetensors")
    assert not [k for k in state if k.startswith("ref_logp")]


@pytest.mark.parametrize("follow", [0.5, 1.0])
def test_an_average_as_reference_resumes_too(follow: float, tmp_path: Path) -> None:
    changes = {
        "stages": {
            "warmup": REMIX["stages"]["warmup"],
            "rl": {"method": "grpo", "but": {"reference_tau": follow}, "group": 4, "rows": 8, "steps": 5},
        },
        "checkpoint": 2,
    }
    train(recipe(**changes), tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe(**changes), tmp_path / "run", watchers=(StopAt(6),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    kl = [m["ReferenceKL"] for m in lines(tmp_path / "run", "metrics")[4:]]
    assert (max(kl) < 1e-6) == (follow == 1)


@pytest.mark.parametrize("support", [Support(), Support(temperature=1.3, top_k=20, top_p=0.9)], ids=str)
def test_rows_of_many_turns_are_recalled_whole(support: Support) -> None:
    """Only tensors were kept; tasks and answers come back the same, and the policy says the same of them."""
    world = GuessNumber(1, 9, turns=3, size=6)
    player = EpisodePlayer(policy("float64", world=world, config=LONG), world, 12)
    tokenizer, head = player.policy.tokenizer, player.policy.model.lm_head
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0], dtype=torch.float64))
    head.bias.data[tokenizer.convert_tokens_to_ids([*"123456789", "<|end|>"])] = 6.0
    source = LanguageSource(player, rows=16, seed=0, generator=torch.Generator().manual_seed(0))
    batch = source.rollout(RolloutRequest(source.take(6), 6, support))
    assert {int(t) for t in batch.turn.amax(1)} >= {0, 2}
    again = source.restore_rows(unpacked(packed(batch)))
    assert again.extras["answer"] == batch.extras["answer"]
    assert again.extras["task"] == batch.extras["task"]
    assert again.extras["index"].tolist() == batch.extras["index"].tolist()
    with torch.no_grad():
        torch.testing.assert_close(
            player.policy.evaluate(again).logp, player.policy.evaluate(batch).logp, rtol=0, atol=0
        )


def test_replayed_rows_meet_the_policy_of_now() -> None:
    """logp is the sampler's, old_logp the learner's before its update, prev_logp that of one batch earlier."""
    settings = recipe(**REMIX)
    domain = LanguageDomain(settings)
    algorithm, stage = domain.algorithms["rl"], settings.stages["rl"]
    player = EpisodePlayer(domain.policy, domain.splits["rl"].train, settings.limit)
    source = LanguageSource(player, rows=12, seed=0, generator=domain.sampling)
    learning = StageLearning(domain, algorithm, stage, source, torch.Generator())
    past, ages = [domain.policy.frozen()], set()
    for step in range(5):
        past.append(domain.policy.frozen())
        batch = learning.provide(algorithm.sampling(source))
        for age in batch.extras["age"].unique().tolist():
            rows = batch[batch.extras["age"] == age]
            ages.add(age)
            for field, of in (("rollout_logp", past[-1 - age]), ("old_logp", past[-1]), ("prev_logp", past[-2])):
                with torch.no_grad():
                    expected = of.evaluate(rows).logp
                torch.testing.assert_close(getattr(rows, field), expected, atol=2e-5, rtol=0)
        learning.auxiliary_models.begin_update()
        learning.learner.update(algorithm.compute_advantages(batch), step)
        algorithm.step()
        learning.auxiliary_models.end_update()
    assert ages == {0, 1, 2}
    assert isinstance(algorithm.sampling, Replay)


def test_turns_are_replayed_and_learnt_from(tmp_path: Path) -> None:
    stages = {
        "rl": {"method": {"name": "remix", "group": 2}, "rows": 8, "steps": 3, "epochs": 2},
    }
    config = {**LONG, "n_positions": 96}
    train(recipe(policy={"config": config}, tasks=GUESS, stages=stages, limit=4), tmp_path / "run")
    assert max(m["replayed"] for m in lines(tmp_path / "run", "metrics")) > 0
