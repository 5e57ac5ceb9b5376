"""One process at a time trains in a folder: another is refused with a sentence, until the first has ended or died."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import Stop, StopAt, recipe

from polopt.errors import RunError
from polopt.training.launch import resume, train
from polopt.training.run import ReadOnlyRun, Run

HOLD = """
import sys, time
from pathlib import Path
from polopt.training.lock import FolderLock
with FolderLock(Path(sys.argv[1])).acquired():
    print("held", flush=True)
    time.sleep(1000)
"""


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_another_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    """The first one is another process of the system, and is killed without a chance to clean up."""
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        train(recipe(), folder, watchers=(StopAt(2),))
    # What only the process that trains may touch: its drafts, and the line that it is writing.
    (folder / "checkpoints" / ".draft-1").mkdir()
    (folder / "metrics.jsonl").open("a").write('{"step": 3, "lo')
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = everything(folder)
        for start in (lambda: resume(folder), lambda: train(recipe(), folder)):
            with pytest.raises(RunError) as caught:
                start()
            assert f"process {holder.pid} on {socket.gethostname()}" in str(caught.value)
        assert everything(folder) == before
        assert (folder / "checkpoints" / ".draft-1").is_dir()
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert (folder / ".lock.json").exists()  # of the dead one; it decides nothing
    resume(folder)
    assert Run(folder).about["finished"]
    assert not (folder / ".lock.json").exists()


def test_two_that_begin_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one prepares while the first creates the run: it is refused, and changes nothing."""
    with Run(tmp_path).exclusive(), pytest.raises(RunError, match="is being trained in by process"):
        train(recipe(), tmp_path)
    assert not (tmp_path / "recipe.yaml").exists()


def test_the_lock_may_be_nested_and_is_released_after_an_error(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(Stop), run.exclusive(), run.exclusive():
        raise Stop
    with Run(tmp_path).exclusive():
        with pytest.raises(RunError), run.exclusive():
            pass
        with ReadOnlyRun(tmp_path).exclusive():  # a process that writes nothing needs none
            pass
    with run.exclusive():
        pass


def test_waiting_for_the_other_to_end(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(RunError), Run(tmp_path).exclusive(wait_s=0.1):
            pass
    finally:
        holder.kill()
    with Run(tmp_path).exclusive(wait_s=60):
        holder.wait()
