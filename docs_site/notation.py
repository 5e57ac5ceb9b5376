"""Tokens and names of the plain notation in which docstrings write formulas."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Set
from typing import Literal


class NotationError(ValueError):
    """A text is not in the notation, or its meaning is open. It is shown as it stands."""


Kind = Literal[
    "number", "word", "name", "operator", "relation", "slash", "open", "close", "bar", "mark", "power", "prime"
]


@dataclasses.dataclass(frozen=True)
class Token:
    """A token of a formula. before, after: whether a space, or the text's border, is on that side."""

    kind: Kind
    text: str
    before: bool
    after: bool


_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?(?![A-Za-z_\d]))"
    r"|(?P<word>[A-Za-z]+'s\b)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*(?:'|[*~](?=[_|),\s]|$))?(?:_[A-Za-z0-9]+)*)"
    r"|(?P<relation>->|<-|<=|>=|!=|\+=|=|<|>|~)"
    r"|(?P<operator>\+-|-\+|\.\.\.|[-+*])"
    r"|(?P<slash>/)|(?P<power>\^)|(?P<prime>')"
    r"|(?P<open>_[({]|[(\[{])|(?P<close>[)\]}])|(?P<bar>\|\|?)|(?P<mark>[,;:.])"
)


def tokens_of(text: str) -> list[Token]:
    """Returns the tokens of a text.

    Raises:
        NotationError: a character that the notation does not have.
    """
    found, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise NotationError(f"no token begins at {text[at:]!r:.20}")
        before = at == 0 or text[at - 1].isspace()
        at = match.end()
        after = at == len(text) or text[at].isspace()
        found.append(Token(match.lastgroup, match.group(), before, after))  # type: ignore[arg-type]
    return found


GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "lam": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "omega": "ω",
    "Delta": "Δ", "Lambda": "Λ", "Phi": "Φ", "Psi": "Ψ",
}  # fmt: skip
BIG = {"sum": "∑", "prod": "∏"}
FUNCTIONS = frozenset(
    {"max", "min", "exp", "log", "clip", "mean", "std", "sqrt", "sg", "sigmoid", "softmax", "argmax", "argmin", "tanh"}
    | {"Var", "Beta", "floor", "ceil", "round", "grad", "KL", "E"}
)
RELATIONS = {"<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "<-": "←", "~": "∼"}
OPERATORS = {"-": "−", "+-": "±", "-+": "∓", "*": "·", "...": "…"}
# Prefixes of a log-probability's name: the policy that it is of.
POLICIES = frozenset({"old", "ref", "prev", "behaviour"})
# Words of formulas that are names of the batch, not of a setting.
FIELDS = frozenset({"logp", "outcome", "ref", "horizon", "old", "ratio", "reward"})
_INDICES = frozenset("ijkthgebnmdvwuq")
_NO_INDICES = frozenset({"new", "end", "the", "den", "net", "mid"})


def escaped(text: str) -> str:
    return html.escape(text, quote=False)


def identifier(text: str) -> str:
    """Returns a name as MathML: one letter slanted, several upright."""
    return f"<mi>{escaped(text)}</mi>"


def number(text: str) -> str:
    """Returns a number; 1e-4 as a power of ten."""
    digits, _, exponent = text.partition("e")
    if not exponent:
        return f"<mn>{text}</mn>"
    power = f"<msup><mn>10</mn><mn>{exponent.replace('-', '−')}</mn></msup>"
    return power if digits == "1" else f"<mrow><mn>{digits}</mn><mo>·</mo>{power}</mrow>"


def _is_indices(text: str) -> bool:
    return len(text) <= 3 and set(text) <= _INDICES and text not in _NO_INDICES


def subscript(text: str) -> str:
    """Returns one subscript: a number, a Greek letter, indices such as `it`, or a word."""
    if text.isdigit():
        return f"<mn>{text}</mn>"
    if text in GREEK:
        return identifier(GREEK[text])
    if _is_indices(text):
        return "".join(map(identifier, text))
    if len(text) == 1:
        return identifier(text)
    return f"<mtext>{escaped(text)}</mtext>"


@dataclasses.dataclass
class Name:
    """A name in a formula. upright: it has several letters, and needs room beside other factors."""

    base: str
    sub: str = ""
    sup: str = ""
    big: bool = False
    function: str = ""
    upright: bool = False

    def xml(self) -> str:
        base = f'<mo largeop="true" movablelimits="false">{BIG[self.function]}</mo>' if self.big else self.base
        sub, sup = (f"<mrow>{part}</mrow>" if part else "" for part in (self.sub, self.sup))
        if self.big and (sub or sup):
            tag = "munderover" if sub and sup else "munder" if sub else "mover"
            return f"<{tag}>{base}{sub}{sup}</{tag}>"
        tag = "msubsup" if sub and sup else "msub" if sub else "msup" if sup else ""
        return f"<{tag}>{base}{sub}{sup}</{tag}>" if tag else base


def name_of(text: str, settings: Set[str]) -> Name | None:
    """Returns the name that a token stands for; None for a word of prose.

    Raises:
        NotationError: an unknown name with subscripts.
    """
    if text in settings and ("_" in text or len(text) > 1) and text not in FUNCTIONS | GREEK.keys():
        return Name(identifier(text), upright=True)
    base, *subs = text.split("_")
    if "~" in base:
        return _with_tilde(text.replace("~", "", 1), settings)
    above = ""
    if base in POLICIES and subs and subs[0] == "logp":
        above, base, subs = f"<mtext>{base}</mtext>", subs[0], subs[1:]
    sub = "<mo>,</mo>".join(map(subscript, subs))
    core = base.rstrip("'*")
    mark = {"'": "<mo>′</mo>", "*": "<mo>∗</mo>"}.get(base[len(core) :], "")
    if mark and above:
        raise NotationError(f"{text} has two superscripts")
    above = above or mark
    if core in BIG and not mark:
        return Name("", sub, big=True, function=core)
    if core == "chi2":
        return Name(identifier("χ"), sub, "<mn>2</mn>") if not above else None
    if core in GREEK:
        return Name(identifier(GREEK[core]), sub, above)
    if core == "grad":
        return Name("<mo>∇</mo>", sub, function=core)
    if core == "infinity":
        return Name("<mi>∞</mi>")
    if (digit := re.fullmatch(r"([a-z]{2,})(\d)", core)) and digit[1] in GREEK and not subs:
        return Name(identifier(GREEK[digit[1]]), f"<mn>{digit[2]}</mn>", above)
    if core == "log2":
        return Name(identifier("log"), "<mn>2</mn>", function="log", upright=True) if not subs else None
    if core[0] == "d" and (core[1:] in GREEK or re.fullmatch("[A-Z]", core[1:])) and not (subs or above):
        return Name(f"<mrow>{identifier('d')}{identifier(GREEK.get(core[1:], core[1:]))}</mrow>")
    if len(core) == 1:
        return Name(identifier(core), sub, above, function=core if core in FUNCTIONS else "")
    if core in FUNCTIONS:
        return Name(identifier(core), sub, above, function=core, upright=True)
    short = core.isupper() or (len(core) == 2 and core[1].isdigit()) or core in ("dt",)
    indexed = bool(subs) and core.isalpha() and all(part.isdigit() or _is_indices(part) for part in subs)
    if core in FIELDS or core in settings or short or indexed:
        return Name(identifier(core), sub, above, upright=True)
    if subs or mark or not core.isalpha():
        raise NotationError(f"{text} is no name of a formula")
    return None


def _with_tilde(text: str, settings: Set[str]) -> Name | None:
    """Returns the name under a tilde, which is written behind its letters: A~_i."""
    name = name_of(text, settings)
    if name is None or name.function:
        raise NotationError(f"{text} has a tilde, and is no variable")
    name.base = f'<mover accent="true">{name.base}<mo>~</mo></mover>'
    return name
