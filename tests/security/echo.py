"""A hostile store: it refuses every request and says back, in its error, all that it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.http_servers import served_by


@contextmanager
def echo(address: str = "127.0.0.1") -> Iterator[str]:
    """Its address; 403 with the request's head as the body, and in a header."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Message>{self.requestline}\n{self.headers}</Message></Error>".encode()
            self.send_response(403, f"no {self.headers.get('Authorization', '')}")
            self.send_header("X-Error-Message", self.headers.get("Authorization", ""))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with served_by(Handler, address) as uri:
        yield uri
