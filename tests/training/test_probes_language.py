"""Second tries of a language policy's failures, and rules that it reads and does without."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from learners import stopping
from tiny_runs import GUESS, Digits, lines, policy, training_of

import polopt as po
from polopt.methods.policyrollout import RulePrompts
from polopt.methods.rex_rag import RetryRollouts
from polopt.ops import NOTHING
from polopt.sampling import Rollouts
from polopt.training import recipe as recipes
from polopt.training.episode_player import EpisodePlayer
from polopt.training.run import Run
from polopt.training.source import LanguageSource
from polopt.worlds import build_tasks

STAGES = ("read", "inject", "imitate", "rollouts")


def source_of(made: object, world: object, limit: int = 5, rows: int = 16) -> LanguageSource:
    player = EpisodePlayer(made, world, limit)
    return LanguageSource(player, rows=rows, seed=0, generator=torch.Generator().manual_seed(0))


def test_a_failed_answer_is_cut_told_continued_and_paid() -> None:
    source = source_of(stopping(), Digits(50))
    batch = RetryRollouts(group=4, texts=["2", "3 4", "3 5"], chance=1.0, keep=1.0)(source)
    tokenizer, probe = source.player.policy.tokenizer, batch.extras["probe"]
    assert probe.sum() == (batch.outcome[~probe] < 1).sum() > 4
    with torch.no_grad():
        said = source.player.policy.evaluate(batch).logp
    seen = set()
    for row in probe.nonzero().flatten().tolist():
        begin, mask = int(batch.mask[row].int().argmax()), batch.mask[row]
        ids = batch.extras["tokens"][row][mask].tolist()
        text = next(t for t in ("2", "3 4", "3 5") if ids[: len(t)] == source.encode(t))
        seen.add(text)
        frequency = [math.log(1 / 3)] if text == "2" else [math.log(2 / 3), 0.0, math.log(1 / 2)]
        expected = said[row].clone()
        expected[begin : begin + len(text)] = torch.tensor(frequency, dtype=torch.double)
        torch.testing.assert_close(batch.rollout_logp[row][mask], expected[mask])
        torch.testing.assert_close(batch.extras["probe_logp"][row][mask], expected[mask])
        torch.testing.assert_close(batch.extras["policy_logp"][row][mask], said[row][mask])
        # The world has judged what was said in the end, if it was said to the end.
        answer = tokenizer.decode(ids, skip_special_tokens=True)
        assert answer == batch.extras["answer"][row]
        if not batch.truncated[row]:
            paid = source.player.tasks.score(answer, batch.extras["task"][row])[0]
            assert batch.outcome[row].item() == torch.tensor(paid, dtype=torch.float32).item()
    assert len(seen) > 1
    others = batch[~probe]
    begins = [others.extras["tokens"][i][others.mask[i]].tolist()[:1] == source.encode("2") for i in range(len(others))]
    known = (torch.where(others.mask, others.extras["probe_logp"], 0).sum(1) > NOTHING).tolist()
    assert all(k >= b for k, b in zip(known, begins, strict=True))


def test_only_the_last_turn_is_tried_again() -> None:
    world = build_tasks(GUESS, seed=0).train
    source = source_of(policy(world=world), world, limit=4, rows=24)
    head, tokenizer = source.player.policy.model.lm_head, source.player.policy.tokenizer
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0], dtype=torch.float64))
    head.bias.data[tokenizer.convert_tokens_to_ids([*"12345", "<|end|>"])] = 6.0
    batch = RetryRollouts(group=4, texts=["3"], chance=1.0, keep=1.0)(source)
    probe, turn = batch.extras["probe"], torch.where(batch.mask, batch.turn, -1)
    assert probe.any()
    deep = 0
    for row in probe.nonzero().flatten().tolist():
        # The turns before are those of some failure of its group, played again: the same world, the same words.
        put_in = (batch.extras["probe_logp"][row] == 0) & batch.mask[row]
        place = int(put_in.int().argmax())
        assert tokenizer.decode([int(batch.extras["tokens"][row, place])]) == "3"
        mates = (~probe & (batch.group == batch.group[row]) & (batch.outcome < 1)).nonzero().flatten()
        ids = batch.extras["tokens"][row, :place]
        assert any(torch.equal(batch.extras["tokens"][i, :place], ids) for i in mates)
        deep = max(deep, int(turn[row, place]))
    assert deep > 0


def test_who_reads_the_rules_samples_and_who_does_not_learns() -> None:
    source = source_of(stopping(), Digits(50))
    batch = Rollouts(group=4, guide=RulePrompts(rules=" even 2 4"))(source)
    told = batch.extras["hinted"]
    assert told.tolist() == ([False] * 4 + [True] * 4) * 2
    tokens = [[i for i in row if i >= 0] for row in batch.extras["tokens"].tolist()]
    texts = [source.player.policy.tokenizer.decode(ids) for ids in tokens]
    assert not any(" even 2 4" in text for text in texts)
    with torch.no_grad():
        said = source.player.policy.evaluate(batch).logp
    off = torch.where(batch.mask, (said - batch.rollout_logp).abs(), 0).amax(1)
    assert (off[~told] < 1e-6).all()
    assert (off[told] > 1e-3).all()
    judged = po.method("policyrollout", rules=" even 2 4").compute_advantages(batch)
    assert judged.advantage.abs().max() > 0


def test_the_recipe_of_policyrollout_runs_through_its_stages(tmp_path: Path) -> None:
    short = {f"stages.{stage}.{key}": n for stage in STAGES for key, n in (("steps", 2), ("rows", 16))}
    settings = recipes.load("policyrollout", {**short, "evaluation.problems": 4, "evaluation.quick": 4, "threads": 1})
    training_of(settings, Run.create(tmp_path, settings.to_yaml(), {})).run()
    records = lines(tmp_path, "metrics")
    assert [record["stage"] for record in records] == [stage for stage in STAGES for _ in range(2)]
    # The first is shown a book in every prompt; the last samples half of its rows with the book as a hint.
    rules = settings.stages["rollouts"].algorithm("rollouts").sampling.guide.rules
    shown, hidden = (build_tasks(spec, seed=0).train for spec in (settings.stages["read"].tasks, settings.tasks))
    assert rules.split() == settings.tasks["book"].split()
    assert len(shown[0].prompt) == len(hidden[0].prompt + rules)
    assert hidden.score(hidden[0].solution, hidden[0])[0] == 1
