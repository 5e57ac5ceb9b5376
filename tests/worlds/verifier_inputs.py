"""Numbers as people write them, and a reward function that goes wrong."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

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


def broken(completion: str, row: dict) -> float:
    return 1 / 0
