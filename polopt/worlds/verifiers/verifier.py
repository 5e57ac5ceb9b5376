"""The interface of a verifier: it assigns a value to a completion, given the row that it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from polopt.worlds.functions import Row
from polopt.worlds.scoring.place import verdicts
from polopt.worlds.scoring.verdict import Request, Verdict


class Verifier(Protocol):
    reads_answer: ClassVar[bool]
    """Whether it compares with `row["answer"]`, so that every row must have one."""

    def verify(self, completion: str, row: Row) -> float:
        """Returns the value of `completion` as an answer to `row`, which holds `prompt`, `answer` and more."""

    def check(self, row: Row) -> str | None:
        """Returns the reason why no answer to this row can ever be verified, None if there is none."""

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        """Returns a warning sentence about these rows together, None if there is nothing to warn of."""


class WorkerVerifier(Verifier, Protocol):
    """A verifier of third-party code, which runs in worker processes, see `scoring`."""

    def request(self, completion: str, row: Row) -> Request:
        """Returns the request to a worker."""

    def read(self, verdict: Verdict, row: Row) -> float:
        """Returns the value of the worker's verdict.

        Raises:
            VerifierError: the verifier itself failed.
        """


def value_in_worker(verifier: WorkerVerifier, completion: str, row: Row) -> float:
    """Returns the value of a completion, computed in a worker process."""
    (verdict,) = verdicts([verifier.request(completion, row)])
    return verifier.read(verdict, row)
