"""One HTTP request with a deadline, without redirects, and without the key in any message."""

from __future__ import annotations

import functools
import http.client
import io
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

MOST_BYTES = 4 * 2**20
PIECE = 2**16
# Statuses after which a retry may succeed: timeouts, too many requests, and errors of the server.
TRANSIENT = frozenset({408, 409, 425, 429}) | frozenset(range(500, 600))


class HTTPAnswer(NamedTuple):
    """A server's response.

    status: HTTP status; 0 where no response arrived.
    wait: seconds that the server requires before a retry.
    """

    status: int
    body: bytes
    wait: float | None = None

    @property
    def transient(self) -> bool:
        return self.status == 0 or self.status in TRANSIENT


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect, which would send the key to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


class _Raw(io.RawIOBase):
    """A socket's bytes, read until the deadline, however slowly they arrive."""

    def __init__(self, raw: Any, sock: socket.socket, deadline: float) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_remaining(self._deadline))
        found: int | None = self._raw.readinto(buffer)
        return found

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reply(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, deadline: float, **settings: Any) -> None:
        super().__init__(sock, *args, **settings)
        self.fp: Any = io.BufferedReader(_Raw(self.fp.detach(), sock, deadline))


class _DeadlineConnection:
    """A connection with one deadline for all its operations."""

    def __init__(self, *args: Any, deadline: float, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "timeout": _remaining(deadline)})
        self._deadline = deadline
        self.response_class = functools.partial(_Reply, deadline=deadline)

    def connect(self) -> None:
        self.timeout = _remaining(self._deadline)
        super().connect()  # type: ignore[misc]
        self.sock: socket.socket
        self.sock.settimeout(_remaining(self._deadline))


class _HTTPConnection(_DeadlineConnection, http.client.HTTPConnection): ...  # type: ignore[misc]


class _HTTPSConnection(_DeadlineConnection, http.client.HTTPSConnection): ...  # type: ignore[misc]


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(functools.partial(_HTTPConnection, deadline=self._deadline), request)  # type: ignore[arg-type]


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(functools.partial(_HTTPSConnection, deadline=self._deadline), request)  # type: ignore[arg-type]


def _remaining(deadline: float) -> float:
    """Returns the seconds until the deadline.

    Raises:
        TimeoutError: the deadline has passed.
    """
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("the reply did not end in time")
    return remaining


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> HTTPAnswer:
    """Sends a POST request and returns the server's response within so many seconds; raises for no behaviour of the
    server.

    The time limit covers the whole exchange from the connection on; resolving the host's name has the system's own
    limit.
    """
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    try:
        opener = urllib.request.build_opener(_NoRedirects, _Http(deadline), _Https(deadline))
        with opener.open(request, timeout=seconds) as reply:
            return HTTPAnswer(reply.status, _all_of(reply, deadline))
    except urllib.error.HTTPError as error:
        with error:
            return HTTPAnswer(error.code, _quietly(error, deadline), _wait(error.headers.get("Retry-After")))
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError and timeouts are OSErrors
        return HTTPAnswer(0, f"{type(error).__name__}: {error}".encode())


def _all_of(reply: Any, deadline: float) -> bytes:
    """Reads the whole body until the deadline, however slowly it arrives."""
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
    """Returns the seconds of a Retry-After header, which is a number or a date; None for anything else."""
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
