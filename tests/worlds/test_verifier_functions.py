"""Reward functions as verifiers: how they are called, and what is said when they go wrong."""

import asyncio
import importlib.util
import inspect
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from verifier_inputs import broken

from polopt.config import ConfigError
from polopt.errors import UserError
from polopt.worlds import VerifierError, make_verifier
from polopt.worlds.functions import limited


def test_a_function_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def reward(completion, row):\n    return float(completion == row['answer'] * 2)\n")
    verifier = make_verifier({"verifier": f"{path}:reward", "weight": 3})
    assert verifier.verify("abab", {"answer": "ab"}) == 3
    assert verifier.verify("ab", {"answer": "ab"}) == 0
    with pytest.raises(ValueError, match="did you mean 'reward'"):
        make_verifier(f"{path}:rewards")


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (math.nan, "0.0 where there is nothing to score"),
        (None, "0.0 where there is nothing to score"),
        (math.inf, "at most 1e+16 in size"),
        (1e308, "at most 1e+16 in size"),
        (torch.tensor(-math.inf), "at most 1e+16 in size"),
        ("1.0", "float(...) of a text"),
        ([1.0], "one number"),
        (np.array([1.0]), "one number"),
        (torch.ones(1), "one number"),
        ({"score": 1.0}, "its 'score' alone"),
        (1j, "0.0 where"),
        (np.complex64(1), "0.0 where"),
    ],
)
def test_a_function_must_return_a_finite_number(value: object, advice: str) -> None:
    def odd(completion: str, row: dict) -> object:
        return value

    sentence = r"verifier odd must return a finite number or a bool, found .* on the row with prompt 'why\?'; return "
    with pytest.raises(VerifierError, match=sentence) as caught:
        make_verifier(odd).verify("x", {"prompt": "why?", "answer": "y"})
    assert str(caught.value).partition("; return ")[2].startswith(advice)
    assert isinstance(caught.value, UserError)


@pytest.mark.parametrize(
    "value",
    [
        1,
        0.5,
        True,
        False,
        np.float32(0.5),
        np.int64(-2),
        np.bool_(True),
        np.array(0.25),
        np.array(False),
        torch.tensor(0.5),
        torch.tensor(3),
        torch.tensor(True),
        torch.tensor(0.5, dtype=torch.bfloat16),
        Fraction(1, 4),
    ],
    ids=repr,
)
def test_numbers_truth_values_and_what_has_no_dimension(value: float) -> None:
    found = make_verifier(lambda completion, row: value).verify("x", {})
    assert type(found) is float
    assert found == float(value)


def test_a_function_that_raises_is_named_with_its_row_and_line() -> None:
    line = inspect.getsourcelines(broken)[1] + 1
    where = rf"\({Path(broken.__code__.co_filename).name}, line {line}\)"
    sentence = rf"^verifier broken raised ZeroDivisionError: division by zero {where} on the row with prompt 'why\?'$"
    with pytest.raises(VerifierError, match=sentence) as caught:
        make_verifier(broken).verify("x", {"prompt": "why?", "answer": "y"})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_line_is_the_functions_own() -> None:
    """Not the library's that it called."""

    def reads(completion: str, row: dict) -> float:
        return json.loads(completion)["x"]

    line = inspect.getsourcelines(reads)[1] + 1
    with pytest.raises(VerifierError, match=rf"JSONDecodeError: .* \({Path(__file__).name}, line {line}\)"):
        make_verifier(reads).verify("{", {})


ROWS = [
    {"prompt": "2+2", "answer": "4", "level": 1},
    {"prompt": [{"role": "user", "content": "3+3"}], "answer": "6", "level": 2},
]
ANSWERED = list(zip(["4", "7"], ROWS, strict=True))


def test_trls_signature_is_called_once_with_columns() -> None:
    calls: list[dict] = []

    def reward(prompts: list, completions: list, level: list, extra: object = None, **columns: object) -> list[float]:
        calls.append({"prompts": prompts, "completions": completions, "level": level, **columns})
        return [float(i) for i in range(len(completions))]

    verifier = make_verifier(reward)
    assert verifier.together
    assert [reward for reward, _ in verifier.judge_many(ANSWERED)] == [0.0, 1.0]  # type: ignore[misc]
    (call,) = calls
    assert call["prompts"] == ["2+2", ROWS[1]["prompt"]]
    assert call["completions"] == ["4", [{"role": "assistant", "content": "7"}]]
    assert (call["level"], call["answer"]) == ([1, 2], ["4", "6"])
    assert verifier.verify("4", ROWS[0]) == 0.0


def test_trls_columns_are_asked_for_by_name() -> None:
    def reward(completions: list[str], answer: list[str]) -> list[bool]:
        return [text == right for text, right in zip(completions, answer, strict=True)]

    verifier = make_verifier(reward)
    rows = [{"prompt": "a", "answer": "1", "more": 2}, {"prompt": "b", "answer": "2"}]
    assert [value for value, _ in verifier.judge_many([("1", rows[0]), ("1", rows[1])])] == [1.0, 0.0]  # type: ignore[misc]
    assert verifier.check(rows[0]) is None
    assert verifier.check({"prompt": "a", "answr": "1"}) == "reward needs the column 'answer'; did you mean 'answr'?"


def test_verls_signature() -> None:
    seen: list[tuple] = []

    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict | None = None) -> dict:
        seen.append((data_source, solution_str, ground_truth, extra_info))
        return {"score": float(solution_str == ground_truth), "format": 1.0}

    verifier = make_verifier(compute_score)
    rows = [
        {"data_source": "gsm8k", "reward_model": {"ground_truth": "72"}, "extra_info": {"index": 3}, "answer": "no"},
        {"ground_truth": "5", "answer": "no"},
        {"answer": "8"},
    ]
    answers = ["72", "6", "8"]
    assert [verifier.verify(text, row) for text, row in zip(answers, rows, strict=True)] == [1.0, 0.0, 1.0]
    assert seen == [("gsm8k", "72", "72", {"index": 3}), (None, "6", "5", {}), (None, "8", "8", {})]
    assert not verifier.together

    def compute_scores(data_sources: list, solution_strs: list, ground_truths: list, **more: object) -> list:
        assert more == {"extra_infos": [{"index": 3}, {}, {}]}
        pairs = zip(solution_strs, ground_truths, strict=True)
        return [{"score": int(said == right)} if right == "72" else float(said == right) for said, right in pairs]

    many = make_verifier(compute_scores).judge_many(list(zip(answers, rows, strict=True)))
    assert [value for value, _ in many] == [1.0, 0.0, 1.0]  # type: ignore[misc]


def shipped(package: str, file: str) -> Path:
    """A file of an installed package, which is not imported for it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(spec.origin).parent / file


def test_functions_that_trl_and_verl_come_with_work_as_they_are() -> None:
    chat, think = [{"role": "user", "content": "?"}], "<think>\nx\n</think>\ny"
    verifier = make_verifier(f"{shipped('trl', 'rewards/format_rewards.py')}:think_format_reward")
    scored = verifier.judge_many([(think, {"prompt": chat}), ("y", {"prompt": chat})])
    assert [reward for reward, _ in scored] == [1, 0]  # type: ignore[misc]
    with pytest.raises(ConfigError, match="needs completion_ids, which only TRL's trainer has"):
        make_verifier(lambda completion_ids, **kwargs: [0.0])
    verifier = make_verifier(f"{shipped('verl', 'utils/reward_score/gsm8k.py')}:compute_score")
    row = {"data_source": "openai/gsm8k", "reward_model": {"ground_truth": "72"}}
    assert [verifier.verify(f"so #### {n}", row) for n in (72, 7)] == [1, 0]


def test_coroutines_are_awaited_beside_each_other() -> None:
    """Each waits until all have begun: one after another, none would ever end."""
    begun: list[str] = []
    every: list[asyncio.Event] = []

    async def reward(completion: str, row: dict) -> float:
        if not begun:
            every.append(asyncio.Event())
        begun.append(completion)
        if len(begun) == 8:
            every[0].set()
        await asyncio.wait_for(every[0].wait(), 30)
        return float(completion)

    verifier = make_verifier(reward)
    assert verifier.together
    found = verifier.judge_many([(str(i), {}) for i in range(8)])
    assert [value for value, _ in found] == list(range(8))  # type: ignore[misc]

    lock: list[asyncio.Lock] = []

    async def keeps_a_lock(completions: list[str], **columns: object) -> list[float]:
        lock.extend([] if lock else [asyncio.Lock()])
        async with lock[0]:  # belongs to one event loop
            await asyncio.sleep(0)
        return [1.0] * len(completions)

    for _ in range(2):
        assert make_verifier(keeps_a_lock).verify("x", {}) == 1


def test_what_goes_wrong_in_coroutines_is_a_sentence() -> None:
    async def raises(completion: str, row: dict) -> float:
        if row["answer"] == "6":
            raise SystemExit(3)
        return 1.0

    with pytest.raises(VerifierError, match=r"raised SystemExit: 3 .* on the row with prompt \[\{'role'"):
        make_verifier(raises).judge_many(ANSWERED)

    async def ends(completion: str, row: dict) -> float:
        return 2.0

    assert make_verifier(ends).verify("x", {}) == 2  # the event loop is still there


def test_a_coroutine_that_is_late_is_none() -> None:
    async def reward(completion: str, row: dict) -> float:
        if completion == "7":
            await asyncio.Event().wait()
        return 1.0

    scored = limited(0.05, make_verifier(reward).judge_many)(ANSWERED)
    assert scored[0] is not None
    assert scored[1] is None


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ([1.0], "a list with one number for each of 2 completions, found 1 values; the first is of the row"),
        (1.0, "a list with one number for each of 2 completions, found 1.0"),
        ([1.0, None], "a finite number or a bool, found None (NoneType) on the row with prompt [{'role'"),
        (np.array([1.0, np.nan]), "a finite number or a bool, found nan (float) on the row with prompt [{'role'"),
    ],
)
def test_a_function_of_many_returns_one_number_each(returned: object, sentence: str) -> None:
    def scores(completions: list[str], **columns: object) -> object:
        return returned

    with pytest.raises(VerifierError) as caught:
        make_verifier(scores).judge_many(ANSWERED)
    assert f"verifier scores must return {sentence}" in str(caught.value)


def test_a_function_of_many_that_raises_names_the_first_row() -> None:
    def scores(prompts: list[str], completions: list[str]) -> list[float]:
        raise KeyError("x")

    with pytest.raises(VerifierError, match=r"raised KeyError: 'x' .* on 2 completions, the first of the row with "):
        make_verifier(scores).judge_many(ANSWERED)


def test_one_and_many_are_judged_alike_and_each_part_is_a_signal() -> None:
    def many(completions: list[str], **columns: object) -> list[float]:
        return [len(text) / 4 for text in completions]

    verifier = make_verifier(["exact", {"verifier": many, "weight": 0.5}, {"verifier": "regex", "pattern": "7"}])
    alone = [verifier.judge(text, row) for text, row in ANSWERED]
    assert verifier.judge_many(ANSWERED) == alone
    assert [reward for reward, _ in alone] == [1 + 0.5 / 4, 0.5 / 4 + 1]
    assert alone[1][1]["signals"] == {"exact": 0.0, "many": 0.25, "regex": 1.0}
    assert "signals" not in make_verifier("exact").judge("4", ROWS[0])[1]
