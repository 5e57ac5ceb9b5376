"""A lock on a run folder, so that one process at a time trains in it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import filelock

from polopt.errors import RunError

LOCK, OWNER = ".lock", ".lock.json"


class FolderLock:
    """A lock of the operating system on FOLDER/.lock (`flock`), which ends with the process, however that dies.

    `.lock.json` names the owner, for the message that another process gets; it may be left over and decides nothing.
    On NFS the lock holds across machines where the server supports `flock` (version 4, or version 3 with lockd).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._lock = filelock.FileLock(self.folder / LOCK)

    @contextmanager
    def acquired(self, wait_s: float = 0.0) -> Iterator[None]:
        """Holds the lock during the block; may be nested. wait_s: how long another owner may take to release it.

        Raises:
            RunError: another process has it; its host and number.
        """
        if self._lock.is_locked:  # by a block around this one
            yield
            return
        try:
            self._lock.acquire(timeout=wait_s)
        except filelock.Timeout:
            raise RunError(
                f"{self.folder} is being trained in by {self._owner()}; wait until that process has ended, or end it "
                "(the lock ends with it)"
            ) from None
        try:
            owner = {"host": socket.gethostname(), "pid": os.getpid(), "since": datetime.now(UTC).isoformat()}
            (self.folder / OWNER).write_text(json.dumps(owner), encoding="utf-8")
            yield
        finally:
            (self.folder / OWNER).unlink(missing_ok=True)
            self._lock.release()

    def _owner(self) -> str:
        try:
            owner = json.loads((self.folder / OWNER).read_text(encoding="utf-8"))
            return f"process {owner['pid']} on {owner['host']}"
        except (OSError, ValueError, KeyError, TypeError):  # the owner has just begun, or just ended
            return "another process"
