"""Errors of files, of training and of settings end a command with one sentence."""

from __future__ import annotations

import errno
import json
import os

import pytest
import typer
from safetensors import SafetensorError

from polopt.cli.command_group import CommandGroup, of_file
from polopt.config import ConfigError
from polopt.errors import UserError
from polopt.training.learner import DivergenceError


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a/metrics.jsonl"), 2, ["metrics.jsonl", "make room"]),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/x/y"), 2, ["/x/y", "Read-only"]),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "gone"), 2, ["gone"]),
        (SafetensorError("Error while deserializing header"), 2, ["weights", "header"]),
        (json.JSONDecodeError("Expecting value", "{", 1), 2, ["JSON", "Expecting value"]),
        (DivergenceError("the gradient's norm is nan"), 2, ["norm is nan"]),
        (KeyboardInterrupt(), 130, ["Stopped"]),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, BaseException) else None,
)
def test_errors_of_files_are_sentences(
    error: BaseException, code: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.command()
    def one() -> None:
        raise error

    @app.command()
    def other() -> None: ...

    with pytest.raises(SystemExit) as ended:
        app(["one"])
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in words:
        assert word in said
    if isinstance(error, OSError):
        assert said.strip() == of_file(error)


def test_a_loss_that_is_not_finite_is_a_sentence() -> None:
    assert issubclass(DivergenceError, UserError)
    assert issubclass(DivergenceError, FloatingPointError)


def test_config_error_is_a_user_error() -> None:
    assert issubclass(ConfigError, UserError)
