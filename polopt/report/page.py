"""Rendering of figures and facts to one self-contained HTML file: no network, no other file, no server."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polopt.report.figures import Figure
from polopt.training.estimates import SHARE, cases_of, spelt

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, figures: Sequence[Figure], **values: Any) -> str:
    """Returns the page's HTML. Every value is escaped; figures are embedded as JSON, apart from the code.

    The page's content policy admits only its own scripts, by their hash, and no address at all: a completion that
    escaped from its place as text could neither run nor send requests.

    Raises:
        ModuleNotFoundError: jinja2 or plotly is not installed.
    """
    # Heavy or optional, so imported only when a page is made.
    try:
        import jinja2
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"report: {error.name} is not installed; pip install 'polopt[tools]'", name=error.name
        ) from None

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "points": points, "in_unit": in_unit, "cases": cases_of}
    # Browsers read CR LF as LF before they hash.
    scripts = [s.replace("\r\n", "\n") for s in (get_plotlyjs(), (TEMPLATES / "report.js").read_text("utf-8"))]
    return environment.get_template(template).render(
        style=Markup((TEMPLATES / "report.css").read_text("utf-8")),
        scripts=[Markup(s) for s in scripts],
        policy=_policy(scripts),
        specs=Markup(as_json({f.name: f.spec() for f in figures})),
        figures={f.name: f for f in figures},
        **values,
    )


def write(path: Path, page: str) -> Path:
    """Writes the page atomically, so that a browser never reads half a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    # Half a surrogate pair cannot be encoded; a truncated completion may end in one.
    partial.write_text(page, encoding="utf-8", errors="replace")
    os.replace(partial, path)
    return path


def as_json(value: Any) -> str:
    """Returns JSON that is safe inside <script>: no '<', and null for values that JSON cannot represent (NaN,
    infinity)."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda m: f"\\u{ord(m[0]):04x}", text)


def percent(value: float, digits: int = 1) -> str:
    """Formats a fraction in percent, with a no-break space."""
    return f"{100 * value:.{digits}f}\u00a0%"


def points(value: float, unit: str = SHARE) -> str:
    """Formats a difference with its sign, +3.7 or −1.2: of fractions in percentage points, of others in their unit."""
    return (f"{100 * value:+.1f}" if unit == SHARE else spelt(value, "+")).replace("-", "−")


def in_unit(value: float, unit: str) -> str:
    """Formats a fraction in percent, any other value as it is."""
    return percent(value) if unit == SHARE else spelt(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _policy(scripts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{d}'" for d in digests)
    # Plotly sets style attributes and writes its own style sheet.
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
