"""Everything that a person can get wrong in a recipe is refused: one sentence that names the setting, and no folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import MODEL
from tiny_runs import recipe as tiny

import polopt as po
from polopt.cli import wording
from polopt.errors import UserError
from polopt.experience import Experience
from polopt.plan import hardware
from polopt.training import recipe as recipes
from polopt.training.launch import train
from polopt.training.run import Run

INF, NAN = math.inf, math.nan
MASK = torch.ones(1, 1, dtype=torch.bool)
RL = "stages.rl."


def refused(work: Callable[[], Any], *names: str) -> str:
    """The sentence, which is short, of one line, and has these names in it."""
    with pytest.raises(UserError) as caught:
        work()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert 0 < len(sentence) < 400
    for name in names:
        assert name in sentence, sentence
    return sentence


# One setting of `smoke` each: its path, the value, and what the sentence must name, the setting's last word if nothing.
SETTINGS: list[tuple[Any, ...]] = [
    ("seed", -1),
    ("seed", 10**23),
    ("seed", 2**63),
    ("seed", 0.5),
    ("seed", "x"),
    ("seed", NAN),
    ("seed", None),
    ("device", 3),
    ("threads", 0),
    ("threads", 10**6),
    ("parallel", "dp"),
    ("parallel", None),
    ("limit", 0),
    ("limit", 10**9),
    ("limit", INF),
    ("checkpoint", 0),
    ("checkpoint", -3),
    ("zzz", 1),
    ("polcy", {}, "did you mean 'policy'"),
    ("policy", 3),
    ("policy.model", 3),
    ("policy.config", 3),
    ("policy.config", {"a": {"b": NAN}}, "config", "a.b"),
    ("policy.config", {"a": [1, {2: NAN}]}, "config", "a.1.2"),
    ("policy.config.n_embd", 2**70, "config"),
    ("policy.config", {(1, 2): 3}, "config", "key"),
    ("policy.config", {True: 3}, "config", "key"),
    ("policy.config.n_embd", Path("x"), "config", "Path"),
    ("policy.config.n_embd", {1, 2}, "config", "set"),
    ("policy.dtype", "float8"),
    ("policy.compute", "int8"),
    ("policy.checkpointing", "perhaps"),
    ("policy.adapter", {"rank": 4}, "policy"),
    ("policy.adapter", {"rnk": 4}, "adapter", "did you mean 'rank'"),
    ("tasks", None),
    ("tasks", []),
    ("tasks", {}, "tasks.kind"),
    ("tasks.kind", None),
    ("tasks.kind", [1]),
    ("tasks.kind", "reasoning_gym"),
    ("tasks.kind", "nofile.py:tasks", "nofile.py"),
    ("tasks.kind", "subprocess:call", "subprocess:call"),
    ("tasks.kind", "os:system", "os:system"),
    ("tasks.kind", ":", "tasks"),
    ("tasks.train", 0),
    ("tasks.train", 10**9),
    ("tasks.train", "many"),
    ("tasks.heldout", -1),
    ("tasks.heldout", 10**12),
    ("tasks.seed", -1),
    ("tasks.partial", 3),
    ("tasks.datasets", []),
    ("tasks.datasets", {"spell_backward": 3}, "spell_backward"),
    ("tasks.zzz", 3),
    ("rollout", 3),
    ("rollout.engine", "sglang"),
    ("rollout.engine", [1], "rollout"),
    ("rollout.dtype", "float32"),
    ("cluster", 3),
    ("cluster.workers", 0),
    ("cluster.ahead", -1),
    ("cluster.seconds", NAN),
    ("cluster.seconds", INF),
    ("cluster.patience", 0),
    ("cluster.cpus", -1),
    ("episodes", 3),
    ("episodes.where", "elsewhere"),
    ("episodes.where", {}, "episodes"),
    ("episodes.patience", 3, "episodes"),
    ("evaluation.problems", 0),
    ("evaluation.problems", 10**9),
    ("evaluation.samples", 0),
    ("evaluation.k", [8], "pass@8"),
    ("evaluation.k", [0]),
    ("evaluation.k", 3),
    ("evaluation.every", -1),
    ("evaluation.quick", 0),
    ("evaluation.support", {"temperature": 0}, "temperature"),
    ("evaluation.support", {"temperature": NAN}, "temperature"),
    ("evaluation.support", {"temperature": INF}, "temperature"),
    ("evaluation.support", {"top_p": 1.5}, "top_p"),
    ("evaluation.support", {"top_p": NAN}, "top_p"),
    ("evaluation.support", {"top_k": -1}, "top_k"),
    ("stages", {}),
    ("stages", None),
    ("stages", []),
    ("stages", {"rl": None}, "rl"),
    ("stages", {1: {"steps": 1, "rows": 1}}, "stages"),
    ("stages", {"../x": {"steps": 1, "rows": 8}}, "../x"),
    ("stages", {"": {"steps": 1, "rows": 8}}, "stage"),
    ("stages.warmpu.steps", 3, "did you mean 'warmup'"),
    (RL + "steps", 0),
    (RL + "steps", 1.5),
    (RL + "steps", 10**9),
    (RL + "steps", "1e"),
    (RL + "rows", 0),
    (RL + "rows", 63),
    (RL + "rows", 10**9),
    (RL + "group", 0),
    (RL + "group", 7),
    (RL + "epochs", 0),
    (RL + "minibatches", 0),
    (RL + "minibatches", 100),
    (RL + "minibatches", 9),
    (RL + "micro_rows", 0),
    (RL + "limit", 0),
    (RL + "tasks", {"kind": "x"}, "tasks"),
    (RL + "train", "("),
    (RL + "train", "(" * 3000),
    (RL + "until", {"metric": "solved"}, "until"),
    (RL + "until", {"metric": "solved", "above": 1, "below": 0}, "until"),
    (RL + "until", {"metric": "solved", "above": NAN}, "above"),
    (RL + "until", {"metric": "solved", "above": INF}, "above"),
    (RL + "until", {"metric": "solved", "above": 1, "over": 0}, "over"),
    (RL + "optimiser.lr", 0),
    (RL + "optimiser.lr", -1),
    (RL + "optimiser.lr", 1e10),
    (RL + "optimiser.lr", INF),
    (RL + "optimiser.lr", NAN),
    (RL + "optimiser.lr", "fast"),
    (RL + "optimiser.betas", [0.9, 2]),
    (RL + "optimiser.betas", [0.9, 1]),
    (RL + "optimiser.betas", [-0.1, 0.9]),
    (RL + "optimiser.betas", [0.9]),
    (RL + "optimiser.betas", [NAN, 0.9]),
    (RL + "optimiser.weight_decay", -1),
    (RL + "optimiser.weight_decay", INF),
    (RL + "optimiser.clip", 0),
    (RL + "optimiser.clip", NAN),
    (RL + "optimiser.final", 2),
    (RL + "optimiser.decay", "exponential"),
    (RL + "optimiser.warmup", -1),
    (RL + "optimiser.warmup", 10**23),
    (RL + "optimiser.momentum", 0.9),
    (RL + "method", None),
    (RL + "method", ""),
    (RL + "method", []),
    (RL + "method", {}, "method"),
    (RL + "method", "dr-gropo", "did you mean 'dr-grpo'"),
    (RL + "method", {"name": [1]}),
    (RL + "method", {"name": None}),
    (RL + "method", {"name": "grpo", "clip": NAN}, "clip"),
    (RL + "method", {"name": "grpo", "kl": NAN}, "kl"),
    (RL + "method", {"name": "grpo", "kl": INF}, "kl"),
    (RL + "method", {"name": "grpo", "clip": "wide"}, "clip"),
    (RL + "method", {"name": "grpo", "clpi": 0.1}, "did you mean 'clip'"),
    (RL + "method", {"name": "rec", "clip": 1e30}, "clip"),
    (RL + "method", {"name": "rec", "clip": "1e30"}, "clip"),
    (RL + "method", {"name": "grpo", "group": 0}, "group"),
    (RL + "method", {"name": "subprocess:call", "args": ["touch", "x"]}, "subprocess:call"),
    (RL + "method", "subprocess:call"),
    (RL + "method", "nowhere_at_all:build", "nowhere_at_all"),
    (RL + "method", "missing.py:build", "missing.py"),
    (RL + "method", "polopt:__version__", "polopt"),
    (RL + "method", "polopt.part:Part"),
    (RL + "method", "a b:c"),
    (RL + "method", "..:c"),
    (RL + "method", {"name": "grpo", "group": ["a" * 50] * 1000}, "group"),
    (RL + "but", {"sampling.phrasings": {"part": "methods.infocons.Paraphrases", "endings": ["a"] * 1000}}, "but"),
    (RL + "but", []),
    (RL + "but", {"objective.trust.high": NAN}, "objective.trust.high"),
    (RL + "but", {"objective.trust.high": "x"}, "high"),
    (RL + "but", {"objective.trust.hihg": 1}, "did you mean 'high'"),
    (RL + "but", {"": 1}),
    (RL + "but", {1: 2}),
    (RL + "but", {"credit": {"part": []}}),
    (RL + "but", {"credit": {"part": None}}),
    (RL + "but", {"credit": {"part": "rooms.X"}}, "rooms.X"),
    (RL + "but", {"credit": {"part": "credit.RelativeAdvantag"}}, "did you mean 'RelativeAdvantage'"),
    (RL + "but", {"credit": {"part": "credit.RelativeAdvantage", "baseline": 3}}, "baseline"),
    (RL + "but", {"credit": {"part": "subprocess:call", "args": ["touch", "x"]}}, "subprocess:call"),
    (RL + "but", {"credit": {"part": "os:system"}}, "os:system"),
    (RL + "but", {"credit": {"part": "builtins:dict"}}, "builtins:dict"),
    (RL + "but", {"credit": {"part": "polopt.policies.language:LanguagePolicy"}}, "LanguagePolicy"),
    (RL + "but", {"objective": {"part": "objectives.Clip"}}, "objective"),
    (RL + "but", {"sampling.support": {"temperature": NAN}}, "temperature"),
    (RL + "but", {"select.0": 3}, "but", "'0' reaches into ()"),
]


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: f"{row[0]}={row[1]!r:.40}")
def test_a_wrong_setting(row: tuple[Any, ...]) -> None:
    path, value, *names = row
    refused(lambda: recipes.load("smoke", {path: value}), *(names or [path.rpartition(".")[2].removesuffix("s")]))


SMALL = "tasks: {kind: guess-number}\nstages: {rl: {steps: 1, rows: 8}}\n"
TEXTS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "recipe.yaml"),
    "a list": ("[1, 2]", "expected settings by name"),
    "a word": ("smoke", "expected settings by name"),
    "no YAML": ("seed: [1", "line 1"),
    "indentation": ("seed: 0\n tasks: 3", "line 2"),
    "Latin-1": ("# Größe\nseed: 0".encode("latin-1"), "not UTF-8"),
    "UTF-16": (SMALL.encode("utf-16"), "not UTF-8"),
    "bytes": (bytes(range(256)), "recipe.yaml"),
    "a control character": (SMALL + "device: \x1b", "control character"),
    "3000 levels": ("a: " + "[" * 3000, "nested"),
    "3000 maps": ("{a: " * 3000, "nested"),
    "a timestamp of nothing": ("seed: !!timestamp x", "line 1: the tag !!timestamp"),
    "an object": ("seed: !!python/object/apply:os.system [ls]", "tag"),
    "a set": ("stages: !!set {a, b}", "tag"),
    "twice, at the top": (SMALL + "seed: 1\nseed: 2", "line 4: the key 'seed' occurs twice"),
    "twice, inside": ("tasks:\n  kind: x\n  kind: y", "line 3: the key 'kind' occurs twice"),
    "twice, in one line": ("stages: {rl: {steps: 1, rows: 2, steps: 3}}", "the key 'steps' occurs twice"),
    "a list as a key": ("? [1, 2]\n: 3", "key"),
    "on as a key": ("on: 3", "'on' is bool"),
    "an alias of itself": ("tasks: &a {of: *a}", "*a is inside"),
    "an alias of nothing": ("tasks: *a", "line 1"),
    "aliases of aliases": (
        "x0: &x0 [1]\n" + "".join(f"x{i + 1}: &x{i + 1} [{', '.join([f'*x{i}'] * 9)}]\n" for i in range(12)),
        "aliases expand to",
    ),
    "digits": ("seed: " + "9" * 5000, "line 1"),
    "half a pair": ('device: "\\ud800"', "surrogate"),
    "two documents": ("--- 1\n--- 2", "line 2"),
}


@pytest.mark.parametrize(("content", "name"), TEXTS.values(), ids=TEXTS)
def test_a_file_that_is_no_recipe(content: str | bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(lambda: recipes.load(path), "recipe.yaml", name)


TYPED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "--set without a value": (lambda: wording.settings(["seed"]), ("--set seed",)),
    "--set without a key": (lambda: wording.settings(["=3"]), ("--set",)),
    "--set twice": (lambda: wording.settings(["seed=1", "seed=2"]), ("seed", "twice")),
    "--set no YAML": (lambda: wording.settings(["evaluation.k=[1"]), ("evaluation.k",)),
    "--set a key twice": (
        lambda: wording.settings(["policy={model: a, model: b}"]),
        ("policy", "'model' occurs twice"),
    ),
    "--set a tag": (lambda: wording.settings(["seed=!!python/name:os.system x"]), ("seed", "tag")),
    "--method empty": (lambda: wording.method(""), ("--method",)),
    "--method a list": (lambda: wording.method("{grpo}"), ("grpo",)),
    "--method no YAML": (lambda: wording.method("{name: grpo"), ("--method",)),
    "--method twice": (lambda: wording.method("{name: grpo, kl: 0, kl: 1}"), ("'kl' occurs twice",)),
    "no recipe": (lambda: recipes.load("lapptop"), ("lapptop", "did you mean 'laptop'")),
    "a folder as a recipe": (lambda: recipes.load("/tmp"), ("/tmp",)),
    "0 devices": (lambda: hardware.find("0xH100"), ("0xH100", "one device or more")),
    "no such device": (lambda: hardware.find("8xZZZ"), ("8xZZZ",)),
    "extras in a list": (lambda: Experience(mask=MASK, extras=[1]), ("extras", "list")),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("work", "names"), TYPED.values(), ids=TYPED)
def test_what_is_typed(work: Callable[[], Any], names: tuple[str, ...]) -> None:
    refused(work, *names)


CONFIGS: dict[str, dict[str, Any]] = {
    "heads that do not divide": {"n_head": 3},
    "no heads": {"n_head": 0},
    "text for a number": {"n_embd": "wide"},
    "a negative width": {"n_embd": -16},
    "a list for a number": {"n_layer": [1]},
    "an unknown activation": {"activation_function": "geluu"},
    "a probability of 5": {"resid_pdrop": 5},
    "an unknown attention": {"attn_implementation": "quick"},
    "wider than memory": {"n_embd": 10**6, "n_layer": 10},
    "no positions": {"n_positions": 0},
    "an unknown architecture": {"model_type": "gtp2"},
    "no name of an architecture": {"model_type": None},
    "a list of architectures": {"model_type": ["gpt2"]},
    "an unknown field": {"n_heads": 2},
    "a scale that is no number": {"initializer_range": "small"},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_model_that_cannot_be_made_leaves_no_folder(config: dict[str, Any], tmp_path: Path) -> None:
    refused(lambda: train(tiny(policy={"config": {**MODEL, **config}}), tmp_path / "a" / "run"), "policy.config")
    assert list(tmp_path.iterdir()) == []


STARTS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown device": ({"device": "qpu"}, "device"),
    "a device that is not here": ({"device": "mps"}, "device = 'mps' cannot be used here"),
    "parameters of no name": ({"stages": {"rl": {"steps": 1, "rows": 8, "group": 4, "train": "zzz"}}}, "train = 'zzz'"),
    "no such model": ({"policy": {"model": "/nowhere/at/all"}}, "policy.model"),
}


@pytest.mark.parametrize(("change", "name"), STARTS.values(), ids=STARTS)
def test_what_cannot_begin_leaves_no_folder(change: dict[str, Any], name: str, tmp_path: Path) -> None:
    refused(lambda: train(tiny(**change), tmp_path / "a" / "run"), name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    """Before anything is prepared; what was made to try it is gone again."""
    (tmp_path / "file").touch()
    (tmp_path / "mine").mkdir()
    for place in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/x"), tmp_path / ("x" * 300)):
        refused(lambda place=place: Run.vacant(place), str(place)[:20])
    Run.vacant(tmp_path / "mine" / "a" / "b")
    assert list((tmp_path / "mine").iterdir()) == []


def test_more_problems_than_there_are_get_a_word(tmp_path: Path) -> None:
    few = {"steps": 1, "rows": 8, "group": 4, "optimiser": {"lr": 1e-4}}
    with pytest.warns(po.errors.PoloptWarning, match=r"evaluation\.problems = 100000, and the tasks have 20"):
        train(tiny(stages={"rl": few}, evaluation={"problems": 100000}), tmp_path / "run")
