"""A model hub that speaks Hugging Face's API as far as our downloads ask, to whoever has its token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.http_servers import served_by

COMMIT = "4f3c1de0a7b24cd88a0a4d8fb7e4ad9b1c2d3e4f"


@contextmanager
def hub(address: str, token: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """The endpoint of a hub whose every repository has these files."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == f"Bearer {token}"
            content = self._content() if known else None
            self.send_response(401 if not known else 404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def _content(self) -> bytes | None:
            if self.path.startswith("/api/models/"):
                listed = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
                return json.dumps({"sha": COMMIT, "siblings": listed}).encode()
            return files.get(self.path.partition(f"/resolve/{COMMIT}/")[2])

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads a line for each download."""

    with served_by(Handler, address) as uri:
        yield uri
