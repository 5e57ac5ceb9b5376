"""Verifiers by name, against the inequalities that they state; wrong specifications and rows."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verifier_inputs import broken, integers, written

from polopt.config import ConfigError
from polopt.worlds import make_verifier


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
        (lambda completion: 1.0, "is called as function.completion, row., but too many positional .*; write it as f"),
        (lambda completions, completion_ids: [], "needs completion_ids, which only TRL's trainer has"),
        (lambda solution_str, judge: 1.0, "needs judge, and is given data_source, solution_str, ground_truth, extra_"),
        ("os.nope:reward", "there is no module os.nope; give an importable module or a path ending in .py"),
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
