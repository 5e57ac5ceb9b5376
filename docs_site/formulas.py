"""Formulas of docstrings as MathML, which browsers show without a script.

What is written keeps its order; only fractions change it, and only where no other reading is open: everywhere else `/`
stays a stroke. A text that is not in the notation raises `NotationError`, and pages show it as it stands.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Set
from typing import Literal

from docs_site.notation import (
    FUNCTIONS,
    OPERATORS,
    RELATIONS,
    Name,
    NotationError,
    Token,
    escaped,
    name_of,
    number,
    tokens_of,
)

# Words after which another clause begins, so that an operand ends before them.
CONNECTIVES = frozenset({"where", "if", "for", "and", "or", "with", "over", "else", "elsewhere", "otherwise", "so"})
_CLOSING = {"(": ")", "[": "]", "{": "}", "_(": ")", "_{": "}", "|": "|", "||": "||"}
_PRIME = "<mo>′</mo>"
_SPACE = "\u00a0"
_THIN = '<mspace width="0.17em"/>'


@dataclasses.dataclass
class Item:
    """One piece of a row of a formula.

    kind: "factor"; "prefix" is a sum, or a function without brackets; "end" ends a product, as + and = do.
    grouped: xml without its round brackets, for a factor that is all in brackets; "" otherwise.
    fraction: whether it is a fraction alone. upright: it needs room beside other factors. tight: a slash without
    spaces. closes: whether a product that stands beside it surely ends there.
    """

    kind: Literal["factor", "prefix", "slash", "end", "text"]
    xml: str
    grouped: str = ""
    fraction: bool = False
    upright: bool = False
    tight: bool = False
    closes: bool = True


def mathml(text: str, settings: Set[str] = frozenset(), *, prose: bool = False, block: bool = False) -> str:
    """Returns a formula as a `math` element that keeps the text as its annotation; formulas with two or more spaces
    between them as an element each.

    settings: names that may stand in it. prose: whether words may stand beside the formula. block: whether it stands
    on a line of its own.

    Raises:
        NotationError: the text is not in the notation, or has words and no relation.
    """
    plain = re.sub(r"`(\w+)`", r"\1", text.strip()) if prose else text.strip()
    segments = re.split(r"\s{2,}(?![-+*/=<>~] )", plain)
    rows = [(segment, _Parser(segment, settings, prose).whole()) for segment in segments]
    words = sum(row.words for _, row in rows)
    if words and not any(row.relations for _, row in rows):
        raise NotationError("words without a relation")
    if words > 0.6 * sum(len(row.tokens) for _, row in rows):
        raise NotationError("more words than formula")
    return "".join(_element(segment, row.xml, block) for segment, row in rows)


def _element(text: str, xml: str, block: bool) -> str:
    style = ' displaystyle="true"' if block or "<mfrac" in xml else ""  # fractions are too small otherwise
    note = f'<annotation encoding="text/plain">{escaped(" ".join(text.split()))}</annotation>'
    return f"<math{style}><semantics><mrow>{xml}</mrow>{note}</semantics></math>"


class _Parser:
    """Parses one segment. relations and words count what it has; xml is the result."""

    def __init__(self, text: str, settings: Set[str], prose: bool) -> None:
        self.tokens, self.settings, self.prose = tokens_of(text), settings, prose
        self.at, self.relations, self.words, self.xml = 0, 0, 0, ""
        self.inside: list[str] = []
        self.may_be_sign = True

    def whole(self) -> _Parser:
        self.xml = _joined(self.items(""))
        if self.at < len(self.tokens):
            raise NotationError(f"{self.tokens[self.at].text!r} closes nothing")
        if not self.xml:
            raise NotationError("empty")
        return self

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def items(self, closing: str) -> list[Item]:
        """Returns the pieces up to the closing bracket, which is taken."""
        self.inside.append(closing)
        found: list[Item] = []
        while (token := self.peek()) is not None:
            operand = bool(found) and found[-1].kind in ("factor", "text", "prefix")
            if token.text == closing and (token.kind == "close" or (operand and not (token.before and token.after))):
                break
            if token.text == closing == "||" and operand:
                break
            if token.kind == "close":
                break
            self.may_be_sign = not found or found[-1].kind in ("text", "prefix")
            found.append(self.operator(operand) if self.is_operator(token, operand) else self.operand(found))
        if closing and (self.peek() is None or self.take().text != closing):
            raise NotationError(f"{closing!r} is missing")
        self.inside.pop()
        if not self.prose and not closing and found and found[-1].kind == "prefix":
            raise NotationError("a function of nothing")
        self.check_order(found)
        return found

    def is_operator(self, token: Token, operand: bool) -> bool:
        if token.kind in ("operator", "relation", "slash", "mark"):
            return True
        is_member = token.text == "in" and self.inside[-1] == "}" and operand
        return is_member or (token.kind == "bar" and operand and token.before and token.after)

    def operator(self, operand: bool) -> Item:
        token = self.take()
        if token.kind == "slash":
            if not operand or token.before != token.after:
                raise NotationError("a fraction lacks one side, or has a space on one side alone")
            return Item("slash", "<mo>/</mo>", tight=not token.before)
        if token.kind == "relation":
            if not (token.before and token.after) and self.inside[-1] not in ("}", ")"):
                raise NotationError(f"{token.text} without spaces")
            if not operand or (self.inside[-1] == ")" and not (token.before and token.after)):
                raise NotationError(f"{token.text} has no left side, or names an argument")
            self.relations += 1
            return Item("end", f"<mo>{escaped(RELATIONS.get(token.text, token.text))}</mo>")
        if token.kind == "mark":
            braces = token.text == ":" and self.inside[-1] == "}"
            if braces and operand and token.before and token.after:  # {x : a condition}
                return Item("end", "<mo>:</mo>")
            if not operand or token.before or (not token.after and not braces):
                raise NotationError(f"{token.text} within a word")
            return Item("end", f'<mo separator="true">{token.text}</mo>', closes=token.text != ".")
        if token.text == "in":
            return Item("end", "<mo>∈</mo>")
        if token.kind == "bar":
            return Item(
                "end", f'<mo lspace="0.2em" rspace="0.2em" stretchy="false">{"∥" if token.text == "||" else "∣"}</mo>'
            )
        if token.text == "...":
            return Item("factor", "<mo>…</mo>")
        infix = operand and token.before == token.after
        if operand and not infix and (token.after or not self.may_be_sign):
            raise NotationError(f"{token.text} has a space on one side alone")
        form = "infix" if infix else "prefix"
        return Item("end", f'<mo form="{form}">{OPERATORS.get(token.text, token.text)}</mo>', closes=infix)

    def operand(self, before: list[Item]) -> Item:
        token = self.take()
        if before and before[-1].kind in ("factor", "text") and not token.before and token.text != "(":
            raise NotationError(f"{token.text} follows without a space")
        if token.kind == "number":
            following = self.peek()
            if token.text == "1" and following is not None and following.text == "[" and not following.before:
                self.take()
                return Item("factor", f"<mrow><mn>1</mn>{self.bracketed('[').xml}</mrow>", upright=True)
            return self.raised(Item("factor", number(token.text)))
        if token.kind == "open" and not token.text.startswith("_"):
            return self.raised(self.bracketed(token.text))
        if token.kind == "bar":
            if token.after and token.text == "|":
                raise NotationError("| opens nothing")
            mark = "‖" if token.text == "||" else "|"
            inner = _joined(self.items(token.text))
            fence = f'<mo fence="true" stretchy="false">{mark}</mo>'
            return self.raised(Item("factor", f"<mrow>{fence}{inner}{fence}</mrow>"))
        if token.kind == "word":
            return self.text(token)
        if token.kind != "name":
            raise NotationError(f"{token.text} where an operand belongs")
        following = self.peek()
        if token.text == "a" and following is not None and following.before and self.is_word(following):
            raise NotationError("an article, or a variable")
        name = name_of(token.text, self.settings)
        return self.text(token) if name is None else self.named(name)

    def is_word(self, token: Token) -> bool:
        """Returns True for a word of prose and for a function, which may be one: a mean."""
        name = name_of(token.text, self.settings) if token.kind == "name" else None
        return token.kind == "word" or (token.kind == "name" and (name is None or name.function in FUNCTIONS))

    def text(self, token: Token) -> Item:
        """Returns a word of prose. One letter beside it may be an article, not a variable."""
        if not self.prose:
            raise NotationError(f"{token.text} is a word")
        if token.text not in CONNECTIVES and any(
            self.tokens[i].text in ("a", "A", "I") for i in (self.at - 2, self.at) if 0 <= i < len(self.tokens)
        ):
            raise NotationError("an article, or a variable")
        self.words += 1
        return Item("text", escaped(token.text), closes=token.text in CONNECTIVES)

    def named(self, name: Name) -> Item:
        """Returns a name with its subscript in brackets, its exponent and its arguments."""
        token = self.peek()
        if token is not None and token.text.startswith("_") and not token.before:
            self.take()
            if name.sub:
                raise NotationError("two subscripts")
            name.sub = _row(self.items(_CLOSING[token.text]))
            token = self.peek()
        if token is not None and token.kind == "power":
            if name.sup:
                raise NotationError("two superscripts")
            name.sup = self.exponent()
            token = self.peek()
        called = token is not None and token.text in ("(", "[") and not token.before
        if name.function in self.settings and not called:
            return Item("factor", name.xml(), upright=True)
        if name.big or (name.function and not called):
            return Item("prefix", name.xml(), upright=True)
        if not called:
            return Item("factor", name.xml(), upright=name.upright)
        arguments = self.bracketed(self.take().text)
        if name.function == "sqrt" and not (name.sub or name.sup):
            return self.raised(Item("factor", f"<msqrt><mrow>{arguments.grouped}</mrow></msqrt>"))
        return self.raised(Item("factor", f"<mrow>{name.xml()}{arguments.xml}</mrow>", upright=True))

    def bracketed(self, opening: str) -> Item:
        """Returns a group in brackets. A fraction alone in round ones needs none."""
        parts = self.items(_CLOSING[opening])
        inner = _joined(parts)
        if not inner:
            raise NotationError("empty brackets")
        left, right = (f'<mo fence="true">{mark}</mo>' for mark in (opening, _CLOSING[opening]))
        alone = opening == "(" and _is_fraction(parts)
        return Item(
            "factor", f"<mrow>{left}{inner}{right}</mrow>", grouped=inner if opening == "(" else "", fraction=alone
        )

    def raised(self, item: Item) -> Item:
        """Returns the item with what is raised beside it: an exponent, a prime."""
        token = self.peek()
        if token is None or token.before:
            return item
        if token.kind == "power":
            return Item("factor", f"<msup>{item.xml}<mrow>{self.exponent()}</mrow></msup>", upright=item.upright)
        if token.kind == "prime":
            self.take()
            return Item("factor", f"<msup>{item.xml}{_PRIME}</msup>", upright=item.upright)
        return item

    def exponent(self) -> str:
        sign = self.take()
        if sign.before or sign.after or self.peek() is None:
            raise NotationError("^ has spaces")
        token = self.take()
        if token.kind == "number":
            return number(token.text)
        if token.text in ("(", "{"):
            return _row(self.items(_CLOSING[token.text]))
        name = name_of(token.text, self.settings) if token.kind == "name" else None
        if name is None or name.function or name.big:
            raise NotationError("no exponent")
        return name.xml()

    def check_order(self, found: list[Item]) -> None:
        """Refuses operators and functions without what they belong to."""
        for item, following in zip(found, [*found[1:], None], strict=False):
            last = following is None or following.kind == "end"
            if item.kind == "slash" and (last or (following and following.kind == "text")):
                raise NotationError("a fraction without a denominator")
            if item.kind == "end" and following is None and "separator" not in item.xml:
                raise NotationError("an operator at the end")


def _is_fraction(parts: list[Item]) -> bool:
    row = _with_fractions(parts)
    return len(row) == 1 and row[0].fraction


def _fraction(above: list[Item], below: list[Item]) -> Item:
    top, bottom = (side[0].grouped if len(side) == 1 and side[0].grouped else _row(side) for side in (above, below))
    return Item("factor", f"<mfrac><mrow>{top}</mrow><mrow>{bottom}</mrow></mfrac>", fraction=True)


def _with_fractions(items: list[Item]) -> list[Item]:
    """Returns the pieces with strokes that have one reading made fractions, product by product."""
    found: list[Item] = []
    product: list[Item] = []
    begins = True
    for item in items:
        if item.kind in ("end", "text"):
            found += [*_product(product, begins and item.closes), item]
            product, begins = [], item.kind == "end" or item.closes
        else:
            product.append(item)
    return found + _product(product, begins)


def _product(factors: list[Item], alone: bool) -> list[Item]:
    """Returns a product, with fractions. alone: whether the words beside it surely are no part of it."""
    row = list(factors)
    at = 0
    while at < len(row):  # a/b without spaces binds its neighbours
        bare = at < 2 or row[at - 2].kind == "factor"
        if row[at].kind == "slash" and row[at].tight and bare and row[at + 1].kind == "factor":
            again = at + 2 < len(row) and row[at + 2].kind == "slash"
            if not again:
                row[at - 1 : at + 2] = [_fraction([row[at - 1]], [row[at + 1]])]
                continue
        at += 1
    strokes = [i for i, item in enumerate(row) if item.kind == "slash"]
    if len(strokes) != 1 or row[strokes[0]].tight or not alone:
        return row
    above, below = row[: strokes[0]], row[strokes[0] + 1 :]
    one = len(below) == 1 and below[0].kind == "factor"
    of_sum = len(below) == 2 and [i.kind for i in below] == ["prefix", "factor"] and "largeop" in below[0].xml
    if all(item.kind == "factor" for item in above) and (one or of_sum):
        return [_fraction(above, below)]
    return row


def _joined(items: list[Item]) -> str:
    return _row(_with_fractions(items))


def _row(items: list[Item]) -> str:
    """Returns pieces side by side, words as one text, with room between factors that would run into each other."""
    out: list[str] = []
    words: list[str] = []
    before: Item | None = None
    for item, following in zip(items, [*items[1:], None], strict=False):
        if item.kind == "text":
            words.append(item.xml)
            if following is None or following.kind != "text":
                tail = "" if following is None or "separator" in following.xml else _SPACE
                head = _SPACE if out else ""
                out.append(f"<mtext>{head}{' '.join(words)}{tail}</mtext>")
                words = []
        else:
            both = before is not None and {before.kind, item.kind} <= {"factor", "prefix"}
            if both and before is not None and (before.upright or item.upright or before.fraction or item.fraction):
                out.append(_THIN)
            out.append(item.grouped if item.fraction and item.grouped else item.xml)
        before = item
    return "".join(out)


__all__ = ["CONNECTIVES", "FUNCTIONS", "NotationError", "mathml"]
