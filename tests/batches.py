"""The random batches of the checks, by the name that the tests know them by."""

from polopt.checks.sample_batches import *  # noqa: F403
