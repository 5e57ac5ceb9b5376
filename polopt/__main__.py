"""Runs the `polopt` command as `python -m polopt`."""

from polopt.cli import main

if __name__ == "__main__":
    main()
