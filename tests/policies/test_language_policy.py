"""What a policy says of a batch, against one full forward pass per row: values and gradients."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import STOP, VOCABULARY, as_experience, tiny
from torch import Tensor

from polopt.experience import Experience, ExperienceError, Support
from polopt.policies import packing
from polopt.policies.language import LanguagePolicy
from polopt.policies.sampler import sample


class NoTokenizer:
    eos_token_id = STOP


def policy_of(kind: str, dtype: torch.dtype = torch.float64, **settings: Any) -> LanguagePolicy:
    policy = LanguagePolicy(tiny(kind, dtype, **settings), NoTokenizer(), critic=True)
    assert policy.critic is not None
    torch.nn.init.normal_(policy.critic.weight, generator=torch.Generator().manual_seed(1))
    return policy


def rows_of(groups: int = 2, each: int = 4) -> tuple[list[list[int]], list[list[bool]]]:
    """Rows in groups that share a prompt; after it, stretches of decisions with something read in between."""
    random = torch.Generator().manual_seed(5)
    number = lambda low, high: int(torch.randint(low, high, (), generator=random))  # noqa: E731
    ids, decided = [], []
    for _ in range(groups):
        prompt = [number(3, VOCABULARY) for _ in range(number(5, 8))]
        for _ in range(each):
            row, marks = list(prompt), [False] * len(prompt)
            for turn in range(number(1, 4)):
                length = number(1, 4) if turn % 2 == 0 else number(1, 3)
                row += [number(0, VOCABULARY) for _ in range(length)]
                marks += [turn % 2 == 0] * length
            ids.append(row)
            decided.append(marks)
    return ids, decided


def padded(ids: list[list[int]], decided: list[list[bool]], layout: str) -> tuple[Tensor, Tensor]:
    """Tokens and mask: padding on the right or on the left."""
    width = max(map(len, ids)) + 2
    tokens, mask = torch.full((len(ids), width), -1), torch.zeros(len(ids), width, dtype=torch.bool)
    for b, (row, marks) in enumerate(zip(ids, decided, strict=True)):
        places = {
            "right": torch.arange(len(row)),
            "left": torch.arange(width - len(row), width),
        }[layout]
        tokens[b, places], mask[b, places] = torch.tensor(row), torch.tensor(marks)
    return tokens, mask


def naive(policy: LanguagePolicy, ids: list[list[int]], decided: list[list[bool]], T: float) -> dict[str, Tensor]:
    """Each row alone through transformers' own model. Decisions of all rows, in order, in one line."""
    found: dict[str, list[Tensor]] = {"logp": [], "entropy": [], "value": [], "final_value": []}
    for row, marks in zip(ids, decided, strict=True):
        output = policy.model(torch.tensor([row]), use_cache=False, output_hidden_states=True)
        logits = output.logits[0] if output.logits.dtype == torch.float64 else output.logits[0].float()
        logp = torch.log_softmax(logits / T, -1)
        hidden = output.hidden_states[-1][0]
        values = policy.critic(hidden.to(policy.critic.weight.dtype))[:, 0]  # type: ignore[misc, union-attr]
        for t in range(1, len(row)):
            if marks[t]:
                found["logp"].append(logp[t - 1, row[t]])
                found["entropy"].append(-(logp[t - 1].exp() * logp[t - 1]).sum())
                found["value"].append(values[t - 1])
        last = max(t for t in range(len(row)) if marks[t])
        found["final_value"].append(values[last])
    return {name: torch.stack(values) for name, values in found.items()}


def gradients(policy: LanguagePolicy, said: dict[str, Tensor]) -> list[Tensor]:
    """Gradient of a fixed random mixture of everything that was said."""
    random = torch.Generator().manual_seed(3)
    weights = {k: torch.randn(v.shape, generator=random, dtype=torch.float64) for k, v in sorted(said.items())}
    loss = torch.stack([(weights[k] * said[k]).sum() for k in sorted(said)]).sum()
    found = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(policy.parameters(), found, strict=True)]


CASES = [(kind, torch.float64) for kind in ("gpt2", "llama", "qwen2", "mistral", "granite")]
CASES += [(kind, torch.float32) for kind in ("gemma2", "bloom", "gpt_neo", "mamba")]


@pytest.mark.parametrize("layout", ["right", "left"])
@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=str)
def test_values_and_gradients_equal_the_naive_ones(
    kind: str, dtype: torch.dtype, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(kind, dtype)
    ids, decided = rows_of()
    tokens, mask = padded(ids, decided, layout)
    expected = naive(policy, ids, decided, 0.7)
    slopes = gradients(policy, expected)
    batch = Experience(mask=mask, support=Support(temperature=0.7), extras={"tokens": tokens})
    value_bound, slope_bound = (1e-10, 1e-6) if dtype == torch.float64 else (2e-5, 5e-4)
    if kind == "gpt2":  # the others' RMS norms compute in float32 whatever the model's precision
        slope_bound = 1e-11
    for widest in {0, policy._widest, 64 if policy._widest == packing.WIDEST else 0}:
        monkeypatch.setattr(policy, "_widest", widest)
        found = policy.evaluate(batch, {"entropy", "value"})
        said = {"logp": found.logp[mask], "entropy": found.entropy[mask], "value": found.value[mask]}
        said["final_value"] = found.final_value
        for name, value in said.items():
            torch.testing.assert_close(value, expected[name], atol=value_bound, rtol=0, msg=name)
            if name != "final_value":
                assert (getattr(found, name)[~mask] == 0).all()
        for ours, theirs in zip(gradients(policy, said), slopes, strict=True):
            assert not ours.isnan().any()
            torch.testing.assert_close(ours, theirs, atol=slope_bound * max(1.0, float(theirs.abs().max())), rtol=0)


def test_which_models_pack() -> None:
    """Rotary and learned positions do; ALiBi, local and recurrent layers do not; a window bounds the pack."""
    widest = {kind: policy_of(kind, dtype)._widest for kind, dtype in CASES}
    assert widest == {
        "gpt2": packing.WIDEST,
        "llama": packing.WIDEST,
        "qwen2": packing.WIDEST,
        "granite": packing.WIDEST,
        "mistral": 6,
        "gemma2": 6,
        "bloom": 0,
        "gpt_neo": 0,
        "mamba": 0,
    }


def test_packing_is_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of("llama")
    ids, decided = rows_of(each=6)
    tokens, mask = padded(ids, decided, "right")
    read = []
    policy.model.base_model.register_forward_pre_hook(
        lambda _, __, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    policy.evaluate(Experience(mask=mask, extras={"tokens": tokens}))
    monkeypatch.setattr(policy, "_widest", 0)
    policy.evaluate(Experience(mask=mask, extras={"tokens": tokens}))
    packed, plain = read
    assert packed < 0.7 * plain


def test_a_window_shorter_than_the_rows_is_kept() -> None:
    """Two rows whose prompts differ only beyond the window read alike; packing may not widen what they see."""
    policy = policy_of("mistral", num_hidden_layers=1)
    tail = [5, 6, 7, 8, 9, 10, 3]
    tokens = torch.tensor([[3, *tail], [12, *tail]])
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    mask[:, -1] = True
    both = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens})).logp
    assert both[0, -1].item() == pytest.approx(both[1, -1].item(), abs=1e-12)


def test_caps_and_scales_on_logits_are_found_whatever_the_weights() -> None:
    """With weights so small that a cap of 2 does not show in the logits yet."""
    for kind in ("gemma2", "granite"):
        assert not policy_of(kind, spread=0.001)._plain_head
    for kind in ("gpt2", "llama", "mistral"):
        assert policy_of(kind, spread=0.001)._plain_head


def test_what_follows_the_last_decision_is_never_read() -> None:
    policy = policy_of("llama")
    tokens = torch.tensor([[3, 4, 5, 6, 7], [3, 4, 5, 6, 8]])
    mask = torch.tensor([[False, False, True, False, False]] * 2)
    found = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens}))
    assert torch.equal(found.logp[0], found.logp[1])


def test_prompts_and_observations_are_never_trained() -> None:
    """No gradient reaches the output layer from the ids that the policy did not choose."""
    policy = policy_of("llama", tie_word_embeddings=False)
    tokens = torch.tensor([[3, 4, 5, 6, 7, 8]])
    mask = torch.tensor([[False, False, True, False, True, False]])
    found = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens}), {"logits"})
    assert torch.equal(found.logits.abs().sum(-1) > 0, mask)
    (slope,) = torch.autograd.grad(found.logp.sum(), policy.model.lm_head.weight, retain_graph=True)
    # Each decision pulls its own row of the output layer up by (1 - p) h and every other one down by p h.
    hidden = policy.model.base_model(tokens, use_cache=False).last_hidden_state[0]
    expected = torch.zeros_like(slope)
    for t in (2, 4):
        p = torch.softmax(policy.model.lm_head(hidden[t - 1]), -1)
        target = torch.nn.functional.one_hot(tokens[0, t], VOCABULARY)
        expected += (target - p)[:, None] * hidden[t - 1]
    torch.testing.assert_close(slope, expected.detach(), atol=1e-10, rtol=0)


def test_logits_and_entropy_over_the_kept_choices() -> None:
    policy = policy_of("llama")
    tokens = torch.tensor([[3, 4, 5]])
    mask = torch.tensor([[False, False, True]])
    kept = torch.full((1, 3, 4), -1)
    kept[0, 2, :3] = torch.tensor([1, 5, 9])
    batch = Experience(mask=mask, support=Support(temperature=2.0, top_k=3), extras={"tokens": tokens, "kept": kept})
    found = policy.evaluate(batch, {"entropy", "logits"})
    logits = policy.model(tokens[:, :2], use_cache=False).logits[0, -1] / 2
    law = torch.softmax(logits[[1, 5, 9]], 0)
    assert found.logp[0, 2].item() == pytest.approx(law[1].log().item(), abs=1e-12)
    assert found.entropy[0, 2].item() == pytest.approx(-(law * law.log()).sum().item(), abs=1e-12)
    torch.testing.assert_close(found.logits[0, 2], logits, atol=1e-12, rtol=0)


SUPPORTS = [Support(temperature=0.6), Support(top_p=0.8), Support(temperature=1.5, top_k=4), Support(0.8, 6, 0.9)]


@pytest.mark.parametrize("support", SUPPORTS, ids=str)
@pytest.mark.parametrize(
    ("kind", "dtype"), [("gpt2", torch.float64), ("llama", torch.float32), ("mistral", torch.float32)], ids=str
)
def test_the_ratio_is_1_on_policy(kind: str, dtype: torch.dtype, support: Support) -> None:
    """Against the policy's own words exactly, against the sampler's to the precision of the arithmetic."""
    policy, contexts = policy_of(kind, dtype), [[3, 4, 5, 6, 7], [9, 4]]
    random = torch.Generator().manual_seed(0)
    answers = sample(
        policy.model, contexts, group=6, support=support, limit=10, stop=frozenset({STOP}), generator=random
    )
    batch = as_experience(contexts, answers, support)
    found = policy.evaluate(batch, {"entropy"})
    again = policy.evaluate(batch)
    assert torch.equal((found.logp - again.logp).exp(), torch.ones_like(found.logp))
    bound = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found.logp.double(), batch.logp, atol=bound, rtol=0)
    torch.testing.assert_close(found.entropy.double(), batch.entropy, atol=bound, rtol=0)
    # Over all choices the same answers have another likelihood: the supports are not the same thing.
    plain = policy.evaluate(dataclasses.replace(batch, support=Support()))
    assert (plain.logp.double() - batch.logp)[batch.mask].abs().max() > 1e-3


def test_bfloat16_models_speak_float32() -> None:
    policy = policy_of("llama", torch.bfloat16)
    ids, decided = rows_of()
    tokens, mask = padded(ids, decided, "right")
    found = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens}), {"entropy", "value"})
    assert found.logp.dtype == found.entropy.dtype == found.value.dtype == torch.float32
    expected = naive(policy, ids, decided, 1.0)
    torch.testing.assert_close(found.logp[mask], expected["logp"], atol=0.1, rtol=0)
    # Normalised after widening: probabilities add up to one far below bfloat16's 1/256.
    logits = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens}), {"logits"}).logits[mask]
    everything = logits.log_softmax(-1)
    assert (everything.exp().sum(-1) - 1).abs().max().item() < 1e-5
    torch.testing.assert_close(everything.gather(1, tokens[mask][:, None])[:, 0], found.logp[mask], atol=1e-5, rtol=0)


def test_a_policy_never_drops_out() -> None:
    policy = policy_of("gpt2", resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5)
    tokens, mask = padded(*rows_of(), "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    quiet = policy.eval().evaluate(batch).logp
    assert torch.equal(policy.train().evaluate(batch).logp, quiet)
    assert policy.training
    assert not policy.model.training


def test_a_frozen_copy_stays_behind() -> None:
    policy = policy_of("gpt2")
    frozen = policy.frozen()
    assert not any(p.requires_grad for p in frozen.parameters())
    before = [p.clone() for p in frozen.parameters()]
    for parameter in policy.parameters():
        parameter.data.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(before, frozen.parameters(), strict=True))


def test_refusals() -> None:
    policy = policy_of("gpt2")
    mask = torch.tensor([[True, True]])
    with pytest.raises(ExperienceError, match=r"extras\['tokens'\]"):
        policy.evaluate(Experience(mask=mask))
    pair = {"tokens": torch.tensor([[3, 4]])}
    with pytest.raises(ExperienceError, match=r"extras\['kept'\]"):
        policy.evaluate(Experience(mask=mask, support=Support(top_k=2), extras=pair))
    for ids, decided in [([3, 4], [True, True]), ([-1, 4], [False, True]), ([3, -1, 5], [False, True, False])]:
        batch = Experience(mask=torch.tensor([decided]), extras={"tokens": torch.tensor([ids])})
        with pytest.raises(ValueError, match="right behind another one"):
            policy.evaluate(batch)


def test_a_batch_without_decisions() -> None:
    policy = policy_of("gpt2")
    tokens = torch.tensor([[3, 4, -1], [5, -1, -1]])
    batch = Experience(mask=torch.zeros(2, 3, dtype=torch.bool), extras={"tokens": tokens})
    found = policy.evaluate(batch, {"entropy", "value"})
    assert (found.logp == 0).all()
    assert found.final_value.isfinite().all()


def test_equal_texts_of_different_ids_are_two_things() -> None:
    """Ids 3, 4 and 5 spell "a", "b" and "ab": the batch keeps what was sampled, the texts cannot tell."""
    policy, text = policy_of("llama"), {3: "a", 4: "b", 5: "ab", STOP: ""}
    ids, decided = [[9, 5, STOP], [9, 3, 4, STOP]], [[False, True, True], [False, True, True, True]]
    assert len({"".join(text[i] for i in row[1:]) for row in ids}) == 1
    tokens, mask = padded(ids, decided, "right")
    found = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens})).logp
    torch.testing.assert_close(found[mask], naive(policy, ids, decided, 1.0)["logp"], atol=1e-10, rtol=0)
    assert abs((found[0].sum() - found[1].sum()).item()) > 1e-3


def test_saved_in_the_hugging_face_format(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from polopt.policies.make import new_policy

    texts = [("sum", f"What is {i} + {i}?", str(2 * i)) for i in range(20)]
    shape = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    policy = new_policy({**shape, "intermediate_size": 16}, texts, seed=0, dtype="float32")
    policy.save(tmp_path)
    loaded = LanguagePolicy.load(tmp_path)
    ids = policy.tokenizer("What is 7 + 7?")["input_ids"]
    assert AutoTokenizer.from_pretrained(tmp_path)("What is 7 + 7?")["input_ids"] == ids
    tokens = torch.tensor([ids])
    batch = Experience(mask=torch.arange(len(ids))[None] > 2, extras={"tokens": tokens})
    assert torch.equal(loaded.evaluate(batch).logp, policy.evaluate(batch).logp)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)(tokens).logits
    torch.testing.assert_close(plain, policy.model(tokens).logits)
    assert loaded.stop == policy.stop == {policy.tokenizer.eos_token_id}


def test_a_new_policy_refuses_settings_that_nobody_reads() -> None:
    from polopt.policies.make import new_policy

    for config, message in [
        ({}, "policy.config.model_type is missing"),
        ({"model_type": "llama", "hiden_size": 16}, "policy.config.hiden_size .* did you mean 'hidden_size'"),
        ({"model_type": "llama", "vocab_size": 16}, "policy.config.vocab_size is not a setting"),
        ({"model_type": "lama"}, "lama"),
    ]:
        with pytest.raises(ValueError, match=message):
            new_policy(config, [("k", "p", "a")], seed=0, dtype="float32")


def _learnt(policy: LanguagePolicy) -> tuple[Tensor, dict[str, Tensor], int, int]:
    """Log-probabilities, gradients, how often the layers' own parts ran, and bytes kept for the backward pass."""
    tokens, mask = padded(*rows_of(), "right")
    calls, kept = 0, 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    layers = policy.model.base_model.get_submodule("h" if hasattr(policy.model.base_model, "h") else "layers")
    hooks = [layer.mlp.register_forward_pre_hook(count) for layer in layers]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logp = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens})).logp
    logp.sum().backward()
    for hook in hooks:
        hook.remove()
    grads = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    return logp.detach(), grads, calls // len(layers), kept


DROPOUT = {
    "gpt2": {"resid_pdrop": 0.5, "attn_pdrop": 0.5},
    "bloom": {"hidden_dropout": 0.5, "attention_dropout": 0.5},
    "qwen2": {"attention_dropout": 0.5},
    "gemma2": {},
}


@pytest.mark.parametrize("kind", DROPOUT)
def test_checkpointing_computes_layers_twice_and_keeps_less(kind: str) -> None:
    """Equal to the last bit, dropout stays off, and the sampler, which needs no gradient, pays nothing."""
    model = tiny(kind, **DROPOUT[kind])
    plain = _learnt(LanguagePolicy(model, NoTokenizer()))
    model.zero_grad()
    thrifty = LanguagePolicy(model, NoTokenizer(), checkpointing=True)
    again = _learnt(thrifty)
    assert torch.equal(plain[0], again[0])
    assert plain[1].keys() == again[1].keys()
    assert all(torch.equal(plain[1][name], again[1][name]) for name in plain[1])
    assert (plain[2], again[2]) == (1, 2)
    assert again[3] < plain[3] / 2
    with torch.no_grad():
        tokens, mask = padded(*rows_of(), "right")
        assert torch.equal(thrifty.frozen().evaluate(Experience(mask=mask, extras={"tokens": tokens})).logp, plain[0])


def test_a_checkpointed_copy_is_a_copy() -> None:
    """Its layers compute with its own weights, not with those of the policy that it was copied from."""
    policy = LanguagePolicy(tiny("llama"), NoTokenizer(), checkpointing=True)
    tokens, mask = padded(*rows_of(), "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    reference = policy.frozen()
    before = policy.evaluate(batch).logp.detach()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    assert torch.equal(reference.evaluate(batch).logp, before)
    assert not torch.allclose(policy.evaluate(batch).logp, before)


def test_checkpointing_refuses_a_model_without_layers() -> None:
    from polopt.policies.checkpointing import checkpoint_layers

    with pytest.raises(ValueError, match=r"policy\.checkpointing: Linear has no layers"):
        checkpoint_layers(torch.nn.Linear(2, 2))
