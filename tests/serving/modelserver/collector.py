"""Test support: an HTTP server that records the events and spans that it receives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 10.0  # s


@dataclass(frozen=True)
class Post:
    """One request; header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Collector:
    """A collector. Responses have `status`, wait while it is held, and close the connection unless `keep`."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.status = 200
        self.keep = True
        self.reached = threading.Event()
        self._open = threading.Event()
        self._open.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The URL of the collector."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def hold(self) -> None:
        """Send no responses until `release`."""
        self._open.clear()

    def release(self) -> None:
        """Send responses again."""
        self._open.set()

    def start(self) -> None:
        """Start to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)

    def _handler(self) -> Callable[..., BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                """Record the request and respond."""
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.reached.set()
                collector._open.wait(PATIENCE)
                collector.posts.append(
                    Post(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                )
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()
                self.close_connection = not collector.keep  # without a word of it before

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        return Handler


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector."""
    collector = Collector()
    collector.start()
    try:
        yield collector
    finally:
        collector.close()
