"""What a verifier is: it gives a completion its value, given the row that it answers."""

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
        """What `completion` is worth as an answer to `row`, which holds `prompt`, `answer` and more."""

    def check(self, row: Row) -> str | None:
        """What keeps this row from ever being judged; None if nothing does."""

    def warning_for(self, rows: Sequence[Row]) -> str | None:
        """The sentence of a warning about these rows together; None if there is nothing to warn of."""


class WorkerVerifier(Verifier, Protocol):
    """A verifier that is not polopt's own: it judges in worker processes, see `scoring`."""

    def request(self, completion: str, row: Row) -> Request:
        """What a worker is asked."""

    def read(self, verdict: Verdict, row: Row) -> float:
        """What its verdict is worth.

        Raises:
            VerifierError: the verifier itself went wrong.
        """


def value_in_worker(verifier: WorkerVerifier, completion: str, row: Row) -> float:
    """What a worker process finds a completion worth."""
    (verdict,) = verdicts([verifier.request(completion, row)])
    return verifier.read(verdict, row)
