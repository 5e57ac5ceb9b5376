"""Errors and warnings whose messages address the user. This module imports nothing, for use everywhere."""

from __future__ import annotations


class UserError(Exception):
    """Base of the errors whose message is a whole sentence: the field, what was found, and the fix.

    The command line shows the sentence alone and ends with code 2; every other error is a defect and keeps its
    traceback.
    """


class RunError(UserError, ValueError):
    """A run folder cannot be used as requested: it is no run, is one already, is in use, damaged or changed."""


class ConfigError(UserError, ValueError):
    """A setting is unknown, missing or wrong. The message names its path, what was found and the fix."""


class PoloptWarning(UserWarning):
    """A condition that does not stop a run: reported before training begins, shown once, and logged."""
