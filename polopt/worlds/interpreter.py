"""A Python interpreter for programs that a model wrote, in a sandbox of bubblewrap and the kernel's limits."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Literal

from polopt.config import ConfigError
from polopt.worlds.scoring import limits

End = Literal["done", "error", "seconds", "output", "killed"]
# Where the sandbox has the module that limits the program.
INSIDE = "/polopt"
# The program's working folder there, which is empty.
FOLDER = "/program"
# The exit status of the start-up code where a limit is not to be had.
UNLIMITED = 97
START = f"""
import sys
sys.path.insert(0, {INSIDE!r})
import limits
sys.path.remove({INSIDE!r})
if limits.confine(float(sys.argv[1])):
    sys.exit({UNLIMITED})
limits.allow_seconds(float(sys.argv[2]))
sys.path += sys.argv[3:]
text, sys.argv = sys.stdin.buffer.read().decode(), ["program"]
for name in ("limits", "sys"):
    globals().pop(name)
exec(compile(globals().pop("text"), "program", "exec"))
"""
NEEDED = (
    "programs that a model wrote run in a sandbox of bubblewrap alone, on Linux, {problem}; install it, as with "
    "apt install bubblewrap, and see that unprivileged user namespaces are allowed"
)


@dataclasses.dataclass(frozen=True)
class ProgramRun:
    """A program that has ended. output: what it printed, with its errors, up to the limit. end: "done"; "error", an
    exception or a status other than 0; "seconds" or "output", stopped at that limit; "killed", by the kernel."""

    output: str
    end: End


class Interpreter:
    """Runs programs, each in a process of its own, from which nothing but what it prints comes back.

    A program sees Python and the system's libraries, and no other file; it has no network, no other process, no time
    and no memory beyond its limits, and cannot write a file: `bwrap --unshare-all` and `scoring.limits.confine`.

    seconds: from its start to its end.
    memory: GB that it may allocate.
    output: characters of what it may print.
    packages: whether it may also import this environment's packages.

    Raises:
        ConfigError: there is no bubblewrap, or it cannot make a sandbox here.
        ValueError: a limit that is not > 0.
    """

    def __init__(
        self, *, seconds: float = 5.0, memory: float = 0.5, output: int = 4000, packages: bool = False
    ) -> None:
        if min(seconds, memory, output) <= 0:
            raise ValueError(f"Interpreter: limits must be > 0, found {seconds}, {memory} and {output}")
        self.seconds, self.memory, self.output = seconds, memory, output
        packages_of = [sysconfig.get_paths()["purelib"]] if packages else []
        self._command = [*_sandbox(packages_of), "-c", START, str(memory), str(seconds), *packages_of]
        self._try()

    def _try(self) -> None:
        found = self.run("print(6 * 7)")
        if found.output.strip() != "42":
            reason = " ".join(found.output.split())[:200] or f"status {found.end}"
            raise ConfigError(NEEDED.format(problem=f"and it makes none here: {reason}"))

    def run(self, code: str) -> ProgramRun:
        """Runs a program and returns what it printed. It reads nothing from its input."""
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                return self._watched(process, code.encode(errors="replace"))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _watched(self, process: subprocess.Popen[bytes], code: bytes) -> ProgramRun:
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = time.monotonic() + self.seconds
        most, found = 4 * self.output, bytearray()  # a character has at most 4 bytes
        with selectors.DefaultSelector() as selector:
            for stream, event in ((process.stdout, selectors.EVENT_READ), (process.stdin, selectors.EVENT_WRITE)):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, event)
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is process.stdin:
                        code = _written(process.stdin.fileno(), code)
                        if not code:
                            selector.unregister(process.stdin)
                            process.stdin.close()
                        continue
                    data = os.read(process.stdout.fileno(), 65536)
                    found += data
                    if not data:
                        return self._ended(process, found, deadline)
                    if len(found) > most or len(found.decode(errors="replace")) > self.output:
                        return ProgramRun(self._text(found), "output")
        return ProgramRun(self._text(found), "seconds")

    def _ended(self, process: subprocess.Popen[bytes], found: bytearray, deadline: float) -> ProgramRun:
        try:  # it may close its output and go on
            status = process.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            return ProgramRun(self._text(found), "seconds")
        if status == UNLIMITED and not found:
            return ProgramRun("the kernel lacks a limit that programs need", "killed")
        killed = status < 0 or status > 128  # bwrap tells a signal as 128 + its number
        return ProgramRun(self._text(found), "killed" if killed else "error" if status else "done")

    def _text(self, found: bytearray) -> str:
        return found.decode(errors="replace")[: self.output]


def _written(descriptor: int, code: bytes) -> bytes:
    """Writes what the pipe takes of a program, and returns the rest; nothing is left to write to a process that has
    closed it."""
    try:
        return code[os.write(descriptor, code) :]
    except BlockingIOError:
        return code
    except BrokenPipeError:
        return b""


def _sandbox(packages: list[str]) -> list[str]:
    """Returns the command of Python in a sandbox; arguments of Python follow."""
    bwrap = shutil.which("bwrap")
    if bwrap is None or not sys.platform.startswith("linux"):
        raise ConfigError(NEEDED.format(problem="and bwrap is not found"))
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        command += ["--setenv", name, "1"]
    # Libraries of the system: real folders, or links into /usr.
    for path in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"), Path("/lib"), Path("/lib64")):
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    if Path("/etc/ld.so.cache").exists():
        command += ["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for path in (Path(sys.base_prefix), *map(Path, packages)):
        command += ["--ro-bind", str(path), str(path)]
    command += ["--ro-bind", limits.__file__, f"{INSIDE}/limits.py", "--proc", "/proc", "--dev", "/dev"]
    command += ["--dir", FOLDER, "--chdir", FOLDER, "--remount-ro", "/"]
    return [*command, str(python), "-I", "-S", "-B"]
