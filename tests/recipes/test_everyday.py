"""The smollm recipe: its questions have the answers that they say, and it trains a small model in its own's place."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import everyday
from polopt import recipes
from polopt.policies.tokenizer import make_tokenizer
from polopt.training.launch import train
from polopt.training.recipe import load
from polopt.worlds import build_tasks

ROWS = [json.loads(line) for line in (everyday.FOLDER / "everyday.jsonl").read_text().splitlines()]


def solved(kind: str, prompt: str) -> str | None:
    """The answer, read from the question; None for kinds that are read otherwise."""
    numbers = [int(n) for n in re.findall(r"\d+", prompt)]
    last = re.split(r"[ :?.]+", prompt.rstrip("?."))
    if kind == "more":
        return str(sum(numbers))
    if kind == "fewer":
        return str(numbers[0] - numbers[1])
    if kind == "larger":
        return str(max(numbers) if "larger" in prompt else min(numbers))
    if kind == "letter":
        return last[-1][0] if "first letter" in prompt else last[-1][-1]
    if kind == "alphabet":
        return min(last[-3], last[-1])
    if kind == "day":
        days = everyday.DAYS
        ahead = next(n for n, words in enumerate(("is tomorrow", "in two days", "in three days"), 1) if words in prompt)
        return days[(days.index(re.findall(r"Today is (\w+)", prompt)[0]) + ahead) % 7]
    if kind == "colour":
        return re.findall(rf"\b{last[-1]} are (\w+)", prompt)[0]
    if kind == "oldest":
        order = re.findall(r"(\w+) is \w+er than (\w+)", prompt)
        assert order[0][1] == order[1][0]
        return order[0][0] if re.search("oldest|tallest", prompt) else order[1][1]
    if kind == "sort":
        wanted = re.findall(r"Which of these is (.+):", prompt)[0]
        found = [word for word in re.findall(r"\w+", prompt.partition(":")[2]) if word in everyday.SORTS[wanted]]
        assert len(found) == 1
        return found[0]
    people = {name: (job, city) for name, job, city in re.findall(r"(\w+) is a (\w+) and lives in (\w+)", prompt)}
    assert len(people) == 2
    asked = prompt.rpartition(". ")[2]
    said = [
        (name, job, city) for name, (job, city) in people.items() if {name, job, city} & set(re.findall(r"\w+", asked))
    ]
    assert len(said) == 1
    (name, job, city) = said[0]
    return city if "city" in asked else job if "job" in asked else name


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in ROWS}))
def test_answers_follow_from_their_questions(kind: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind]
    assert len(rows) >= 300
    assert len({row["prompt"] for row in rows}) == len(rows)
    for row in rows:
        assert row["answer"] == solved(kind, row["prompt"]), row["prompt"]


def test_the_files_are_what_the_program_writes() -> None:
    assert everyday.questions() == ROWS
    known = [json.loads(line) for line in (everyday.FOLDER / "knowledge.jsonl").read_text().splitlines()]
    assert everyday.knowledge() == known
    for row in known:
        assert re.search(row["pattern"], f"It is {row['answer']}."), row["prompt"]
        assert not re.search(row["pattern"], "I do not know.")


def test_no_question_is_trained_on_and_held_out() -> None:
    split = build_tasks(load("smollm").tasks, seed=0)
    train_set = {split.train[i].prompt for i in range(len(split.train))}
    heldout = Counter(split.heldout[i].prompt for i in range(len(split.heldout)))
    assert len(heldout) == 390
    assert not train_set & heldout.keys()


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    """Changes of the recipe: a small chat model in the place of its own, and one step of each stage."""
    tokenizer = make_tokenizer([("", row["prompt"], row["answer"]) for row in ROWS + everyday.knowledge()])
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}: {% endif %}"
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = AutoConfig.for_model("llama", **shape, max_position_embeddings=512, vocab_size=len(tokenizer), **ids)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return {
        "policy.model": str(tmp_path / "model"),
        "threads": 1,
        "limit": 4,
        "stages.warmup.steps": 1,
        "stages.rl.steps": 1,
        "stages.rl.rows": 16,
        "evaluation.problems": 8,
        "evaluation.others.knowledge.limit": 4,
    }


def test_a_small_model_in_its_place(small: dict[str, Any], tmp_path: Path) -> None:
    """All of the recipe but its model and its size: the warm-up, both evaluations, and what is not trained."""
    run = train(load("smollm", changes=small), tmp_path / "run")
    assert [e["when"] for e in run.read("evaluations")] == ["before", "after"]
    assert [(e["when"], e["name"], e["problems"]) for e in run.read("others")] == [
        ("before", "knowledge", 8),
        ("after", "knowledge", 8),
    ]


def test_the_notebook(small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells run in their order, on the small model."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "smollm.yaml").write_text(load("smollm", changes=small).to_yaml())
    monkeypatch.setattr(recipes, "FOLDER", tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((Path(__file__).parents[2] / "docs" / "teach.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    namespace: dict[str, Any] = {}
    for number, code in enumerate(cells, start=1):
        exec(compile(code, f"teach.ipynb, cell {number}", "exec"), namespace)
    assert (tmp_path / "runs" / "teach" / "report.html").is_file()
