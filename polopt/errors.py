"""Errors and warnings that are sentences for a person. This module imports nothing, so that every room can use it."""

from __future__ import annotations


class UserError(Exception):
    """Base of the errors whose message is a whole sentence: the field, what was found, and the fix.

    The command line shows the sentence alone and ends with code 2; every other error is a defect and keeps its
    traceback.
    """


class RunError(UserError, ValueError):
    """A run folder cannot be used as was asked: it is no run, is one already, is in use, damaged or changed."""


class ConfigError(UserError, ValueError):
    """A setting is unknown, missing or wrong. The message names its path, what was found and the fix."""


class PoloptWarning(UserWarning):
    """Something that a run goes on in spite of: given before training begins, shown once, and logged."""
