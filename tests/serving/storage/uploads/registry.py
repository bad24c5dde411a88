"""A registry on loopback by the OCI distribution specification, to which images are pushed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

REPOSITORY = "/v2/team/models"
LOGIN = base64.b64encode(b"ann:password").decode()


class PushRegistry:
    """A private registry: only a token for pull and push, which LOGIN gets, allows requests.

    `break_after` ends connections after so many bytes of blobs; nothing of the broken chunk is kept. Without `chunks`,
    a chunk with a Content-Range is refused.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.received = 0
        self.requests: list[str] = []
        self.break_after: int | None = None
        self.chunks = True
        self.lock = threading.Lock()
        self.server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"registry": self}))

    @property
    def host(self) -> str:
        """The host of the registry, with its port."""
        return f"127.0.0.1:{self.server.server_port}"

    def take(self, size: int) -> bool:
        """Count bytes of a blob, and return whether they arrive."""
        with self.lock:
            self.received += size
            return self.break_after is None or self.received <= self.break_after


def running_registry() -> Iterator[PushRegistry]:
    """Run a registry."""
    made = PushRegistry()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: PushRegistry

    def serve(self) -> None:
        url = urlsplit(self.path)
        with self.registry.lock:
            self.registry.requests.append(f"{self.command} {url.path}")
        size = int(self.headers.get("Content-Length") or 0)
        if self.command in ("PATCH", "PUT") and "/blobs/" in url.path and not self.registry.take(size):
            self.close_connection = True
            self.connection.close()
            return
        body = self.rfile.read(size)
        if url.path == "/token":
            self.token(parse_qs(url.query)["scope"][0])
        elif self.headers.get("Authorization") != "Bearer t0ken":
            realm = f'Bearer realm="http://{self.registry.host}/token",service="tests"'
            self.reply(401, WWW_Authenticate=realm)
        elif url.path.startswith(f"{REPOSITORY}/manifests/"):
            self.manifest(url.path.rpartition("/")[2], body)
        elif url.path.startswith(f"{REPOSITORY}/blobs/uploads/"):
            self.upload(url.path.rpartition("/")[2], body, parse_qs(url.query).get("digest", [""])[0])
        else:
            self.content(self.registry.blobs.get(url.path.rpartition("/")[2]))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = serve

    def token(self, scope: str) -> None:
        allowed = self.headers.get("Authorization") == f"Basic {LOGIN}"
        assert scope in ("repository:team/models:pull,push", "repository:team/models:pull")
        self.reply(200 if allowed else 401, json.dumps({"token": "t0ken"}).encode())

    def manifest(self, reference: str, body: bytes) -> None:
        if self.command != "PUT":
            self.content(self.registry.manifests.get(reference))
            return
        manifest = json.loads(body)
        named = [manifest["config"], *manifest["layers"]]
        if any(len(self.registry.blobs.get(one["digest"], b"")) != one["size"] for one in named):
            error = {"errors": [{"code": "MANIFEST_BLOB_UNKNOWN", "message": "blob unknown to registry"}]}
            self.reply(404, json.dumps(error).encode())
            return
        self.registry.manifests |= {reference: body, f"sha256:{hashlib.sha256(body).hexdigest()}": body}
        self.reply(201)

    def upload(self, identity: str, body: bytes, digest: str) -> None:
        uploads = self.registry.uploads
        if self.command == "POST":
            identity = str(len(uploads))
            uploads[identity] = b""
            self.reply(202, Location=f"{REPOSITORY}/blobs/uploads/{identity}")
        elif identity not in uploads:
            self.reply(404)
        elif self.command == "GET":
            self.reply(204, Range=f"0-{max(len(uploads[identity]) - 1, 0)}")
        elif self.command == "PATCH" and not self.registry.chunks:
            self.reply(400, b'{"errors": [{"code": "UNSUPPORTED", "message": "no chunks"}]}')
        elif self.command == "PATCH":
            assert self.headers["Content-Range"].startswith(f"{len(uploads[identity])}-")
            uploads[identity] += body
            self.reply(202, Location=f"{REPOSITORY}/blobs/uploads/{identity}")
        else:
            content = uploads[identity] + body
            assert re.fullmatch("sha256:[0-9a-f]{64}", digest)
            right = digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
            if right:
                self.registry.blobs[digest] = content
            self.reply(201 if right else 400)

    def content(self, content: bytes | None) -> None:
        self.reply(404 if content is None else 200, content or b"")

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
