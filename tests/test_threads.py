"""How threads wait is set before torch is loaded, and never against the user."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from polopt.threads import SETTINGS, SPINS


@pytest.mark.parametrize(
    ("before", "given", "expected"),
    [
        ("", {}, {"GOMP_SPINCOUNT": str(SPINS)}),
        ("", {"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
        ("", {"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ("import types; sys.modules['torch'] = types.ModuleType('torch'); ", {}, {}),
    ],
    ids=["by default", "the user's policy", "the user's count", "torch is loaded"],
)
def test_spinning_is_limited_before_torch_is_loaded(
    before: str, given: dict[str, str], expected: dict[str, str]
) -> None:
    code = (
        f"import sys, os; {before}"
        "from importlib.machinery import SourceFileLoader as Loader; "
        f"Loader('threads', {sys.modules['polopt.threads'].__file__!r}).load_module().limit_spinning(); "
        f"print({{k: os.environ[k] for k in {SETTINGS!r} if k in os.environ}})"
    )
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS} | given
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(expected)


def test_importing_polopt_limits_spinning_before_it_loads_torch() -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Look(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch':\n"
        "            import os; print(os.environ.get('GOMP_SPINCOUNT')); raise SystemExit\n"
        "sys.meta_path.insert(0, Look())\n"
        "import polopt\n"
        "polopt.Experience\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(SPINS), done.stderr
