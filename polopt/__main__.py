"""`python -m polopt` is `polopt`."""

from polopt.cli import main

if __name__ == "__main__":
    main()
