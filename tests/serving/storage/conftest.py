"""A model store on loopback with responses set by the test."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from serving.storage.transfer.downloader import Downloader
from serving.storage.transfer.limits import TransferDeadline, TransferLimits

LOOPBACK = frozenset({"127.0.0.1"})
ONCE = TransferLimits(retries=0)  # what fails is not tried again
Answer = Callable[[BaseHTTPRequestHandler], None]


def downloader(limits: TransferLimits = ONCE, sleep: Callable[[float], None] = time.sleep) -> Downloader:
    """Return a downloader that may connect to loopback."""
    return Downloader(LOOPBACK, TransferDeadline("uri", limits.total), limits, sleep)


class Store:
    """An HTTP server with `answers` by path, with or without the query.

    `asked` are the paths of all requests in order, and `headers` their headers. With `keeps_connections` it serves
    HTTP/1.1, else HTTP/1.0. `connections` is the number of accepted connections.
    """

    def __init__(self, keeps_connections: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keeps_connections else "HTTP/1.0"

            def setup(self) -> None:
                store.connections += 1
                super().setup()

            def do_GET(self) -> None:
                store.asked.append(self.path)
                store.headers.append(dict(self.headers))
                answer = store.answers.get(self.path) or store.answers.get(self.path.partition("?")[0], _not_found)
                answer(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return f"{self._scheme}://127.0.0.1:{self.server.server_port}{path}"

    def file(self, path: str, content: bytes, announced: int | None = None, **headers: str) -> str:
        """Serve a file, with a wrong length if `announced` is given; return its URL."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content) if announced is None else announced))
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.wfile.write(content)

        self.answers[path] = answer
        return self.url(path)

    def versioned(self, path: str, content: bytes, etag: str, breaks: Sequence[int | None] = ()) -> str:
        """Serve a file with support for ranges; each next response ends after the bytes in `breaks` (None: all)."""
        left = list(breaks)

        def answer(handler: BaseHTTPRequestHandler) -> None:
            asked = handler.headers.get("Range", "")
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            if handler.headers.get("If-Range") != etag:
                start = 0
            handler.send_response(206 if start else 200)
            if start:
                handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            handler.send_header("ETag", etag)
            handler.send_header("Content-Length", str(len(content) - start))
            handler.end_headers()
            most = left.pop(0) if left else None
            handler.wfile.write(content[start:] if most is None else content[start : start + most])

        self.answers[path] = answer
        return self.url(path)

    def busy(self, path: str, times: int, status: int = 503, **headers: str) -> None:
        """Respond with an error so many times before the file."""
        whole, left = self.answers[path], [None] * times

        def answer(handler: BaseHTTPRequestHandler) -> None:
            if not left:
                whole(handler)
                return
            left.pop()
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        self.answers[path] = answer

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        """Respond with a redirect; return the URL."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Location", target)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        self.answers[path] = answer
        return self.url(path)


def _not_found(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(404)


def running(keeps_connections: bool = False, tls: ssl.SSLContext | None = None) -> Iterator[Store]:
    """Run a store; parameters as in `Store`."""
    made = Store(keeps_connections, tls)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def store() -> Iterator[Store]:
    """A running store."""
    yield from running()


@pytest.fixture
def elsewhere() -> Iterator[Store]:
    """A second store, for redirects."""
    yield from running()
