"""An HTTP proxy in front of a store, which counts and interrupts uploads."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

Refusal = tuple[int, bytes]


class Proxy:
    """Forwards requests to a store. Contents are the bodies of PUT and PATCH requests.

    `received` is the number of their bytes, and `requests` are the methods
    and paths in order. `refuse(method, path, headers)` may return a status and body instead, which get the
    `refusal_headers`. `break_after` ends the connections after so many bytes of contents, until it is None.
    """

    def __init__(self, store: str) -> None:
        self.received = 0
        self.requests: list[str] = []
        self.refuse: Callable[[str, str, dict[str, str]], Refusal | None] = lambda *_: None
        self.refusal_headers: dict[str, str] = {}
        self.break_after: int | None = None
        self._lock = threading.Lock()
        proxy, target = self, urlsplit(store)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                with proxy._lock:
                    proxy.requests.append(f"{self.command} {self.path}")
                if self.command in ("PUT", "PATCH") and not proxy.takes(size):
                    self.close_connection = True
                    self.connection.close()
                    return
                body = self.rfile.read(size)
                refused = proxy.refuse(self.command, self.path, dict(self.headers))
                if refused is not None:
                    self.answer(*refused, proxy.refusal_headers)
                    return
                onward = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
                onward.request(self.command, self.path, body, dict(self.headers))
                response = onward.getresponse()
                self.answer(response.status, response.read(), dict(response.headers))
                onward.close()

            def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                length = headers.get("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = forward

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore broken connections."""

        self.server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def takes(self, size: int) -> bool:
        """Count contents, and return whether they are forwarded."""
        with self._lock:
            self.received += size
            return self.break_after is None or self.received <= self.break_after

    def methods(self) -> list[str]:
        """Return the methods of all requests, and forget them."""
        with self._lock:
            found, self.requests = self.requests, []
        return [request.partition(" ")[0] for request in found]


def proxy_to(store: str) -> Iterator[Proxy]:
    """Run a proxy."""
    made = Proxy(store)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let uploads fail after one retry without a pause."""
    from dataclasses import replace

    from serving.storage.upload import uploader

    monkeypatch.setattr(uploader, "LIMITS", replace(uploader.LIMITS, retries=1, pause=0.0))
