"""What parts, methods and supports refuse: numbers that are none, and names of what is no part."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import polopt as po
from polopt.part import build

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("temperature", [NAN, INF, -INF, 0.0, -1.0])
def test_a_temperature_is_a_number(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be > 0 and finite"):
        po.Support(temperature=temperature)


BOUNDS = {"raft.threshold", "rto.limit", "clip-cov-kl-cov.least", "clip-cov-kl-cov.most"}


def test_no_method_takes_nan_and_only_bounds_take_inf() -> None:
    """All float settings of all methods, one by one."""
    tried = 0
    for slug in po.slugs():
        for name, default in po.catalogue.find(slug).settings().items():
            if type(default) is not float:
                continue
            tried += 1
            for value in (NAN, INF, -INF):
                if value == value and f"{slug}.{name}" in BOUNDS:
                    continue
                with pytest.raises(ValueError, match=rf"{name}.*not valid"):
                    po.catalogue.part(slug, **{name: value})
    assert tried > 200


def test_only_parts_are_called(tmp_path: Path) -> None:
    """Whatever else has the name, of a class, a function or a module, is not called."""
    ran = tmp_path / "ran"
    file = tmp_path / "own.py"
    file.write_text(
        "from pathlib import Path\nfrom subprocess import call\nimport polopt as po\n"
        f"def touch(**k): Path({str(ran)!r}).touch()\n"
        f"class Touch:\n    def __init__(self, **k): Path({str(ran)!r}).touch()\n"
        "def mine(): return po.method('grpo')\n"
    )
    for name in ("subprocess:call", "os:mkdir", f"{file}:touch", f"{file}:Touch", f"{file}:po"):
        with pytest.raises(ValueError, match="is not a part"):
            build({"part": name, "args": ["touch", str(ran)]})
    for name in (f"{file}:call", f"{file}:Touch", "subprocess:call"):
        with pytest.raises(ValueError, match="is not a method"):
            po.catalogue.sentence({"name": name, "args": ["touch", str(ran)]})
    assert not ran.exists()
    assert isinstance(po.catalogue.sentence(f"{file}:mine"), po.Algorithm)
    with pytest.raises(ValueError, match=r"has no 'zzz'; it has: Path, Touch, call, mine, touch$"):
        build({"part": f"{file}:zzz"})
