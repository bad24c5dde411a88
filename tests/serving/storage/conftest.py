"""A model store on loopback that answers as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

LOOPBACK = frozenset({"127.0.0.1"})
Answer = Callable[[BaseHTTPRequestHandler], None]


class Store:
    """`answers` by path; `asked` are the paths in order."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                store.asked.append(self.path)
                store.answers.get(self.path, _not_found)(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Not in the output of the tests."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def file(self, path: str, content: bytes, announced: int | None = None, **headers: str) -> str:
        """Answer with a file, of whose length one may lie; its address."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content) if announced is None else announced))
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.wfile.write(content)

        self.answers[path] = answer
        return self.url(path)

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        """Answer with a redirect; its address."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Location", target)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        self.answers[path] = answer
        return self.url(path)


def _not_found(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(404)


@pytest.fixture
def store() -> Iterator[Store]:
    """A store that runs."""
    made = Store()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()
