"""polopt chat: what is asked reaches the policy with all that was said, and each answer is its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command import flat, polopt
from typer.testing import CliRunner

from polopt.cli.app import app
from polopt.policies.language import LanguagePolicy
from polopt.support import Support
from polopt.training.chat import ChatSession, conversations
from polopt.training.preflight_models import ContextError

TEMPLATE = "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}{% endfor %}"
GREEDY = Support(top_k=1)


def greedy(policy: LanguagePolicy, text: str, limit: int) -> str:
    """By transformers' own generate."""
    ids = policy.tokenizer(text, return_tensors="pt", add_special_tokens=policy.tokenizer.chat_template is None)
    found = policy.model.generate(**ids, max_new_tokens=limit, do_sample=False, eos_token_id=sorted(policy.stop))
    return policy.tokenizer.decode(found[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)


def asked(policy: LanguagePolicy, question: str) -> str:
    """The question alone, as the policy reads it."""
    return policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )


def test_an_answer_is_the_likeliest(trained: tuple[Path, str]) -> None:
    (talk,) = conversations(trained[0], support=GREEDY, limit=4).values()
    assert talk.ask("first abca: ") == greedy(talk.policy, asked(talk.policy, "first abca: "), 4)


def test_without_a_chat_template_each_question_stands_alone(trained: tuple[Path, str]) -> None:
    policy = LanguagePolicy.load(trained[0] / "policy")
    policy.tokenizer.chat_template = None
    talk = ChatSession(policy, support=GREEDY, limit=4)
    assert talk.ask("first abca: ") == greedy(talk.policy, "first abca: ", 4)
    assert talk.ask("last abca: ") == greedy(talk.policy, "last abca: ", 4)
    assert talk.history == []


def test_what_was_said_is_remembered(trained: tuple[Path, str]) -> None:
    policy = LanguagePolicy.load(trained[0] / "policy")
    policy.tokenizer.chat_template = TEMPLATE
    talk = ChatSession(policy, system="ab", support=GREEDY, limit=3)
    one = talk.ask("first ab")
    assert one == greedy(policy, "sabufirst ab", 3)
    two = talk.ask("cc")
    assert two == greedy(policy, f"sabufirst aba{one}ucc", 3)
    assert [m["role"] for m in talk.history] == ["system", "user", "assistant", "user", "assistant"]
    with pytest.raises(ContextError, match="tokens are in the conversation, and the model's context is 32"):
        talk.ask("first " * 40)


def test_base_and_trained_stand_side_by_side(trained: tuple[Path, str], recipe: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    began = polopt(
        "train", recipe, "--run", again, "--set", f"policy={{model: {trained[0] / 'policy'}}}",
        "--set", "stages.rl.optimiser.lr=0.05",
    )  # fmt: skip
    assert began.exit_code == 0, began.output
    talks = conversations(again, support=GREEDY, limit=4)
    assert list(talks) == ["base", "trained"]
    base, trained_ = talks["base"].policy, talks["trained"].policy
    assert torch.equal(
        base.model.get_input_embeddings().weight,
        LanguagePolicy.load(trained[0] / "policy").model.get_input_embeddings().weight,
    )
    assert not torch.equal(base.model.get_input_embeddings().weight, trained_.model.get_input_embeddings().weight)
    shown = polopt("chat", again, "first abca: ", "--tokens", 4)
    assert shown.exit_code == 0, shown.output
    words = shown.output.split()
    assert words[:3] == [">", "first", "abca:"]
    assert words[3:5] == ["base", "trained"]
    said = [greedy(policy, asked(policy, "first abca: "), 4) for policy in (base, trained_)]
    assert words[5:] == [*said[0].split(), *said[1].split()]
    alone = polopt("chat", again, "first abca: ", "--tokens", 4, "--no-base")
    assert alone.output.split()[3] == "trained"


def test_lines_of_standard_input_are_questions(trained: tuple[Path, str]) -> None:
    said = CliRunner().invoke(
        app, ["chat", str(trained[0]), "--tokens", "4"], input="first abca: \nlast abcc: \n\nnever asked\n"
    )
    assert said.exit_code == 0, said.output
    assert [line for line in said.output.splitlines() if line.startswith("> ")] == ["> first abca: ", "> last abcc: "]


def test_what_is_no_policy_is_one_sentence(tmp_path: Path) -> None:
    refused = polopt("chat", tmp_path, "hello")
    assert refused.exit_code == 2
    assert "holds no policy" in flat(refused.stderr)


def test_other_problems_are_measured_before_and_after(recipe: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"is {i}", "answer": "a"} for i in range(10)]
    (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    world = f"{{kind: dataset, path: {tmp_path / 'others.jsonl'}, heldout: 0.5}}"
    changed = f"evaluation.others={{letters: {{tasks: {world}, limit: 2}}}}"
    result = polopt("train", recipe, "--run", tmp_path / "run", "--set", changed)
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in (tmp_path / "run" / "others.jsonl").read_text().splitlines()]
    assert [(f["name"], f["when"], f["problems"]) for f in found] == [("letters", "before", 5), ("letters", "after", 5)]
    assert all(f["length/mean"] <= 2 for f in found)
    assert "letters (not trained)" in flat(result.output)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "What it was not taught" in page
    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert {s["prompt"] for s in samples if s.get("other") == "letters"} <= {row["prompt"] for row in rows}
    assert any(s.get("other") == "letters" for s in samples)
