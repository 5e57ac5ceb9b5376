"""LoRA adapters in a policy's model, against PEFT's own forward pass and merge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import vllm_stand_in
from reference_pass import DECODED, NoTokenizer, gradients, naive, padded, policy_of, rows_of
from test_vllm import TIED, UNTIED, draw, engine_of, worst
from tiny_models import STOP, as_experience, tiny
from tiny_runs import policy as made_policy

from polopt.experience import Experience
from polopt.policies.adapter import AdapterSpec
from polopt.policies.engine import NativeEngine
from polopt.policies.language import LanguagePolicy
from polopt.support import Support

peft = pytest.importorskip("peft")

CONTEXTS = [[3, 4, 5, 6], [9, 4]]


def put_in(model: Any, **settings: Any) -> None:
    """An adapter that says something, by PEFT itself."""
    settings = {"r": 3, "lora_alpha": 4, "target_modules": "all-linear", **settings}
    peft.inject_adapter_in_model(peft.LoraConfig(**settings), model)
    random = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            noise = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
            parameter.data.copy_(0.3 * noise.to(parameter.dtype))
    model.eval()


def answers_of(policy: LanguagePolicy) -> Experience:
    found = NativeEngine(policy).sample(
        CONTEXTS,
        group=6,
        support=Support(),
        limit=10,
        stop=frozenset({STOP}),
        generator=torch.Generator().manual_seed(0),
    )
    return as_experience(CONTEXTS, found, Support())


SOME = {"llama": ["q_proj", "v_proj", "down_proj"], "gpt2": ["c_attn"]}
KINDS = [(kind, "all-linear") for kind in DECODED] + list(SOME.items())


@pytest.mark.parametrize(("kind", "targets"), KINDS, ids=str)
def test_the_decoder_says_what_peft_says(kind: str, targets: Any) -> None:
    """Values and the adapter's and critic's gradients, whatever it is that is adapted; the base has none."""
    policy = policy_of(kind)
    plain = policy.evaluate(experience := _rows()).logp.detach()
    put_in(policy.model, target_modules=targets, use_rslora=kind == "qwen3")
    assert policy.decoder is not None
    ids, decided = rows_of()
    expected = naive(policy, ids, decided, 1.0)
    found = policy.evaluate(experience, {"entropy", "value"})
    mask = experience.mask
    said = {"logp": found.logp[mask], "entropy": found.entropy[mask], "value": found.value[mask]}
    said["final_value"] = found.final_value
    for name, value in said.items():
        torch.testing.assert_close(value, expected[name], atol=1e-10, rtol=0, msg=name)
    assert (said["logp"] - plain[mask]).abs().max() > 1e-2
    learn = [p.requires_grad for p in policy.parameters()]
    assert 0 < sum(learn) < len(learn)
    for parameter in policy.parameters():  # so that `gradients` can ask for all of them
        parameter.requires_grad_(True)
    slopes = zip(gradients(policy, expected), gradients(policy, policy_says(policy, experience)), learn, strict=True)
    for theirs, ours, learns in slopes:
        if learns:
            torch.testing.assert_close(ours, theirs, atol=1e-10 * max(1.0, float(theirs.abs().max())), rtol=0)


def policy_says(policy: LanguagePolicy, experience: Experience) -> dict[str, torch.Tensor]:
    found, mask = policy.evaluate(experience, {"entropy", "value"}), experience.mask
    return {
        "logp": found.logp[mask],
        "entropy": found.entropy[mask],
        "value": found.value[mask],
        "final_value": found.final_value,
    }


def _rows() -> Experience:
    tokens, mask = padded(*rows_of(), "right")
    return Experience(mask=mask, extras={"tokens": tokens})


@pytest.mark.parametrize(("kind", "targets"), KINDS, ids=str)
def test_the_sampler_and_the_learner_are_one_policy(kind: str, targets: Any) -> None:
    """The sampler, with the adapter merged into copies of the weights, against the learner's low-rank products."""
    policy = policy_of(kind)
    put_in(policy.model, target_modules=targets)
    before = {name: p.clone() for name, p in policy.named_parameters()}
    batch = answers_of(policy)
    torch.testing.assert_close(policy.evaluate(batch).logp, batch.rollout_logp, atol=1e-10, rtol=0)
    assert all(torch.equal(before[name], p) for name, p in policy.named_parameters())


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "gate_proj"]], ids=str)
def test_bfloat16_sampling_keeps_what_merging_would_round_away(targets: Any) -> None:
    """The products that a sampler in bfloat16 computes, with an adapter far smaller than bfloat16's steps in the
    weights, against PEFT's own difference of weights."""
    model = tiny("llama", torch.float32, spread=0.2)
    put_in(model, target_modules=targets)
    batch = answers_of(policy := LanguagePolicy(model, NoTokenizer(), compute=torch.bfloat16))
    assert (policy.evaluate(batch).logp - batch.rollout_logp)[batch.mask].abs().mean() < 0.05
    assert policy.decoder is not None
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(1e-5)
        attention = model.model.layers[0].self_attn
        modules = [getattr(attention, f"{n}_proj") for n in "qkv"]
        product = next(iter(policy.decoder.layers())).qkv.prepared(torch.bfloat16).product
        x = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
        added = product.adapters[0](x.bfloat16()).float()
        apart = [x @ (m.get_delta_weight("default").T if hasattr(m, "lora_A") else 0 * m.weight.T) for m in modules]
    truth = torch.cat(apart, -1)
    assert 0 < truth.abs().max() < 1e-3
    torch.testing.assert_close(added, truth, atol=0.02 * float(truth.abs().max()), rtol=0)


def test_other_adapters_are_left_to_peft() -> None:
    """What is not plain LoRA is said by transformers' own pass; nothing is missing from what the policy says."""
    ids, decided = rows_of()
    experience = _rows()
    for change, decodes in [
        ({"use_dora": True}, False),
        ({"target_modules": ["q_proj", "lm_head"]}, True),
        ({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, False),
        ({"target_modules": ["q_proj", "embed_tokens"]}, False),
        ({"lora_dropout": 0.5}, True),
    ]:
        policy = policy_of("llama")
        put_in(policy.model, **change)
        assert (policy.decoder is not None) == decodes, change
        found = policy.evaluate(experience).logp[experience.mask]
        torch.testing.assert_close(found, naive(policy, ids, decided, 1.0)["logp"], atol=1e-10, rtol=0, msg=str(change))
        batch = answers_of(policy)
        torch.testing.assert_close(policy.evaluate(batch).logp, batch.rollout_logp, atol=1e-10, rtol=0)


@pytest.mark.parametrize("config", [TIED, UNTIED], ids=["tied", "untied"])
def test_an_engine_is_handed_base_and_adapter_as_one(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's stand-in draws with what the adapter has learned, under the names that the base's checkpoint has."""
    monkeypatch.setitem(sys.modules, "vllm", vllm_stand_in)
    monkeypatch.setattr(vllm_stand_in.LLM, "made", [])
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    made = made_policy("float32", config=config)
    made.save(tmp_path)
    made.adapt(AdapterSpec(rank=3), seed=0, base=str(tmp_path))
    engine = engine_of(made)
    assert worst(made, draw(engine)) < 1e-5
    before = draw(engine, seed=5)
    with torch.no_grad():
        for name, parameter in made.own_parameters().items():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    assert worst(made, before) > 1e-2
    engine.sync_weights(1)
    assert worst(made, draw(engine)) < 1e-5
