"""Error handling of the command line: user errors become one sentence, internal errors keep their traceback."""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from safetensors import SafetensorError
from typer.core import TyperGroup

from polopt.display import leading
from polopt.display.printable import printable
from polopt.errors import PoloptWarning, UserError


class UsageError(UserError, ValueError):
    """The arguments cannot be used; the message is the sentence to show."""


@contextmanager
def checked() -> Iterator[None]:
    """Converts errors to `UsageError` while names given by the user are looked up: every error there is about such a
    name.
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, OSError) as error:
        raise UsageError(str(error)) from error


class CommandGroup(TyperGroup):
    """The group of all commands. A `UserError` is shown as one sentence in red and ends with code 2.

    POLOPT_TRACEBACK=1 shows its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        quiet()
        show_warnings()
        try:
            return super().invoke(ctx)
        except UserError as error:
            if os.environ.get("POLOPT_TRACEBACK"):
                raise
            show(str(error), "red")
            raise typer.Exit(2) from None
        except (OSError, SafetensorError, json.JSONDecodeError) as error:
            if os.environ.get("POLOPT_TRACEBACK"):
                raise
            show(of_file(error), "red")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            if leading():
                Console(stderr=True, highlight=False).print("Stopped.")
            raise typer.Exit(130) from None


def show(sentence: str, style: str) -> None:
    """Prints one sentence to standard error, on the main process only."""
    if leading():
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(printable(sentence), style=style))


def of_file(error: OSError | SafetensorError | json.JSONDecodeError) -> str:
    """Formats an error of a file, a disk or a server as one sentence."""
    if not isinstance(error, OSError):
        what = "weights cannot be read or written" if isinstance(error, SafetensorError) else "JSON cannot be read"
        reason = " ".join(str(error).split())[:200]
        return f"A file of {what}: {reason}; POLOPT_TRACEBACK=1 shows where."
    reason = error.strerror or " ".join(str(error).split())[:200] or type(error).__name__
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "; make room, and continue a run with --resume" if full else ""
    return f"{error.filename}: {reason}{advice}." if error.filename else f"{reason}{advice}."


def quiet() -> None:
    """Suppresses other libraries' progress bars and warnings."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Scorers parse policies' answers as Python, which may be malformed.
    warnings.filterwarnings("ignore", category=SyntaxWarning)


def show_warnings() -> None:
    """Prints each `PoloptWarning` as one yellow sentence, without the line of code that raised it."""
    usual = warnings.showwarning

    def shown(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, PoloptWarning):
            show(str(message), "yellow")
        else:
            usual(message, category, *rest, **named)

    warnings.showwarning = shown
