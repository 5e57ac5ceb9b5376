"""Numbers in texts, against exact arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifier_inputs import written

from polopt.worlds.numbers import last_number, read_number


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
