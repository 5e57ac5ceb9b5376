"""Temperatures that follow the entropy: drawn as the rule says, and divided by again when the policy is evaluated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tiny_models import STOP, VOCABULARY, as_experience, full_logits, slow_choices, tiny

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.objectives import Surrogate
from polopt.policies import vocabulary
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import Sampled
from polopt.policies.sampler import sample
from polopt.support import ByEntropy, Support, SupportError

CONTEXTS = [[3, 4, 5, 6, 7, 8, 9], [9, 4], [5], [7, 7, 3, 4]]
# Log-entropies of the tiny models lie between: both signs of h, and both ends cut.
RULE = ByEntropy(strength=0.6, lowest=-0.6, pivot=0.5, highest=0.75)
SUPPORTS = [
    Support(by_entropy=RULE),
    Support(temperature=0.7, by_entropy=RULE),
    Support(temperature=1.3, top_k=7, top_p=0.8, by_entropy=RULE),
    Support(by_entropy=dataclasses.replace(RULE, released=True)),
]
KINDS = ["gpt2", "llama", "qwen3", "mistral", "granite"]


class NoTokenizer:
    eos_token_id = STOP


def policy_of(kind: str, dtype: torch.dtype = torch.float64) -> LanguagePolicy:
    return LanguagePolicy(tiny(kind, dtype), NoTokenizer())


def draw(policy: LanguagePolicy, support: Support, group: int = 5) -> list[Sampled]:
    generator = torch.Generator().manual_seed(0)
    ways: dict[str, Any] = {"stop": frozenset({STOP}), "generator": generator, "decoder": policy.decoder}
    return sample(policy.model, CONTEXTS, group=group, support=support, limit=10, **ways)


def entropy(law: Sequence[float]) -> float:
    return -math.fsum(p * math.log(p) for p in law if p > 0)


def by_hand(logits: list[float], support: Support) -> tuple[float, float]:
    """The rule in plain numbers: the entropy at the support's temperature, and the temperature that follows."""
    rule, plain = support.by_entropy, slow_choices(logits, Support(support.temperature))
    assert rule is not None
    H = entropy(list(plain.values()))
    z = math.log(H)
    side = rule.highest - rule.pivot if z > rule.pivot else rule.pivot - rule.lowest
    h = max(-1.0, min(1.0, (z - rule.pivot) / side))
    return H, support.temperature * (1 + rule.strength * (abs(h) if rule.released else h))


@pytest.mark.parametrize("support", SUPPORTS, ids=range(4))
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_tokens_are_drawn_at_the_temperature_of_the_rule(kind: str, support: Support) -> None:
    """Against full forward passes of transformers' own model, in float64."""
    policy, seen = policy_of(kind), []
    for i, answer in enumerate(draw(policy, support)):
        row = CONTEXTS[i // 5] + answer.tokens
        logits = full_logits(policy.model, row)[len(row) - len(answer.tokens) - 1 :].tolist()
        assert set(answer.noted) == {"temperature", "plain_entropy"}
        for t, token in enumerate(answer.tokens):
            H, temperature = by_hand(logits[t], support)
            assert answer.noted["plain_entropy"][t] == pytest.approx(H, abs=1e-10)
            assert answer.noted["temperature"][t] == pytest.approx(temperature, abs=1e-10)
            choices = slow_choices(logits[t], dataclasses.replace(support, temperature=temperature))
            assert answer.logp[t] == pytest.approx(math.log(choices[token]), abs=1e-10)
            assert answer.entropy[t] == pytest.approx(entropy(list(choices.values())), abs=1e-10)
            seen.append(temperature / support.temperature)
    assert max(seen) > 1.3
    if kind != "granite":  # whose scaled logits are close to uniform everywhere
        assert (min(seen) < 0.99) != support.by_entropy.released  # type: ignore[union-attr]


@pytest.mark.parametrize("support", SUPPORTS, ids=range(4))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [2**23, VOCABULARY * 3])
def test_the_ratio_is_1_on_policy(kind: str, support: Support, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler's log-probabilities are the learner's to 1e-10 in float64, whichever of the two is the decoder's,
    in one piece and in chunks of the vocabulary."""
    policy = policy_of(kind)
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
    ways = [policy._decoder, None] if policy._decoder is not None else [None]
    for drawn_with in ways:
        policy._decoder = drawn_with
        batch = as_experience(CONTEXTS, draw(policy, support), support)
        for read_with in ways:
            policy._decoder = read_with
            found = policy.evaluate(batch, {"entropy"})
            torch.testing.assert_close(found.logp, batch.rollout_logp, atol=1e-10, rtol=0)
            torch.testing.assert_close(found.entropy, batch.entropy, atol=1e-10, rtol=0)
            assert found.support == support
    # At the support's own temperature the same decisions have another likelihood: that is the bias it would be.
    plain = dataclasses.replace(support, by_entropy=None)
    off = (policy.evaluate(batch.replace(support=plain)).logp - batch.rollout_logp)[batch.mask]
    assert off.abs().max() > 0.05


@pytest.mark.parametrize("most", [2**23, VOCABULARY * 3])
@pytest.mark.parametrize("kind", ["llama", "granite"])
def test_values_and_gradients_at_given_temperatures(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(kind)
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
    batch = as_experience(CONTEXTS, draw(policy, SUPPORTS[0]), SUPPORTS[0])
    random = torch.Generator().manual_seed(1)
    heat = 0.5 + torch.rand(batch.mask.shape, generator=random, dtype=torch.float64)
    weights = torch.randn(4, *batch.mask.shape, generator=random, dtype=torch.float64)
    found = policy.evaluate(batch.replace(extras={"temperature": heat}), {"entropy", "logits", "extras.entropy_slope"})
    cheap = policy.evaluate(batch.replace(extras={"temperature": heat}), {"entropy", "extras.entropy_slope"})
    logits = policy.model(batch.extras["tokens"].clamp(min=0), use_cache=False).logits
    logits = torch.nn.functional.pad(logits[:, :-1], (0, 0, 1, 0)) / heat[..., None]
    law = logits.log_softmax(-1)
    H = -(law.exp() * law).sum(-1)
    expected = {
        "logp": law.gather(-1, batch.extras["tokens"].clamp(min=0)[..., None])[..., 0],
        "entropy": H,
        "entropy_slope": (law.exp() ** 2 * (law + H[..., None])).sum(-1),
    }
    torch.testing.assert_close(found.logits[batch.mask], logits[batch.mask], atol=1e-10, rtol=0)
    mix = lambda said: torch.stack([(w * v)[batch.mask].sum() for w, v in zip(weights, said, strict=False)]).sum()  # noqa: E731
    parameters = list(policy.parameters())
    theirs = torch.autograd.grad(mix(expected.values()), parameters, allow_unused=True)
    for said in (found, cheap):
        values = [said.logp, said.entropy, said.extras["entropy_slope"]]
        for ours, wanted in zip(values, expected.values(), strict=True):
            torch.testing.assert_close(ours[batch.mask], wanted[batch.mask], atol=1e-10, rtol=0)
        ours_of = torch.autograd.grad(mix(values), parameters, allow_unused=True)
        for a, b in zip(ours_of, theirs, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


def test_float32_and_rows_that_finish_early() -> None:
    policy = policy_of("llama", torch.float32)
    answers = draw(policy, SUPPORTS[0], group=12)
    assert len({len(a.tokens) for a in answers}) > 3
    assert all(len(a.noted["temperature"]) == len(a.tokens) for a in answers)
    batch = as_experience(CONTEXTS, answers, SUPPORTS[0])
    found = policy.evaluate(batch)
    assert found.logp.dtype == torch.float32
    torch.testing.assert_close(found.logp.double(), batch.rollout_logp, atol=1e-5, rtol=0)


def test_without_a_rule_nothing_is_noted() -> None:
    policy = policy_of("llama")
    assert all(answer.noted == {} for answer in draw(policy, Support(temperature=0.7)))


def test_refusals() -> None:
    policy = policy_of("gpt2")
    tokens, mask = torch.tensor([[3, 4]]), torch.tensor([[False, True]])
    bare = Experience(mask=mask, support=SUPPORTS[0], extras={"tokens": tokens})
    with pytest.raises(ExperienceError, match=r"extras\['temperature'\] with B = 1 entries"):
        policy.evaluate(bare)
    with pytest.raises(ValueError, match=r'extras\["temperature"\] must be > 0'):
        policy.evaluate(bare.replace(extras={"temperature": torch.zeros(1, 2)}))
    # A policy that was asked at one temperature does not make a ratio with a sampler that had many.
    said = policy.evaluate(bare.replace(support=Support()))
    one = torch.zeros(1, 2)
    with pytest.raises(SupportError, match="their ratio would be a bias"):
        Surrogate()(bare.replace(rollout_logp=one, advantage=one), said)
    for wrong in ({"strength": 1.0}, {"strength": -0.1}, {"lowest": 1.0}, {"highest": 0.0}):
        with pytest.raises(ValueError, match=r"strength must be in|lowest <= pivot <= highest"):
            dataclasses.replace(RULE, **wrong)
