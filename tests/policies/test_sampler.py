"""The sampler's tokens and log-probabilities, against full forward passes of transformers' own models."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from scipy import stats
from tiny_models import STOP, full_logits, slow_choices, tiny
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polopt.policies import products, sampler
from polopt.policies.decoder import Decoder
from polopt.policies.rollout_record import Sampled
from polopt.policies.sampler import sample
from polopt.policies.sampler_steps import DecoderSteps
from polopt.support import ByEntropy, Support

RAGGED = [[3, 4, 5, 6, 7, 8, 9], [9, 4], [5], [7, 7, 3, 4]]
SUPPORTS = [
    Support(),
    Support(temperature=0.6),
    Support(temperature=1.7, top_k=3),
    Support(top_p=0.8),
    Support(temperature=1.3, top_k=7, top_p=0.7),
]
DECODED = ["gpt2", "llama", "qwen2", "qwen3", "mistral-whole"]
KINDS = [*DECODED, "mistral", "granite"]
# In float64 the eager attention of transformers gives NaN for left padding, so those that need it run in float32.
EAGER = ["gemma2", "bloom", "gpt_neo"]


def draw(model: object, contexts: list[list[int]] = RAGGED, **changes: object) -> list[Sampled]:
    settings = {"group": 3, "support": Support(), "limit": 12, "stop": frozenset({STOP}), "seed": 0} | changes
    generator = torch.Generator().manual_seed(settings.pop("seed"))  # type: ignore[arg-type]
    found = Decoder.of(model) if settings.pop("decode", True) else None
    return sample(model, contexts, generator=generator, decoder=found, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("support", SUPPORTS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_float64_equals_the_full_forward_pass(kind: str, support: Support) -> None:
    model = tiny(kind)
    for i, answer in enumerate(draw(model, support=support)):
        row = RAGGED[i // 3] + answer.tokens
        logits = full_logits(model, row)[len(row) - len(answer.tokens) - 1 :].tolist()
        for t, token in enumerate(answer.tokens):
            choices = slow_choices(logits[t], support)
            assert answer.logp[t] == pytest.approx(math.log(choices[token]), abs=1e-10)
            entropy = -math.fsum(p * math.log(p) for p in choices.values())
            assert answer.entropy[t] == pytest.approx(entropy, abs=1e-10)
            if support.truncated:
                assert answer.kept is not None
                assert set(answer.kept[t].tolist()) == set(choices)
            else:
                assert answer.kept is None


@pytest.mark.parametrize("support", [SUPPORTS[0], SUPPORTS[1], SUPPORTS[4]], ids=str)
@pytest.mark.parametrize("kind", [*KINDS, *EAGER])
@torch.no_grad()
def test_float32_equals_the_full_forward_pass(kind: str, support: Support) -> None:
    model = tiny(kind, torch.float32)
    for i, answer in enumerate(draw(model, support=support)):
        row = RAGGED[i // 3] + answer.tokens
        logits = full_logits(model, row)[len(row) - len(answer.tokens) - 1 :].double() / support.temperature
        for t, token in enumerate(answer.tokens):
            # Rounding may move a choice across the edge of the kept set, so the recorded set is the one to renormalise.
            among = logits[t] if answer.kept is None else logits[t][answer.kept[t]]
            assert answer.logp[t] == pytest.approx(float(logits[t, token] - among.logsumexp(0)), abs=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, *EAGER])
def test_greedy_is_what_generate_finds(kind: str) -> None:
    model = tiny(kind, torch.float32 if kind in EAGER else torch.float64)
    answers = draw(model, group=1, support=Support(top_k=1))
    for context, answer in zip(RAGGED, answers, strict=True):
        ids = torch.tensor([context])
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, eos_token_id=STOP
        )
        assert answer.tokens == found[0, len(context) :].tolist()
        assert answer.logp == pytest.approx([0.0] * len(answer.tokens))


@pytest.mark.parametrize("group", [1, 5])
@pytest.mark.parametrize("support", [SUPPORTS[0], SUPPORTS[4]], ids=str)
@pytest.mark.parametrize("kind", DECODED)
def test_the_decoder_says_what_transformers_says(kind: str, support: Support, group: int) -> None:
    """The same seed, ragged prompts, early stops and answers that are cut off: equal tokens, equal numbers."""
    model = tiny(kind)
    contexts = [*RAGGED, [4] * 20, *([n, 3] for n in range(6, 12))]
    fast, slow = (
        draw(model, contexts, group=group, support=support, limit=9, decode=decode, stop=frozenset({STOP, 5, 6, 7}))
        for decode in (True, False)
    )
    assert len({(len(a.tokens), a.stopped) for a in fast}) > 2
    for ours, theirs in zip(fast, slow, strict=True):
        assert (ours.tokens, ours.stopped) == (theirs.tokens, theirs.stopped)
        assert ours.logp == pytest.approx(theirs.logp, abs=1e-12)
        assert ours.entropy == pytest.approx(theirs.entropy, abs=1e-12)
        for a, b in zip(ours.kept or [], theirs.kept or [], strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_laid_out_beforehand_are_the_same_weights(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product of a layer, merged and laid out, against the plain one in float64."""
    laid_out = products._has_onednn(dtype)  # elsewhere products are the plain ones
    monkeypatch.setattr(products, "LARGE", 0)
    calls, plain = [], torch.nn.functional.linear
    for kind in ("gpt2", "qwen2"):
        found = Decoder.of(tiny(kind, torch.float32))
        assert found is not None
        for layer in found.layers():
            monkeypatch.setattr(products.F, "linear", lambda *a: (calls.append(1), plain(*a))[1])
            for name in ("qkv", "out", "up", "down"):
                product = getattr(layer, name)
                x = torch.randn(5, product.weights[0].shape[1], generator=torch.Generator().manual_seed(0))
                wide = [
                    x.to(dtype).double() @ w.to(dtype).double().T + (0 if b is None else b.to(dtype).double())
                    for w, b in zip(product.weights, product.biases, strict=True)
                ]
                calls.clear()
                said = product.prepared(dtype)(x.to(dtype))
                assert bool(calls) != laid_out
                bound = 1e-5 if dtype == torch.float32 else 2e-2
                torch.testing.assert_close(said.double(), torch.cat(wide, -1), atol=bound, rtol=bound)


def test_rows_are_asked_seldom_whether_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where asking costs: what follows a stop is not part of an answer."""
    model = tiny("gpt2")
    often = draw(model, group=8, limit=40)
    monkeypatch.setattr(sampler, "PATIENCE", {"cpu": 7})
    seldom = draw(model, group=8, limit=40)
    assert [(a.tokens, a.logp, a.stopped) for a in often] == [
        (a.tokens, pytest.approx(a.logp), a.stopped) for a in seldom
    ]


def test_answers_end_at_a_stop_token_or_the_limit() -> None:
    model = tiny("llama")
    stop = frozenset({STOP, 5})
    answers = draw(model, group=40, stop=stop, limit=6)
    ends = {answer.stopped for answer in answers}
    assert ends == {True, False}
    for answer in answers:
        assert 1 <= len(answer.tokens) <= 6
        assert answer.stopped == (answer.tokens[-1] in stop)
        assert not stop & set(answer.tokens[:-1])
        assert answer.stopped or len(answer.tokens) == 6
        assert len(answer.logp) == len(answer.entropy) == len(answer.tokens)


def test_limit_of_one_no_stops_no_contexts() -> None:
    model = tiny("llama")
    assert [len(a.tokens) for a in draw(model, limit=1)] == [1] * 12
    endless = draw(model, stop=frozenset(), limit=5)
    assert all(len(a.tokens) == 5 and not a.stopped for a in endless)
    assert draw(model, []) == []


@pytest.mark.parametrize(
    "support", [Support(), Support(temperature=1.4), Support(temperature=1.3, top_p=0.75), Support(top_k=3)], ids=str
)
@torch.no_grad()
def test_frequencies_agree_with_the_distribution(support: Support) -> None:
    """6,000 answers of up to two tokens against the exact probability of each of them."""
    model, context, n = tiny("llama", spread=0.3, vocab_size=6), [3, 4, 1], 6000
    exact = _two_token_law(model, context, support)
    answers = draw(model, [context], group=n, support=support, limit=2)
    counts = dict.fromkeys(exact, 0)
    for answer in answers:
        counts[tuple(answer.tokens)] += 1  # a KeyError here is a choice of probability 0

    def p_value(law: dict[tuple[int, ...], float]) -> float:
        # Cells of fewer than 5 expected counts are pooled, as the test requires.
        rare = [key for key in exact if n * law.get(key, 0.0) < 5]
        cells = [(counts[key], n * law[key]) for key in exact if key not in rare]
        pooled = (sum(counts[k] for k in rare), n * sum(law.get(k, 0.0) for k in rare))
        observed, expected = zip(*(cells + ([pooled] if pooled[1] > 0 else [])), strict=True)
        statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
        return float(stats.chi2.sf(statistic, len(observed) - 1))

    assert p_value(exact) > 1e-3
    # The same counts refuse a temperature that is a fifth higher: the test can fail.
    other = Support(support.temperature * 1.2, support.top_k, 1.0)
    wrong = _two_token_law(model, context, other)
    assert p_value(wrong) < 1e-3


def _two_token_law(model: object, context: list[int], support: Support) -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = {}
    first = slow_choices(full_logits(model, context)[-1].tolist(), support)
    for a, p in first.items():
        if a == STOP:
            law[(a,)] = p
            continue
        second = slow_choices(full_logits(model, [*context, a])[-1].tolist(), support)
        law |= {(a, b): p * q for b, q in second.items()}
    assert math.fsum(law.values()) == pytest.approx(1)
    return law


def test_choices_of_probability_zero_are_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the ends of the unit interval, where rounding would let one slip through."""
    ends = itertools.cycle([0.0, 1 - 2**-53])
    monkeypatch.setattr(sampler.torch, "rand", lambda a, b, **_: torch.tensor([[next(ends)] * b] * a).double())
    model = tiny("llama", torch.float32, spread=1.0)
    for _ in range(2):
        for answer in draw(model, support=Support(temperature=0.05, top_k=4)):
            assert answer.kept is not None
            assert all(t in k.tolist() for t, k in zip(answer.tokens, answer.kept, strict=True))
            assert all(math.isfinite(x) for x in answer.logp)


def test_the_seed_decides() -> None:
    model = tiny("gpt2")
    tokens = lambda seed: [a.tokens for a in draw(model, seed=seed)]  # noqa: E731
    assert tokens(3) == tokens(3)
    assert tokens(3) != tokens(4)


def test_global_random_numbers_are_left_alone() -> None:
    state = torch.get_rng_state()
    draw(tiny("gpt2"))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral"])
def test_a_row_does_not_depend_on_the_others(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(kind)
    noise = torch.rand(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mine = slice(None)
    monkeypatch.setattr(sampler.torch, "rand", lambda *_, **__: noise[:, mine])
    together = draw(model)
    assert len({len(a.tokens) for a in together}) > 2  # rows do leave the batch at different times
    for row, answer in enumerate(together):
        mine = slice(row, row + 1)
        (alone,) = draw(model, [RAGGED[row // 3]], group=1)
        assert alone.tokens == answer.tokens
        assert alone.logp == pytest.approx(answer.logp, abs=1e-10)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral"])
def test_reading_a_prompt_once_for_its_group_changes_nothing(kind: str) -> None:
    model = tiny(kind)
    shared = draw(model)
    apart = draw(model, [context for context in RAGGED for _ in range(3)], group=1)
    assert [a.tokens for a in shared] == [a.tokens for a in apart]


@pytest.mark.parametrize("kind", ["gpt2", "mistral"])
def test_dropping_finished_rows_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(kind)
    found = []
    for keep in (0.0, 0.75, 1.0):
        monkeypatch.setattr(sampler, "KEEP", keep)
        found.append([(a.tokens, a.stopped) for a in draw(model, group=8)])
    assert found[0] == found[1] == found[2]
    assert {stopped for _, stopped in found[0]} == {True, False}


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        draw(tiny("gpt2"), [[3], []])
    with pytest.raises(ValueError, match="recurrent"):
        draw(tiny("mamba", torch.float32))
    broken = tiny("gpt2")
    broken.transformer.wte.weight.data[3] = torch.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        draw(broken)


class LiveTensors(TorchDispatchMode):
    """Counts storages that a decoding step allocated and that somebody still holds."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.born: dict[int, tuple[int, StorageWeakRef]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note(0, args, kwargs)  # what an operation reads and nothing made was there before
        out = func(*args, **(kwargs or {}))
        self._note(self.step, out)
        return out

    def _note(self, step: int, *values: Any) -> None:
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor):
                ref = StorageWeakRef(value.untyped_storage())
                known = self.born.get(ref.cdata)
                if known is None or known[1].expired():
                    self.born[ref.cdata] = (step, ref)

    def left(self) -> int:
        """Those of the steps before the last."""
        return sum(0 < step < self.step - 1 and not ref.expired() for step, ref in self.born.values())


@pytest.mark.parametrize(
    "support", [Support(), Support(temperature=0.6), Support(by_entropy=ByEntropy(0.5, 0.1, 1.0, 2.0))], ids=str
)
def test_nothing_that_a_decoding_step_allocates_outlives_the_next(
    support: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small tensor that stays, between tensors of logits that go, fragments the heap: a rollout of 2,032 tokens over
    a vocabulary of 151,936 then takes up to 12 GB instead of 0.1."""
    live, left = LiveTensors(), list[int]()
    usual = DecoderSteps.step

    def step(self: DecoderSteps, token: torch.Tensor) -> torch.Tensor:
        live.step += 1
        left.append(live.left())
        return usual(self, token)

    monkeypatch.setattr(DecoderSteps, "step", step)
    with live:  # 12 tokens: the cache has room for 16 from the start
        draw(tiny("llama"), support=support, stop=frozenset())
    assert live.step == 11
    assert left == [0] * 11
