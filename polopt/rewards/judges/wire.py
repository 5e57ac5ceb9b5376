"""One request to a server: a deadline, no redirects, nothing said of the key."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

MOST_BYTES = 4 * 2**20
PIECE = 2**16
# Worth another try: timeouts, too many requests, and whatever is the server's own fault.
TRANSIENT = frozenset({408, 409, 425, 429}) | frozenset(range(500, 600))


class Answered(NamedTuple):
    """status: of HTTP; 0 where no answer came. wait: seconds that the server asks for before another try."""

    status: int
    body: bytes
    wait: float | None = None

    @property
    def transient(self) -> bool:
        return self.status == 0 or self.status in TRANSIENT


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to whoever is named there."""

    def redirect_request(self, *args: Any) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Answered:
    """What the server answered within so many seconds, whatever it was. It never raises for what a server does."""
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=seconds) as reply:
            return Answered(reply.status, _all_of(reply, deadline))
    except urllib.error.HTTPError as error:
        with error:
            return Answered(error.code, _quietly(error, deadline), _wait(error.headers.get("Retry-After")))
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        return Answered(0, f"{type(error).__name__}: {error}".encode())


def _all_of(reply: Any, deadline: float) -> bytes:
    """The whole body, though it may come drop by drop."""
    found = bytearray()
    while piece := reply.read1(PIECE):
        found += piece
        if len(found) > MOST_BYTES:
            raise OSError(f"the reply has more than {MOST_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the reply did not end in time")
    return bytes(found)


def _quietly(reply: Any, deadline: float) -> bytes:
    try:
        return _all_of(reply, deadline)
    except (OSError, http.client.HTTPException, AttributeError):
        return b""


def _wait(header: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date; None for anything else."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
