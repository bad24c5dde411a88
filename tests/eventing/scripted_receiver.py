"""An HTTP server with scripted answers that records its requests; on loopback by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any


@dataclass
class Receiver:
    """`answers`: (status, headers) in their order, the last one for ever; `sent`: (headers, body) that came."""

    url: str
    answers: Sequence[tuple[int, Mapping[str, str]]]
    sent: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def take(self, headers: dict[str, str], body: bytes) -> tuple[int, Mapping[str, str]]:
        """Record a request; return its answer."""
        self.sent.append((headers, body))
        return self.answers[min(len(self.sent), len(self.answers)) - 1]


@contextmanager
def receiver(*answers: int | tuple[int, Mapping[str, str]], address: str = "127.0.0.1") -> Iterator[Receiver]:
    """Run a receiver at that address of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers = found.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer((address, 0), Handler)
    scripted = [answer if isinstance(answer, tuple) else (answer, {}) for answer in answers]
    found = Receiver(f"http://{address}:{server.server_port}/events", scripted)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
