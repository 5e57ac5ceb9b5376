"""Rows of data files with their positions: JSON lines, a JSON array, CSV, Parquet, or a folder of `datasets`."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from polopt.config import ConfigError
from polopt.names import nearest

# The most different problems in one error on malformed rows, and the most positions of each.
SHOWN = 10
# Line or number of a row, and the row, or the description of its problem.
NumberedRow = tuple[int, dict[str, Any] | str]
T = TypeVar("T")


class MalformedRow(ValueError):
    """Raised for a malformed row; the message describes the problem without the row's position."""


def read_rows(path: Path, parse: Callable[[dict[str, Any]], T]) -> list[tuple[int, T]]:
    """Reads a file and returns `parse(row)` of each row, with the row's line (in Parquet, arrays and folders its
    number, from 1).

    The extension of the name selects the format, `FORMATS`; all other files are JSON lines. `parse` raises
    `MalformedRow`.

    Raises:
        ConfigError: no such file, no rows, a wrong encoding or format, or malformed rows, with their lines.
    """
    if not path.exists():
        raise ConfigError(f"{path} does not exist; give a file with one JSON object per line, or one of {_endings()}")
    read = _reader(path)
    rows: list[tuple[int, T]] = []
    problems: dict[str, list[int]] = {}
    for number, row in read(path):
        try:
            if isinstance(row, str):
                raise MalformedRow(row)
            rows.append((number, parse(row)))
        except MalformedRow as error:
            problems.setdefault(str(error), []).append(number)
    if problems:
        _refuse(problems, len(rows), path)
    if not rows:
        raise ConfigError(f"{path} has no rows; give one JSON object per line, or one of {_endings()}")
    return rows


def _reader(path: Path) -> Callable[[Path], Iterator[NumberedRow]]:
    return _folder if path.is_dir() else FORMATS.get(path.suffix.lower(), _json_lines)


def value_of(row: Mapping[str, Any], field: str) -> Any:
    """Returns a row's field, or, for `a.b`, the field b of its field a.

    Raises:
        MalformedRow: the row has no such field.
    """
    head, _, rest = field.partition(".")
    if field not in row and rest and isinstance(row.get(head), Mapping):
        return value_of(row[head], rest)
    if field not in row:
        raise MalformedRow(f"field {field!r} is missing{nearest(field, row)}")
    return row[field]


def has(row: Mapping[str, Any], field: str) -> bool:
    """Returns True if a row has a field, `a.b` as in `value_of`."""
    head, _, rest = field.partition(".")
    return field in row or (bool(rest) and isinstance(row.get(head), Mapping) and has(row[head], rest))


def text_of(row: Mapping[str, Any], field: str) -> str:
    """Returns a field's text; a number or a truth value as JSON writes it.

    Raises:
        MalformedRow: the field is missing, empty or of another type.
    """
    value = value_of(row, field)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    if not isinstance(value, str) or not value.strip():
        raise MalformedRow(f"field {field!r} must be non-empty text or a number, found {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Formats a value as JSON, cut after 60 characters."""
    return json.dumps(value, default=str)[:60]


def places(numbers: Iterable[int], path: Path) -> str:
    """Formats row numbers as `line 3` or `lines 1 to 4 and 7`, with at most `SHOWN` runs; rows in formats without
    lines."""
    word = "line" if _reader(path) in (_json_lines, _csv) else "row"
    ordered = sorted(numbers)
    runs = [[n for _, n in run] for _, run in itertools.groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])]
    texts = [text for run in runs for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    if len(texts) > SHOWN:
        texts = [*texts[:SHOWN], "others"]
    last = texts.pop()
    return f"{word}{'s' * (len(ordered) > 1)} " + (f"{', '.join(texts)} and {last}" if texts else last)


def _refuse(problems: Mapping[str, Sequence[int]], good: int, path: Path) -> None:
    count = sum(map(len, problems.values()))
    some = [f"{places(numbers, path)}: {text}" for text, numbers in list(problems.items())[:SHOWN]]
    rest = sum(map(len, list(problems.values())[SHOWN:]))
    more = f"; and {rest} more" if rest else ""
    raise ConfigError(f"{path}: {count} of {count + good} rows are malformed: {'; '.join(some)}{more}")


def _json_lines(path: Path) -> Iterator[NumberedRow]:
    raw = _bytes(path)
    if raw.lstrip()[:1] in (b"[", b"{") and not _is_object(raw.lstrip().partition(b"\n")[0]):
        parsed = _parsed(raw)
        if not isinstance(parsed, str):
            raise ConfigError(
                f"{path} is one JSON value, not one object per line; write each object on a line of its own, or, if it "
                "is an array of objects, let the file's name end in .json"
            )
    for line, text in enumerate(raw.splitlines(), start=1):
        if text.strip():
            row = _parsed(text)
            yield line, f"expected an object with fields, found {shown(row[0])}" if isinstance(row, tuple) else row


def _json(path: Path) -> Iterator[NumberedRow]:
    raw = _bytes(path)
    parsed = _parsed(raw)
    if not isinstance(parsed, tuple) or not isinstance(parsed[0], list):
        yield from _json_lines(path)
        return
    for number, row in enumerate(parsed[0], start=1):
        yield number, row if isinstance(row, dict) else f"expected an object with fields, found {shown(row)}"


def _is_object(line: bytes) -> bool:
    return isinstance(_parsed(line), dict)


def _parsed(raw: bytes) -> dict[str, Any] | tuple[Any] | str:
    """Parses JSON: returns an object as a dict, another value in a 1-tuple, or a description of the problem as text."""
    try:
        row = json.loads(raw.decode())
    except UnicodeDecodeError:
        return "not UTF-8 text; save the file as UTF-8"
    except json.JSONDecodeError as error:
        fix = "; write it as \\n, \\t or \\u00XX" if "control character" in error.msg else ""
        return f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}{fix}"
    except RecursionError:
        return "nested too deeply"
    except ValueError:  # Python's limit on the digits of an integer
        return "an integer of more than 4300 digits; write it as text, in quotes"
    if rb"\ud" in raw.lower():
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            return f"half of a surrogate pair, {half}, which is no character; leave it out or write both halves"
    return row if isinstance(row, dict) else (row,)


def _bytes(path: Path) -> bytes:
    """Returns a file's bytes without the UTF-8 byte order mark.

    Raises:
        ConfigError: the file begins with the byte order mark of UTF-16 or UTF-32.
    """
    raw = path.read_bytes()
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in raw[:4]:
        raise ConfigError(f"{path} is UTF-16 or UTF-32; save it as UTF-8")
    return raw.removeprefix(b"\xef\xbb\xbf")


def _csv(path: Path) -> Iterator[NumberedRow]:
    raw = _bytes(path)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} is not UTF-8 text: byte 0x{raw[error.start]:02x} in line {line}") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    try:
        for row in reader:
            if None in row:
                yield reader.line_num, f"more values than the {len(reader.fieldnames or ())} columns of the first line"
            else:
                yield reader.line_num, {name: value for name, value in row.items() if value is not None}
    except csv.Error as error:
        yield reader.line_num + 1, f"not CSV: {error}"


def _parquet(path: Path) -> Iterator[NumberedRow]:
    parquet = _pyarrow(path).parquet
    yield from _numbered(path, lambda: parquet.ParquetFile(path).iter_batches())


def _folder(path: Path) -> Iterator[NumberedRow]:
    """Reads the format of `datasets.Dataset.save_to_disk`: Arrow files, listed in state.json."""
    if (path / "dataset_dict.json").is_file():
        splits = json.loads((path / "dataset_dict.json").read_text(encoding="utf-8"))["splits"]
        raise ConfigError(f"{path} has the splits {', '.join(splits)}; give one of them, as in {path / splits[0]}")
    if not (path / "state.json").is_file():
        raise ConfigError(f"{path} is a folder, but not one that datasets' save_to_disk wrote; give a file")
    pyarrow = _pyarrow(path)
    files = json.loads((path / "state.json").read_text(encoding="utf-8"))["_data_files"]

    def batches() -> Iterator[Any]:
        for file in files:
            with pyarrow.memory_map(str(path / file["filename"])) as source:
                yield from pyarrow.ipc.open_stream(source)

    yield from _numbered(path, batches)


def _numbered(path: Path, batches: Callable[[], Iterable[Any]]) -> Iterator[NumberedRow]:
    """Yields the rows of Arrow batches, numbered from 1."""
    errors = _pyarrow(path).ArrowException
    number = 0
    try:
        for batch in batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (errors, OSError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}") from None


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f"{path}: reading it needs pyarrow: pip install 'polopt[data]'") from None
    return pyarrow


FORMATS: dict[str, Callable[[Path], Iterator[NumberedRow]]] = {
    ".json": _json,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}


def _endings() -> str:
    return f"{', '.join(FORMATS)} or a folder of datasets' save_to_disk"
