"""What is found out about tasks and their verifier before a run begins, and leaves no folder."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import MODEL, recipe

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.policies.adapter import AdapterSpec
from polopt.policies.factory import new_policy
from polopt.sampling.parts import RolloutRequest
from polopt.training import language, launch, planning
from polopt.training import recipe as recipes
from polopt.training.conversion import policy_at
from polopt.training.episode_player import EpisodePlayer
from polopt.training.estimate import longest_prompt
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import train
from polopt.training.preflight import check_chat_template, check_tasks
from polopt.training.trained import evaluate_folder
from polopt.worlds import DatasetReader, VerifierError

ROWS = [{"prompt": f"{i} + 1 =", "answer": f"{i + 1}"} for i in range(20)]


def tasks(folder: Path, rows: list[dict[str, Any]] | None = None, **settings: Any) -> dict[str, Any]:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS if rows is None else rows)))
    return {"kind": "dataset", "path": str(path), **settings}


def player(reader: DatasetReader, path: str, limit: int = 8, **more: Any) -> EpisodePlayer:
    listed = reader.read(path)
    texts = [(task.kind, task.prompt, task.solution or "") for task in map(listed.__getitem__, range(len(listed)))]
    made = new_policy(MODEL, texts, seed=0, dtype="float32", **more)
    return EpisodePlayer(made, listed, limit)


def test_references_that_are_not_rewarded(tmp_path: Path) -> None:
    rows = [{**row, "solution": f"It is {row['answer']}"} for row in ROWS]
    path = tasks(tmp_path, rows)["path"]
    sentence = r"stages.rl: none of the 8 reference answers that were scored has a positive reward \(rows:1 gets 0, "
    with pytest.warns(PoloptWarning, match=sentence + r"rows:3 gets 0, rows:6 gets 0\), .* as in 'It is 1'"):
        check_tasks({"rl": player(DatasetReader("numeric"), path, limit=20)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tasks({"rl": player(DatasetReader({"verifier": "numeric", "take": "last"}), path, limit=20)})
    one = DatasetReader(lambda completion, row: 0.5 if row["answer"] == "20" else -1.0)
    with pytest.warns(PoloptWarning, match="rows:1 gets -1"):
        check_tasks({"rl": player(one, path, limit=20)})  # row 20 is none of the 8


def test_references_that_are_longer_than_the_limit(tmp_path: Path) -> None:
    rows = [{"prompt": "count", "answer": "1" * n} for n in range(1, 21)]
    path = tasks(tmp_path, rows)["path"]
    with pytest.warns(PoloptWarning, match="different answers"):
        made = player(DatasetReader(lambda completion, row: 1.0), path, limit=15)
    assert len(made.dialogue.answer("1" * 20)) == 21  # a digit is a token, and one ends the answer
    with pytest.warns(PoloptWarning) as caught:
        check_tasks({"warmup": made, "rl": made})
    (sentence,) = [str(w.message) for w in caught]
    assert sentence.startswith(
        "stages.rl: 6 of 20 reference answers that were measured are longer than the limit of 15 tokens, the longest "
        "has 21"
    )


def test_only_a_run_that_begins_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(language, "check_tasks", lambda players: called.append(list(players)))
    settings = recipe(tasks=tasks(tmp_path), policy={"config": MODEL})
    train(settings, tmp_path / "run")
    assert called == [["rl"]]
    launch.resume(tmp_path / "run")
    assert len(called) == 1


def test_a_failing_reward_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reward(completion, row):\n    return None\n")
    settings = recipe(tasks=tasks(tmp_path, verifier=f"{tmp_path}/mine.py:reward"))
    with pytest.raises(VerifierError, match="must return a finite number or a bool, found None"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nofile.py:reward", "nofile.py does not exist; name a Python file"),
        ("mine.py:zzz", "mine.py has no 'zzz'; it has: Path, fine, wrong"),
        ("mine.py:fin", "mine.py has no 'fin'; did you mean 'fine'?"),
        ("mine:fine", "there is no module mine; did you mean 'mine.py:fine'?"),
        ("mine.py:wrong", "mine.py:wrong is called as function(completion, row), but missing a required argument: 'c'"),
        ("broken.py:f", "broken.py cannot be loaded: SyntaxError: '(' was never closed (broken.py, line 1)"),
        (
            "imports.py:f",
            "imports.py cannot be loaded: ModuleNotFoundError: No module named 'nosuch' (imports.py, line 2)",
        ),
        ("ends.py:f", "ends.py cannot be loaded: SystemExit: 3 (ends.py, line 1)"),
        ("math-verfy", "'math-verfy' is not a verifier; did you mean 'math-verify'?"),
    ],
)
def test_names_are_looked_up_when_the_recipe_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    own = "from pathlib import Path\ndef fine(completion, row): return 1.0\ndef wrong(a, b, c): return 1.0\n"
    files = {
        "mine.py": own,
        "broken.py": "def f(x:\n",
        "imports.py": "\nimport nosuch\n",
        "ends.py": "raise SystemExit(3)",
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    for world in (
        tasks(tmp_path, verifier=name),
        {"kind": "second-chance", "of": tasks(tmp_path, verifier=["exact", name])},
    ):
        with pytest.raises(ConfigError) as caught:
            recipes.load("smoke", {"tasks": world})
        assert sentence in str(caught.value)
        assert str(caught.value).startswith("smoke.yaml.tasks")
        assert "\n" not in str(caught.value)


def test_chats_need_a_template_and_arguments_that_it_reads(tmp_path: Path) -> None:
    rows = [*ROWS, {"prompt": [{"role": "user", "content": "2 + 2 ="}], "answer": "4"}]
    chats = player(DatasetReader("exact"), tasks(tmp_path, rows)["path"])
    check_chat_template("rl", chats)
    chats.dialogue.tokenizer.chat_template = None
    with pytest.raises(
        ConfigError, match=r"stages.rl: the prompt of task rows:21 is a list of messages .* no chat temp"
    ):
        check_chat_template("rl", chats)
    plain = player(DatasetReader("exact"), tasks(tmp_path)["path"], chat_template_kwargs={"enable_thinkin": False})
    template = plain.dialogue.tokenizer.chat_template
    with pytest.raises(ConfigError, match="enable_thinkin is not read by the chat template; leave it out"):
        check_chat_template("rl", plain)
    plain.dialogue.tokenizer.chat_template = template + "{% if enable_thinking %}...{% endif %}"
    with pytest.raises(ConfigError, match="did you mean 'enable_thinking'"):
        check_chat_template("rl", plain)
    plain.dialogue.chat_template_kwargs = {"enable_thinking": True}
    check_chat_template("rl", plain)
    plain.dialogue.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="the tokenizer has no chat template; leave them out"):
        check_chat_template("rl", plain)


def test_a_run_on_conversations(tmp_path: Path) -> None:
    """A system prompt and an earlier turn stand in every row's tokens, before what the policy decided."""
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    rows = [
        {"messages": [*chat, {"role": "user", "content": f"{i} + 1"}], "answer": f"so # {i + 1}"} for i in range(10)
    ]
    settings = recipe(
        tasks=tasks(
            tmp_path, rows, system="add", answer_after="#", verifier=["exact", {"verifier": "regex", "pattern": "1"}]
        ),
        stages={"rl": {"method": "grpo", "steps": 1, "rows": 8, "group": 4}},
    )
    run = train(settings, tmp_path / "run")
    (record,) = run.read("metrics")
    assert {"signal/exact", "signal/regex"} <= record.keys()
    assert all(sample["reference"] == str(int(sample["prompt"][0]) + 1) for sample in run.read("samples"))
    domain = LanguageDomain(settings)
    source = domain.source("rl")
    experience = source.rollout(RolloutRequest(source.take(1), 2, settings.evaluation.support))
    tokenizer, system = domain.policy.tokenizer, {"role": "system", "content": "add"}
    for batch in (experience, source.demonstrate(2)):
        task, decided = batch.extras["task"][0], int(batch.mask[0].int().argmax())
        messages = [system, *chat, {"role": "user", "content": task.prompt}]
        expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert expected == f"<|ask|>add<|ask|>hi<|answer|>yes?<|end|><|ask|>{task.prompt}<|answer|>"
        read = batch.extras["tokens"][0][:decided].tolist()
        assert read == tokenizer(expected, add_special_tokens=False)["input_ids"]
        assert longest_prompt(domain.policy, domain.splits["rl"].train, 3) == decided  # all have one digit


def test_messages_before_a_prompt_count_in_the_context(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i} + 1", "answer": f"{i + 1}"} for i in range(10)]
    stages = {"sft": {"method": "sft", "steps": 1, "rows": 4}}
    world = tasks(tmp_path, rows, system="1" * 60)  # a digit is a token, and the model has 64 places
    with pytest.raises(
        ConfigError, match=r"stages.sft: training tasks: the longest prompt, of task rows:1,? .*context"
    ):
        train(recipe(tasks=world, stages=stages), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_arguments_of_the_chat_template_reach_every_prompt(tmp_path: Path) -> None:
    made = player(DatasetReader("exact"), tasks(tmp_path)["path"]).policy
    made.tokenizer.chat_template += "{% if loud %}!{% endif %}"
    made.save(tmp_path / "model")
    settings = {"tasks": tasks(tmp_path), "stages": {"rl": {"method": "grpo", "steps": 1, "rows": 4, "group": 4}}}
    spec = {"model": str(tmp_path / "model"), "chat_template_kwargs": {"loud": True}}
    run = train(recipe(policy=spec, **settings), tmp_path / "run")
    rows = evaluate_folder(run.folder, problems=2).rows
    assert all(made.tokenizer.decode(row.ids).startswith(f"<|ask|>{row.task.prompt}<|answer|>!") for row in rows)
    spec["chat_template_kwargs"] = {"quiet": True}
    with pytest.raises(ConfigError, match=r"policy.chat_template_kwargs.quiet is not read by the chat template"):
        train(recipe(policy=spec, **settings), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    spec["chat_template_kwargs"] = {"tokenize": True}
    with pytest.raises(ConfigError, match="tokenize is set by the loop; leave it out"):
        recipe(policy=spec, **settings)


def test_a_model_that_no_memory_here_holds_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """A folder with Qwen2.5-7B's config and no weights: who began to load it would say that these are missing."""
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = recipe(policy={"model": str(tmp_path)})
    # 7.6 billion weights in float32, their gradients and Adam's two moments.
    with pytest.raises(ConfigError, match=r"needs at least 1\d\d\.\d GB with policy.model = .*\(Adam state 60\.9 GB"):
        with_memory(made, 100e9)
    with pytest.raises(ConfigError, match=r"needs at least 1\d\d\.\d GB .*, and cpu has 100\.0 GB; set micro_rows"):
        with_memory(made, 100e9)
    with_memory(made, 400e9)
    small = made.model_copy(update={"policy": made.policy.model_copy(update={"adapter": AdapterSpec(rank=8)})})
    with_memory(small, 80e9)


def with_memory(made: LanguageRecipe, size: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "memory_of", lambda device: size)
        planning.check_memory(made)


def test_a_run_that_does_not_fit_leaves_no_folder_and_its_checkpoints_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a checkpoint needs no memory for gradients."""
    train(recipe(), tmp_path / "base")
    begun = recipe(policy={"model": str(tmp_path / "base" / "policy")})
    train(begun, tmp_path / "run")
    monkeypatch.setattr(planning, "memory_of", lambda device: 1.0)
    with pytest.raises(ConfigError, match="needs at least"):
        train(begun, tmp_path / "large")
    assert not (tmp_path / "large").exists()
    assert policy_at(tmp_path / "run").device.type == "cpu"
