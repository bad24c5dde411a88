"""A small HTTP server that answers as the proxies of a Ray Serve do, with one application."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.support.http_servers import served_by

SUCCESS = b"success"


@dataclass
class Application:
    """An application at `prefix`, whose answers name its `version`; a test changes these fields while it runs.

    `status` is that of its answers, `healthy` whether the proxies serve. A request for `/slow` waits for `released`,
    and counts in `waiting`.
    """

    version: str
    prefix: str = "/rank"
    status: int = 200
    healthy: bool = True
    routed: bool = True
    released: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


@contextmanager
def ray_service(
    application: Application, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve the application for as long as the block runs; the value is the URL of the service."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path == "/-/healthz":
                self._send(200 if application.healthy else 503, SUCCESS if application.healthy else b"draining")
            elif path == "/-/routes":
                self._send(200, json.dumps({application.prefix: "ranker"} if application.routed else {}).encode())
            elif not path.startswith(application.prefix):
                self._send(404, b"no application")
            elif path.endswith("/events"):
                self._stream()
            else:
                self._answer(path)

        do_POST = do_PUT = do_DELETE = do_GET

        def _answer(self, path: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if path.endswith("/slow"):
                application.waiting.release()
                application.released.wait(30)
            told = {
                "version": application.version,
                "method": self.command,
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": body.decode("latin-1"),
            }
            self._send(application.status, json.dumps(told).encode())

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b"data: 1\n\n", b"data: 2\n\n", b""):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Application", application.version)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with served_by(Handler, address, tls) as base:
        yield f"{base}{application.prefix}"
