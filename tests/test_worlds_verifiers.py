"""Verifiers against exact arithmetic, and against reward functions that go wrong."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polopt.config import ConfigError
from polopt.worlds import VerifierError, make_verifier
from polopt.worlds.numbers import last_number, read_number

integers = st.integers(-(10**12), 10**12)


@st.composite
def written(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A number as somebody might write it, and what it is."""
    n, d, places = draw(integers), draw(st.integers(1, 10**6)), draw(st.integers(1, 8))
    sign = "-" if n < 0 else draw(st.sampled_from(["", "+"]))
    whole, rest = divmod(abs(n), 10**places)
    decimal = Fraction(abs(n), 10**places)
    text, value = draw(
        st.sampled_from(
            [
                (f"{abs(n)}", Fraction(abs(n))),
                (f"{abs(n):,}", Fraction(abs(n))),
                (f"{abs(n)}/{d}", Fraction(abs(n), d)),
                (f"{abs(n)} / {d:,}", Fraction(abs(n), d)),
                (f"{whole}.{rest:0{places}d}", decimal),
                (f"{whole:,}.{rest:0{places}d}", decimal),
                (f".{rest:0{places}d}", decimal - whole),
                (f"{abs(n)}e-{places}", decimal),
                (f"{whole}.{rest:0{places}d}%", decimal / 100),
                (f"{abs(n)} %", Fraction(abs(n), 100)),
            ]
        )
    )
    return sign + text, -value if sign == "-" else value


@given(written())
def test_numbers_are_read_exactly(number: tuple[str, Fraction]) -> None:
    text, value = number
    assert read_number(text) == value
    assert read_number(f"  {text}\n") == value


@given(
    written(),
    st.sampled_from(["So the total is {}.", "3 apples and 1,234 pears: {}", "**{}**", "x = {}, done", "({})"]),
)
def test_the_last_number_of_a_text(number: tuple[str, Fraction], around: str) -> None:
    text, value = number
    assert last_number(around.format(text)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7-4", 4),
        ("7 - 4", 4),
        ("f(2) = -4", -4),
        ("1,2,3", 3),
        ("$1,234.50", Fraction(2469, 2)),
        ("−5", -5),
        ("no number", None),
    ],
)
def test_last_number_by_hand(text: str, value: Fraction | None) -> None:
    assert last_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1 2",
        "1,23",
        "12,345,6",
        "1/0",
        "1/",
        "nan",
        "inf",
        "0x10",
        "1e9999",
        "1_000",
        "--1",
        "1.2.3",
        "9" * 1001,
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert read_number(text) is None


@given(written(), written(), st.sampled_from([0.0, 0.1, 0.01, 2.5]), st.sampled_from([0.0, 0.1, 0.5]))
def test_numeric_is_the_inequality_it_states(
    found: tuple[str, Fraction], wanted: tuple[str, Fraction], tolerance: float, relative: float
) -> None:
    verifier = make_verifier({"verifier": "numeric", "tolerance": tolerance, "relative": relative})
    slack = max(Fraction(str(tolerance)), Fraction(str(relative)) * abs(wanted[1]))
    assert verifier.verify(found[0], {"answer": wanted[0]}) == float(abs(found[1] - wanted[1]) <= slack)


@given(integers, st.integers(0, 30))
def test_the_edge_of_the_tolerance_counts_as_inside(n: int, tenths: int) -> None:
    verifier = make_verifier({"verifier": "numeric", "tolerance": tenths / 10})
    edge = Fraction(n) + Fraction(tenths, 10)
    assert verifier.verify(f"{edge.numerator}/{edge.denominator}", {"answer": str(n)}) == 1
    beyond = edge + Fraction(1, 10**9)
    assert verifier.verify(f"{beyond.numerator}/{beyond.denominator}", {"answer": str(n)}) == 0


@pytest.mark.parametrize(
    ("spec", "completion", "row", "value"),
    [
        ("exact", " Paris\n", {"answer": "Paris"}, 1),
        ("exact", "paris", {"answer": "Paris"}, 0),
        ({"verifier": "exact", "ignore_case": True}, "STRASSE", {"answer": "Straße"}, 1),
        ("numeric", "It is 42", {"answer": "42"}, 0),
        ({"verifier": "numeric", "take": "last"}, "6 times 7 is 42.", {"answer": "42"}, 1),
        ("regex", "the answer: 12", {"answer": "-", "pattern": r"answer:\s*\d+$"}, 1),
        ({"verifier": "regex", "pattern": "^yes$"}, "yes and no", {"answer": "-"}, 0),
        ("math-verify", r"So $\frac{2}{4}$", {"answer": "1/2"}, 1),
        ("math-verify", r"\boxed{x^2+2x+1}", {"answer": "(x+1)^2"}, 1),
        ("math-verify", r"\boxed{x^2+2x}", {"answer": "$(x+1)^2$"}, 0),
    ],
)
def test_verifiers_by_name(spec: object, completion: str, row: dict, value: float) -> None:
    verifier = make_verifier(spec)
    assert verifier.check(row) is None
    assert verifier.verify(completion, row) == value


def test_weights_and_components() -> None:
    spec = [
        {"verifier": "numeric", "weight": 2},
        {"verifier": "regex", "pattern": r"^\d+$", "weight": 0.5},
        {"verifier": lambda completion, row: len(completion) / 10, "weight": -1},
        {"verifier": "regex", "pattern": "7"},
    ]
    reward, info = make_verifier(spec).judge("42.", {"answer": "42"})
    assert list(info["components"].values()) == [1, 0, 0.3, 0]
    assert list(info["components"]) == ["numeric", "regex", "<lambda>", "regex#2"]
    assert reward == pytest.approx(2 * 1 + 0.5 * 0 - 0.3)
    assert info["solved"]


def test_a_function_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def reward(completion, row):\n    return float(completion == row['answer'] * 2)\n")
    verifier = make_verifier({"verifier": f"{path}:reward", "weight": 3})
    assert verifier.verify("abab", {"answer": "ab"}) == 3
    assert verifier.verify("ab", {"answer": "ab"}) == 0
    with pytest.raises(ValueError, match="did you mean 'reward'"):
        make_verifier(f"{path}:rewards")


def broken(completion: str, row: dict) -> float:
    return 1 / 0


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, 1j, [1.0]])
def test_a_function_must_return_a_finite_number(value: object) -> None:
    def odd(completion: str, row: dict) -> object:
        return value

    with pytest.raises(VerifierError, match=r"verifier odd must return a finite number.*prompt 'why"):
        make_verifier(odd).verify("x", {"prompt": "why?", "answer": "y"})


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(-2), Fraction(1, 4)])
def test_any_real_number_will_do(value: float) -> None:
    assert make_verifier(lambda completion, row: value).verify("x", {}) == float(value)


def test_a_function_that_raises_is_named_with_its_row() -> None:
    with pytest.raises(VerifierError, match=r"verifier broken raised ZeroDivisionError: .*prompt 'why") as caught:
        make_verifier(broken).verify("x", {"prompt": "why?", "answer": "y"})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("numerc", "'numerc' is not a verifier; did you mean 'numeric'?"),
        ({"verifier": "numeric", "tolerence": 1}, "tolerence is not a setting; did you mean 'tolerance'?"),
        (
            {"verifier": "numeric", "tolerance": -1},
            "verifier.tolerance = -1: expected greater than or equal to 0",
        ),
        ({"verifier": "numeric", "weight": "heavy"}, "verifier.weight = 'heavy': expected a valid number"),
        ({"tolerance": 1}, "verifier.verifier is missing"),
        ({"verifier": "regex", "pattern": "("}, "is not a regular expression"),
        ({"verifier": broken, "tolerance": 1}, "verifier.tolerance is not a setting"),
        (["exact", "nope"], "verifier.1: 'nope' is not a verifier"),
        ([], "at least one"),
        (3, "expected a verifier's name or a function"),
        (lambda completion: 1.0, "is called as function.completion, row., but too many positional arguments"),
        ("nowhere.py:reward", "nowhere.py does not exist"),
    ],
)
def test_a_wrong_specification_is_one_sentence(spec: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        make_verifier(spec)


@pytest.mark.parametrize(
    ("spec", "row"),
    [("numeric", {"answer": "many"}), ("regex", {"answer": "1"}), ("regex", {"answer": "1", "pattern": "("})],
)
def test_rows_that_can_never_be_judged_are_found(spec: str, row: dict) -> None:
    assert make_verifier(spec).check(row)


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_no_text_breaks_a_verifier(text: str) -> None:
    for spec in ("exact", "numeric", {"verifier": "numeric", "take": "last"}):
        assert make_verifier(spec).verify(text, {"answer": "17"}) in (0, 1)


def test_math_verify_works_outside_the_main_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(make_verifier("math-verify").verify, "$2/4$", {"answer": "1/2"}).result() == 1


def test_config_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)
