"""Temporal rules over the calls of an episode: what must happen, must not happen, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from polopt.errors import ConfigError
from polopt.guards.call_pattern import ANY_TOOL, CallPattern
from polopt.guards.guard import Fallback, Guard, GuardVerdict, ToolCall
from polopt.names import nearest
from polopt.part import Part, settings_of
from polopt.yaml_data import read_yaml_file

TemporalKind = Literal["obligation", "prohibition", "ordering", "conditional"]
TraceVerdict = Literal["violated", "satisfied", "open"]
# Kind -> whether it relates two events, and its sentence.
TWO_EVENTS: tuple[TemporalKind, ...] = ("ordering", "conditional")
SENTENCES: dict[TemporalKind, str] = {
    "obligation": "{event} must be called",
    "prohibition": "{event} must never be called",
    "ordering": "{event} must be called before {other}",
    "conditional": "after {event}, {other} must be called",
}


class TemporalRule(Part):
    """Judges the calls of an episode, in order, by a formula of linear temporal logic over finite traces.

        obligation   F a               prohibition   G !a
        ordering     !b U a            conditional   G(a -> F b)

    a is `event` and b is `other`. One call may match both: it then meets an ordering and a conditional rule. A pattern
    whose condition is undecidable, or whose argument a call leaves out, counts against the call: as an event that is
    forbidden or that obliges, and not as one that is required.

    kind: of the rule. event, other: patterns of calls; `other` is of ordering and conditional rules alone. weak: of an
    ordering rule: b must not come before a, and a need not come at all, !b W a.

    Raises:
        ValueError: an `other` that is missing or superfluous, or `weak` of another kind.
    """

    kind: TemporalKind
    event: CallPattern
    other: CallPattern | None = None
    weak: bool = False

    def setup(self) -> None:
        if (self.other is not None) is not (self.kind in TWO_EVENTS):
            needed = "needs" if self.kind in TWO_EVENTS else "has no"
            raise ValueError(f"TemporalRule: {self.kind} {needed} `other`, a second pattern of calls")
        if self.weak and self.kind != "ordering":
            raise ValueError(f"TemporalRule: weak is a setting of ordering rules, not of {self.kind}")

    def forward(self, trace: Sequence[ToolCall], ended: bool = False) -> TraceVerdict:
        """Returns the verdict on the calls of an episode.

        "violated": whatever follows; "satisfied": whatever follows; "open": both are possible. ended: nothing
        follows, so that the verdict is never open.
        """
        due = self.kind == "obligation" or (self.kind == "ordering" and not self.weak)
        for call in trace:
            required, harmful = self._occurs(call)
            if self.kind == "conditional":
                due = not required and (due or harmful)
            elif required:
                return "satisfied"
            elif harmful:
                return "violated"
        if not ended:
            return "open"
        return "violated" if due else "satisfied"

    def _occurs(self, call: ToolCall) -> tuple[bool, bool]:
        """Tests whether the call is the event that the rule requires, and whether it may be the one that forbids or
        obliges."""
        a = self.event(call)
        b = self.other(call) if self.other is not None else None
        if self.kind == "obligation":
            return a is True, False
        if self.kind == "prohibition":
            return False, a is not False
        return (a is True, b is not False) if self.kind == "ordering" else (b is True, a is not False)

    def text(self) -> str:
        """Returns the rule in words, for a model or a message."""
        other = "" if self.other is None else self.other.text()
        return SENTENCES[self.kind].format(event=self.event.text(), other=other)


class RuleStatus(NamedTuple):
    """A rule, its verdict on the calls so far, and its verdict if the episode ended now."""

    rule: TemporalRule
    verdict: TraceVerdict
    if_ended: TraceVerdict


class TemporalGuard(Guard):
    """Refuses a call after which a temporal rule would be violated whatever follows.

    These are calls that a prohibition names, and calls that come before the one that an ordering rule requires. No
    single call violates an obligation or a conditional rule: `open_obligations` lists those that are not yet met.

    rules: temporal rules. tools: names of the tools that may be called, every other tool is refused; "*" allows any.
    fallback: the consequence of a refusal.
    """

    rules: Sequence[TemporalRule] = ()
    tools: tuple[str, ...] = ()
    fallback: Fallback = "message"

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        if ANY_TOOL not in self.tools and call.name not in self.tools:
            return GuardVerdict(False, f"the tool {call.name:.60} is not among the tools of the rules", self.fallback)
        broken = [rule for rule in self.rules if rule((*memory, call)) == "violated"]
        if broken:
            return GuardVerdict(False, f"it would violate a rule: {broken[0].text():.200}", self.fallback)
        return GuardVerdict(True)

    @property
    def widens(self) -> bool:
        return any(rule.kind == "ordering" for rule in self.rules)

    def status(self, memory: Sequence[ToolCall]) -> list[RuleStatus]:
        """Returns the state of every rule after the calls that have run."""
        return [RuleStatus(rule, rule(memory), rule(memory, ended=True)) for rule in self.rules]

    def open_obligations(self, memory: Sequence[ToolCall]) -> list[TemporalRule]:
        """Returns the rules that would be violated if the episode ended now, and could still be met."""
        return [found.rule for found in self.status(memory) if (found.verdict, found.if_ended) == ("open", "violated")]


def temporal_rules(data: Any, where: str = "rules") -> list[TemporalRule]:
    """Builds temporal rules from a list such as `{kind: ordering, event: login, other: {tool: buy}}`. An event is a
    tool's name, or a mapping with the settings of `CallPattern`. where: the list's name in messages.

    Raises:
        ConfigError: no list, an unknown setting or a wrong value; the rule's place is named.
    """
    if not isinstance(data, (list, tuple)):
        raise ConfigError(
            f"{where} must be a list of rules such as {{kind: prohibition, event: delete}}, found {data!r:.60}"
        )
    return [_rule(each, f"{where}[{i}]") for i, each in enumerate(data)]


def _rule(data: Any, where: str) -> TemporalRule:
    if isinstance(data, TemporalRule):
        return data
    settings = _settings(data, TemporalRule, ("kind", "event"), "{kind: prohibition, event: delete}", where)
    for name in ("event", "other"):
        if settings.get(name) is not None:
            settings[name] = _pattern(settings[name], f"{where}.{name}")
    try:
        return TemporalRule(**settings)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _pattern(data: Any, where: str) -> CallPattern:
    if isinstance(data, CallPattern):
        return data
    data = {"tool": data} if isinstance(data, str) else data
    settings = _settings(data, CallPattern, ("tool",), "the name of a tool, or {tool: send, arguments: ...}", where)
    try:
        return CallPattern(**settings)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _settings(data: Any, part: type[Part], needed: tuple[str, ...], example: str, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping) or any(name not in data for name in needed):
        raise ConfigError(f"{where} must be {example}, found {data!r:.80}")
    known = {field.name for field in settings_of(part)}
    for key in data:
        if key not in known | {"part"}:
            raise ConfigError(f"{where}.{key} is not a setting of a rule{nearest(str(key), known)}")
    return {key: value for key, value in data.items() if key != "part"}


def read_temporal_rules(path: str | Path) -> list[TemporalRule]:
    """Reads the temporal rules of a YAML file, a list as for `temporal_rules`.

    Raises:
        ConfigError: the file does not exist, is no YAML, or holds no rules.
    """
    if not Path(path).is_file():
        raise ConfigError(f"{path} does not exist; give a YAML file with a list of rules")
    return temporal_rules(read_yaml_file(Path(path)), str(path))
