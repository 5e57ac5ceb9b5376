"""The sampler and the learner are one policy: the ratio is 1 on policy, whatever either computes in."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from reference_pass import NoTokenizer, naive, padded, policy_of, rows_of
from tiny_models import STOP, as_experience, tiny

from polopt.experience import Experience
from polopt.policies.engine import NativeEngine, NativeSpec
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import Sampled
from polopt.policies.sampler import sample
from polopt.support import Support

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
        policy.model,
        contexts,
        group=6,
        support=support,
        limit=10,
        stop=frozenset({STOP}),
        generator=random,
        decoder=policy.decoder,
    )
    batch = as_experience(contexts, answers, support)
    found = policy.evaluate(batch, {"entropy"})
    again = policy.evaluate(batch)
    assert torch.equal((found.logp - again.logp).exp(), torch.ones_like(found.logp))
    bound = 1e-10 if dtype == torch.float64 else 3e-5  # both are up to 1.3e-5 away from float64
    torch.testing.assert_close(found.logp.double(), batch.rollout_logp, atol=bound, rtol=0)
    torch.testing.assert_close(found.entropy.double(), batch.entropy, atol=bound, rtol=0)
    # Over all choices the same answers have another likelihood: the supports are not the same thing.
    plain = policy.evaluate(dataclasses.replace(batch, support=Support()))
    assert (plain.logp.double() - batch.rollout_logp)[batch.mask].abs().max() > 1e-3


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


@pytest.mark.parametrize("kind", ["gpt2", "qwen3", "granite"])
def test_bfloat16_arithmetic_on_float32_weights(kind: str) -> None:
    """Near the float32 policy in what it says and which way it learns; weights and gradients stay float32; sampler
    and learner round alike. granite takes transformers' own pass."""
    wide, narrow = (
        LanguagePolicy(tiny(kind, torch.float32, spread=0.2), NoTokenizer(), compute=compute)
        for compute in (None, torch.bfloat16)
    )
    ids, decided = rows_of()
    tokens, mask = padded(ids, decided, "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    found = []
    for policy in (wide, narrow):
        said = policy.evaluate(batch, {"entropy"})
        assert said.logp.dtype == said.entropy.dtype == torch.float32
        (said.logp.sum() + said.entropy.sum()).backward()
        assert all(p.dtype == p.grad.dtype == torch.float32 for p in policy.parameters() if p.grad is not None)
        slope = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
        found.append((said.logp.detach(), slope))
    (logp, slope), (logp_16, slope_16) = found
    assert 1e-4 < (logp - logp_16).abs().max() < 0.1
    assert torch.nn.functional.cosine_similarity(slope, slope_16, dim=0) > 0.99
    answers = NativeEngine(narrow).sample(
        [[3, 4, 5, 6], [9, 4]],
        group=6,
        support=Support(),
        limit=10,
        stop=frozenset({STOP}),
        generator=torch.Generator().manual_seed(0),
    )
    sampled = as_experience([[3, 4, 5, 6], [9, 4]], answers, Support())
    again = narrow.evaluate(sampled).logp.detach()
    full = wide.evaluate(sampled).logp.detach()
    assert (again - sampled.rollout_logp)[sampled.mask].abs().mean() < 0.02
    assert (full - sampled.rollout_logp)[sampled.mask].abs().mean() > 1e-4


@pytest.mark.parametrize("kind", ["llama", "gpt2", "granite"])
def test_a_sampler_in_bfloat16_beside_a_float32_policy(kind: str) -> None:
    """It draws what a policy that computes in bfloat16 draws, and says its log-probabilities; the policy that
    it reads goes on in float32. granite takes transformers' own pass."""
    model = tiny(kind, torch.float32, spread=0.2)
    wide, narrow = LanguagePolicy(model, NoTokenizer()), LanguagePolicy(model, NoTokenizer(), compute=torch.bfloat16)
    contexts = [[3, 4, 5, 6], [9, 4]]

    def drawn(engine: NativeEngine) -> list[Sampled]:
        random = torch.Generator().manual_seed(0)
        asked: dict[str, Any] = {"group": 6, "support": Support(), "limit": 10, "stop": frozenset({STOP})}
        return engine.sample(contexts, generator=random, **asked)

    tokens, mask = padded(*rows_of(), "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    before = wide.evaluate(batch).logp
    found = drawn(NativeSpec(dtype="bfloat16").build(wide))
    assert found == drawn(NativeEngine(narrow))
    assert found != drawn(NativeSpec().build(wide))
    assert torch.equal(wide.evaluate(batch).logp, before)


def test_a_policy_never_drops_out() -> None:
    policy = policy_of("gpt2", resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5)
    tokens, mask = padded(*rows_of(), "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    quiet = policy.eval().evaluate(batch).logp
    assert torch.equal(policy.train().evaluate(batch).logp, quiet)
    assert policy.training
    assert not policy.model.training
