"""Runs that train an adapter: the base stays, checkpoints hold the adapter alone, and resuming is an equality."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from learners import batch_of
from safetensors.torch import load_file
from tiny_runs import Stop, StopAt, outcome, policy, recipe, training_of
from torch import Tensor

import polopt as po
from polopt.config import ConfigError
from polopt.policies.average import Average
from polopt.policies.language import LanguagePolicy
from polopt.training.estimate import memory
from polopt.training.language import LanguageDomain
from polopt.training.launch import resume, train
from polopt.training.reference_policy import References
from polopt.training.run import Run, RunError

peft = pytest.importorskip("peft")

LLAMA = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA |= {"intermediate_size": 32, "max_position_embeddings": 64, "initializer_range": 0.2}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    policy("float32", config=LLAMA).save(folder)
    return folder


def adapted(base: Path, adapter: Any, **changes: Any) -> Any:
    """A run on a frozen base."""
    given = changes.pop("policy", {})
    return recipe(policy={"model": str(base), "adapter": adapter, **given}, **changes)


WARMUP = {"method": "sft", "steps": 6, "rows": 16, "optimiser": {"lr": 0.03}}
# A stage that compares with two references, one that needs a critic, and one that learns from an average of itself.
METHODS: dict[str, dict[str, Any]] = {
    "references": {
        "method": {"name": "grpo", "kl": 0.1},
        "but": {
            "objective.regularise": [
                {"part": "objectives.ReferenceKL", "coefficient": 0.1},
                {"part": "objectives.ReferenceKL", "coefficient": 0.1, "anchor": "previous"},
            ]
        },
    },
    "critic": {"method": "ppo"},
    "teacher": {"method": "sdpo", "but": {"teacher.hint.wording": " as {answer}"}},
}


def stages(method: str) -> dict[str, Any]:
    own = {"steps": 4, "rows": 16, "group": 4, "epochs": 2, "minibatches": 2, "micro_rows": 5}
    return {"warmup": WARMUP, "rl": {**METHODS[method], **own, "optimiser": {"lr": 0.01}}}


@pytest.mark.parametrize("method", METHODS)
def test_resuming_is_an_equality_though_checkpoints_lack_the_base(method: str, base: Path, tmp_path: Path) -> None:
    settings = adapted(base, {"rank": 2}, stages=stages(method), checkpoint=2)
    train(settings, tmp_path / "through")
    with pytest.raises(Stop):
        train(settings, tmp_path / "stopped", watchers=(StopAt(8),))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "through") == outcome(tmp_path / "stopped")
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        found = [(tmp_path / run / "adapter" / file).read_bytes() for run in ("through", "stopped")]
        assert found[0] == found[1]
    for state in (*tmp_path.glob("through/checkpoints/*/state.safetensors"), *tmp_path.glob("through/reference*")):
        beside = ("optimiser", "algorithm", "rng", "noise")
        held = [name for name in load_file(state) if not name.startswith(beside)]
        assert held
        assert all("lora" in name or "critic" in name for name in held), held


@torch.no_grad()
def logits_of(model: Any) -> Tensor:
    return model.eval()(torch.arange(3, 15)[None], use_cache=False).logits


def test_what_a_run_leaves_is_base_and_adapter_by_peft_itself(base: Path, tmp_path: Path) -> None:
    """PEFT puts the saved adapter on the untouched base, adds it to the weights, and finds the saved policy."""
    from transformers import AutoModelForCausalLM

    train(
        adapted(base, {"rank": 3, "alpha": 6, "targets": ["q_proj", "down_proj"]}, stages=stages("references")),
        tmp_path / "run",
    )
    plain = AutoModelForCausalLM.from_pretrained(base)
    before = logits_of(plain)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy")
    wrapped = peft.PeftModel.from_pretrained(plain, tmp_path / "run" / "adapter")
    torch.testing.assert_close(logits_of(wrapped), logits_of(saved), atol=1e-5, rtol=0)
    assert (logits_of(saved) - before).abs().max() > 1e-2
    whole = wrapped.merge_and_unload().state_dict()
    given, kept = load_file(base / "model.safetensors"), saved.state_dict()
    assert whole.keys() == kept.keys()
    for name, weight in kept.items():
        torch.testing.assert_close(weight, whole[name], atol=1e-6, rtol=0)
        moved = name in given and not torch.equal(weight, given[name])
        assert moved == any(target in name for target in ("q_proj", "down_proj")), name
    mismatch = [m["mismatch/max"] for m in Run(tmp_path / "run").read("metrics") if "mismatch/max" in m]
    assert mismatch
    assert max(mismatch) < 1e-4


def test_going_on_from_an_adapter_of_somebody_else(base: Path, tmp_path: Path) -> None:
    """Made and saved by PEFT, as TRL saves one: training begins where it ended, and ends in its format."""
    from transformers import AutoModelForCausalLM

    config = peft.LoraConfig(r=4, lora_alpha=2, target_modules=["v_proj", "up_proj"], lora_dropout=0.1, use_rslora=True)
    theirs = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    for name, parameter in theirs.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(len(name)))
    theirs.save_pretrained(tmp_path / "theirs")
    settings = adapted(base, str(tmp_path / "theirs"))
    training = training_of(settings, Run.create(tmp_path / "run", settings.to_yaml(), {}))
    torch.testing.assert_close(logits_of(training.domain.policy.model), logits_of(theirs), atol=1e-6, rtol=0)
    learns = {name for name, p in training.domain.policy.named_parameters() if p.requires_grad}
    assert len(learns) == 2 * 2 * 2
    assert all("lora" in name for name in learns)
    training.run()
    again = json.loads((tmp_path / "run/adapter/adapter_config.json").read_text())
    assert (again["r"], again["lora_alpha"], again["use_rslora"]) == (4, 2, True)
    assert set(again["target_modules"]) == {"v_proj", "up_proj"}
    back = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "run" / "adapter")
    torch.testing.assert_close(logits_of(back), logits_of(training.domain.policy.model), atol=1e-6, rtol=0)


def test_references_and_averages_share_the_base(base: Path) -> None:
    """They hold the adapter alone, and say what the policy said when they were made, whatever it learns."""
    made = LanguagePolicy.load(base, dtype="float64", critic=True)
    from polopt.policies.adapter import AdapterSpec

    made.adapt(AdapterSpec(rank=2), seed=1, base=str(base))
    algorithm = po.method("grpo", kl=0.1)
    reference = References(made, algorithm).policies["ref_logp"]
    average = Average(made, 0.25)
    batch = batch_of(made)
    plain = LanguagePolicy.load(base, dtype="float64").evaluate(batch).logp
    torch.testing.assert_close(reference.evaluate(batch).logp, plain, atol=1e-12, rtol=0)
    before = {name: p.detach().clone() for name, p in made.named_parameters()}
    with torch.no_grad():
        for parameter in made.own_parameters().values():
            parameter.add_(0.1)
    average.follow()
    torch.testing.assert_close(reference.evaluate(batch).logp, plain, atol=1e-12, rtol=0)
    assert (made.evaluate(batch).logp - plain)[batch.mask].abs().max() > 1e-3
    for copied in (reference, average.policy):
        for name, parameter in copied.named_parameters():
            assert (parameter.data_ptr() == dict(made.named_parameters())[name].data_ptr()) == (name in made.fixed)
            assert not parameter.requires_grad
    for name, parameter in average.policy.named_parameters():
        expected = before[name] + (0 if name in made.fixed else 0.025)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-12, rtol=0)
    assert average.state().keys() == made.own_parameters().keys()
    assert {"critic.weight", "critic.bias"} < made.own_parameters().keys()


def test_the_estimate_counts_what_can_change(base: Path) -> None:
    """Of two layers 16 wide with 32 inside: q, k, v and o are 16 x 16, the others 16 x 32."""
    settings = adapted(base, {"rank": 2}, stages={"rl": stages("references")["rl"]})
    found = memory(settings, LanguageDomain(settings).policy, 10).items
    maps = 2 * (4 * 16 * 16 + 3 * 16 * 32)
    factors = 2 * (4 * 2 * (16 + 16) + 3 * 2 * (16 + 32))
    given = sum(t.numel() for t in load_file(base / "model.safetensors").values())
    assert found["weights"] == 4 * (given + factors)
    assert found["gradients"] == found["Adam state"] / 2 == 4 * factors
    assert found["frozen copies"] == 2 * 4 * factors
    assert found["merged weights"] == 4 * maps


REFUSED = [
    ({"rank": 0}, "policy.adapter.rank = 0"),
    ({"rnk": 2}, "policy.adapter.rnk is not a setting; did you mean 'rank'"),
    (
        {"targets": ["q_prj"]},
        "policy.adapter.targets: 'q_prj' is no linear map inside the model; did you mean 'q_proj'",
    ),
    ({"targets": ["lm_head"]}, "policy.adapter.targets: 'lm_head' is no linear map inside the model"),
    ("nowhere/at/all", "policy.adapter = 'nowhere/at/all' is no adapter in PEFT's format"),
]


@pytest.mark.parametrize(("adapter", "sentence"), REFUSED, ids=str)
def test_wrong_settings_are_refused_in_one_sentence(adapter: Any, sentence: str, base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("(", r"\(")):
        train(adapted(base, adapter), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def saved_adapter(folder: Path, base: Path, **settings: Any) -> str:
    from transformers import AutoModelForCausalLM

    given = {"r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **settings}
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), peft.LoraConfig(**given)).save_pretrained(folder)
    return str(folder)


def test_an_adapter_of_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    policy("float32", config={**LLAMA, "hidden_size": 24}).save(other)
    wider = saved_adapter(tmp_path / "wider", other)
    with pytest.raises(ConfigError, match=r"layers.0.self_attn.q_proj has 16 inputs, and the adapter 24; it was made"):
        train(adapted(base, wider), tmp_path / "run")
    policy("float32").save(tmp_path / "gpt2")
    with pytest.raises(ConfigError, match=r"the model has no linear map model.layers.0.self_attn.q_proj"):
        train(adapted(tmp_path / "gpt2", wider), tmp_path / "run")
    config = tmp_path / "wider" / "adapter_config.json"
    named = json.loads(config.read_text()) | {"base_model_name_or_path": "some/base"}
    config.write_text(json.dumps(named))
    with pytest.raises(ConfigError, match=r"was made for the base some/base, and policy.model is"):
        LanguagePolicy.load(base).adapt(wider, seed=0, base="another/base")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"use_dora": True}, "use_dora: True"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save: \['lm_head'\]"),
        ({"bias": "all"}, "bias: all"),
    ],
    ids=str,
)
def test_more_than_plain_lora_is_refused_with_the_way_round(
    settings: dict[str, Any], said: str, base: Path, tmp_path: Path
) -> None:
    adapter = saved_adapter(tmp_path / "adapter", base, **settings)
    with pytest.raises(ConfigError, match=rf"has {said}.*polopt convert .* --base .* --to FOLDER"):
        train(adapted(base, adapter), tmp_path / "run")


def test_an_adapter_of_scale_0_is_refused(base: Path, tmp_path: Path) -> None:
    """As verl's merger writes it when it does not know the scale: everything would load, and nothing be added."""
    adapter = saved_adapter(tmp_path / "adapter", base)
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"lora_alpha": 0}))
    with pytest.raises(ConfigError, match="has lora_alpha = 0, which multiplies it by 0"):
        train(adapted(base, adapter), tmp_path / "run")


def test_an_adapter_needs_a_base_and_peft(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"set policy.model to its folder or hub name"):
        recipe(policy={"config": LLAMA, "adapter": {"rank": 2}})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'pip install "polopt\[peft\]"'):
        train(adapted(base, {"rank": 2}), tmp_path / "run")


def test_an_adapter_is_no_model(base: Path, tmp_path: Path) -> None:
    adapter = saved_adapter(tmp_path / "adapter", base)
    with pytest.raises(ConfigError, match=rf"policy.model = '{adapter}' is an adapter; set policy.adapter: {adapter}"):
        train(recipe(policy={"model": adapter}), tmp_path / "run")


def test_resuming_on_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    policy("float32", config=LLAMA).save(mine)
    with pytest.raises(Stop):
        train(adapted(mine, {"rank": 2}), tmp_path / "run", watchers=(StopAt(2),))
    model = LanguagePolicy.load(mine)
    with torch.no_grad():
        model.model.model.layers[1].mlp.up_proj.weight.mul_(1.01)
    model.save(mine)
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunError, match=r"policy\.model = .*mine: .*model\.safetensors holds other bytes, sha256"):
        resume(tmp_path / "run")
    with pytest.raises(RunError, match="is not the base that this run began with"):
        resume(tmp_path / "run", anyway=True)
    assert (tmp_path / "run" / "run.json").read_bytes() == before
