"""Formulas of docstrings: what is rendered, element by element, and what is left as it stands."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from docs_site import docstrings
from docs_site.formulas import mathml
from docs_site.notation import NotationError
from polopt import catalogue

TAGS = {"mfrac": "/", "msub": "_", "msup": "^", "munder": "_", "msubsup": "_^", "munderover": "_^", "msqrt": "sqrt"}
NO_SETTINGS: frozenset[str] = frozenset()


def read(element: ElementTree.Element) -> str:
    """MathML as a string: fractions as {a / b}, scripts as {a _ b}; invisible spaces left out."""
    if element.tag == "annotation":
        return ""
    inner = [read(child) for child in element]
    if element.tag in TAGS:
        mark = TAGS[element.tag]
        return (
            "{" + f" {mark} ".join(inner) + "}"
            if mark != "_^"
            else "{" + inner[0] + f" _ {inner[1]} ^ {inner[2]}" + "}"
        )
    return (element.text or "").replace("\u00a0", " ") + "".join(inner)


def shown(text: str, settings: frozenset[str] = NO_SETTINGS, prose: bool = False) -> str:
    found = mathml(text, settings, prose=prose)
    return " | ".join(read(ElementTree.fromstring(one + "</math>")) for one in found.split("</math>")[:-1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r_it", "{r _ it}"),
        ("pi_{-i}(h)", "{π _ −i}(h)"),
        ("s_(t+1)", "{s _ t+1}"),
        ("rho'_it", "{ρ _ it ^ ′}"),
        ("H* + 1", "{H ^ ∗}+1"),
        ("old_logp_it", "{logp _ it ^ old}"),
        ("sum_{h in I} x_h", "{∑ _ h∈I}{x _ h}"),
        ("prod_{k <= t} p_k", "{∏ _ k≤t}{p _ k}"),
        ("A_local", "{A _ local}"),
        ("1e-4 + 0.5 Q", "{10 ^ −4}+0.5Q"),
        ("log^2 r_it", "{log ^ 2}{r _ it}"),
        ("(1 - p)^N", "{(1−p) ^ N}"),
        ("p^(beta - 1)", "{p ^ β−1}"),
        ("|y_i| <= n", "|{y _ i}|≤n"),
        ("pi(a | s)", "π(a∣s)"),
        ("KL(p || q) >= 0", "KL(p∥q)≥0"),
        ("sqrt(p (1 - p))", "{p(1−p)}"),
        ("+-value_clip", "±value_clip"),
        ("x -> y", "x→y"),
        ("n_i ~ p", "{n _ i}∼p"),
        ("Q~_h - V~_{h+1}", "{Q~ _ h}−{V~ _ h+1}"),
        ("log pi~_t(y) + x~", "log{π~ _ t}(y)+x~"),
        ("Lambda_h^(-1)", "{Λ _ h ^ −1}"),
        ("max {x : f(x) <= k}", "max{x:f(x)≤k}"),
        ("{i: x_i > 0}", "{i:{x _ i}>0}"),
        ("round(eta G)", "round(ηG)"),
    ],
)
def test_names_and_scripts(text: str, expected: str) -> None:
    assert shown(text, frozenset({"value_clip"})) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a / b", "{a / b}"),
        ("(R - m) / (s + eps)", "{R−m / s+ε}"),
        ("1/n sum_i x_i", "{1 / n}{∑ _ i}{x _ i}"),
        ("(1 / sum_i |y_i|) x", "{1 / {∑ _ i}|{y _ i}|}x"),
        ("a b / c", "{ab / c}"),
        ("f(a / b)", "f({a / b})"),
        ("a / b, c", "{a / b},c"),
        # Two readings, or one that is not the one of arithmetic: the stroke stays.
        ("a / b c", "a/bc"),
        ("log a / b", "loga/b"),
        ("log p(x)/q(x)", "logp(x)/q(x)"),
        ("prod_k a_k / b_k", "{∏ _ k}{a _ k}/{b _ k}"),
        ("sum_i w_i / sum_i v_i", "{∑ _ i}{w _ i}/{∑ _ i}{v _ i}"),
        ("a / b / c", "a/b/c"),
        ("a / mean b", "a/meanb"),
        ("x^(1/K)", "{x ^ 1/K}"),
    ],
)
def test_fractions(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R_i = 1 or 0", "{R _ i}=1 or 0"),
        ("A = x where all answers are right,", "A=x where all answers are right,"),
        ("A = x,    B = y", "A=x, | B=y"),
        ("R = 1[verdict right] (1/m)", "R=1[verdict right]{1 / m}"),
        ("w = most from 1 down to `weight`", "w=most from 1 down to weight"),
    ],
)
def test_words_beside_formulas(text: str, expected: str) -> None:
    assert shown(text, frozenset({"weight", "most"}), prose=True) == expected


@pytest.mark.parametrize(
    "text",
    [
        "h_i,h+1",
        "y_<t",
        "(a + b",
        "a + b)",
        "a +",
        "a = / b",
        "a/ b",
        "f(x=1)",
        "(x : y)",
        "max~(x)",
        "word~ = x",
        "x~y",
        "fit_scorer(scorer)",
        '"shaped" R = x',
        "A = a mean of x",
        "A = a group of x",
        "every answer that was right has the same one",
        "A = the mean of all that was said in it by everyone there",
        "",
    ],
)
def test_left_as_it_stands(text: str) -> None:
    with pytest.raises(NotationError):
        mathml(text, NO_SETTINGS, prose=True)


def test_words_are_no_formula_within_a_sentence() -> None:
    assert shown("A_i = R_i - b") == "{A _ i}={R _ i}−b"
    for text in ("R_i = mean", "A = the mean", "S = argmax"):
        with pytest.raises(NotationError):
            mathml(text)


def test_a_docstring_becomes_paragraphs_blocks_lists_and_formulas() -> None:
    doc = "A_i = R_i - b, and so on & on:\n\n    L = sum_i A_i\n\n    call(x=1)\nThen `x_y`.\n\n- one\n  more\n- two"
    found = docstrings.as_html(doc)
    assert found.count("<math") == 2
    assert "<p><math" in found
    assert ", and so on &amp; on:</p>" in found
    assert '<div class="formula"><math displaystyle="true">' in found
    assert '<pre class="notation"><code>call(x=1)</code></pre>' in found
    assert "<p>Then <code>x_y</code>.</p>" in found
    assert found.endswith("<ul><li>one more</li><li>two</li></ul>")


def test_one_line_that_is_no_formula_leaves_its_whole_block_as_it_stands() -> None:
    (chunk,) = docstrings.chunks("    A = x\n    call(x=1)")
    assert docstrings.formulas(chunk) is None


def rendered_formulas() -> list[str]:
    """All formulas of all methods that stand on lines of their own, as elements."""
    found = []
    for slug in catalogue.slugs():
        m = catalogue.find(slug)
        for chunk in docstrings.chunks(m.doc):
            blocks = docstrings.formulas(chunk, frozenset(m.settings())) if chunk.kind == "block" else None
            found += [f"{one}</math>" for block in blocks or [] for one in block.split("</math>")[:-1]]
    return found


# Rules that are tried in turn, and temporal logic.
WITHOUT_MATHEMATICS = {"progent", "policyguard"}


@pytest.mark.parametrize("slug", catalogue.slugs())
def test_every_method_says_a_formula(slug: str) -> None:
    m = catalogue.find(slug)
    assert ("<math" in docstrings.as_html(m.doc, frozenset(m.settings()))) == (slug not in WITHOUT_MATHEMATICS)


def test_what_is_rendered_has_every_digit_and_every_capital_letter_of_its_text() -> None:
    found = rendered_formulas()
    assert len(found) > 60
    for element in found:
        root = ElementTree.fromstring(element)
        note = root.find(".//annotation")
        assert note is not None
        assert note.text
        leaves = [leaf.text for leaf in root.iter() if leaf.text and leaf.tag != "annotation"]
        text = re.sub(r"(?<=\d)e-(?=\d)", "", note.text.replace("1e-", "10e-"))
        assert sorted(re.findall(r"\d", text)) == sorted(re.findall(r"\d", "".join(leaves))), note.text
        for letter in "ARLVGQ":
            written = re.findall(rf"(?<![A-Za-z]){letter}(?![A-Za-z])", text)
            assert len(written) == leaves.count(letter), note.text


def test_most_formula_lines_are_rendered() -> None:
    """A parser that refused everything would fail no other test."""
    lines = rendered = 0
    for slug in catalogue.slugs():
        m = catalogue.find(slug)
        for chunk in docstrings.chunks(m.doc):
            if chunk.kind == "block":
                lines += len(chunk.lines)
                rendered += len(chunk.lines) if docstrings.formulas(chunk, frozenset(m.settings())) else 0
    assert rendered > 0.85 * lines
