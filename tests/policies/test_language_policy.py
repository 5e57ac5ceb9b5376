"""What a policy says of a batch, against one full forward pass per row: values and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from reference_pass import CASES, DECODED, gradients, naive, padded, policy_of, rows_of
from tiny_models import STOP, VOCABULARY, tiny
from torch import Tensor

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.policies import packing, vocabulary
from polopt.policies.decoder import Decoder
from polopt.policies.language import LanguagePolicy
from polopt.support import Support

CASES += [(kind, torch.float32) for kind in ("gemma2", "bloom", "gpt_neo", "mamba")]


@pytest.mark.parametrize("layout", ["right", "left"])
@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=str)
@pytest.mark.parametrize("each", [4, 1])
def test_values_and_gradients_equal_the_naive_ones(
    kind: str, dtype: torch.dtype, layout: str, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the decoder and on transformers' own pass, in one piece and in chunks of the vocabulary, whether prompts
    are read once or not; in groups and alone."""
    policy = policy_of(kind, dtype)
    ids, decided = rows_of(each=each)
    tokens, mask = padded(ids, decided, layout)
    expected = naive(policy, ids, decided, 0.7)
    slopes = gradients(policy, expected)
    batch = Experience(mask=mask, support=Support(temperature=0.7), extras={"tokens": tokens})
    value_bound, slope_bound = (1e-10, 1e-10) if dtype == torch.float64 else (2e-5, 5e-4)
    assert (policy.decoder is not None) == (kind in DECODED)  # though transformers was asked for hidden states
    for way, worth, most in [
        (policy.decoder, 0.1, 2**23),
        (policy.decoder, 0.0, VOCABULARY * 3),
        (policy.decoder, 1.0, VOCABULARY * 3),
        (None, 0.1, 2**23),
    ]:
        monkeypatch.setattr(policy, "_decoder", way)
        monkeypatch.setattr(packing, "WORTH", worth)
        monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
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


def test_which_models_are_decoded() -> None:
    """Windows, scales, ALiBi, local and recurrent layers are left to transformers."""
    decoded = {kind: policy_of(kind, dtype).decoder is not None for kind, dtype in CASES}
    assert decoded == {kind: kind in DECODED for kind, _ in CASES}


def test_changed_models_are_left_to_transformers() -> None:
    """An adapter, a hook, an option of the architecture that the decoder does not know, or wrong arithmetic."""
    for changed in (
        tiny("gpt2", scale_attn_by_inverse_layer_idx=True),
        tiny("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}),
        tiny("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0),
    ):
        assert Decoder.of(changed) is None
    adapted = tiny("llama")
    adapted.model.layers[0].mlp.up_proj = type("Adapter", (torch.nn.Linear,), {})(16, 32).double()
    assert Decoder.of(adapted) is None
    hooked = tiny("llama")
    hooked.model.layers[1].register_forward_hook(lambda *_: None)
    assert Decoder.of(hooked) is None
    other = tiny("llama")
    other.model.norm.forward = lambda x: x
    assert Decoder.of(other) is None


def test_a_model_that_is_changed_later_is_left_to_transformers_then() -> None:
    """As when an adapter is put into a policy's model: what it adds must not be missing from what the policy says."""
    policy = policy_of("llama")
    tokens, mask = padded(*rows_of(), "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    before = policy.evaluate(batch).logp
    assert policy.decoder is not None
    layer = policy.model.model.layers[0].mlp

    class Adapted(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + x.sum(-1, keepdim=True)

    adapted = Adapted(16, 32, bias=False).double()
    adapted.weight = layer.up_proj.weight
    layer.up_proj = adapted
    assert policy.decoder is None
    expected = naive(policy, *rows_of(), 1.0)["logp"]
    torch.testing.assert_close(policy.evaluate(batch).logp[mask], expected, atol=1e-10, rtol=0)
    assert (expected - before[mask]).abs().max() > 1e-3


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
        with pytest.raises(ValueError, match="directly after another one"):
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

    from polopt.policies.factory import new_policy

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
    from polopt.policies.factory import new_policy

    for config, message in [
        ({}, "policy.config.model_type is missing"),
        ({"model_type": "llama", "hiden_size": 16}, "policy.config.hiden_size .* did you mean 'hidden_size'"),
        ({"model_type": "llama", "vocab_size": 16}, "policy.config.vocab_size is not a setting"),
        ({"model_type": "lama"}, "lama"),
    ]:
        with pytest.raises(ValueError, match=message):
            new_policy(config, [("k", "p", "a")], seed=0, dtype="float32")
