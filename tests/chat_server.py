"""A server on this machine that speaks as much of the chat completions protocol as is asked of it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """say: question -> reply. plan: what happens to the next requests instead, in order: a status, a status with
    headers, "slow", "drip", "drip head", "drop", "garbage", "huge", or a JSON body. seen: every request's body. keys:
    its Authorization."""

    def __init__(self, say: Callable[[str], str] = lambda question: "Score: 5") -> None:
        self.say, self.plan, self.seen, self.keys = say, [], [], []  # type: ignore[var-annotated]
        self.at_once = self.most_at_once = 0
        self.usage: Any = {"total_tokens": 10}
        self.pause = 0.0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        return type("Handler", (_Handler,), {"chat": self})


class _Handler(BaseHTTPRequestHandler):
    """Replies to one request of `chat`, or does what its plan has for it."""

    chat: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.chat._lock:
            self.chat.seen.append(body)
            self.chat.keys.append(self.headers.get("Authorization"))
            self.chat.at_once += 1
            self.chat.most_at_once = max(self.chat.most_at_once, self.chat.at_once)
            event = self.chat.plan.pop(0) if self.chat.plan else None
        time.sleep(self.chat.pause)
        with self.chat._lock:  # before the reply, upon which the client may ask again at once
            self.chat.at_once -= 1
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._happen(event, body)

    def _happen(self, event: Any, body: dict[str, Any]) -> None:
        if event == "slow":
            time.sleep(2.5)
        elif event == "drop":
            self.close_connection = True
            return
        elif event == "drip":
            self.send_response(200)
            self.end_headers()
            for _ in range(60):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)
            return
        elif event == "drip head":  # a whole reply in the end, for whoever waits so long
            for byte in b"HTTP/1.0 200 OK\r\nX: " + b"y" * 40 + b"\r\n\r\n":
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.05)
            text = {"message": {"role": "assistant", "content": "late"}}
            self.wfile.write(json.dumps({"choices": [text], "usage": self.chat.usage}).encode())
            return
        elif event == "huge":
            self._send(200, b" " * (5 * 2**20))
            return
        elif event == "garbage":
            self._send(200, b"{not json")
            return
        elif isinstance(event, tuple):
            self._send(event[0], event[2] if len(event) > 2 else b"no", event[1])
            return
        elif isinstance(event, int):
            self._send(event, b'{"error": "as planned"}')
            return
        elif isinstance(event, dict):
            self._send(200, json.dumps(event).encode())
            return
        reply = {"choices": [{"message": {"content": self.chat.say(body["messages"][-1]["content"])}}]}
        self._send(200, json.dumps(reply | ({"usage": self.chat.usage} if self.chat.usage else {})).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@contextlib.contextmanager
def served(say: Callable[[str], str] = lambda question: "Score: 5") -> Iterator[ChatServer]:
    server = ChatServer(say)
    try:
        yield server
    finally:
        server.close()


def judge_reply(question: str) -> str:
    """Replies to any question of a judge: with a rubric, with marks for its items, or with a score."""
    if "ITEM | name" in question:
        return f"Better so:\nITEM | careful {len(question) % 5} | 3 | one point each\nITEM | short | 2 | few words"
    if "ITEM N: MARK" in question:
        return f"Fine.\nITEM 1: {len(question) % 4}\nITEM 2: {len(question) % 3}"
    return f"Score: {len(question) % 11}"
