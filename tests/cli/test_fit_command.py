"""polopt fit, and what judges of a policy's answers make of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from command import flat, lines, polopt
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

from polopt.backends import load_preference, load_scorer
from polopt.config import parse
from polopt.part import from_yaml
from polopt.policies.tokenizer import make_tokenizer
from polopt.rewards import JudgedPreference, LearnedJudge
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import train

FAST = ["--set", "epochs=4", "--set", "lr=0.01", "--set", "rows=8"]
SMALL = ["--set", "shape={width: 8, layers: 0}"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    """Of two numbers the one in the prompt is preferred."""
    draw = random.Random(0)
    rows = []
    for i in range(48):
        a, b = draw.sample(range(10), 2)
        rows.append({"prompt": f"even {a}{i % 7} ", "chosen": str(a), "rejected": str(b), "shown": bool(i % 2)})
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "pairs.jsonl"


def tokenizer(chat: bool) -> Any:
    made = make_tokenizer([("", "even 0123456789 ", "x")])
    if not chat:
        made.chat_template = None
    return made


def decoder(folder: str = "decoder") -> str:
    """A language model, which has no head that scores."""
    tokens = tokenizer(chat=True)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes, num_attention_heads=2, vocab_size=len(tokens), max_position_embeddings=64)
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


def encoder(folder: str = "encoder") -> str:
    """A sequence classifier with dropout, whose tokenizer has no chat template."""
    tokens = tokenizer(chat=False)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = BertConfig(
        **sizes, num_attention_heads=2, vocab_size=len(tokens), num_labels=1, max_position_embeddings=64
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


def test_the_summary_the_folder_and_the_json(pairs: str) -> None:
    result = polopt("fit", pairs, "--run", "runs/judge", "--position", "shown", "--heldout", "0.25", *SMALL)
    assert result.exit_code == 0, result.output
    output = flat(result.output)
    for text in (
        "bradley-terry on ",
        "(95%)",
        "log loss, nats",
        "calibration error",
        "the first answer preferred",
        "Judge rewards.LearnedJudge(weights='runs/judge')",
    ):
        assert text in output, text
    record = json.loads(Path("runs/judge/results.json").read_text())
    count, held = record["pairs"], record["heldout"]["pairs"]
    assert f"{count} pairs to learn from, {held} held out" in output
    assert count + held == 48
    assert held >= 8
    assert record["heldout"]["accuracy"]["level"] == 0.95
    assert 0 < record["heldout"]["log_loss"] < 1
    again = polopt("fit", pairs, "--run", "runs/judge", "--position", "shown", "--heldout", "0.25", *SMALL, "--json")
    assert "has finished already: nothing was fitted" in flat(again.stderr)
    assert json.loads(again.stdout)["heldout"] == record["heldout"]


def test_folders_are_found_where_none_is_named(pairs: str) -> None:
    for _ in range(2):
        assert polopt("fit", pairs, "--kind", "{name: gaussian, link: logistic}", *SMALL).exit_code == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["pairs-gaussian-1", "pairs-gaussian-2"]
    one, two = ((p / "model.safetensors").read_bytes() for p in sorted(Path("runs").iterdir()))
    assert one == two
    assert "logistic" in Path("runs/pairs-gaussian-1/fit.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.jsonl"], "none.jsonl does not exist"),
        (["pairs.jsonl", "--kind", "bradley"], "there is no kind 'bradley'; did you mean 'bradley-terry'"),
        (["pairs.jsonl", "--model", "no/such/model"], "fit.model: no/such/model holds no model"),
        (["pairs.jsonl", "--margin", "gap"], "rows are malformed: lines"),
        (["pairs.jsonl", "--heldout", "1.5"], "heldout = 1.5"),
        (["pairs.jsonl", "--set", "tasks.chosen=best"], "field 'best' is missing"),
    ],
)
def test_mistakes_get_one_sentence(pairs: str, arguments: list[str], sentence: str) -> None:
    result = polopt("fit", *arguments, "--run", "runs/judge")
    assert result.exit_code == 2, result.output
    assert sentence in flat(result.stderr)
    assert not Path("runs/judge").exists()


def test_a_text_that_is_too_long_is_named_by_its_line(pairs: str) -> None:
    rows = Path(pairs).read_text().splitlines()
    rows[4] = json.dumps({"prompt": "even ", "chosen": "1" * 80, "rejected": "2"})
    Path(pairs).write_text("\n".join(rows))
    result = polopt("fit", pairs, "--model", encoder(), "--run", "runs/judge")
    assert result.exit_code == 2
    assert "line 5: texts are longer than the 64 tokens that the model reads" in flat(result.stderr)


@pytest.mark.parametrize("make", [decoder, encoder])
@pytest.mark.parametrize("kind", ["bradley-terry", "preference", "gaussian"])
def test_a_model_of_transformers_becomes_a_judge(pairs: str, make: Any, kind: str) -> None:
    folder = make()
    for run in ("one", "two"):
        torch.rand(1)  # whatever has drawn numbers before
        result = polopt("fit", pairs, "--model", folder, "--kind", kind, "--run", run, *FAST)
        assert result.exit_code == 0, result.output
    assert Path("one/model.safetensors").read_bytes() == Path("two/model.safetensors").read_bytes()
    record = json.loads(Path("one/results.json").read_text())
    assert record["members"][0]["new_head"] == (make is decoder or kind == "gaussian")
    fit = load_preference("one")
    assert fit is not None
    judge = LearnedJudge(weights="one")
    assert judge.compares == (kind == "preference")
    prompts, answers, others = ["even 31 ", "even 45 "], ["3", "5"], ["7", "4"]
    found = judge(prompts, answers, others)
    model, tokens = (
        AutoModelForSequenceClassification.from_pretrained("one").double(),
        AutoTokenizer.from_pretrained("one"),
    )
    for row, (prompt, a, b) in enumerate(zip(prompts, answers, others, strict=True)):
        raw = by_transformers(model, tokens, prompt, a, b if kind == "preference" else None)
        if kind == "preference":
            raw = (raw - by_transformers(model, tokens, prompt, b, a)) / 2
            assert found.scores[row].item() == pytest.approx(torch.sigmoid(raw[0] / fit.temperature).item(), rel=1e-9)
        elif kind == "gaussian":
            std = fit.temperature * torch.nn.functional.softplus(raw[1])
            assert found.scores[row].item() == pytest.approx(raw[0].item(), rel=1e-9)
            assert found.details[row]["std"] == pytest.approx(std.item(), rel=1e-9)
        else:
            assert found.scores[row].item() == pytest.approx((raw[0] / fit.temperature).item(), rel=1e-9)


def by_transformers(model: Any, tokens: Any, prompt: str, answer: str, second: str | None = None) -> torch.Tensor:
    """The logits of one text, which is written out here."""
    if tokens.chat_template is None:
        both = (prompt, answer) if second is None else (f"{prompt}\n{answer}", f"{prompt}\n{second}")
        fields = tokens(*both, return_tensors="pt")
    else:
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        if second is not None:
            messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": second}]
        text = tokens.apply_chat_template(messages, tokenize=False)
        fields = tokens(text, add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        logits: torch.Tensor = model(**fields).logits[0]
    return logits


DIGITS = {"kind": f"{Path(__file__).parents[1] / 'training' / 'tiny_runs.py'}:digits", "size": 200}
POLICY = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.2}


@pytest.mark.parametrize(
    ("method", "make", "kind", "part"),
    [
        ("sppo", decoder, "preference", "JudgedPreference"),
        ("online-dpo", encoder, "preference", "JudgedPreference"),
        ("online-dpo", decoder, "bradley-terry", "RewardPreference"),
        ("inpo", encoder, "gaussian", "GaussianPreference"),
    ],
)
def test_a_policy_learns_from_what_was_fitted(
    pairs: str, monkeypatch: pytest.MonkeyPatch, method: str, make: Any, kind: str, part: str
) -> None:
    """A recipe without code; the rewards of its batch are the win rates by the judge, pair by pair."""
    result = polopt("fit", pairs, "--model", make(), "--kind", kind, "--run", "judge", *FAST)
    assert result.exit_code == 0, result.output
    judge = {"part": "rewards.LearnedJudge", "weights": "judge"}
    preference = {"part": f"rewards.{part}", "judge": judge}
    data = {
        "threads": 1,
        "policy": {"config": POLICY},
        "tasks": DIGITS,
        "limit": 3,
        "stages": {"rl": {"method": {"name": method, "group": 4, "preference": preference}, "steps": 2, "rows": 8}},
        "evaluation": {"problems": 4, "quick": 4},
        "checkpoint": 2,
    }
    batches: list[Any] = []
    from polopt.training import loop

    monkeypatch.setattr(loop.Training, "_log_rollouts", lambda self, experience, step: batches.append(experience))
    train(parse(LanguageRecipe, data, "test"), Path("run"))
    assert [record["step"] for record in lines(Path("run"), "metrics")] == [0, 1]
    loaded, own, compared = LearnedJudge(weights="judge"), method != "inpo", 0
    for batch in batches:
        tasks, answers, group = batch.extras["task"], batch.extras["answer"], batch.group.tolist()
        for i in range(len(group)):
            others = [j for j in range(len(group)) if group[j] == group[i] and j != i]
            if len(others) < 3:
                continue  # its group was narrowed after the rewards
            chances = [chance(loaded, kind, tasks[i].prompt, answers[i], answers[j]) for j in others]
            wanted = (sum(chances) + 0.5 * own) / (len(chances) + own)
            assert batch.reward.flatten()[i].item() == pytest.approx(wanted, abs=1e-5)
            compared += 1
    assert compared >= 8


def chance(judge: LearnedJudge, kind: str, prompt: str, first: str, second: str) -> float:
    """The probability that the first answer is preferred, by the formula of its kind."""
    if kind == "preference":
        return judge([prompt], [first], [second]).scores.item()
    a, b = judge([prompt], [first]), judge([prompt], [second])
    gap = (a.scores - b.scores).item()
    if kind == "bradley-terry":
        return torch.sigmoid(torch.tensor(gap)).item()
    z = gap / (a.details[0]["std"] ** 2 + b.details[0]["std"] ** 2) ** 0.5
    return torch.special.ndtr(torch.tensor(z)).item()


def test_an_ensemble_through_the_command(pairs: str) -> None:
    result = polopt("fit", pairs, "--ensemble", "2", "--run", "judge", *SMALL)
    assert result.exit_code == 0, result.output
    assert "rewards.EnsembleJudge(judges=[rewards.LearnedJudge(weights='judge/member-1')" in flat(result.output)
    assert "disagreement" in result.output
    one, two = (load_scorer(f"judge/member-{i}") for i in (1, 2))
    assert not torch.equal(one(["a"], ["b"]), two(["a"], ["b"]))


def test_a_judge_is_the_same_after_yaml(pairs: str) -> None:
    polopt("fit", pairs, "--kind", "preference", "--run", "judge", *SMALL)
    part = JudgedPreference(judge=LearnedJudge(weights="judge"))
    again = from_yaml(part.to_yaml())
    args = (["even 1 "], ["1"], ["2"])
    assert torch.equal(again.judge(*args).scores, part.judge(*args).scores)
    with pytest.raises(ValueError, match="needs temperature > 0 and a judge of one answer"):
        from_yaml("{part: rewards.RewardPreference, judge: {part: rewards.LearnedJudge, weights: judge}}")
