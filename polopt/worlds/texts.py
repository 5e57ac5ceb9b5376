"""Raw texts on the subject of the tasks, without questions and answers."""

from __future__ import annotations

import re
from pathlib import Path

from polopt.config import ConfigError
from polopt.worlds.rows import read_rows, text_of

# One empty line or more.
GAP = re.compile(r"\n[^\S\n]*\n")


def read_texts(path: str | Path) -> list[str]:
    """Reads the texts of a file: the field `text` of each row of a `.jsonl` file; in other files the parts between
    empty lines.

    Raises:
        ConfigError: no such file, nothing in it, not UTF-8, or malformed rows: the first ten with their line numbers.
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        return [text for _, text in read_rows(path, lambda row: text_of(row, "text"))]
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; give a .jsonl file, or a text file with empty lines between texts")
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    texts = [part.strip() for part in GAP.split(content) if part.strip()]
    if not texts:
        raise ConfigError(f"{path} holds no text")
    return texts
