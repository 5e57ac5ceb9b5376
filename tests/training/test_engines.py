"""The engine of rollouts in recipes and in the loop: refusals at the door, weights handed over, what mismatch shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import vllm_stand_in
import yaml
from tiny_runs import Digits, Stop, StopAt, policy, recipe

import polopt as po
from polopt.config import ConfigError
from polopt.policies.vllm import VLLMEngine, VLLMSpec
from polopt.sampling import EntropyTemperature
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support, SupportError
from polopt.training import language
from polopt.training.episode_player import EpisodePlayer
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import resume, train
from polopt.training.learner import Learner
from polopt.training.run import Run
from polopt.training.source import LanguageSource
from polopt.training.specs import StageSpec

ROOT = Path(__file__).parents[2]
VLLM = {"engine": "vllm"}
CORRECTED = {
    "objective.ratio": {"part": "objectives.OldPolicyRatio"},
    "objective.weights": [{"part": "objectives.TruncatedImportance"}],
}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "vllm", vllm_stand_in)
    monkeypatch.setattr(vllm_stand_in.LLM, "made", [])
    monkeypatch.setattr(vllm_stand_in, "distortion", 1.0)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    return vllm_stand_in


# Enough for answers that end, and so for rewards that differ.
WARMUP = {"method": "sft", "steps": 10, "rows": 16, "optimiser": {"lr": 0.05}}


def stages(**changes: Any) -> dict[str, Any]:
    sampled = {"method": "grpo", "steps": 2, "rows": 32, "group": 8, "optimiser": {"lr": 0.05}}
    return {"warmup": WARMUP, "rl": sampled | changes}


def test_recipes_name_the_engine() -> None:
    assert recipe().rollout.engine == "native"
    assert recipe(rollout={}).rollout.engine == "native"
    found = recipe(rollout={"engine": "vllm", "gpu_memory_utilization": 0.5, "dtype": "bfloat16"})
    assert found.rollout == VLLMSpec(gpu_memory_utilization=0.5, dtype="bfloat16")
    assert po.config.parse(LanguageRecipe, found.model_dump(mode="json"), "again") == found


def test_the_documented_settings_are_settings() -> None:
    rollout, but = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/vllm.md").read_text(), re.DOTALL)
    found = recipe(**yaml.safe_load(rollout), stages=stages(**yaml.safe_load(but)))
    assert set(yaml.safe_load(rollout)["rollout"]) == set(VLLMSpec.model_fields)
    assert isinstance(found.algorithms["rl"].objective.weights[0], po.objectives.TruncatedImportance)
    assert yaml.safe_load(but)["but"] == CORRECTED


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({"engine": "vlm"}, r"rollout = .*no engine 'vlm'; did you mean 'vllm'"),
        (
            {"engine": "vllm", "enforce_eagre": True},
            r"rollout.enforce_eagre is not a setting; did you mean 'enforce_eager'",
        ),
        ({"engine": "vllm", "gpu_memory_utilization": 1.5}, r"rollout.gpu_memory_utilization = 1.5"),
        ({"engine": "vllm", "dtype": "float64"}, r"rollout.dtype = 'float64'"),
        ({"dtype": "float32"}, r"rollout.dtype = 'float32'"),
        ({"max_model_len": 9}, r"rollout.max_model_len is not a setting; it has: dtype, engine"),
        ("vllm", r"rollout = 'vllm'"),
    ],
)
def test_a_wrong_rollout_is_one_sentence(rollout: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        recipe(rollout=rollout)
    assert "\n" not in str(caught.value)


BY_ENTROPY = {"strength": 0.1, "lowest": -1.0, "pivot": 0.0, "highest": 1.0}


class NeedsEntropy(po.credit.Baseline):
    """A part that reads the sampler's entropy."""

    reads = frozenset({"entropy"})

    def forward(self, experience: Any, returns: Any) -> Any:
        return experience.entropy.mean() * torch.ones_like(returns)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"stages": stages(but={"sampling.support": Support(top_k=5)})},
            r"stages.rl: .*top_k=5.*rollout.engine: native",
        ),
        ({"stages": stages(but={"sampling.support": Support(top_p=0.9)})}, r"stages.rl: .*top_p=0.9"),
        ({"stages": stages(but={"sampling.support": Support(temperature=3.0)})}, r"stages.rl: .*temperature = 3.0"),
        ({"stages": stages(but={"credit.baseline": NeedsEntropy()})}, r"stages.rl: NeedsEntropy needs the sampler's"),
        (
            {"stages": stages(but={"sampling.adapt": EntropyTemperature()})},
            r"stages.rl: EntropyTemperature needs the sampler's entropy",
        ),
        ({"evaluation": {"support": {"by_entropy": BY_ENTROPY}}}, r"evaluation.support: by_entropy: .*native"),
        ({"evaluation": {"support": {"temperature": 0.001}}}, r"evaluation.support: temperature = 0.001"),
        ({"policy": {"dtype": "float64"}}, r"policy.dtype = 'float64'.*rollout.dtype: float32"),
        ({"device": "cuda:1"}, r"device = 'cuda:1'.*CUDA_VISIBLE_DEVICES=1"),
    ],
)
def test_what_vllm_cannot_do_is_refused_at_the_door(changes: dict[str, Any], message: str) -> None:
    _ = recipe(**changes).algorithms  # polopt's own sampler can
    with pytest.raises(ConfigError, match=message) as caught:
        _ = recipe(rollout=VLLM, **changes).algorithms
    assert "\n" not in str(caught.value)


def test_greedy_evaluation_needs_no_kept_ids() -> None:
    made = recipe(rollout=VLLM, evaluation={"support": {"top_k": 1}})
    assert made.evaluation.support == po.Support(top_k=1)
    assert made.algorithms.keys() == made.stages.keys()  # nothing is refused
    assert not any(a.sampling.support.truncated for a in made.algorithms.values() if hasattr(a.sampling, "support"))


def test_without_vllm_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(language, "build_tasks", lambda *_, **__: pytest.fail("tasks were built"))
    with pytest.raises(ConfigError, match=r'pip install "polopt\[vllm\]"'):
        train(recipe(rollout=VLLM), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_hands_over_after_each_update(stand_in: Any, tmp_path: Path) -> None:
    run = train(recipe(rollout=VLLM, stages=stages()), tmp_path / "run")
    records = run.read("metrics")[10:]
    assert len(records) == 2
    for record in records:
        assert record["mismatch/max"] < 1e-5
        assert record["mismatch/ess"] == pytest.approx(1, abs=1e-6)
        assert "entropy" not in record
        assert record["grad_norm"] > 0
    # Before the first evaluation, into the second step, and into the last evaluation: the warm-up samples nothing.
    (llm,) = stand_in.LLM.made
    assert llm.loads == 3
    assert [e["when"] for e in run.read("evaluations")] == ["before", "after"]
    saved = stand_in.transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy")
    for name, parameter in saved.named_parameters(remove_duplicate=False):
        assert torch.equal(dict(llm.model.named_parameters())[name], parameter)


@pytest.mark.parametrize("but", [{}, CORRECTED], ids=["plain", "corrected"])
def test_rollouts_in_bfloat16_under_a_float32_learner(but: dict[str, Any], tmp_path: Path) -> None:
    """What the step logs is the difference of their rounding, no more; weights stay in float32."""
    run = train(recipe(rollout={"dtype": "bfloat16"}, stages=stages(but=but)), tmp_path / "run")
    for record in run.read("metrics")[10:]:
        assert 1e-4 < record["mismatch/max"] < 0.2
        assert record["mismatch/ess"] > 0.99
        assert record["grad_norm"] > 0
    assert {p.dtype for p in po.load_run(tmp_path / "run").policy().parameters()} == {torch.float32}


def test_a_forgotten_hand_over_is_seen(stand_in: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(VLLMEngine, "sync_weights", lambda self, version: None)
    records = train(recipe(rollout=VLLM, stages=stages()), tmp_path / "run").read("metrics")[10:]
    for record in records:  # vLLM still has the weights from before the warm-up
        assert record["mismatch/mean"] > 0.5
        assert record["mismatch/kl"] > 0.1
        assert record["mismatch/ess"] < 0.9


def test_a_resumed_run_samples_with_the_restored_weights(stand_in: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        train(recipe(rollout=VLLM, stages=stages(steps=4), checkpoint=1), folder, watchers=(StopAt(12),))
    assert Run.open(folder).checkpoint == 12
    records = resume(folder).read("metrics")[10:]
    assert [r["step"] for r in records] == [10, 11, 12, 13]
    assert all(r["mismatch/max"] < 1e-5 for r in records)


def test_another_arithmetic_is_seen_and_can_be_corrected_for(stand_in: Any, tmp_path: Path) -> None:
    """An engine whose logits are 1.3 times the learner's: mismatch/* shows it, with and without the correction."""
    stand_in.distortion = 1.3
    for but in ({}, CORRECTED):
        run = train(recipe(rollout=VLLM, stages=stages(but=but)), tmp_path / str(len(but)))
        for record in run.read("metrics")[10:]:
            assert record["mismatch/mean"] > 0.05
            assert record["mismatch/kl"] > 1e-3
            assert record["mismatch/ess"] < 0.99


def test_truncated_importance_corrects_for_the_engine(stand_in: Any) -> None:
    """Rollouts of an engine with other probabilities, weighted, estimate the policy's own expectation; unweighted,
    they estimate the engine's."""
    stand_in.distortion = 1.5
    made = policy("float32")
    source = LanguageSource(
        EpisodePlayer(made, Digits(1), 1, VLLMSpec().build(made)),
        rows=1,
        seed=0,
        generator=torch.Generator().manual_seed(0),
    )
    experience = source.rollout(RolloutRequest(source.take(1), 3000, Support()))
    assert experience.entropy is None
    learner = Learner(made, po.method("grpo"), StageSpec(steps=1, rows=1), torch.Generator())
    experience = learner.assess(experience, frozenset({"old_logp"}), {})
    experience = experience.replace(advantage=torch.zeros_like(experience.rollout_logp))
    evaluation = made.evaluate(experience)
    weight = po.objectives.TruncatedImportance(cap=100.0)(experience, evaluation)[experience.mask].double()
    token = experience.extras["tokens"][experience.mask]
    context = experience.extras["tokens"][:1, : int(experience.mask[0].nonzero()[0])]
    with torch.no_grad():
        logits = made.model(context).logits[0, -1].double()
    value = logits  # of each token: its expectation differs between the two
    own, engines = (float((logits * scale).softmax(-1) @ value) for scale in (1.0, 1.5))
    plain, weighted = value[token], weight * value[token]
    error = lambda x: float(x.std() / len(x) ** 0.5)  # noqa: E731
    assert abs(float(weighted.mean()) - own) < 4 * error(weighted)
    assert abs(float(plain.mean()) - engines) < 4 * error(plain)
    assert abs(own - engines) > 6 * error(plain)


def test_truncated_importance_weights_the_gradient(stand_in: Any) -> None:
    """The corrected algorithm's gradient is the plain one's with every advantage times min(pi / mu, 2)."""
    stand_in.distortion = 1.5
    made = policy("float32")
    stop = torch.tensor(sorted(made.stop))  # likelier, so that answers end and rewards differ
    made.model.get_output_embeddings().weight.data[stop] *= 4
    source = LanguageSource(
        EpisodePlayer(made, Digits(50), 3, VLLMSpec().build(made)),
        rows=1,
        seed=0,
        generator=torch.Generator().manual_seed(0),
    )
    corrected = po.method("grpo", kl=0.0).but(recipe(stages=stages(but=CORRECTED)).stages["rl"].but)
    plain = corrected.but({"objective.weights": []})
    experience = source.rollout(RolloutRequest(source.take(6), 4, Support()))
    learner = Learner(made, corrected, StageSpec(steps=1, rows=1), torch.Generator())
    experience = corrected.compute_advantages(learner.assess(experience, frozenset({"old_logp"}), {}))
    by_hand = (experience.old_logp.double() - experience.rollout_logp.double()).exp().clamp(max=2.0).float()
    assert (by_hand[experience.mask] - 1).abs().max() > 0.2
    weighted = experience.replace(advantage=experience.advantage * by_hand)

    def gradient(algorithm: Any, batch: Any) -> torch.Tensor:
        made.zero_grad()
        algorithm.objective(batch, made.evaluate(batch, algorithm.required_outputs)).loss.backward()
        return torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])

    found, expected, without = gradient(corrected, experience), gradient(plain, weighted), gradient(plain, experience)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert (found - without).norm() > 0.1 * found.norm() > 0


def test_a_truncated_support_without_kept_ids_never_becomes_a_batch(stand_in: Any) -> None:
    made = policy("float32")
    player = EpisodePlayer(made, Digits(50), 3, VLLMSpec().build(made))
    source = LanguageSource(player, rows=1, seed=0, generator=torch.Generator().manual_seed(0))
    with pytest.raises(SupportError, match="which ids top-k and top-p left"):
        source.rollout(RolloutRequest(source.take(2), 2, Support(top_k=3)))
    tasks = [Digits(50)[i] for i in range(3)]
    assert len(source.greedy(tasks)) == 3  # only its reward is looked at
