"""The command's door: mistakes of the person get one sentence, mistakes of ours keep their traceback."""

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
    """What was asked cannot be done; the message is the sentence to show."""


@contextmanager
def checked() -> Iterator[None]:
    """For looking up what a person named: every error in here is about that name."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, OSError) as error:
        raise UsageError(str(error)) from error


class CommandGroup(TyperGroup):
    """All commands. An error that is a sentence is shown in red and ends with code 2.

    POLOPT_TRACEBACK=1 shows where it came from.
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
    """One sentence on the screen, by the process that speaks."""
    if leading():
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(printable(sentence), style=style))


def of_file(error: OSError | SafetensorError | json.JSONDecodeError) -> str:
    """One sentence for what a file, a disk or a server refused."""
    if not isinstance(error, OSError):
        what = "weights cannot be read or written" if isinstance(error, SafetensorError) else "JSON cannot be read"
        reason = " ".join(str(error).split())[:200]
        return f"A file of {what}: {reason}; POLOPT_TRACEBACK=1 shows where."
    reason = error.strerror or " ".join(str(error).split())[:200] or type(error).__name__
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "; make room, and continue a run with --resume" if full else ""
    return f"{error.filename}: {reason}{advice}." if error.filename else f"{reason}{advice}."


def quiet() -> None:
    """Keep other libraries' progress bars and advice off the screen."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Scorers that read a policy's answer as Python meet odd ones.
    warnings.filterwarnings("ignore", category=SyntaxWarning)


def show_warnings() -> None:
    """Print `PoloptWarning`s as one yellow sentence each, without the line of code that gave them."""
    usual = warnings.showwarning

    def shown(message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, PoloptWarning):
            show(str(message), "yellow")
        else:
            usual(message, category, *rest, **named)

    warnings.showwarning = shown
