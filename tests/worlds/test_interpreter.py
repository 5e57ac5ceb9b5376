"""Programs of a model: what they print, and what none of them can do. Without bubblewrap, a refusal that names it."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from polopt.config import ConfigError
from polopt.worlds import Interpreter, build_tasks, python_tool
from polopt.worlds import interpreter as module

sandboxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    return Interpreter(seconds=5, memory=0.25, output=1000)


def test_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    inside = {"kind": "guess-number", "train": 2, "heldout": 1}
    with pytest.raises(ConfigError, match="sandbox of bubblewrap alone, on Linux, and bwrap is not found; install it"):
        build_tasks({"kind": "with-tools", "of": inside, "tools": ["python"]}, seed=0)


@sandboxed
def test_a_sandbox_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START", "raise SystemExit('no limits here')")
    with pytest.raises(ConfigError, match="it makes none here: no limits here; install it"):
        Interpreter()
    with pytest.raises(ValueError, match=r"limits must be > 0, found 0, 0\.5 and 4000"):
        Interpreter(seconds=0)


@sandboxed
@pytest.mark.parametrize(
    ("code", "output", "end"),
    [
        ("print(6 * 7)", "42", "done"),
        ("import math, json, re, decimal\nprint(math.factorial(20))", "2432902008176640000", "done"),
        ("x = 3\ndef f():\n    return x + 1\nclass A:\n    y = f()\nprint(A.y, __name__)", "4 __main__", "done"),
        ("import sys\nprint(sys.stdin.read() == '', sys.argv)", "True ['program']", "done"),
        ("print('\u00e4\u4e16' * 3)", "\u00e4\u4e16" * 3, "done"),
        ("", "", "done"),
        ("import os\nos._exit(0)", "", "done"),
        ("print('before')\n1 / 0", "ZeroDivisionError: division by zero", "error"),
        ("print(", "'(' was never closed", "error"),
        ("import sys\nsys.exit(3)", "", "error"),
        ("import ctypes\nctypes.string_at(0)", "", "killed"),
    ],
)
def test_what_a_program_prints(interpreter: Interpreter, code: str, output: str, end: str) -> None:
    found = interpreter.run(code)
    assert found.end == end, found
    assert output in found.output
    assert len(found.output) <= 1000


ESCAPES = {
    "network": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 3)",
    "raw socket": "import socket\nsocket.socket(socket.AF_UNIX)",
    "fork": "import os\nos.fork()",
    "command": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'id'])",
    "signal": "import os\nos.kill(1, 9)",
    "signal to the parent": "import os\nos.kill(os.getppid(), 9)",
    "file outside": "print(open({secret!r}).read())",
    "password file": "print(open('/etc/passwd').read())",
    "written file": "open('/program/x', 'w')",
    "written temporary file": "open('/tmp/x', 'w')",
    "symlink": "import os\nos.symlink({secret!r}, '/program/x')\nprint(open('/program/x').read())",
    "limits rewritten": "open('/polopt/limits.py', 'a').write('x')",
    "mount": "import ctypes\nassert ctypes.CDLL(None).mount(b'x', b'/program', b'tmpfs', 0, b'') == 0",
    "new namespace": "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "trace": "import ctypes\nassert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
    "memory": "x = bytearray(2 * 10**9)",
    "limits raised": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nx = bytearray(2 * 10**9)",
}


@sandboxed
@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_gets_out(interpreter: Interpreter, name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret words")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = interpreter.run(ESCAPES[name].format(secret=str(secret), port=server.getsockname()[1]))
    assert found.end == "error", found
    assert "the secret words" not in found.output
    assert "root:" not in found.output


@sandboxed
def test_no_descriptor_is_handed_down(interpreter: Interpreter) -> None:
    """Nor the one that the folder of descriptors is listed by."""
    found = interpreter.run("import os\nprint(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
    assert eval(found.output) == [0, 1, 2]


@sandboxed
def test_the_processes_of_others_are_not_seen(interpreter: Interpreter) -> None:
    found = interpreter.run(
        "import os\nprint([n for n in os.listdir('/proc') if n.isdigit()])\nprint(sorted(os.environ))"
    )
    numbers, environment = found.output.strip().splitlines()
    assert set(eval(numbers)) <= {"1", "2", "3"}
    assert set(eval(environment)) <= {"LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PWD"}
    assert str(os.getpid()) not in eval(numbers) or os.getpid() <= 3


@sandboxed
@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("while True: pass", "seconds"),
        ("import time\ntime.sleep(100)", "seconds"),
        ("import os\nos.close(1)\nos.close(2)\nwhile True: pass", "seconds"),
        ("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", "seconds"),
        (
            "import threading, time\nfor i in range(9999): threading.Thread(target=time.sleep, args=(99,)).start()",
            "seconds",
        ),
        ("while True: print('x' * 1000, flush=True)", "output"),
        ("import sys\nwhile True: sys.stderr.write('y' * 1000)", "output"),
    ],
)
def test_nothing_goes_on(code: str, end: str) -> None:
    interpreter = Interpreter(seconds=0.7, memory=0.25, output=1000)
    began = time.monotonic()
    found = interpreter.run(code)
    assert found.end == end, found
    assert len(found.output) <= 1000
    assert time.monotonic() - began < 5


@sandboxed
def test_a_long_program_that_does_not_read(interpreter: Interpreter) -> None:
    """A megabyte of text fills the pipe while the program has not begun to read."""
    assert interpreter.run("#" + "x" * 10**6 + "\nprint(1)").output == "1\n"


@sandboxed
def test_as_a_tool(interpreter: Interpreter) -> None:
    python = python_tool(interpreter)
    assert python(code="print(2 ** 10)") == "1024"
    assert python(code="x = 1") == "nothing was printed"
    assert python(code="while True: print('x' * 100)").endswith("stopped: too much was printed")
    with pytest.raises(ValueError, match="code must be a text"):
        python(code=7)
