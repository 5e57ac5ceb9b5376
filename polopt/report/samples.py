"""Selection of a report's samples, with the policy's probability of each token."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from polopt.report.run import Record, number

SAMPLES = 60
TOKENS = 15_000  # coloured tokens in the whole report; each costs about 50 bytes of page
CHARACTERS = 6_000  # of one prompt or completion

# Edges of a token's shade: 0 for a probability of at least 90 %, 5 below 1 %.
LOG_PROBABILITIES = (-0.10536, -0.69315, -1.60944, -2.99573, -4.60517)
SHADES = ("90 % or more", "50 %", "20 %", "5 %", "1 %", "less")


@dataclasses.dataclass(frozen=True)
class ShownToken:
    """A token as the report shows it.

    shade: None where the policy did not choose the token (tool output) or no log-probability was written.
    """

    text: str
    logp: float | None
    shade: int | None


@dataclasses.dataclass(frozen=True)
class Sample:
    """One completion as the report shows it. Without `tokens` the completion is shown as plain text.

    answer: the answer that the environment extracted from it, None where it is not known.
    reference: the reference answer, None where it is not known.
    """

    when: str
    kind: str
    prompt: str
    completion: str
    answer: str | None
    reference: str | None
    reward: float | None
    solved: bool
    truncated: bool
    step: int | None
    tokens: list[ShownToken]


def choose(records: Sequence[Record]) -> list[Sample]:
    """Selects at most `SAMPLES` records, in turn from each (when, kind, solved), and groups those of one prompt."""
    heaps: dict[tuple[str, str, bool], list[Record]] = {}
    for record in records:
        heaps.setdefault((str(record.get("when")), str(record.get("kind")), record.get("solved") is True), []).append(
            record
        )
    turns = itertools.zip_longest(*heaps.values())
    chosen = [r for r in itertools.chain.from_iterable(turns) if r is not None][:SAMPLES]
    order = {prompt: i for i, prompt in enumerate(dict.fromkeys(str(r.get("prompt")) for r in chosen))}
    chosen.sort(key=lambda r: (order[str(r.get("prompt"))], str(r.get("when")) == "after"))
    result, left = [], TOKENS
    for record in chosen:
        tokens = _tokens(record)
        tokens = tokens if len(tokens) <= left else []
        left -= len(tokens)
        result.append(_sample(record, tokens))
    return result


def _sample(record: Record, tokens: list[ShownToken]) -> Sample:
    step = number(record.get("step"))
    return Sample(
        when=str(record.get("when", "")),
        kind=str(record.get("kind", "")),
        prompt=_cut(str(record.get("prompt", ""))),
        completion=_cut(str(record.get("completion", ""))),
        answer=_known(record, "answer"),
        reference=_known(record, "reference"),
        reward=number(record.get("reward")),
        solved=record.get("solved") is True,
        truncated=record.get("truncated") is True,
        step=None if step is None else int(step),
        tokens=tokens,
    )


def _known(record: Record, name: str) -> str | None:
    return None if record.get(name) is None else _cut(str(record[name]))


def _tokens(record: Record) -> list[ShownToken]:
    tokens, logps = record.get("tokens"), record.get("logp")
    if not isinstance(tokens, list) or not isinstance(logps, list) or len(tokens) != len(logps):
        return []
    decided = record.get("decided")
    decided = decided if isinstance(decided, list) and len(decided) == len(tokens) else [True] * len(tokens)
    result = []
    for token, value, own in zip(tokens, logps, decided, strict=True):
        logp = number(value) if own else None
        shade = None if logp is None else sum(logp < edge for edge in LOG_PROBABILITIES)
        result.append(ShownToken(str(token), logp, shade))
    return result


def _cut(text: str) -> str:
    left_out = len(text) - CHARACTERS
    return text if left_out <= 0 else f"{text[:CHARACTERS]} … ({left_out:,} more characters)"
