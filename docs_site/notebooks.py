"""Notebooks as Markdown pages: text, code, and the outputs that are stored in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def markdown(file: Path) -> str:
    """Returns a notebook as Markdown."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    note = f"*The notebook: [{file.name}]({file.name}).*"
    pieces = [_cell(cell) for cell in cells]
    return "\n\n".join([*pieces[:1], note, *pieces[1:]]) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *filter(None, map(_output, cell.get("outputs", [])))])


def _output(output: dict[str, Any]) -> str:
    """Returns a stored output: printed text, a picture, or the text of a value."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![output](data:image/png;base64,{''.join(data['image/png']).strip()})"
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```text\n{text}\n```" if text else ""


def code(file: Path) -> list[str]:
    """Returns the code of a notebook's cells, in their order."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
