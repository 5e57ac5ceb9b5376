"""Files that survive the loss of power: written beside their place, synced, and renamed in one atomic step."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

# The animated picture of one episode, in the folder of a control run.
CLIP = "clip.png"


def write_text(path: Path, text: str) -> None:
    """Replaces a file's text: a reader finds the old text or the new one, whole."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    publish(draft, path)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors in the safetensors format and syncs them."""
    save_file({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, path)
    sync(path)


def publish(draft: Path, path: Path) -> None:
    """Renames a draft to its place, and makes both the content and the name durable."""
    sync(draft)
    draft.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flushes a file's content, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path, size: int | None = None) -> str:
    """Returns the sha256 of a file, or of its first `size` bytes, in hexadecimal."""
    with path.open("rb") as file:
        if size is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        found = hashlib.sha256()
        while size > 0 and (block := file.read(min(size, 2**20))):
            found.update(block)
            size -= len(block)
    return found.hexdigest()


def digest_of(text: str) -> str:
    """Returns the sha256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
