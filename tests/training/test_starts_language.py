"""How rollouts of a language policy begin: ragged groups, given prefixes, hints, and what rows are told to say."""

from __future__ import annotations

import pytest
import torch
from test_extend import source_of
from tiny_runs import Digits, policy

from polopt.experience import Experience
from polopt.sampling import Start
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.training.episode_player import EpisodePlayer
from polopt.training.source import LanguageSource


def digits(limit: int = 6) -> LanguageSource:
    """Tasks whose solution is one digit, for a policy that writes long answers."""
    world = Digits(50)
    return LanguageSource(
        EpisodePlayer(policy(world=world), world, limit), rows=8, seed=0, generator=torch.Generator().manual_seed(0)
    )


def texts(source: LanguageSource, batch: Experience) -> list[str]:
    tokenizer = source.player.policy.tokenizer
    return [tokenizer.decode([i for i in row if i >= 0]) for row in batch.extras["tokens"].tolist()]


def same_logp(source: LanguageSource, batch: Experience) -> None:
    with torch.no_grad():
        said = source.player.policy.evaluate(batch).logp
    torch.testing.assert_close(batch.rollout_logp[batch.mask], said[batch.mask])


def test_ragged_groups_are_what_they_are_alone() -> None:
    source = digits()
    tasks, copies = torch.tensor([4, 2, 9]), torch.tensor([3, 0, 1])
    batch = source.rollout(RolloutRequest(tasks, copies, Support()))
    assert batch.group.tolist() == [0, 0, 0, 2]
    assert batch.extras["index"].tolist() == [4, 4, 4, 9]
    assert [task.id for task in batch.extras["task"]] == [source.player.tasks[i].id for i in (4, 4, 4, 9)]
    same_logp(source, batch)
    assert source.player.sampled == int(batch.mask.sum())


def test_a_given_prefix_is_read_and_never_decided() -> None:
    source = source_of(limit=8)
    source.player.tasks.episode(source.player.tasks[0]).reset()
    # Its world shows no text but a number: the solution is one digit and the stop, of which one may be given.
    assert source.solution_lengths(torch.arange(3)).tolist() == [2, 2, 2]
    batch = source.rollout(
        RolloutRequest(torch.arange(3), 2, Support(), starts=[Start(), Start(given=1), Start(given=99)])
    )
    assert batch.extras["given"].tolist() == [0, 0, 1, 1, 1, 1]
    for row in range(2, 6):
        first = int(batch.mask[row].int().argmax())
        assert batch.turn[row, first - 1] == 0  # of the first answer, and nobody's decision
        assert source.player.policy.tokenizer.decode([int(batch.extras["tokens"][row, first - 1])]) == "5"
    same_logp(source, batch)
    again = source.restore_rows(batch)
    assert again.extras["answer"] == batch.extras["answer"]
    going = source.rollout(RolloutRequest(torch.arange(3), 1, Support(), max_decisions=2, starts=[Start(given=1)] * 3))
    open_rows = going[~(going.terminated | going.truncated)]
    if len(open_rows):
        whole = source.extend(open_rows, 2)
        assert (whole.extras["given"] == 1).all()
        same_logp(source, whole)


def test_a_visible_hint_stands_behind_the_prompt() -> None:
    source = digits()
    batch = source.rollout(RolloutRequest(torch.tensor([0, 0]), 2, Support(), starts=[Start(hint=" even 4"), Start()]))
    plain, hinted = source.player.tasks[0].prompt, source.player.tasks[0].prompt + " even 4"
    shown = texts(source, batch)
    assert all(hinted in text for text in shown[:2])
    assert all(plain in text and hinted not in text for text in shown[2:])
    assert not batch.extras["hinted"].any()
    same_logp(source, batch)


def test_a_hidden_hint_is_read_and_left_out() -> None:
    source = digits()
    start = Start(hint=" even 4", hidden=True)
    batch = source.rollout(RolloutRequest(torch.tensor([0]), 6, Support(), starts=[start]))
    assert batch.extras["hinted"].all()
    assert not any(" even 4" in text for text in texts(source, batch))
    # Its log-probabilities are those of the same answers behind the hint, and no others.
    task, made = source.player.tasks[0], source.player.policy
    opening = source.player.dialogue.opening(task.prompt + start.hint)
    with torch.no_grad():
        for b in range(len(batch)):
            said = batch.extras["tokens"][b][batch.mask[b]].tolist()
            mask = torch.tensor([[False] * len(opening) + [True] * len(said)])
            row = Experience(mask=mask, extras={"tokens": torch.tensor([[*opening, *said]])})
            torch.testing.assert_close(batch.rollout_logp[b][batch.mask[b]], made.evaluate(row).logp[mask])
        plain = made.evaluate(batch).logp
    assert not torch.allclose(plain[batch.mask], batch.rollout_logp[batch.mask])
    with pytest.raises(ValueError, match="read a hint that is not on record"):
        source.extend(batch, 1, at=batch.mask.int().argmax(1))


def test_rows_say_what_they_are_told() -> None:
    source = digits(limit=8)
    batch = source.rollout(RolloutRequest(torch.arange(4), 1, Support()))
    words = source.encode("24")
    at = batch.mask.int().argmax(1)
    found = source.extend(batch, 2, at=at, forced_tokens=[words] * 4)
    for b in range(8):
        begin = int(found.mask[b].int().argmax())
        assert found.extras["tokens"][b, begin : begin + 2].tolist() == words
        assert found.rollout_logp[b, begin : begin + 2].tolist() == [0, 0]
        assert found.mask[b, begin : begin + 2].all()
    with pytest.raises(ValueError, match="none of which stops it"):
        source.extend(batch, 1, at=at, forced_tokens=[[source.player.policy.tokenizer.eos_token_id]] * 4)


def test_gradient_norms_against_one_backward_pass_a_row() -> None:
    source = digits()
    batch, made = source.rollout(RolloutRequest(torch.arange(3), 2, Support())), source.player.policy
    norms = source.gradient_norms(batch, block="wte")
    for row, norm in zip(batch.split(1), norms, strict=True):
        made.zero_grad()
        torch.where(row.mask, made.evaluate(row).logp, 0).sum().backward()
        torch.testing.assert_close(norm, made.model.transformer.wte.weight.grad.norm())
    torch.testing.assert_close(source.gradient_norms(batch, block=None), norms)  # the input embedding
    with pytest.raises(ValueError, match="no parameter's name contains 'wtf'"):
        source.gradient_norms(batch, block="wtf")


def test_the_input_embedding_is_found_whatever_its_name() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    llama = policy(config={"model_type": "llama", "max_position_embeddings": 64, "tie_word_embeddings": False, **sizes})
    assert list(llama.named_block(None)) == ["model.model.embed_tokens.weight"]
    assert list(policy().named_block(None)) == ["model.transformer.wte.weight"]
    assert len(llama.named_block("")) == len(list(llama.parameters()))
    for table in llama.named_block(None).values():
        table.requires_grad_(False)
    with pytest.raises(ValueError, match="input embedding does not learn; name a block that does"):
        llama.named_block(None)
