"""What a policy says of a batch, against one full forward pass per row: values and gradients."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import STOP, VOCABULARY, as_experience, tiny
from torch import Tensor

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.policies import decoder, packing, vocabulary
from polopt.policies.decoder import Decoder
from polopt.policies.engine import NativeEngine, NativeSpec
from polopt.policies.language import LanguagePolicy
from polopt.policies.sampler import Sampled, sample
from polopt.support import Support


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


DECODED = ["gpt2", "llama", "qwen2", "qwen3", "mistral-whole"]
CASES = [(kind, torch.float64) for kind in (*DECODED, "mistral", "granite")]
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


def test_prompts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, decided = rows_of(each=6)
    tokens, mask = padded(ids, decided, "right")
    end = torch.tensor([max(t for t, mark in enumerate(row) if mark) for row in decided])
    prompt = mask.int().argmax(1)
    once = packing.pack(tokens, prompt, end)
    assert len(once.tokens) == sum(end) - 5 * sum(prompt[::6])
    monkeypatch.setattr(packing, "WORTH", 1.0)
    assert len(packing.pack(tokens, prompt, end).tokens) == sum(end)


@pytest.mark.parametrize("worth", [0.0, 1.0])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_packed_attention_is_each_rows_own(
    worth: float, heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against softmax(q k / sqrt(D)) v of each row by itself, on rows of very different lengths."""
    monkeypatch.setattr(packing, "WORTH", worth)
    random = torch.Generator().manual_seed(2)
    lengths = [3, 40, 9, 1, 25, 2, 17, 30]
    tokens = torch.full((8, 42), -1)
    for row, n in enumerate(lengths):
        tokens[row, :n] = torch.arange(n) + 100 * (row // 2)
    # Rows 2i and 2i + 1 begin alike; one of them may end inside the prompt.
    packed = packing.pack(tokens, torch.tensor([2, 2, 5, 5, 4, 4, 7, 7]), torch.tensor(lengths), torch.float64)
    sizes = [(len(packed.tokens), h, 6) for h in (heads[0], heads[1], heads[1])]
    q, k, v = (torch.randn(s, generator=random, dtype=torch.float64) for s in sizes)
    found = packed.attend(q, torch.stack([k, v], 1))
    for row, n in enumerate(lengths):
        flat = packed.where[row, :n]
        assert torch.equal(packed.tokens[flat], tokens[row, :n])
        assert torch.equal(packed.position[flat], torch.arange(n))
        for head in range(heads[0]):
            mine = head // (heads[0] // heads[1])
            scores = q[flat, head] @ k[flat, mine].T / 6**0.5
            scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
            torch.testing.assert_close(found[flat, head], scores.softmax(-1) @ v[flat, mine], atol=1e-12, rtol=0)


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_chunks_of_the_vocabulary_equal_the_whole(
    dtype: torch.dtype, truncated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probabilities, entropies and all gradients, with a bias, a temperature and kept choices; in bfloat16
    against float64 on the same rounded weights."""
    random = torch.Generator().manual_seed(4)
    n, d, size = 70, 8, 50
    hidden = torch.randn(n, d, generator=random).to(dtype).requires_grad_()
    head = torch.nn.Linear(d, size).to(dtype)
    chosen = torch.randint(size, (n,), generator=random)
    kept = None
    if truncated:
        kept = torch.stack([torch.randperm(size, generator=random)[:5] for _ in range(n)]).int()
        chosen, kept[::3, 4] = kept[:, 0].long(), -1
    candidates = torch.stack([torch.randperm(size, generator=random)[:4] for _ in range(n)]).int()
    candidates[:, 0], candidates[::4, 3] = chosen.int(), -1
    names = ("entropy", *vocabulary.REDUCTIONS)
    weights = {k: torch.randn(n, generator=random, dtype=torch.float64) for k in ("logp", *names)}
    weights["candidate_logp"] = torch.randn(n, 4, generator=random, dtype=torch.float64)

    def slopes(said: dict[str, Tensor], of: list[Tensor]) -> tuple[Tensor, ...]:
        loss = torch.stack([(weights[k] * v).sum() for k, v in said.items()]).sum()
        return torch.autograd.grad(loss, of, retain_graph=True)

    whole, layer = hidden.detach().double().requires_grad_(), copy.deepcopy(head).double()
    expected = spelt_out(layer(whole) / 0.8, chosen, kept, candidates)
    by_hand = slopes(expected, [whole, layer.weight, layer.bias])
    bound = 1e-12 if dtype == torch.float64 else 5e-2
    for most, held in ((2**23, 0), (20 * size, 0), (20 * size, n * size)):
        monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
        monkeypatch.setitem(vocabulary.MOST_KEPT, "cpu", held)
        found = vocabulary.score(hidden, head, chosen, kept, 0.8, names, candidates)
        assert found.keys() == expected.keys()
        for name, theirs in expected.items():
            torch.testing.assert_close(found[name].double(), theirs, atol=bound, rtol=0, msg=name)
        for _ in range(2):  # logits that were kept are there once
            for ours, theirs in zip(slopes(found, [hidden, head.weight, head.bias]), by_hand, strict=True):
                torch.testing.assert_close(ours.double(), theirs, atol=bound * float(theirs.abs().max()), rtol=0)


@pytest.mark.parametrize("held", [0, 200 * 300])
def test_logits_that_are_kept_save_a_product(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    monkeypatch.setitem(vocabulary.MOST_KEPT, "cpu", held)
    hidden, head = torch.randn(200, 4, requires_grad=True), torch.nn.Linear(4, 300, bias=False)
    calls, plain = [], vocabulary._logits
    monkeypatch.setattr(vocabulary, "_logits", lambda *a: (calls.append(1), plain(*a))[1])
    vocabulary.score(hidden, head, torch.arange(200), None, 1.0)["logp"].sum().backward()
    assert len(calls) == 10 * (1 if held else 2)


def test_a_head_of_more_precision_than_its_product_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunks' products are in bfloat16, their sum is in the weights' float32, however many rows are added at once.
    A slope of 1 by chosen logits alone makes the gradient the sum of the hidden states of those who chose."""
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    hidden = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    head, chosen = torch.nn.Linear(4, 300, bias=False), torch.arange(200) % 2
    with torch.no_grad():
        head.weight.zero_()
    found = []
    for summed in (2**20, 4 * 7):
        monkeypatch.setattr(vocabulary, "MOST_SUMMED", summed)
        (slope,) = torch.autograd.grad(vocabulary.score(hidden, head, chosen, None, 1.0)["logp"].sum(), head.weight)
        found.append(slope)
    exact = torch.nn.functional.one_hot(chosen, 300).double().T @ hidden.double() - hidden.double().sum(0) / 300
    for slope in found:
        assert slope.dtype == torch.float32
        assert not torch.equal(slope, slope.bfloat16().float())
        torch.testing.assert_close(slope.double(), exact, atol=0.05, rtol=0.01)


def test_logits_are_kept_for_gradients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    hidden, head, given = torch.randn(200, 4), torch.nn.Linear(4, 300, bias=False), []
    plain = vocabulary._Chunked.apply
    monkeypatch.setattr(vocabulary._Chunked, "apply", lambda *a: (given.append(a[-1]), plain(*a))[1])
    with torch.no_grad():
        vocabulary.score(hidden, head, torch.arange(200), None, 1.0)
    vocabulary.score(hidden, head, torch.arange(200), None, 1.0)
    assert given == [False, True]


def spelt_out(logits: Tensor, chosen: Tensor, kept: Tensor | None, candidates: Tensor) -> dict[str, Tensor]:
    """One decision at a time over the choices that it has. A reduction joins by one line."""
    found: dict[str, list[Tensor]] = {}
    for i, z in enumerate(logits):
        choices = list(range(len(z))) if kept is None else [int(k) for k in kept[i] if k >= 0]
        law = dict(zip(choices, torch.log_softmax(z[choices], 0), strict=True))
        every = torch.stack(list(law.values()))
        nothing, entropy = z.new_tensor(-1e4), -(every.exp() * every).sum()
        for name, value in {
            "logp": law[int(chosen[i])],
            "entropy": entropy,
            "entropy_slope": (every.exp() ** 2 * (every + entropy)).sum(),
            "mean_logp": every.sum() / len(every),
            "candidate_logp": torch.stack([law.get(int(c), nothing) for c in candidates[i]]),
        }.items():
            found.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in found.items()}


@pytest.mark.parametrize("most", [2**23, 1])
def test_the_likeliest_ids(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, never more than there are, and of those kept alone."""
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
    hidden, head = torch.randn(40, 8, generator=torch.Generator().manual_seed(1)), torch.nn.Linear(8, 11)
    kept = torch.tensor([[1, 4, 7, -1]]).expand(40, -1)
    ranked = head(hidden).argsort(-1, descending=True).tolist()
    assert vocabulary.likeliest(hidden, head, None, 3).tolist() == [row[:3] for row in ranked]
    assert vocabulary.likeliest(hidden, head, None, 100).tolist() == ranked
    left = [[i for i in row if i in (1, 4, 7)] + [-1] * 2 for row in ranked]
    assert vocabulary.likeliest(hidden, head, kept, 5).tolist() == left


@pytest.mark.parametrize("truncated", [False, True])
def test_reductions_of_the_vocabulary_by_hand(truncated: bool) -> None:
    """sum_a pi_a^2 (log pi_a + H), choice by choice."""
    policy = policy_of("llama")
    tokens, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[False, False, True]])
    ids = [1, 5, 9] if truncated else list(range(VOCABULARY))
    extras = {"tokens": tokens} | ({"kept": torch.tensor([[[-1] * 3, [-1] * 3, ids]])} if truncated else {})
    batch = Experience(mask=mask, support=Support(temperature=2.0, top_k=3 if truncated else 0), extras=extras)
    law = torch.softmax(policy.model(tokens[:, :2], use_cache=False).logits[0, -1][ids] / 2, 0).tolist()
    entropy = -math.fsum(p * math.log(p) for p in law)
    expected = math.fsum(p * p * (math.log(p) + entropy) for p in law)
    for decoder_of in (policy.decoder, None):
        policy._decoder = decoder_of
        for extra in (set(), {"logits"}):
            found = policy.evaluate(batch, {"extras.entropy_slope", *extra})
            assert found.entropy is None
            assert found.extras["entropy_slope"].flatten().tolist() == pytest.approx([0, 0, expected], abs=1e-12)
    assert policy.evaluate(batch).extras == {}


def test_the_whole_vocabulary_never_meets_all_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of as many numbers as decisions x vocabulary is made, forward or backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for value in out if isinstance(out, tuple | list) else [out]:
                self.most = max(self.most, value.numel() if isinstance(value, Tensor) else 0)
            return out

    hidden = torch.randn(200, 4, requires_grad=True)
    head = torch.nn.Linear(4, 300, bias=False)
    chosen = torch.arange(200)

    def largest() -> int:
        with Largest() as seen:
            said = vocabulary.score(
                hidden, head, chosen, None, 1.0, ("entropy", *vocabulary.REDUCTIONS), chosen[:, None]
            )
            torch.stack([value.sum() for value in said.values()]).sum().backward()
            assert vocabulary.likeliest(hidden, head, None, 3).shape == (200, 3)
        return seen.most

    assert largest() >= 200 * 300
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    assert largest() <= 300 * 20


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
    assert (again - sampled.logp)[sampled.mask].abs().mean() < 0.02
    assert (full - sampled.logp)[sampled.mask].abs().mean() > 1e-4


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


def _learnt(policy: LanguagePolicy, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, dict[str, Tensor], int, int]:
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
    finish = decoder.DecoderLayer.finish
    monkeypatch.setattr(decoder.DecoderLayer, "finish", lambda *a: (count(), finish(*a))[1])
    # A hook would keep the decoder from reading the model.
    hooks = [] if policy.decoder is not None else [layer.mlp.register_forward_pre_hook(count) for layer in layers]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logp = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens})).logp
    logp.sum().backward()
    for hook in hooks:
        hook.remove()
    monkeypatch.undo()
    grads = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    return logp.detach(), grads, calls // len(layers), kept


DROPOUT = {
    "gpt2": {"resid_pdrop": 0.5, "attn_pdrop": 0.5},
    "bloom": {"hidden_dropout": 0.5, "attention_dropout": 0.5},
    "qwen2": {"attention_dropout": 0.5},
    "gemma2": {},
}


@pytest.mark.parametrize("kind", DROPOUT)
def test_checkpointing_computes_layers_twice_and_keeps_less(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to the last bit, dropout stays off, and the sampler, which needs no gradient, pays nothing."""
    model = tiny(kind, **DROPOUT[kind])
    plain = _learnt(LanguagePolicy(model, NoTokenizer()), monkeypatch)
    model.zero_grad()
    thrifty = LanguagePolicy(model, NoTokenizer(), checkpointing=True)
    again = _learnt(thrifty, monkeypatch)
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
