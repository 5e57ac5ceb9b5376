"""Token ids as batches: the rows, and log-probabilities that are those of `transformers` row by row."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import polopt as po
from polopt.fields import ExperienceError
from polopt.tokens import observed_states

EOS = 1
CONFIG = GPT2Config(vocab_size=16, n_positions=24, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=EOS)
PROMPTS, ATTENTION = torch.tensor([[EOS, EOS, 5], [3, 4, 2]]), torch.tensor([[0, 0, 1], [1, 1, 1]])


@pytest.fixture(scope="module")
def policy() -> po.LanguagePolicy:
    torch.manual_seed(0)
    return po.LanguagePolicy(GPT2LMHeadModel(CONFIG).double(), None)


def row_logp(policy: po.LanguagePolicy, prompt: list[int], answer: list[int], temperature: float = 1.0) -> torch.Tensor:
    """By `transformers`, one row without padding."""
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None]).squeeze(-1)


def generated(policy: po.LanguagePolicy, **settings: object):
    torch.manual_seed(3)
    plain = {"do_sample": True, "top_k": 0, "num_return_sequences": 6, "max_new_tokens": 7, "pad_token_id": EOS}
    scored = {"return_dict_in_generate": True, "output_scores": True}
    return policy.model.generate(PROMPTS, attention_mask=ATTENTION, **{**plain, **scored, **settings})


def test_lists_of_ids(policy: po.LanguagePolicy) -> None:
    batch = po.experience_from_tokens(
        [[3, 4], [6], [3, 4]],
        [[5, EOS, 9], [2, 2, 2], [EOS]],
        rollout_logp=[[-1.0, -2.0, -9.0], [-3.0, -4.0, -5.0], [-6.0]],
        reward=[1, 0, 1],
        eos=EOS,
    )
    assert batch.extras["tokens"].tolist() == [[3, 4, 5, EOS], [6, 2, 2, 2], [3, 4, EOS, -1]]
    assert batch.mask.int().tolist() == [[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 1, 0]]
    assert batch.rollout_logp.tolist() == [[0, 0, -1, -2], [0, -3, -4, -5], [0, 0, -6, 0]]
    assert batch.group.tolist() == [0, 1, 0]
    assert batch.terminated.tolist() == (~batch.truncated).tolist() == [True, False, True]
    assert batch.outcome.tolist() == [1, 0, 1]
    said = policy.evaluate(batch).logp
    for row, (prompt, answer) in enumerate([([3, 4], [5, EOS]), ([6], [2, 2, 2]), ([3, 4], [EOS])]):
        torch.testing.assert_close(said[row][batch.mask[row]], row_logp(policy, prompt, answer), rtol=1e-10, atol=0)


def test_what_generate_returns_padded_on_the_left(policy: po.LanguagePolicy) -> None:
    output = generated(policy)
    batch = po.experience_from_generate(output, ATTENTION, eos=EOS, reward=torch.arange(12))
    assert batch.group.tolist() == [0] * 6 + [1] * 6
    assert 0 < batch.terminated.sum() < 12
    said = policy.evaluate(batch).logp
    torch.testing.assert_close(batch.rollout_logp[batch.mask], said[batch.mask].float(), rtol=1e-5, atol=1e-6)
    for row in range(12):
        answer = output.sequences[row, 3:].tolist()
        answer = answer[: answer.index(EOS) + 1] if EOS in answer else answer
        prompt = [[5], [3, 4, 2]][row // 6]
        assert batch.extras["tokens"][row][batch.mask[row]].tolist() == answer
        assert bool(batch.terminated[row]) == (answer[-1] == EOS)
        torch.testing.assert_close(said[row][batch.mask[row]], row_logp(policy, prompt, answer), rtol=1e-10, atol=0)
    bare = po.experience_from_generate(output.sequences, ATTENTION, eos=EOS)
    assert bare.rollout_logp is None
    assert torch.equal(bare.mask, batch.mask)


def test_temperature_and_top_k(policy: po.LanguagePolicy) -> None:
    """Renormalised over the tokens that were left, as the sampler did; computed again from the logits of each row."""
    support = po.Support(temperature=0.7, top_k=4)
    output = generated(policy, top_k=4, temperature=0.7)
    batch = po.experience_from_generate(output, ATTENTION, eos=EOS, support=support)
    said = policy.evaluate(batch).logp
    torch.testing.assert_close(batch.rollout_logp[batch.mask], said[batch.mask].float(), rtol=1e-5, atol=1e-6)
    for row in range(12):
        prompt, answer = [[5], [3, 4, 2]][row // 6], batch.extras["tokens"][row][batch.mask[row]].tolist()
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1] / 0.7
        left = logits.topk(4).values.logsumexp(-1)
        expected = logits.gather(-1, torch.tensor(answer)[:, None]).squeeze(-1) - left
        torch.testing.assert_close(said[row][batch.mask[row]], expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(ExperienceError, match=r"chose among at most 4 of 16 tokens.*call generate with top_k=0"):
        po.experience_from_generate(output, ATTENTION, eos=EOS)


def test_states_are_what_was_read_before_a_turn() -> None:
    tokens = torch.tensor([[5, 6, 1, 2, 8, 5, 6, 3, -1], [5, 6, 1, 9, 5, 6, 4, 4, 4], [1, 5, 1, 5, 6, 3, -1, -1, -1]])
    turn = torch.tensor(
        [[-1, -1, 0, 0, -1, -1, -1, 1, -1], [-1, -1, 0, 0, -1, -1, 1, 1, 2], [0, -1, 1, -1, -1, 2, -1, -1, -1]]
    )
    state = observed_states(tokens, turn)
    read = {(0, 2): (5, 6), (0, 7): (8, 5, 6), (1, 2): (5, 6), (1, 6): (5, 6), (1, 8): ()}
    read |= {(2, 0): (), (2, 2): (5,), (2, 5): (5, 6)}
    for at, words in read.items():
        for other, others in read.items():
            assert (state[at] == state[other]) == (words == others)
    assert state[0, 2] == state[0, 3]
    assert state[1, 6] == state[1, 7]
    assert (state[turn < 0] == 0).all()
    assert (state[turn >= 0] > 0).all()
    # Numbers belong to tokens, not to a batch.
    assert torch.equal(observed_states(tokens[1:2], turn[1:2]), state[1:2])


def test_states_of_many_rows() -> None:
    """Each different text has one number of its own, against a dictionary of texts."""
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 2, (2000, 8), generator=draw)
    turn = torch.randint(0, 3, (2000, 8), generator=draw).cummax(1).values
    turn[torch.rand(2000, 8, generator=draw) < 0.5] = -1
    state, numbers = observed_states(tokens, turn).tolist(), dict[tuple[int, ...], int]()
    for words, turns, found in zip(tokens.tolist(), turn.tolist(), state, strict=True):
        read: list[int] = []
        for t in range(8):
            if turns[t] < 0:
                read = [*(read if t and turns[t - 1] < 0 else []), words[t]]
                assert found[t] == 0
            else:
                if t and turns[t - 1] >= 0 and turns[t - 1] != turns[t]:
                    read = []
                assert numbers.setdefault(tuple(read), found[t]) == found[t]
    assert len(numbers) > 50
    assert len(set(numbers.values())) == len(numbers)


def test_what_does_not_match_is_refused() -> None:
    with pytest.raises(ExperienceError, match=r"completions needs one entry for each of the 2 rows, found 1"):
        po.experience_from_tokens([[1], [2]], [[3]])
    with pytest.raises(ExperienceError, match=r"prompts\[1\] is empty, and needs at least one token"):
        po.experience_from_tokens([[1], []], [[3], [4]])
    with pytest.raises(ExperienceError, match=r"logp\[0\] needs one number for each of the 2 tokens .* found 1"):
        po.experience_from_tokens([[1]], [[3, 4]], rollout_logp=[[-1.0]])
    with pytest.raises(ExperienceError, match=r"B a multiple of the prompts.* found \[3, 5\]"):
        po.experience_from_generate(torch.zeros(3, 5, dtype=torch.long), ATTENTION, eos=EOS)
    with pytest.raises(ExperienceError, match=r"reward needs one entry for each of the 4 rows, found 3"):
        po.experience_from_generate(torch.zeros(4, 5, dtype=torch.long), ATTENTION, eos=EOS, reward=[1.0, 0.0, 1.0])
