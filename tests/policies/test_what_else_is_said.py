"""Reductions over the vocabulary, given ids, and what inner layers would say, against one full pass per row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference_pass import DECODED, NoTokenizer, padded, rows_of
from tiny_models import VOCABULARY, tiny
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.layers import Layer, layer_of
from polopt.policies import packing, vocabulary
from polopt.policies.language import LanguagePolicy
from polopt.support import Support

DEPTH = 3
OTHERS = [("mistral", torch.float64), ("bloom", torch.float32), ("gpt_neo", torch.float32), ("mamba", torch.float32)]
CASES = [*((kind, torch.float64) for kind in DECODED), *OTHERS]


def policy_of(kind: str, dtype: torch.dtype = torch.float64, **ways: Any) -> LanguagePolicy:
    settings: dict[str, Any] = {"num_hidden_layers": DEPTH}
    if kind == "gpt_neo":
        settings = {"num_layers": DEPTH, "num_hidden_layers": DEPTH, "attention_types": [[["local"], DEPTH]]}
    return LanguagePolicy(tiny(kind, dtype, **settings), NoTokenizer(), **ways)


def batch_of(support: Support = Support(), candidates: Tensor | None = None) -> Experience:  # noqa: B008
    tokens, mask = padded(*rows_of(), "left")
    extras = {"tokens": tokens} | ({} if candidates is None else {"candidates": candidates})
    return Experience(mask=mask, support=support, extras=extras)


def slopes(policy: LanguagePolicy, said: list[Tensor]) -> list[Tensor]:
    random = torch.Generator().manual_seed(3)
    loss = torch.stack([(torch.randn(v.shape, generator=random, dtype=torch.float64) * v).sum() for v in said]).sum()
    found = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(policy.parameters(), found, strict=True)]


def each_row(policy: LanguagePolicy, layer: Layer, T: float) -> Tensor:
    """[decisions, V] log-probabilities of a layer, each row alone, from what transformers calls hidden states."""
    found = []
    for row, marks in zip(*rows_of(), strict=True):
        output = policy.model(torch.tensor([row]), use_cache=False, output_hidden_states=True)
        # Most count the embeddings as state 0; mamba counts from the first layer.
        states = [None] * (policy.model.config.model_type == "mamba") + list(output.hidden_states)
        if layer.number < DEPTH:
            hidden = states[layer.number][0]
            hidden = final_norm(policy)(hidden) if layer.normed else hidden
            logits = policy.model.get_output_embeddings()(hidden)
        else:
            assert layer.normed  # transformers shows the last state normalised only
            logits = output.logits[0]
        logp = torch.log_softmax(logits / T, -1)
        found += [logp[t - 1] for t in range(1, len(row)) if marks[t]]
    return torch.stack(found)


def final_norm(policy: LanguagePolicy) -> Any:
    trunk = policy.model.base_model
    return next(getattr(trunk, n) for n in ("norm", "ln_f", "norm_f") if hasattr(trunk, n))


def chosen() -> Tensor:
    return torch.tensor([row[t] for row, marks in zip(*rows_of(), strict=True) for t in range(1, len(row)) if marks[t]])


@pytest.mark.parametrize("layer", [Layer(1), Layer(2, normed=True), Layer(DEPTH, normed=True)], ids=str)
@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=str)
def test_layers_against_hidden_states(kind: str, dtype: torch.dtype, layer: Layer, monkeypatch: Any) -> None:
    """On the decoder, with prompts read once and not, in chunks, and on transformers' own pass."""
    policy = policy_of(kind, dtype)
    batch = batch_of(Support(temperature=0.7))
    law = each_row(policy, layer, 0.7)
    expected = [law.gather(1, chosen()[:, None])[:, 0], -(law.exp() * law).sum(-1)]
    assert (policy.decoder is not None) == (kind in DECODED)
    by_hand, bound = slopes(policy, expected), 1e-10 if dtype == torch.float64 else 5e-4
    names = [layer.name("logp"), layer.name("entropy")]
    for way, worth, most in [(policy.decoder, 0.0, 2**23), (policy.decoder, 1.0, VOCABULARY * 3), (None, 0.1, 2**23)]:
        monkeypatch.setattr(policy, "_decoder", way)
        monkeypatch.setattr(packing, "WORTH", worth)
        monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
        found = policy.evaluate(batch, {f"extras.{name}" for name in names})
        assert set(found.extras) == set(names)
        said = [found.extras[name][batch.mask] for name in names]
        for ours, theirs in zip([*said, *slopes(policy, said)], [*expected, *by_hand], strict=True):
            torch.testing.assert_close(ours, theirs, atol=bound * max(1.0, float(theirs.detach().abs().max())), rtol=0)
        assert all((found.extras[name][~batch.mask] == 0).all() for name in names)
        assert (policy.decoder is not None) == (way is not None)


@pytest.mark.parametrize(("kind", "ways"), [("gpt2", {}), ("qwen3", {"checkpointing": True}), ("mistral", {})])
def test_no_layer_above_learns(kind: str, ways: dict[str, Any]) -> None:
    """Gradients of the layers above are exactly zero, as is that of the final norm unless it is asked for."""
    policy = policy_of(kind, **ways)
    for layer in (Layer(1), Layer(2), Layer(2, normed=True)):
        policy.zero_grad()
        policy.evaluate(batch_of(), {"extras." + layer.name("logp")}).extras[layer.name("logp")].sum().backward()
        blocks = policy.model.base_model.get_submodule("h" if kind == "gpt2" else "layers")
        learns = [any(p.grad is not None and bool(p.grad.any()) for p in block.parameters()) for block in blocks]
        assert learns == [number <= layer.number for number in range(1, DEPTH + 1)]
        assert all((p.grad is not None and bool(p.grad.any())) == layer.normed for p in final_norm(policy).parameters())


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom"])
def test_the_last_layer_normed_is_the_policy(kind: str) -> None:
    policy = policy_of(kind, torch.float32)
    last = Layer(DEPTH, normed=True)
    found = policy.evaluate(batch_of(), {"entropy", "extras." + last.name("logp"), "extras." + last.name("entropy")})
    assert torch.equal(found.extras[last.name("logp")], found.logp)
    assert torch.equal(found.extras[last.name("entropy")], found.entropy)
    raw = policy.evaluate(batch_of(), {"extras." + Layer(DEPTH).name("logp")}).extras[Layer(DEPTH).name("logp")]
    assert (raw - found.logp).abs().max() > 1e-2


def test_layers_in_bfloat16_arithmetic() -> None:
    for kind in ("llama", "bloom"):
        wide, narrow = (policy_of(kind, torch.float32, compute=c) for c in (None, torch.bfloat16))
        name = Layer(2, normed=True).name("logp")
        exact, rounded = (p.evaluate(batch_of(), {"extras." + name}).extras[name] for p in (wide, narrow))
        assert rounded.dtype == torch.float32
        assert 1e-4 < (exact - rounded).abs().max() < 0.3


def test_layers_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="layer 4 was asked for, and the policy has layers 1 to 3"):
        policy_of("gpt2").evaluate(batch_of(), {"extras." + Layer(4).name("logp")})
    with pytest.raises(ValueError, match="Gemma2ForCausalLM does more to hidden states"):
        policy_of("gemma2", torch.float32).evaluate(batch_of(), {"extras." + Layer(1).name("logp")})


def test_the_names_of_layers() -> None:
    for layer in (Layer(1), Layer(12, normed=True)):
        for said in ("logp", "entropy"):
            assert layer_of(layer.name(said)) == (said, layer)  # type: ignore[arg-type]
    for other in ("logp", "old_logp_of_layer_1", "logp_of_layer_0", "logp_of_layer_1_norm", "logp_of_layer_x"):
        assert layer_of(other) is None


@pytest.mark.parametrize("support", [Support(), Support(temperature=0.6, top_k=4)], ids=str)
@pytest.mark.parametrize(("kind", "dtype"), [("llama", torch.float64), ("gemma2", torch.float32)], ids=str)
def test_reductions_and_candidates(kind: str, dtype: torch.dtype, support: Support, monkeypatch: Any) -> None:
    """From hidden states and from logits, in chunks and at once; a policy's own candidates are its likeliest ids."""
    policy = policy_of(kind, dtype)
    batch = batch_of(support)
    if support.truncated:
        kept = torch.stack([torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(i)) for i in range(999)])
        kept = kept[torch.arange(batch.mask.numel()) % 999, :5].reshape(*batch.mask.shape, 5)
        batch = batch.replace(extras={"kept": torch.cat([kept[..., :4], batch.extras["tokens"][..., None]], -1)})
    choices = [
        sorted({int(k) for k in batch.extras["kept"][b, t]}) if support.truncated else list(range(VOCABULARY))
        for b, t in batch.mask.nonzero().tolist()
    ]
    if support.truncated:  # an id is kept once
        unique = torch.full((*batch.mask.shape, 5), -1)
        for (b, t), ids in zip(batch.mask.nonzero().tolist(), choices, strict=True):
            unique[b, t, : len(ids)] = torch.tensor(ids)
        batch = batch.replace(extras={"kept": unique})
    logits = policy.evaluate(batch, {"logits"}).logits[batch.mask]
    laws = [dict(zip(c, z[c].log_softmax(0).tolist(), strict=True)) for c, z in zip(choices, logits, strict=True)]
    bound = 1e-10 if dtype == torch.float64 else 1e-4
    for most, more in [(2**23, set()), (VOCABULARY * 3, set()), (2**23, {"logits"})]:
        monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
        found: Evaluation = policy.evaluate(batch, {"extras.mean_logp", *more}, top=7)
        for law, mean, ids, logp in zip(
            laws,
            *(found.extras[k][batch.mask].tolist() for k in ("mean_logp", "candidates", "candidate_logp")),
            strict=True,
        ):
            assert mean == pytest.approx(sum(law.values()) / len(law), abs=bound)
            ranked = sorted(law, key=lambda i: -law[i])[:7]
            assert ids == ranked + [-1] * (7 - len(ranked))
            assert logp == pytest.approx([law[i] for i in ranked] + [-1e4] * (7 - len(ranked)), abs=bound)
        again = policy.evaluate(
            batch.replace(extras={"candidates": found.extras["candidates"]}), {"extras.candidate_logp", *more}
        )
        torch.testing.assert_close(again.extras["candidate_logp"], found.extras["candidate_logp"], atol=1e-6, rtol=0)
        assert (found.extras["candidates"][~batch.mask] == -1).all()
        assert "candidates" not in again.extras


def test_candidates_must_be_named() -> None:
    with pytest.raises(ExperienceError, match=r"extras\['candidates'\]"):
        policy_of("gpt2").evaluate(batch_of(), {"extras.candidate_logp"})


@pytest.mark.parametrize(("depth", "number"), [(36, 6), (2, 1), (1, 1), (12, 2), (64, 11)])
def test_a_layer_that_lies_as_deep(depth: int, number: int) -> None:
    layer = Layer(6, among=36)
    assert layer.at(depth) == number
    assert layer_of(layer.name("logp")) == ("logp", layer)
