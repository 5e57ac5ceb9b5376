"""reasoning_gym: reproducible, disjoint, refused in one sentence, and never running an answer as code."""

import ast
import inspect
import json
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from polopt.config import ConfigError
from polopt.worlds import ReasoningGym, Tasks
from polopt.worlds.untrusted import ARITHMETIC, EVALUATE, FORMULA, is_safe

MIX = {"chain_sum": {"max_terms": 2, "weight": 3}, "letter_counting": {}, "list_functions": None}


def everything(tasks: Tasks) -> list:
    return [tasks[i] for i in range(len(tasks))]


def reward(tasks: Tasks, index: int, completion: str) -> float:
    episode = tasks.episode(tasks[index])
    episode.reset()
    return episode.step(completion).reward


def test_train_and_heldout_share_no_prompt() -> None:
    # Two terms of one digit: a hundred sums and a hundred differences, so draws collide all the time.
    narrow = {"chain_sum": {"max_terms": 2, "max_digits": 1}}
    split = ReasoningGym.split(narrow, train=3000, heldout=80, seed=0)
    train, heldout = everything(split.train), everything(split.heldout)
    assert len({t.prompt for t in heldout}) == 80
    assert not {t.prompt for t in train} & {t.prompt for t in heldout}
    assert len({t.prompt for t in train}) == 200 - 80
    assert len({t.id for t in train + heldout}) == 3080


def test_holding_out_nearly_everything_is_refused() -> None:
    narrow = {"chain_sum": {"max_terms": 2, "max_digits": 1}}
    with pytest.raises(ConfigError, match=r"datasets.chain_sum: too few different prompts.*lower heldout = 190"):
        ReasoningGym.split(narrow, train=10, heldout=190, seed=0)


def test_shares_follow_the_weights() -> None:
    tasks = ReasoningGym({"chain_sum": {"weight": 3}, "gcd": {}, "lcm": {"weight": 0.5}}, size=900, seed=5)
    kinds = [t.kind for t in everything(tasks)]
    assert tasks.kinds == ["chain_sum", "gcd", "lcm"]
    for stop in (90, 450, 900):
        for name, weight in (("chain_sum", 3), ("gcd", 1), ("lcm", 0.5)):
            assert kinds[:stop].count(name) == pytest.approx(stop * weight / 4.5, abs=3)


SCRIPT = """
import json
from polopt.worlds import ReasoningGym
split = ReasoningGym.split({mix!r}, train=40, heldout=20, seed=7)
tasks = [s[i] for s in (split.train, split.heldout) for i in reversed(range(len(s)))]
try:
    ReasoningGym({{"ransom_note": {{}}}}, size=1)
    message = ""
except ValueError as error:
    message = str(error)
print(json.dumps([[[t.id, t.prompt, t.solution] for t in tasks], message]))
"""


def test_the_same_tasks_in_every_process_in_any_order() -> None:
    split = ReasoningGym.split(MIX, train=40, heldout=20, seed=7)
    here = [[t.id, t.prompt, t.solution] for s in (split.train, split.heldout) for t in reversed(everything(s))]
    environment = {**os.environ, "PYTHONHASHSEED": "4321", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT.format(mix=MIX)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    there, message = json.loads(output)
    assert there == here
    assert "datasets.ransom_note makes different tasks in every Python process" in message
    assert "PYTHONHASHSEED=0" in message
    other = ReasoningGym.split(MIX, train=40, heldout=20, seed=8)
    assert [t.prompt for t in everything(other.train)] != [t.prompt for t in everything(split.train)]


def test_an_unstable_dataset_is_taken_where_hashing_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = SimpleNamespace(flags=SimpleNamespace(hash_randomization=0))
    monkeypatch.setattr("polopt.worlds.reasoning_gym.sys", fixed)
    tasks = ReasoningGym({"ransom_note": {}}, size=1)
    assert reward(tasks, 0, str(tasks[0].solution)) == 1


def test_drawing_and_scoring_leave_global_random_numbers_alone() -> None:
    tasks = ReasoningGym({"pool_matrix": {}, "list_functions": {}, "chain_sum": {}}, size=30)
    random.seed(1)
    np.random.seed(1)
    for i in range(30):
        reward(tasks, i, "no")
    drawn = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)
    assert drawn == (random.random(), np.random.random())


@pytest.mark.parametrize("tag", [None, "answer"])
def test_every_demonstration_is_accepted_and_another_answer_is_not(tag: str | None) -> None:
    names = [
        "chain_sum",
        "gcd",
        "basic_arithmetic",
        "spell_backward",
        "base_conversion",
        "caesar_cipher",
        "countdown",
    ]
    names += ["n_queens", "simple_integration", "string_insertion", "word_sorting", "maze", "time_intervals"]
    tasks = ReasoningGym({name: {} for name in names}, size=60, seed=2, answer_tag=tag)
    for i, task in enumerate(everything(tasks)):
        assert task.solution is not None
        assert reward(tasks, i, task.solution) == 1, task
        assert reward(tasks, i, "") == 0
        assert reward(tasks, i, "<answer>neither here nor there</answer>") == 0


def test_partial_credit_is_off_unless_asked_for() -> None:
    tasks = ReasoningGym({"countdown": {}}, size=1)
    paying = ReasoningGym({"countdown": {}}, size=1, partial=True)
    # countdown pays 0.01 for what it cannot read and 0.05 for a wrong sum.
    assert reward(tasks, 0, "1 + 1") == 0
    assert reward(paying, 0, "1 + 1") == 0.05
    episode = tasks.episode(tasks[0])
    episode.reset()
    info = episode.step("1 + 1").info
    assert info == {"answer": "1 + 1", "score": 0.05, "solved": False}


def test_the_answer_is_the_text_in_the_last_tag() -> None:
    tasks = ReasoningGym({"chain_sum": {}}, size=1, answer_tag="answer")
    right = tasks[0].row["answer"]
    assert reward(tasks, 0, f"<answer>0.5</answer> or rather\n<answer>\n{right}\n</answer> yes") == 1
    assert reward(tasks, 0, right) == 0
    assert reward(tasks, 0, f"<answer>{right}") == 0


def test_an_answer_that_a_scorer_cannot_read_is_wrong_and_says_so() -> None:
    tasks = ReasoningGym({"prime_factorization": {}}, size=1)
    episode = tasks.episode(tasks[0])
    episode.reset()
    step = episode.step("seven")
    assert step.reward == 0
    assert step.info["scorer_error"].startswith("ValueError: ")


@pytest.mark.parametrize(
    ("datasets", "sentence"),
    [
        (
            {"chain_sun": {}},
            r"datasets.chain_sun is not a dataset of reasoning_gym; did you mean 'chain_sum'\?",
        ),
        ({"composite": {}}, "datasets.composite is not a dataset"),
        ({"chain_sum": {"max_term": 2}}, r"chain_sum.max_term is not a setting; did you mean 'max_terms'\?"),
        ({"chain_sum": {"seed": 2}}, "chain_sum.seed is not a setting"),
        ({"chain_sum": {"max_terms": "two"}}, "chain_sum.max_terms = 'two': expected a valid integer"),
        ({"chain_sum": {"max_terms": None}}, "chain_sum.max_terms = None: expected a valid integer"),
        ({"chain_sum": {"max_terms": 1}}, "chain_sum: max_terms must be >= min_terms"),
        ({"chain_sum": {"weight": 0}}, "chain_sum.weight = 0: expected greater than 0"),
        ({"gcd": {}, "chain_sum": [2]}, r"chain_sum: expected settings by name, found \[2\]"),
        ({}, "datasets is empty"),
    ],
)
def test_a_wrong_mix_is_one_sentence(datasets: dict, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ReasoningGym(datasets, size=1)


def test_a_list_will_do_for_a_tuple() -> None:
    values = ReasoningGym({"basic_arithmetic": {"operators": ["+"], "allow_parentheses": False}}, size=20)
    assert not any(sign in t.row["metadata"]["expression"] for t in everything(values) for sign in "-*/(")


@pytest.mark.parametrize("dataset", sorted(EVALUATE | ARITHMETIC | FORMULA))
def test_an_answer_is_never_run_as_code(dataset: str, tmp_path: Path) -> None:
    tasks = ReasoningGym({dataset: {}}, size=1) if dataset != "polynomial_multiplication" else None
    path = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(path)!r}).touch()"
    for answer in (code, f" {code}", f"\t{code}", f"\n{code}", f"[{code}]", f"({code} or 1)", f"1 + {code}"):
        assert not is_safe(dataset, answer) or not compiles(answer), answer
        if tasks is not None:
            assert reward(tasks, 0, answer) == 0
    assert not path.exists()


def compiles(text: str) -> bool:
    """Whether eval would get past its own parser."""
    try:
        compile(text.lstrip(" \t"), "", "eval")
    except SyntaxError:
        return False
    return True


@pytest.mark.parametrize("answer", ["9**9**9**9", "((9**99)**99)**99", "2**(9**9)", "1e999999999", "1/1e-999999999"])
def test_no_answer_keeps_a_scorer_busy(answer: str) -> None:
    for dataset in EVALUATE | ARITHMETIC | FORMULA:
        assert not is_safe(dataset, answer)
    assert not is_safe("coin_flip", "1e999999999")
    assert is_safe("coin_flip", "1e-3")


@pytest.mark.parametrize(
    "answer", ["x**10/5 - 3*x + C", "-exp(2*x)*sin(x) + sqrt(x)", "X**2", "120384*z**7 + 64448*z**6"]
)
def test_formulas_are_let_through(answer: str) -> None:
    assert is_safe("simple_integration", answer)
    assert not is_safe("countdown", answer)


def test_every_scorer_that_evaluates_text_is_known() -> None:
    from reasoning_gym.factory import DATASETS

    found = set()
    for name, (dataset, _) in DATASETS.items():
        tree = ast.parse(textwrap.dedent(inspect.getsource(dataset.score_answer)))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {ast.unparse(call.func).split(".")[-1] for call in calls if "answer" in ast.unparse(call)}
        if called & {"eval", "exec", "parse_expr", "sympify"}:
            found.add(name)
    # number_sorting evaluates its own answer only; propositional_logic has a parser of its own by that name.
    assert found - {"number_sorting", "propositional_logic"} == EVALUATE | ARITHMETIC | FORMULA


def test_tasks_do_not_depend_on_how_many_are_asked_for() -> None:
    small, large = (ReasoningGym(MIX, size=n, seed=3) for n in (10, 100))
    assert everything(small) == everything(large)[:10]
    assert len({t.id for t in everything(large)}) == 100
