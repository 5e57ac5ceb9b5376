"""Runs on pairs of answers: the batch, its gradient against TRL's, resuming, the held-out score, and the door."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import DIGITS, GUESS, Stop, StopAt, lines, outcome, policy, recipe
from torch import Tensor
from trl_oracle import BETA, trl_dpo

import polopt as po
from polopt.config import ConfigError, parse
from polopt.experience import Experience
from polopt.policies.language import LanguagePolicy
from polopt.training.episode_player import EpisodePlayer
from polopt.training.language import LanguageDomain
from polopt.training.launch import resume, train
from polopt.training.learner import Learner
from polopt.training.preferences import evaluate_pairs
from polopt.training.source import LanguageSource
from polopt.training.specs import StageSpec
from polopt.worlds import PairReader, Tasks

ANSWERS = ("0", "22", "even", "it is 4", "6!")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    both = [sorted([i % 5, (i + 1 + i // 5 % 4) % 5]) for i in range(40)]  # the earlier answer is preferred
    rows = [{"prompt": f"even {i} ", "chosen": ANSWERS[a], "rejected": ANSWERS[b]} for i, (a, b) in enumerate(both)]
    found = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    found.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def world(path: Path) -> dict[str, Any]:
    return {"kind": "pairs", "path": str(path), "heldout": 0.25}


def made(path: Path) -> tuple[Tasks, LanguagePolicy, Experience]:
    """The tasks, a policy, and the first batch of four pairs."""
    tasks = PairReader().read(path)
    learner = policy(world=tasks)
    source = LanguageSource(EpisodePlayer(learner, tasks, 8), rows=8, seed=0, generator=torch.Generator())
    return tasks, learner, po.method("dpo").sampling(source)


def summed(model: Any, batch: Experience) -> Tensor:
    """[B, T] log-probabilities of the tokens as transformers gives them, without anything of polopt."""
    tokens = batch.extras["tokens"]
    real = tokens >= 0
    logits = model(input_ids=tokens.clamp(min=0), attention_mask=real.long()).logits.log_softmax(-1)
    said = logits[:, :-1].gather(2, tokens[:, 1:].clamp(min=0)[..., None])[..., 0]
    return torch.where(batch.mask, torch.nn.functional.pad(said, (1, 0)), 0)


def test_the_batch_holds_both_answers_of_each_pair(path: Path) -> None:
    _, learner, batch = made(path)
    assert batch.outcome.tolist() == [1.0, 0.0] * 4
    assert batch.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert batch.rollout_logp is None
    assert not batch.is_demonstration.any()
    assert batch.terminated.all()
    for i, task in enumerate(batch.extras["task"]):
        tokens, mask = batch.extras["tokens"][i], batch.mask[i]
        said = tokens[mask].tolist()
        assert said[-1] == learner.tokenizer.eos_token_id
        assert learner.tokenizer.decode(said[:-1]) == task.rated[i % 2].text
        before = tokens[: int(mask.nonzero()[0])].tolist()
        assert learner.tokenizer.decode(before, skip_special_tokens=True) == task.prompt


@pytest.mark.parametrize("micro_rows", [1, 2, 3, 5, 8])
def test_the_gradient_of_a_batch_is_that_of_trl(path: Path, micro_rows: int) -> None:
    _, learner, batch = made(path)
    reference = copy.deepcopy(learner)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(2)
        for parameter in learner.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    learner.eval(), reference.eval()
    other = copy.deepcopy(learner)
    order = torch.cat([torch.arange(0, 8, 2), torch.arange(1, 8, 2)])  # TRL stacks the chosen rows before the rejected
    with torch.no_grad():
        ref = summed(reference.model, batch)
    loss, _ = trl_dpo(batch.mask[order], summed(other.model, batch)[order], ref[order], "sigmoid")
    loss.backward()
    algorithm = po.method("dpo", beta=BETA)
    settings = {"method": "dpo", "steps": 1, "rows": 8, "micro_rows": micro_rows}
    stage = parse(StageSpec, {**settings, "optimiser": {"clip": 1e9, "lr": 1e-9}}, "test")
    batch = algorithm.compute_advantages(batch).replace(ref_logp=reference.evaluate(batch).logp.detach())
    record = Learner(learner, algorithm, stage, torch.Generator()).update(batch, 0)
    assert record["loss"] == pytest.approx(float(loss), abs=1e-6)
    expected = dict(other.named_parameters())
    for name, parameter in learner.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-7, atol=1e-10)
    assert max(float(p.grad.abs().max()) for p in expected.values() if p.grad is not None) > 1e-3


def test_chosen_and_rejected_are_treated_alike(path: Path, tmp_path: Path) -> None:
    """With the two answers of every pair exchanged, the rows are the same in the other order: tokens, masks and ends;
    and the policy's gradient is the opposite one where both implicit rewards are 0."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    turned = tmp_path / "turned.jsonl"
    exchanged = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    turned.write_text("".join(json.dumps(row) + "\n" for row in exchanged))
    _, learner, batch = made(path)
    tasks = PairReader().read(turned)
    source = LanguageSource(EpisodePlayer(learner, tasks, 8), rows=8, seed=0, generator=torch.Generator())
    other = po.method("dpo").sampling(source)
    back = torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])
    assert len({int(n) for n in batch.mask.sum(1)}) > 1
    assert torch.equal(batch.mask, other.mask[back])
    assert torch.equal(batch.extras["tokens"], other.extras["tokens"][back])
    assert torch.equal(batch.terminated, other.terminated[back])
    found = []
    for each in (batch, other):
        algorithm = po.method("dpo", beta=BETA)
        each = algorithm.compute_advantages(each).replace(ref_logp=learner.evaluate(each).logp.detach())
        learner.zero_grad()
        algorithm.objective(each, learner.evaluate(each)).loss.backward()
        found.append([p.grad.clone() for p in learner.parameters() if p.grad is not None])
    assert max(float(gradient.abs().max()) for gradient in found[0]) > 1e-3
    for one, opposite in zip(*found, strict=True):
        torch.testing.assert_close(one, -opposite, rtol=1e-7, atol=1e-10)


def test_the_score_counts_pairs_whose_preferred_answer_is_likelier(path: Path) -> None:
    tasks, learner, _ = made(path)
    player, chosen = EpisodePlayer(learner, tasks, 8), [tasks[i] for i in range(40)]
    score = evaluate_pairs(player, chosen)
    margins = []
    for task in chosen:
        pair = LanguageSource._unsampled(
            LanguageSource(player, rows=2, seed=0, generator=torch.Generator()), player.rated([task])
        )
        with torch.no_grad():
            first, second = summed(learner.model.eval(), pair).sum(1).tolist()
        margins.append(first - second)
    assert score.margin.estimate == pytest.approx(sum(margins) / 40, abs=1e-9)
    assert score.accuracy.estimate == sum(margin > 0 for margin in margins) / 40
    assert score.pairs.margin() == pytest.approx(margins, abs=1e-9)
    assert [score.pairs.chosen_length[-1], score.pairs.rejected_length[-1]] == pair.mask.sum(1).tolist()
    assert 0 < score.accuracy.estimate < 1
    assert score.ranked == {"pairs": [int(margin > 0) for margin in margins]}
    shown = [row.answer for row in score.rows]
    assert shown == [t.rated[int(m <= 0)].text for t, m in zip(chosen, margins, strict=True)]
    assert [row.solved for row in score.rows] == [margin > 0 for margin in margins]
    record = score.record()
    assert next(iter(po.training.estimates.estimates_of(record))) == "preference_accuracy"


def settings(path: Path, **changes: Any) -> Any:
    stages = {
        "warmup": {"method": "sft", "steps": 3, "rows": 8, "optimiser": {"lr": 0.01}},
        "dpo": {
            "method": "dpo",
            "steps": 6,
            "rows": 8,
            "epochs": 2,
            "minibatches": 2,
            "micro_rows": 3,
            "optimiser": {"lr": 0.01},
        },
    }
    evaluation = {"problems": 10, "quick": 10, "every": 2}
    return recipe(**({"tasks": world(path), "limit": 8, "stages": stages, "evaluation": evaluation} | changes))


def test_a_run_learns_preferences_and_resuming_is_an_equality(path: Path, tmp_path: Path) -> None:
    best = {"checkpoint": {"every": 2, "best": "preference_accuracy"}, "logging": {"rollouts": 1}}
    train(settings(path, **best), tmp_path / "through")
    with pytest.raises(Stop):
        train(settings(path, **best), tmp_path / "stopped", watchers=(StopAt(6),))
    resume(tmp_path / "stopped")
    through = outcome(tmp_path / "through")
    assert through == outcome(tmp_path / "stopped")
    before, *_, after = (e for e in lines(tmp_path / "through", "evaluations") if e["stage"] == "dpo")
    assert after["preference_margin"]["estimate"] > before["preference_margin"]["estimate"] + 0.5
    rewards = [row["outcome"] for row in lines(tmp_path / "through", "rollouts") if row["step"] >= 3]
    assert len(rewards) == 6 * 8
    assert rewards == [1.0, 0.0] * (len(rewards) // 2)


def test_the_door_keeps_methods_and_tasks_apart(path: Path) -> None:
    compared = {"rl": {"method": "dpo", "steps": 1, "rows": 8}}
    with pytest.raises(ConfigError, match=r"stages\.rl: sampling\.PreferencePairs compares preferred with rejected"):
        LanguageDomain(recipe(tasks=DIGITS, stages=compared))
    sampled = {"rl": {"method": "grpo", "steps": 1, "rows": 8, "group": 4}}
    with pytest.raises(ConfigError, match=r"stages\.rl: sampling\.Rollouts samples answers, and nothing verifies them"):
        LanguageDomain(settings(path, stages=sampled))
    with pytest.raises(ConfigError, match=r"rows = 7 must be a multiple of the group of 2"):
        _ = settings(path, stages={"rl": {"method": "dpo", "steps": 1, "rows": 7}}).algorithms


def test_the_best_checkpoint_is_chosen_by_what_is_measured(path: Path) -> None:
    with pytest.raises(ConfigError, match="pass@1' is not evaluated; give preference_accuracy or preference_margin"):
        settings(path, checkpoint={"every": 2, "best": "pass@1"})
    wrong = {"checkpoint": {"every": 2, "best": "preference_accuracy"}, "evaluation": {"problems": 4, "every": 2}}
    with pytest.raises(ConfigError, match="'preference_accuracy' is not evaluated; give pass@1"):
        recipe(tasks=GUESS, **wrong)
    # What a user's own world has is known once it is built.
    with pytest.raises(ConfigError, match="'preference_accuracy' is not measured on the held-out tasks of stage rl"):
        LanguageDomain(recipe(**wrong))
