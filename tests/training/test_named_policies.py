"""Frozen policies that a stage names: what they fill in, what reads it, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_stage_starts import RL, SFT, staged
from tiny_runs import DIGITS, Stop, StopAt, outcome, recipe
from torch import Tensor
from transformers import AutoModelForCausalLM

import polopt as po
from polopt.config import ConfigError
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import LogRatioReward, ReferenceKL
from polopt.training import loop
from polopt.training.launch import resume, train
from polopt.training.recipe import Recipe

GUIDED = {"objective.regularise": [ReferenceKL(anchor="guide")]}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(staged(3, sft=SFT), tmp_path_factory.mktemp("teacher") / "run").folder


def batches_of(made: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Experience]:
    """The credited batches of a run."""
    found: list[Experience] = []
    monkeypatch.setattr(loop.Training, "_log_rollouts", lambda self, experience, step: found.append(experience))
    train(made, folder)
    return found


def summed(folder: Path, batch: Experience) -> Tensor:
    """[B, T] log-probabilities of the tokens under the model in a folder, by transformers alone."""
    model, tokens = AutoModelForCausalLM.from_pretrained(folder), batch.extras["tokens"]
    logits = model(input_ids=tokens.clamp(min=0), attention_mask=(tokens >= 0).long()).logits.log_softmax(-1)
    said = logits[:, :-1].gather(2, tokens[:, 1:].clamp(min=0)[..., None])[..., 0]
    return torch.nn.functional.pad(said, (1, 0)).detach()


def test_the_named_policys_logp_is_that_of_the_saved_model(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = {"guide": {"run": str(teacher)}, "other": {"stage": "sft"}}
    both = {"objective.regularise": [ReferenceKL(anchor="guide"), ReferenceKL(anchor="other")]}
    stages = {"sft": SFT, "rl": RL | {"but": both, "policies": policies, "start": "initial"}}
    batches = batches_of(staged(**stages), tmp_path / "run", monkeypatch)
    last = batches[-1]
    assert last.mask.any()
    found, expected = last.extras["guide_logp"], summed(teacher / "policy", last)
    torch.testing.assert_close(found[last.mask], expected[last.mask], atol=1e-5, rtol=1e-5)
    alone = train(staged(sft=SFT), tmp_path / "alone").folder
    found, expected = last.extras["other_logp"], summed(alone / "policy", last)
    torch.testing.assert_close(found[last.mask], expected[last.mask], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(last.extras["other_logp"][last.mask], last.extras["guide_logp"][last.mask], atol=1e-3)


def test_a_part_that_has_another_anchor_reads_that_policy_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    logp, guide = (-torch.rand(2, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.tensor([[True, True, False], [True, False, False]])
    batch = Experience(mask=mask, extras={"guide_logp": guide.masked_fill(~mask, torch.nan)})
    part = LogRatioReward(scale=0.5, anchor="guide")
    found = part(batch, Evaluation(logp=logp))
    expected = 0.5 * torch.stack([(logp - guide)[0, :2].sum(), (logp - guide)[1, :1].sum()])
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)
    assert part.reads == {"extras.guide_logp"}
    assert LogRatioReward().reads == {"ref_logp"}
    with pytest.raises(ValueError, match="plain name of a policy"):
        LogRatioReward(anchor="a guide")


def weights(folder: Path) -> bytes:
    return (folder / "policy" / "model.safetensors").read_bytes()


def test_the_reference_may_be_named(teacher: Path, tmp_path: Path) -> None:
    rl = RL | {"method": {"name": "grpo", "kl": 0.5}, "steps": 3, "optimiser": {"lr": 0.03}}
    runs = {
        "default": staged(sft=SFT, rl=rl),
        "named": staged(sft=SFT, rl=rl | {"policies": {"reference": {"stage": "sft"}}}),
        "another": staged(sft=SFT, rl=rl | {"policies": {"reference": {"run": str(teacher)}}}),
        "model": staged(sft=SFT, rl=rl | {"policies": {"reference": {"model": str(teacher / "policy")}}}),
    }
    found = {name: weights(train(made, tmp_path / name).folder) for name, made in runs.items()}
    assert found["default"] == found["named"] != found["another"] == found["model"]
    assert not (tmp_path / "named" / "reference-rl.safetensors").exists()


@pytest.mark.parametrize("at", [2, 3])
def test_a_run_with_named_policies_goes_on(at: int, teacher: Path, tmp_path: Path) -> None:
    mean = {"average": ["initial", {"stage": "sft"}]}
    policies = {"guide": {"model": str(teacher / "policy")}, "reference": mean}
    but = {"objective.regularise": [ReferenceKL(anchor="guide"), ReferenceKL()], "reference_tau": 0.5}
    made = staged(sft=SFT, rl=RL | {"but": but, "policies": policies})
    whole = outcome(train(made, tmp_path / "whole").folder)
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(at),))
    assert outcome(resume(tmp_path / "run").folder) == whole
    state = load_file(max((tmp_path / "run" / "checkpoints").iterdir()) / "state.safetensors")
    assert any(name.startswith("ref_logp.") for name in state)
    assert not any("guide" in name for name in state)


def test_what_does_not_fit_together_is_refused_at_the_door(teacher: Path, tmp_path: Path) -> None:
    def refused(policies: dict[str, Any], **stage: Any) -> str:
        made = recipe(stages={"sft": SFT, "rl": RL | stage | {"policies": policies}}, episodes={"where": "here"})
        with pytest.raises(ConfigError) as error:
            train(made, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return str(error.value)

    unnamed = refused({}, but=GUIDED)
    assert "stages.rl: objectives.ReferenceKL reads extras.guide_logp, and the stage names no policy guide" in unnamed
    assert "stages.rl.policies: {guide: {stage: NAME}}" in unnamed
    assert "stages.rl.policies.guide: no part of the method reads extras.guide_logp" in refused({"guide": "initial"})
    assert "policies.reference: no part of the method reads ref_logp" in refused(
        {"reference": "initial"}, method={"name": "grpo", "kl": 0}
    )
    prompt = {"objective.regularise": [ReferenceKL(anchor="prompt")]}
    assert "extras.prompt_logp is another number already" in refused({"prompt": "initial"}, but=prompt)
    model = {"model": str(teacher / "policy")}
    moved = refused({"reference": model}, but={"reference_tau": 0.5, "objective.regularise": [ReferenceKL()]})
    assert "which a model of its own cannot follow" in moved
    assert "policies.guide.model" in refused({"guide": {"model": str(tmp_path / "none")}}, but=GUIDED)
    assert "stages.rl.policies.guide names stage rl" in _unparsed({"guide": {"stage": "rl"}})
    assert "needs a plain name" in _unparsed({"a guide": "initial"})
    assert "keeps itself" in _unparsed({"previous": "initial"})


def _unparsed(policies: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        staged(sft=SFT, rl=RL | {"policies": policies})
    return str(error.value)


def test_a_model_must_read_the_policys_tokens(teacher: Path, tmp_path: Path) -> None:
    other = {**DIGITS, "kind": "guess-number", "low": 1, "high": 5, "turns": 3, "train": 50, "heldout": 10}
    del other["size"]
    stage = RL | {"but": GUIDED, "policies": {"guide": {"model": str(teacher / "policy")}}}
    with pytest.raises(ConfigError, match=r"policies\.guide: .* has another tokenizer"):
        train(recipe(stages={"rl": stage}, tasks=other, episodes={"where": "here"}), tmp_path / "run")
    longer = {"config": {**staged(sft=SFT).policy.config, "n_positions": 128}}
    with pytest.raises(ConfigError, match="reads 64 tokens, and the policy 128"):
        train(recipe(stages={"rl": stage}, policy=longer, episodes={"where": "here"}), tmp_path / "run")


def test_plans_count_named_policies() -> None:
    from polopt.plan.requirements import requirements_of

    plain = requirements_of(po.method("dpo"))
    guided = requirements_of(po.method("dpo").but({"objective.regularise": [ReferenceKL(anchor="guide")]}))
    assert (guided.frozen, guided.other) == (plain.frozen + 1, plain.other + 1)
