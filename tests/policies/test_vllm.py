"""Rollouts from vLLM, through a stand-in of its interface; where vLLM is installed, through the real one as well."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm_stand_in
from scipy import stats
from tiny_runs import DIGITS, policy, recipe

from polopt.config import ConfigError
from polopt.policies import vllm as engines
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import Sampled
from polopt.policies.vllm import VLLMEngine, VLLMSpec
from polopt.support import Support
from polopt.training.launch import train

CONTEXTS = [[5, 6, 7, 8], [9, 4], [11]]
TIED = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.2}
UNTIED = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
}
installed = importlib.util.find_spec("vllm") is not None


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "vllm", vllm_stand_in)
    monkeypatch.setattr(vllm_stand_in.LLM, "made", [])
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")  # put back, whatever the engine sets
    return vllm_stand_in


def engine_of(made: LanguagePolicy, **settings: Any) -> VLLMEngine:
    engine = VLLMSpec(**settings).build(made)
    assert isinstance(engine, VLLMEngine)
    return engine


def draw(engine: VLLMEngine, contexts: Sequence[Sequence[int]] = CONTEXTS, **changes: Any) -> list[Sampled]:
    settings = {"group": 3, "support": Support(), "limit": 8, "stop": engine.policy.stop, "seed": 0} | changes
    generator = torch.Generator().manual_seed(settings.pop("seed"))
    return engine.sample(contexts, generator=generator, **settings)


@torch.no_grad()
def worst(made: LanguagePolicy, answers: Sequence[Sampled], temperature: float = 1.0) -> float:
    """The largest distance of the answers' log-probabilities from one full forward pass each of the policy's model."""
    group, far = len(answers) // len(CONTEXTS), 0.0
    for i, answer in enumerate(answers):
        context = CONTEXTS[i // group]
        logits = made.model(torch.tensor([context + answer.tokens]), use_cache=False).logits[0].double()
        logp = (logits[len(context) - 1 : -1] / temperature).log_softmax(-1)
        own = logp.gather(1, torch.tensor(answer.tokens)[:, None]).flatten()
        far = max(far, float((own - torch.tensor(answer.logp, dtype=torch.float64)).abs().max()))
    return far


@torch.no_grad()
def learn(made: LanguagePolicy) -> None:
    """An update of some kind: every weight moves."""
    for parameter in made.model.parameters():
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        parameter.add_(0.1 * noise.to(parameter))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("config", [TIED, UNTIED], ids=["tied", "untied"])
def test_log_probabilities_are_the_learners(stand_in: Any, config: dict[str, Any], temperature: float) -> None:
    made = policy("float32", config=config)
    answers = draw(engine_of(made), support=Support(temperature=temperature))
    assert worst(made, answers, temperature) < 1e-5
    assert worst(made, answers, temperature * 1.05) > 1e-3
    assert all(a.entropy is None and a.kept is None and len(a.logp) == len(a.tokens) for a in answers)


def test_rows_come_by_context_then_index(stand_in: Any) -> None:
    """The first answer of a group is what a group of one gets from the same generator."""
    engine = engine_of(policy("float32"))
    many, one = draw(engine, group=4), draw(engine, group=1)
    assert [a.tokens for a in many[::4]] == [a.tokens for a in one]
    assert len({tuple(a.tokens) for a in many[:4]}) > 1
    again, other = draw(engine, group=4), draw(engine, group=4, seed=1)
    assert [a.tokens for a in again] == [a.tokens for a in many] != [a.tokens for a in other]


def test_answers_end_at_a_stop_token_or_the_limit(stand_in: Any) -> None:
    engine = engine_of(policy("float32"))
    stop = frozenset(range(0, 60, 3))
    answers = draw(engine, group=20, stop=stop, limit=3)
    assert {a.stopped for a in answers} == {True, False}
    for answer in answers:
        assert answer.stopped == (answer.tokens[-1] in stop)
        assert not stop & set(answer.tokens[:-1])
        assert answer.stopped or len(answer.tokens) == 3
    endless = draw(engine, stop=frozenset(), limit=20)
    assert all(len(a.tokens) == 20 and not a.stopped for a in endless)
    assert draw(engine, []) == []


@pytest.mark.parametrize("support", [Support(temperature=1.4), Support(top_k=5), Support(top_p=0.6)], ids=str)
@torch.no_grad()
def test_frequencies_agree_with_the_distribution(stand_in: Any, support: Support) -> None:
    """First tokens against the exact probabilities; the same counts refuse twice the temperature."""
    made, n = policy("float32"), 1500
    made.model.get_output_embeddings().weight.mul_(3)  # sharp enough that a temperature shows
    answers = draw(engine_of(made), [CONTEXTS[0]], group=n, support=support, limit=1)
    logits = made.model(torch.tensor([CONTEXTS[0]])).logits[0, -1].double()

    def p_value(temperature: float) -> float:
        p = (logits / temperature).softmax(-1)
        order = p.argsort(descending=True)
        size = support.top_k or int((p[order].cumsum(0) < support.top_p).sum()) + 1
        kept = torch.zeros_like(p).index_copy(0, order[:size], p[order[:size]]) if support.truncated else p
        expected = n * kept / kept.sum()
        counts = torch.bincount(torch.tensor([a.tokens[0] for a in answers]), minlength=len(p)).double()
        assert temperature != support.temperature or not counts[expected == 0].any()
        rare = expected < 5  # pooled, as the test requires
        observed = torch.cat([counts[~rare], counts[rare].sum()[None]])
        expected = torch.cat([expected[~rare], expected[rare].sum()[None]]).clamp(min=1e-9)
        statistic = float(((observed - expected) ** 2 / expected).sum())
        return float(stats.chi2.sf(statistic, len(observed) - 1))

    assert p_value(support.temperature) > 1e-3
    assert p_value(support.temperature * 2) < 1e-3


@pytest.mark.parametrize("config", [TIED, UNTIED], ids=["tied", "untied"])
def test_weights_handed_over_are_what_is_sampled(stand_in: Any, config: dict[str, Any]) -> None:
    made = policy("float32", config=config)
    engine = engine_of(made)
    (llm,) = stand_in.LLM.made
    assert (engine.version, llm.loads) == (0, 0)
    learn(made)
    assert worst(made, draw(engine)) > 1e-2  # not told, vLLM goes on with the old ones
    engine.sync_weights(7)
    assert llm.loads == 0  # nobody has asked for an answer yet
    assert worst(made, draw(engine)) < 1e-5
    assert worst(made, draw(engine)) < 1e-5
    assert (engine.version, llm.loads) == (7, 1)


def test_a_tied_head_under_one_name_stays_old(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen with vLLM's CPU build, which keeps a packed copy of the head; so both names are handed over."""
    made = policy("float32", config=TIED)
    engine = engine_of(made)
    monkeypatch.setattr(VLLMEngine, "_weights", lambda self: iter(self.policy.model.named_parameters()))
    learn(made)
    engine.sync_weights(1)
    assert worst(made, draw(engine)) > 1e-2


def test_what_vllm_is_asked_for(stand_in: Any) -> None:
    made = policy("float64")
    engine_of(made, dtype="float32", gpu_memory_utilization=0.5, max_model_len=40, enforce_eager=True)
    (llm,) = stand_in.LLM.made
    assert llm.given == {
        "dtype": "float32",
        "gpu_memory_utilization": 0.5,
        "max_model_len": 40,
        "enforce_eager": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
    }
    engine_of(policy("bfloat16"))
    assert stand_in.LLM.made[-1].given["dtype"] == "bfloat16"


def test_the_stand_in_knows_vllms_arguments_and_no_others(stand_in: Any) -> None:
    for call in ({"best_of": 2}, {"logprob": 0}):
        with pytest.raises(TypeError, match="has no argument"):
            stand_in.SamplingParams(**call)
    with pytest.raises(TypeError, match="logprob_mode"):
        stand_in.bound("LLM", {"logprob_mode": "raw_logprobs"})
    record = stand_in.INTERFACE
    assert set(stand_in.signature(stand_in.LLM.generate)) <= set(record["LLM.generate"])
    assert stand_in.signature(stand_in.LLM.collective_rpc) == record["LLM.collective_rpc"]
    for name in ("CompletionOutput", "RequestOutput", "Logprob"):
        assert set(stand_in.signature(getattr(stand_in, name))) <= set(record[name])
    assert record["TokensPrompt"] == ["prompt_token_ids"]


def test_refusals(stand_in: Any, tmp_path: Path) -> None:
    made = policy("float32")
    with pytest.raises(ValueError, match="at least one token"):
        draw(engine_of(made), [[3], []])
    token = SimpleNamespace(logprob=float("nan"))
    output = SimpleNamespace(token_ids=[3], logprobs=[{3: token}], finish_reason="stop")
    with pytest.raises(FloatingPointError, match="not finite"):
        engines._sampled(output)
    token.logprob, output.finish_reason = -0.5, "abort"
    with pytest.raises(RuntimeError, match="'abort'"):
        engines._sampled(output)
    made.save(tmp_path)
    made.model.register_parameter("renamed", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(ConfigError, match="'renamed'"):
        engines._check_names(made, tmp_path)


@pytest.mark.skipif(not installed, reason="vLLM is not installed")
def test_the_record_is_of_the_installed_version() -> None:
    import vllm

    assert json.loads(json.dumps(vllm_stand_in.interface_of(vllm))) == vllm_stand_in.INTERFACE


@pytest.mark.skipif(not installed, reason="vLLM is not installed")
def test_a_run_on_vllm_itself(tmp_path: Path) -> None:
    """Every step samples with the weights of the step before it, at the learner's log-probabilities."""
    found = recipe(
        tasks=DIGITS,
        policy={"config": {**TIED, "n_embd": 64}},
        rollout={"engine": "vllm", "enforce_eager": True, "max_model_len": 64},
        stages={
            "warmup": {"method": "sft", "steps": 10, "rows": 16, "optimiser": {"lr": 0.05}},
            "rl": {"method": "grpo", "steps": 4, "rows": 32, "group": 4, "optimiser": {"lr": 0.02}},
        },
    )
    run = train(found, tmp_path / "run")
    records = run.read("metrics")[10:]
    assert len(records) == 4
    assert max(r["grad_norm"] for r in records) > 0
    assert all(r["mismatch/max"] < 1e-3 for r in records), [r["mismatch/max"] for r in records]
