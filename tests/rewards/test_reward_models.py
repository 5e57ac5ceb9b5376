"""Sequence classifiers of transformers as judges: their scores are those that transformers computes of a row alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from polopt.backends import Pairs, TextClassifier, TextScorer, fit_scorer, load_scorer, save_scorer
from polopt.part import from_yaml
from polopt.policies.tokenizer import make_tokenizer
from polopt.rewards import EnsembleJudge, JudgedReward, LearnedJudge

PROMPTS = ["2 + 2? ", "Who? ", "2 + 2? ", "Who? ", "Who is it? "]
ANSWERS = ["4", "5", "It may be 5.", "Who knows.", ""]
SIZES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def the_tokenizer(chat: bool = True) -> Any:
    tokenizer = make_tokenizer([("", p, a) for p, a in zip(PROMPTS, ANSWERS, strict=True)])
    if not chat:
        tokenizer.chat_template = None
    return tokenizer


def of_decoder(labels: int = 1, padding: bool = True, **more: Any) -> TextClassifier:
    tokenizer = the_tokenizer()
    config = Qwen3Config(
        **SIZES,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.3,
        vocab_size=len(tokenizer),
        num_labels=labels,
        pad_token_id=tokenizer.pad_token_id if padding else None,
        **more,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TextClassifier(Qwen3ForSequenceClassification(config).eval(), tokenizer, 0 if labels > 1 else None)


def of_encoder() -> TextClassifier:
    tokenizer = the_tokenizer(chat=False)
    config = BertConfig(
        **SIZES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
        vocab_size=len(tokenizer),
        num_labels=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TextClassifier(BertForSequenceClassification(config).eval(), tokenizer)


@pytest.mark.parametrize("padding", [True, False])
def test_a_published_reward_model_judges_by_its_folder(tmp_path: Path, padding: bool) -> None:
    """Against transformers alone, with the folder's own template, a row at a time."""
    folder = str(save_scorer(of_decoder(padding=padding), tmp_path / "model"))
    judge = from_yaml(JudgedReward(judge=LearnedJudge(weights=folder)).to_yaml()).judge
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    wanted = []
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        ids = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id
        assert ids[1] != tokenizer.bos_token_id
        wanted.append(model.double()(input_ids=torch.tensor([ids])).logits.item())
    found = judge(PROMPTS, ANSWERS).scores
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-10, atol=1e-12)
    assert len(set(wanted)) == len(wanted)
    assert not list(judge.parameters())
    halved = LearnedJudge(weights=folder, rows=2, link="sigmoid", dtype="float32")(PROMPTS, ANSWERS).scores
    torch.testing.assert_close(halved, found.sigmoid().float(), rtol=1e-5, atol=1e-6)


def test_a_tokenizer_without_a_template_reads_a_pair() -> None:
    classifier = of_encoder().double()
    judge = LearnedJudge().judges_with(classifier)
    found = judge(PROMPTS, ANSWERS).scores
    for prompt, answer, score in zip(PROMPTS, ANSWERS, found, strict=True):
        fields = classifier.tokenizer(prompt, answer, return_tensors="pt")
        torch.testing.assert_close(classifier.model(**fields).logits[0, 0], score, rtol=1e-10, atol=1e-12)
    assert judge([], []).scores.shape == (0,)


def test_the_score_is_of_the_label_that_is_named(tmp_path: Path) -> None:
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    folder = str(save_scorer(of_decoder(labels=2, **names), tmp_path / "model"))
    by_name, by_number, other = (LearnedJudge(weights=folder, label=label) for label in ("good", 1, 0))
    assert torch.equal(by_name(PROMPTS, ANSWERS).scores, by_number(PROMPTS, ANSWERS).scores)
    assert not torch.equal(by_name(PROMPTS, ANSWERS).scores, other(PROMPTS, ANSWERS).scores)
    with pytest.raises(
        ValueError, match=r"label must be one of the classifier's, bad \(0\), good \(1\); none is named"
    ):
        LearnedJudge(weights=folder)
    with pytest.raises(ValueError, match="found 'better'"):
        LearnedJudge(weights=folder, label="better")


def test_what_cannot_judge_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no scorer that can be read"):
        LearnedJudge(weights=str(tmp_path / "none"))
    config = Qwen3Config(**SIZES, num_key_value_heads=1, head_dim=8, vocab_size=20)
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "policy")
    with pytest.raises(ValueError, match="is a Qwen3ForCausalLM, which has no head that scores a text"):
        LearnedJudge(weights=str(tmp_path / "policy"))
    scorer = str(save_scorer(TextScorer(), tmp_path / "scorer"))
    with pytest.raises(ValueError, match="has no labels"):
        LearnedJudge(weights=scorer, label=0)
    folder = str(save_scorer(of_decoder(), tmp_path / "model"))
    with pytest.raises(ValueError, match="compares=False, found compares=True"):
        LearnedJudge(weights=folder, compares=True)


def test_a_head_that_is_not_in_the_folder_is_refused(tmp_path: Path) -> None:
    """transformers would make up its weights."""
    from safetensors.torch import load_file, save_file

    folder = save_scorer(of_decoder(), tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in weights.items() if k != "score.weight"}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="lacks weights of the classifier"):
        load_scorer(folder)


def test_nothing_is_cut_off() -> None:
    judge = LearnedJudge().judges_with(of_decoder(max_position_embeddings=12))
    assert judge(["Who? "], ["4"]).scores.shape == (1,)
    with pytest.raises(ValueError, match=r"tokens long, and .* reads 12 at most; nothing is cut off"):
        judge(["Who? ", "Who? "], ["4", "4" * 20])


@pytest.mark.parametrize("made", [of_decoder, of_encoder])
def test_it_learns_what_was_preferred(made: Any) -> None:
    classifier, pairs = made(), Pairs(PROMPTS[:4], ["4", "It may be 5.", "4", "5"], ["5", "4", "Who knows.", "4"])
    before = classifier.model.state_dict()["score.weight" if made is of_decoder else "classifier.weight"].clone()
    losses = fit_scorer(classifier, pairs, steps=60, rows=8, rate=3e-3)
    assert losses[-1] < 0.1 < losses[0]
    assert not torch.equal(before, [*classifier.model.parameters()][-1 if made is of_decoder else -2])
    better, worse = (
        LearnedJudge().judges_with(classifier)(pairs.prompts, x).scores for x in (pairs.better, pairs.worse)
    )
    assert (better > worse).all()
    with pytest.raises(ValueError, match="the scorer compares with none"):
        fit_scorer(classifier, Pairs(["a"], ["b"], ["c"], references=["d"]), steps=1)


class TestEnsemble:
    judges = (LearnedJudge(seed=1), LearnedJudge(seed=2), LearnedJudge(seed=3, compares=True))

    @pytest.mark.filterwarnings("ignore:rewards.LearnedJudge has no weights")
    def test_the_formulas_by_hand(self) -> None:
        scores = [judge(PROMPTS, ANSWERS, PROMPTS).scores.tolist() for judge in self.judges]
        mean = EnsembleJudge(judges=list(self.judges), caution=0.7)(PROMPTS, ANSWERS, PROMPTS)
        least = EnsembleJudge(judges=list(self.judges), combine="minimum")(PROMPTS, ANSWERS, PROMPTS)
        for row, of_row in enumerate(zip(*scores, strict=True)):
            average = math.fsum(of_row) / 3
            variance = math.fsum((s - average) ** 2 for s in of_row) / 3
            assert mean.scores[row].item() == pytest.approx(average - 0.7 * variance, rel=1e-12)
            assert least.scores[row].item() == min(of_row)
            assert mean.details[row]["scores"] == list(of_row)
            assert mean.details[row]["disagreement"] == pytest.approx(math.sqrt(variance), rel=1e-9)

    def test_it_compares_where_one_of_them_does(self) -> None:
        assert EnsembleJudge(judges=list(self.judges)).compares
        assert not EnsembleJudge(judges=list(self.judges[:2])).compares
        with pytest.raises(ValueError, match="compares with references, found none"):
            EnsembleJudge(judges=list(self.judges))(PROMPTS, ANSWERS)

    @pytest.mark.parametrize("bad", [{"judges": []}, {"judges": [LearnedJudge()], "caution": -1.0}])
    def test_bad_settings(self, bad: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="it needs one judge or more and caution >= 0"):
            EnsembleJudge(**bad)
