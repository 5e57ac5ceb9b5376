"""polopt convert: checkpoints, adapters and models into one another, against PEFT, NumPy and the files themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import flat, polopt
from safetensors.torch import load_file
from torch import Tensor

from polopt.policies.language import LanguagePolicy
from polopt.training import conversion

peft = pytest.importorskip("peft")


@torch.no_grad()
def logits_of(model: Any) -> Tensor:
    return model.eval()(torch.arange(3, 15)[None], use_cache=False).logits


def transformer(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def refused(*arguments: object) -> str:
    result = polopt("convert", *arguments)
    assert result.exit_code == 2, result.output
    return flat(result.stderr)


def converted(*arguments: object) -> str:
    result = polopt("convert", *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return flat(result.output)


@pytest.fixture(scope="module")
def adapted(recipe: Path, trained: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that goes on from another run's policy with an adapter."""
    folder = tmp_path_factory.mktemp("adapted") / "run"
    base = trained[0] / "policy"
    changes = [f"policy={{model: {base}, adapter: {{rank: 2}}}}", "stages.warmup.optimiser.lr=0.05"]
    result = polopt("train", recipe, "--run", folder, *(part for c in changes for part in ("--set", c)))
    assert result.exit_code == 0, result.output
    return folder


def test_any_checkpoint_becomes_a_model(trained: tuple[Path, str], tmp_path: Path) -> None:
    """The weights are the checkpoint's, the run is left as it is, and the last one is what the run saved."""
    run = trained[0]
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    steps = sorted(int(p.name) for p in (run / "checkpoints").iterdir())
    assert len(steps) == 2
    converted(run, "--step", steps[0], "--to", tmp_path / "early")
    converted(run, "--to", tmp_path / "last")
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    held = load_file(run / "checkpoints" / f"{steps[0]:08d}" / "state.safetensors")
    for name, weight in transformer(tmp_path / "early").named_parameters():
        assert torch.equal(weight, held[f"policy.model.{name}"])
    for name in ("model.safetensors", "config.json", "tokenizer.json", "generation_config.json"):
        assert (tmp_path / "last" / name).read_bytes() == (run / "policy" / name).read_bytes()
    assert f"has no checkpoint of step 40; it has {steps[0]}, {steps[1]}" in refused(
        run, "--step", 40, "--to", tmp_path / "new"
    )


def test_a_run_with_an_adapter(trained: tuple[Path, str], adapted: Path, tmp_path: Path) -> None:
    """Its checkpoint as a model and as an adapter; its adapter and base as one model, by PEFT."""
    converted(adapted, "--to", tmp_path / "model")
    converted(adapted, "--adapter", "--to", tmp_path / "adapter")
    converted(adapted / "adapter", "--to", tmp_path / "merged")
    converted(adapted / "adapter", "--base", trained[0] / "policy", "--to", tmp_path / "again")
    saved = (adapted / "policy" / "model.safetensors").read_bytes()
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == saved
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "adapter" / name).read_bytes() == (adapted / "adapter" / name).read_bytes()
    moved = logits_of(transformer(adapted / "policy"))
    assert (moved - logits_of(transformer(trained[0] / "policy"))).abs().max() > 1e-3
    for folder in ("merged", "again"):
        torch.testing.assert_close(logits_of(transformer(tmp_path / folder)), moved, atol=1e-5, rtol=0)
    assert "so it has no adapter" in refused(trained[0], "--adapter", "--to", tmp_path / "new")


def two_models(trained: tuple[Path, str], folder: Path, rank: int, dtype: str = "float64") -> dict[str, np.ndarray]:
    """A base, and a model that differs from it by `rank` directions in some maps. The differences, [out, in]."""
    base = LanguagePolicy.load(trained[0] / "policy", dtype=dtype)
    base.save(folder / "base")
    random, found = np.random.default_rng(0), {}
    with torch.no_grad():
        for name, parameter in base.model.named_parameters():
            if "c_fc.weight" in name or "c_attn.weight" in name:
                sizes = random.uniform(0.5, 2, size=rank)
                rows, columns = (np.linalg.qr(random.normal(size=(n, rank)))[0] for n in parameter.shape)
                found[name.removesuffix(".weight")] = (columns * sizes) @ rows.T
                parameter.add_(torch.from_numpy(found[name.removesuffix(".weight")].T).to(parameter.dtype))
    base.save(folder / "model")
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_difference_of_low_rank_becomes_an_adapter_exactly(
    dtype: str, trained: tuple[Path, str], tmp_path: Path
) -> None:
    two_models(trained, tmp_path, 3, dtype)
    said = converted(tmp_path / "model", "--base", tmp_path / "base", "--to", tmp_path / "adapter")
    assert "rank 3, 2 maps exact to rounding" in said
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], set(config["target_modules"])) == (3, 3, {"c_fc", "c_attn"})
    together = peft.PeftModel.from_pretrained(transformer(tmp_path / "base"), tmp_path / "adapter")
    bound = 1e-10 if dtype == "float64" else 1e-4
    expected = logits_of(transformer(tmp_path / "model"))
    torch.testing.assert_close(logits_of(together), expected, atol=bound, rtol=0)
    assert (expected - logits_of(transformer(tmp_path / "base"))).abs().max() > 0.1


def test_a_smaller_rank_says_what_it_leaves_out(trained: tuple[Path, str], tmp_path: Path) -> None:
    """The error by NumPy's singular values; the divergence on a text by hand."""
    differences = two_models(trained, tmp_path, 3)
    text = "first abca: "
    found = conversion.split(tmp_path / "model", tmp_path / "base", tmp_path / "adapter", rank=2, texts=[text])
    assert found.found.error.keys() == differences.keys()
    for name, difference in differences.items():
        s = np.linalg.svd(difference, compute_uv=False)
        assert found.found.error[name] == pytest.approx(s[2] / np.sqrt((s**2).sum()), rel=1e-6)
    ids = LanguagePolicy.load(tmp_path / "base").tokenizer(text, return_tensors="pt")["input_ids"]
    whole = transformer(tmp_path / "model")
    other = peft.PeftModel.from_pretrained(transformer(tmp_path / "base"), tmp_path / "adapter")
    with torch.no_grad():
        p, q = (torch.softmax(m.eval()(ids).logits[0].double(), -1) for m in (whole, other))
    kl = (p * (p / q).log()).sum(-1)
    assert found.kl == pytest.approx(float(kl.mean()), rel=1e-6)
    assert found.worst_kl == pytest.approx(float(kl.max()), rel=1e-6)
    assert found.kl > 1e-6
    said = converted(tmp_path / "model", "--base", tmp_path / "base", "--rank", 2, "--to", tmp_path / "again")
    assert "of the difference is left out" in said
    assert "nats per token" in said


def test_what_no_adapter_holds_is_named(trained: tuple[Path, str], tmp_path: Path) -> None:
    two_models(trained, tmp_path, 1)
    moved = LanguagePolicy.load(tmp_path / "model")
    with torch.no_grad():
        moved.model.transformer.ln_f.weight.add_(0.1)
    moved.save(tmp_path / "model")
    said = converted(tmp_path / "model", "--base", tmp_path / "base", "--to", tmp_path / "adapter")
    assert "no linear maps inside the model: transformer.ln_f.weight" in said
    assert "there is nothing to make an adapter of" in refused(
        tmp_path / "base", "--base", tmp_path / "base", "--to", tmp_path / "none"
    )


def test_refusals(trained: tuple[Path, str], adapted: Path, tmp_path: Path) -> None:
    model, run = trained[0] / "policy", trained[0]
    new = ("--to", tmp_path / "new")
    for arguments, sentence in [
        ((run, "--to", run), "is not empty: name another folder"),
        ((model, "--step", 2, *new), "--step and --adapter are of a run, and"),
        ((model, *new), "give --base MODEL to make an adapter of the difference"),
        ((run, "--base", model, *new), "--base and --rank are of a model"),
        ((adapted / "adapter", "--rank", 2, *new), "--rank is of an adapter to be made"),
        ((tmp_path / "nowhere", "--base", model, *new), "cannot be loaded as a model"),
        ((adapted / "adapter", "--base", tmp_path / "nowhere", *new), "cannot be loaded as a model"),
    ]:
        assert sentence in refused(*arguments), arguments
    assert not (tmp_path / "new").exists()
