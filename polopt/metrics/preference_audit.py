"""Faults of a set of preference pairs, before anything is trained on it."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from polopt.metrics.intervals import Interval, rate_interval, t_interval
from polopt.metrics.near_duplicates import near_duplicates

# A prompt and its two answers, whichever is preferred.
_Pair = tuple[str, frozenset[str]]
_Key = TypeVar("_Key", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class PreferenceRow:
    """One labelled pair.

    place: its line in the file. prompt, chosen, rejected: texts. chosen_first: whether the preferred answer was shown
    first to the rater, None where that is not known. annotator: the rater's name, None where it is not known.
    """

    place: int
    prompt: str
    chosen: str
    rejected: str
    chosen_first: bool | None = None
    annotator: str | None = None


@dataclasses.dataclass(frozen=True)
class PreferenceAudit:
    """The findings of an audit of preference pairs; places are lines of the file.

    rows, prompts: counts, the latter of different ones.
    duplicates: rows that are the same pair with the same label, by one annotator where these are known.
    conflicts: rows that are the same pair with opposite labels.
    cycles: rows of one prompt whose preferences go round in a circle of three or more answers.
    near_duplicates: rows that are nearly the same pair, see `near_duplicates`, whatever their labels and copies aside;
        in a group each row is nearly another of it.
    leaks: rows whose prompt is among the held-out prompts.
    near_leaks: rows whose prompt is nearly one of the held-out prompts.
    longer_chosen: the fraction of pairs of different lengths whose preferred answer is the longer one; 0.5 is no bias.
    first_chosen: the fraction of pairs whose preferred answer was shown first.
    label_noise: the rate e of wrong labels at which two independent raters of one pair disagree as often as here,
        2 e (1 - e); from pairs with two labels or more, copies of a label included. None without such pairs.
    cautions: sentences on what the findings mean for training.
    """

    rows: int
    prompts: int
    duplicates: tuple[tuple[int, ...], ...]
    conflicts: tuple[tuple[int, ...], ...]
    cycles: tuple[tuple[int, ...], ...]
    near_duplicates: tuple[tuple[int, ...], ...]
    leaks: tuple[int, ...]
    near_leaks: tuple[int, ...]
    longer_chosen: Interval | None
    first_chosen: Interval | None
    label_noise: Interval | None
    cautions: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Returns the findings as plain data; an infinite end of an interval is None."""
        found = dataclasses.asdict(self)
        for name in ("longer_chosen", "first_chosen", "label_noise"):
            if found[name] is not None:
                found[name] |= {end: None for end in ("low", "high") if not math.isfinite(found[name][end])}
        return found


def audit_preferences(
    rows: Sequence[PreferenceRow],
    heldout_prompts: Iterable[str] = (),
    *,
    length: Callable[[str], int] = len,
    similarity: float = 0.8,
    level: float = 0.95,
) -> PreferenceAudit:
    """Audits preference pairs.

    Texts are compared without regard to case and white space. Fractions are means over prompts, the independent units.

    heldout_prompts: of the pairs that the policy is to be evaluated on. length: of an answer, in characters; a
    tokeniser's gives tokens. similarity: from which on texts are nearly the same.

    Raises:
        ValueError: there are no rows, or a similarity outside (0, 1].
    """
    if not rows:
        raise ValueError("audit_preferences: there are no rows")
    keys = [plain_texts(row) for row in rows]
    same = _places([(key, row.annotator) for key, row in zip(keys, rows, strict=True)], rows)
    pairs = _places([(k[0], frozenset(k[1:])) for k in keys], rows)
    labels = dict(zip([row.place for row in rows], keys, strict=True))
    conflicts = [places for places in pairs.values() if len({labels[place] for place in places}) > 1]
    heldout = {_plain(prompt) for prompt in heldout_prompts}
    lengths = [(length(row.chosen), length(row.rejected)) for row in rows]
    longer = [(k[0], float(a > b)) for k, (a, b) in zip(keys, lengths, strict=True) if a != b]
    first = [(k[0], float(r.chosen_first)) for k, r in zip(keys, rows, strict=True) if r.chosen_first is not None]
    found = PreferenceAudit(
        rows=len(rows),
        prompts=len({key[0] for key in keys}),
        duplicates=tuple(places for places in same.values() if len(places) > 1),
        conflicts=tuple(conflicts),
        cycles=tuple(_cycles(keys, rows)),
        near_duplicates=tuple(_near_copies(pairs, similarity)),
        leaks=tuple(row.place for row, key in zip(rows, keys, strict=True) if key[0] in heldout),
        near_leaks=tuple(_near_leaks(keys, rows, heldout, similarity)),
        longer_chosen=_by_prompt(longer, level),
        first_chosen=_by_prompt(first, level),
        label_noise=_noise(pairs, labels, level),
        cautions=(),
    )
    return dataclasses.replace(found, cautions=tuple(_cautions(found)))


def plain_texts(row: PreferenceRow) -> tuple[str, str, str]:
    """Returns prompt, preferred and rejected answer of a row as they are compared: without regard to case and white
    space."""
    return _plain(row.prompt), _plain(row.chosen), _plain(row.rejected)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _places(keys: Sequence[_Key], rows: Sequence[PreferenceRow]) -> dict[_Key, tuple[int, ...]]:
    found: dict[_Key, list[int]] = defaultdict(list)
    for key, row in zip(keys, rows, strict=True):
        found[key].append(row.place)
    return {key: tuple(places) for key, places in found.items()}


def _near_copies(pairs: Mapping[_Pair, tuple[int, ...]], similarity: float) -> Iterable[tuple[int, ...]]:
    """Yields the rows of the pairs that are linked by being nearly the same, in groups."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    texts = ["\n".join([prompt, *sorted(answers)]) for prompt, answers in pairs]
    links = near_duplicates(texts, similarity)
    graph = coo_array(([1] * len(links), tuple(zip(*links, strict=True)) or ((), ())), shape=(len(texts),) * 2)
    groups: dict[int, list[int]] = defaultdict(list)
    for group, places in zip(connected_components(graph, directed=False)[1].tolist(), pairs.values(), strict=True):
        groups[group].append(places[0])
    return (tuple(places) for places in groups.values() if len(places) > 1)


def _near_leaks(
    keys: Sequence[tuple[str, str, str]], rows: Sequence[PreferenceRow], heldout: set[str], similarity: float
) -> Iterable[int]:
    """Yields the rows whose prompt is nearly, but not quite, a held-out one."""
    if not heldout:
        return
    prompts = sorted({key[0] for key in keys} - heldout)
    texts = [*prompts, *sorted(heldout)]
    near = {texts[i] for i, j in near_duplicates(texts, similarity) if i < len(prompts) <= j}
    yield from (row.place for row, key in zip(rows, keys, strict=True) if key[0] in near)


def _cycles(keys: Sequence[tuple[str, str, str]], rows: Sequence[PreferenceRow]) -> Iterable[tuple[int, ...]]:
    """Yields the rows inside each set of three or more answers of a prompt that are preferred in a circle."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    by_prompt: dict[str, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        by_prompt[key[0]].append(i)
    for members in by_prompt.values():
        answers = list(dict.fromkeys(answer for i in members for answer in keys[i][1:]))
        if len(members) < 3 or len(answers) < 3:
            continue
        number = {answer: n for n, answer in enumerate(answers)}
        edges = [(number[keys[i][1]], number[keys[i][2]]) for i in members]
        graph = coo_array(([1] * len(edges), tuple(zip(*edges, strict=True))), shape=(len(answers),) * 2).tocsr()
        _, label = connected_components(graph, directed=True, connection="strong")
        for part in set(label.tolist()):
            inside = [i for i, (a, b) in zip(members, edges, strict=True) if label[a] == label[b] == part]
            if (label == part).sum() > 2 and _goes_round([keys[i][1:] for i in inside]):
                yield tuple(rows[i].place for i in inside)


def _goes_round(preferences: Sequence[tuple[str, str]]) -> bool:
    """Returns True if there is a circle that does not only go back and forth between two answers."""
    one_way = {pair for pair in preferences if pair[::-1] not in preferences}
    return bool(one_way) or len({frozenset(p) for p in preferences}) >= len({a for p in preferences for a in p})


def _by_prompt(values: Sequence[tuple[str, float]], level: float) -> Interval | None:
    """Returns the mean over prompts of their means."""
    sums: dict[str, list[float]] = defaultdict(list)
    for prompt, value in values:
        sums[prompt].append(value)
    return rate_interval([sum(x) / len(x) for x in sums.values()], level) if sums else None


def _noise(
    pairs: Mapping[_Pair, tuple[int, ...]], labels: Mapping[int, tuple[str, str, str]], level: float
) -> Interval | None:
    """Estimates the rate of wrong labels from the rate at which two labels of one pair disagree."""
    apart = []
    for places in pairs.values():
        n = len(places)
        if n > 1:
            one = sum(labels[place] == labels[places[0]] for place in places)
            apart.append(2 * one * (n - one) / (n * (n - 1)))
    if not apart:
        return None
    disagreement = t_interval(apart, level)
    low, high = (_wrong(x) for x in (disagreement.low, disagreement.high))
    return Interval(_wrong(disagreement.estimate), low, high, level, len(apart))


def _wrong(disagreement: float) -> float:
    """Solves d = 2 e (1 - e) for e in [0, 0.5]."""
    return (1 - math.sqrt(1 - 2 * min(max(disagreement, 0.0), 0.5))) / 2


def _cautions(found: PreferenceAudit) -> Iterable[str]:
    if found.duplicates:
        copies = sum(len(places) - 1 for places in found.duplicates)
        yield f"copies of other rows: {copies}; leave them out, unless they are labels of other raters"
    if found.near_duplicates:
        copies = sum(len(places) - 1 for places in found.near_duplicates)
        yield f"rows that are nearly copies of others: {copies}; look whether they say anything of their own"
    if found.conflicts:
        yield (
            f"pairs with both labels: {len(found.conflicts)}, which a loss without label smoothing fits by moving one "
            "answer up and down"
        )
    if found.cycles:
        yield f"circles of preferences: {len(found.cycles)}, which no reward can order"
    if found.leaks:
        yield f"rows with a held-out prompt: {len(found.leaks)}; an evaluation there measures memory"
    if found.near_leaks:
        yield f"rows whose prompt is nearly a held-out one: {len(found.near_leaks)}; look whether they give it away"
    for name, bias, word in (
        ("longer", found.longer_chosen, "length"),
        ("first", found.first_chosen, "position"),
    ):
        if bias is not None and (bias.low > 0.5 or bias.high < 0.5):
            yield f"the {name} answer is preferred in {bias.estimate:.0%} of cases: a {word} bias will be learned"
    if found.label_noise is not None and found.label_noise.low > 0:
        e = found.label_noise.estimate
        yield f"about {e:.0%} of labels are wrong by their own disagreement; label_smoothing={e:.2f} assumes as much"
