"""Everything that a person can get wrong in a recipe is refused: one sentence that names the setting, and no folder."""

from __future__ import annotations

import errno
import json
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from safetensors import SafetensorError
from tiny_runs import DIGITS, MODEL
from tiny_runs import recipe as tiny

import polopt as po
from polopt.cli import wording
from polopt.cli.command_group import CommandGroup, of_file
from polopt.config import ConfigError, plain_data
from polopt.errors import UserError
from polopt.experience import Experience
from polopt.part import build
from polopt.plan import hardware
from polopt.training import recipe as recipes
from polopt.training.cluster.connect import for_cluster
from polopt.training.language import create, train
from polopt.training.learner import DivergenceError
from polopt.training.recipe import OptimiserSpec, Recipe
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
    (RL + "but", {"sampling.phrasings": {"part": "sampling.Paraphrases", "endings": ["a"] * 1000}}, "but"),
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
    "an alias of itself": ("tasks: &a {of: *a}", "*a stands inside"),
    "an alias of nothing": ("tasks: *a", "line 1"),
    "aliases of aliases": (
        "x0: &x0 [1]\n" + "".join(f"x{i + 1}: &x{i + 1} [{', '.join([f'*x{i}'] * 9)}]\n" for i in range(12)),
        "aliases stand for",
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


# Round trip ---------------------------------------------------------------------------------------------------------

ODD = [
    INF,
    -INF,
    1e-5,
    1e22,
    -0.0,
    10**18,
    "1e3",
    ".inf",
    "null",
    "on",
    "2026-01-01",
    "",
    " x ",
    "#",
    "é\u2028\x85",
    None,
]


@pytest.mark.parametrize("value", [*ODD, {1: 2, "1": 3}, (1, (2, 3)), [[], {}], True], ids=lambda v: f"{v!r:.20}")
def test_a_recipe_is_read_back_as_it_was(value: Any, tmp_path: Path) -> None:
    """Untyped places hold any plain value; it comes back with its type, in a run's folder and on a cluster."""
    before = tiny(
        policy={"config": {**MODEL, "x": value}},
        tasks={**DIGITS, "x": value},
        stages={"rl": {"method": {"name": "grpo", "x": value}, "but": {"x": value}, "steps": 1, "rows": 8}},
    )
    again = Recipe.of_yaml(before.to_yaml())
    assert again == before
    stage = again.stages["rl"]
    assert isinstance(stage.method, dict)
    expected = [1, [2, 3]] if isinstance(value, tuple) else value
    for found in (again.policy.config["x"], again.tasks["x"], stage.method["x"], stage.but["x"]):
        assert (type(found), found) == (type(expected), expected)
        assert repr(found) == repr(expected)  # 0.0 is not -0.0
    dealt = for_cluster(before, "local")
    assert dealt.cluster is not None
    assert dealt.model_copy(update={"cluster": None}) == before
    create(before, tmp_path / "run")
    assert Recipe.of_yaml((tmp_path / "run" / "recipe.yaml").read_text()) == before


def test_parts_and_supports_become_plain_data() -> None:
    """A part may be given as such; the recipe holds its data, and builds it again."""
    part = po.objectives.Clip(high=INF)
    plain = plain_data({"a": (part, po.Support(temperature=0.5))})
    assert plain["a"][0] == part.to_dict()
    assert repr(build(plain["a"][0])) == repr(part)
    assert plain["a"][1]["temperature"] == 0.5
    stage = {"method": "grpo", "but": {"objective.trust": part}, "steps": 1, "rows": 8, "group": 4}
    again = Recipe.of_yaml(tiny(stages={"rl": stage}).to_yaml())
    assert again.algorithms["rl"].objective.trust.high == INF


@pytest.mark.parametrize("temperature", [NAN, INF, -INF, 0.0, -1.0])
def test_a_temperature_is_a_number(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be > 0 and finite"):
        po.Support(temperature=temperature)


def test_numbers_are_read_as_people_write_them() -> None:
    settings = wording.settings([RL + "steps=1e3", RL + "optimiser.lr=1e-3", "seed=2e0", RL + "optimiser.clip=.inf"])
    stage = recipes.load("smoke", settings).stages["rl"]
    assert (stage.steps, stage.optimiser.lr, stage.optimiser.clip) == (1000, 1e-3, INF)
    assert OptimiserSpec().clip == 1.0


# Parts and methods --------------------------------------------------------------------------------------------------

BOUNDS = {"raft.threshold", "clip-cov-kl-cov.least", "clip-cov-kl-cov.most"}


def test_no_method_takes_nan_and_only_bounds_take_inf() -> None:
    """All float settings of all methods, one by one."""
    tried = 0
    for slug in po.slugs():
        for name, default in po.catalogue.find(slug).settings().items():
            if type(default) is not float:
                continue
            tried += 1
            for value in (NAN, INF, -INF):
                if value == value and f"{slug}.{name}" in BOUNDS:
                    continue
                with pytest.raises(ValueError, match=rf"{name}.*not valid"):
                    po.catalogue.part(slug, **{name: value})
    assert tried > 200


def test_only_parts_are_called(tmp_path: Path) -> None:
    """Whatever else has the name, of a class, a function or a module, is not called."""
    ran = tmp_path / "ran"
    file = tmp_path / "own.py"
    file.write_text(
        "from pathlib import Path\nfrom subprocess import call\nimport polopt as po\n"
        f"def touch(**k): Path({str(ran)!r}).touch()\n"
        f"class Touch:\n    def __init__(self, **k): Path({str(ran)!r}).touch()\n"
        "def mine(): return po.method('grpo')\n"
    )
    for name in ("subprocess:call", "os:mkdir", f"{file}:touch", f"{file}:Touch", f"{file}:po"):
        with pytest.raises(ValueError, match="is not a part"):
            build({"part": name, "args": ["touch", str(ran)]})
    for name in (f"{file}:call", f"{file}:Touch", "subprocess:call"):
        with pytest.raises(ValueError, match="is not a method"):
            po.catalogue.sentence({"name": name, "args": ["touch", str(ran)]})
    assert not ran.exists()
    assert isinstance(po.catalogue.sentence(f"{file}:mine"), po.Algorithm)
    with pytest.raises(ValueError, match=r"has no 'zzz'; it has: Path, Touch, call, mine, touch$"):
        build({"part": f"{file}:zzz"})


# The door -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a/metrics.jsonl"), 2, ["metrics.jsonl", "make room"]),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/x/y"), 2, ["/x/y", "Read-only"]),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "gone"), 2, ["gone"]),
        (SafetensorError("Error while deserializing header"), 2, ["weights", "header"]),
        (json.JSONDecodeError("Expecting value", "{", 1), 2, ["JSON", "Expecting value"]),
        (DivergenceError("the gradient's norm is nan"), 2, ["norm is nan"]),
        (KeyboardInterrupt(), 130, ["Stopped"]),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, BaseException) else None,
)
def test_errors_of_files_are_sentences(
    error: BaseException, code: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.command()
    def one() -> None:
        raise error

    @app.command()
    def other() -> None: ...

    with pytest.raises(SystemExit) as ended:
        app(["one"])
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in words:
        assert word in said
    if isinstance(error, OSError):
        assert said.strip() == of_file(error)


def test_a_loss_that_is_not_finite_is_a_sentence() -> None:
    assert issubclass(DivergenceError, UserError)
    assert issubclass(DivergenceError, FloatingPointError)


# Fuzz ---------------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    *(None, True, -1, 0, 3, 0.5, 1e30, INF, -INF, NAN, 10**23, "", "x", "nan", "a.b", "grpo", "x:y", "os:system"),
    *(
        [],
        [1],
        {},
        {"a": 1},
        {"name": [1]},
        {"part": []},
        {"part": "rooms.X"},
        {"part": "credit.RelativeAdvantage"},
        {1: 2},
    ),
]


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path] * bool(path) + [p for key, value in items for p in places(value, (*path, key))]


def changed(rng: random.Random, data: Any) -> Any:
    """A copy of plain data with one to three values replaced, renamed or removed."""
    data = plain_data(data)
    for _ in range(rng.randint(1, 3)):
        *path, key = rng.choice(places(data) or [("x",)])
        inner = data
        for step in path:
            inner = inner[step]
        if isinstance(inner, dict) and rng.random() < 0.2:
            inner[f"{key}x"] = inner.pop(key, None)
        else:
            inner[key] = rng.choice(VALUES)
    return data


def test_only_sentences_come_out() -> None:
    """Changed recipes, methods' settings, parts and `but`: each is accepted, and then read back, or refused."""
    smoke = recipes.load("smoke").model_dump()
    slugs, refusals = po.slugs("algorithm"), 0
    for seed in range(120):
        rng = random.Random(seed)
        slug = rng.choice(slugs)
        settings = {name: rng.choice(VALUES) for name in list(po.catalogue.find(slug).settings())[: rng.randint(0, 2)]}
        changes = [
            {"stages": changed(rng, smoke).get("stages")},
            {"policy": changed(rng, smoke).get("policy"), "evaluation": changed(rng, smoke).get("evaluation")},
            {RL + "method": {"name": slug, **settings}},
            {RL + "but": {"credit": changed(rng, po.method(slug).credit.to_dict())}},
            {RL + "but": {".".join(map(str, rng.choice(places(po.method("dr-grpo").to_dict())))): rng.choice(VALUES)}},
        ][seed % 5]
        try:
            recipe = recipes.load("smoke", changes)
        except UserError:
            refusals += 1
        else:
            assert Recipe.of_yaml(recipe.to_yaml()) == recipe
    assert 50 < refusals < 120


def test_config_error_is_a_user_error() -> None:
    assert issubclass(ConfigError, UserError)
