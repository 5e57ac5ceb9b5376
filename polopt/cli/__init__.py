"""The `polopt` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the command line."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(f"The polopt command needs {error.name}: pip install 'polopt[language]'")
    from polopt.cli.app import app

    app()
