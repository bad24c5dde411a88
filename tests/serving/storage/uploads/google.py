"""Google Cloud Storage on loopback: resumable uploads and metadata of its JSON API, and reads of its XML API."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

UNIT = 1 << 18  # bytes; the store keeps whole units of an incomplete upload


@dataclass
class Session:
    """An unfinished upload: its key, size, MD5 and bytes."""

    key: str
    size: int
    md5: str
    content: bytearray = field(default_factory=bytearray)


class GoogleStore:
    """A store with the bucket `models` at an address of this machine.

    Requests need the token of its token endpoint, unless it is `public`.

    `break_after` ends connections after so many bytes of contents; of the broken request, whole units are kept.
    """

    def __init__(self, address: str = "127.0.0.1", public: bool = False) -> None:
        self.address = address
        self.public = public
        self.objects: dict[str, bytes] = {}
        self.sessions: dict[str, Session] = {}
        self.received = 0
        self.requests: list[str] = []
        self.break_after: int | None = None
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"store": self})
        self.server = _Server((address, 0), handler)

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"http://{self.address}:{self.server.server_port}"

    def service_account(self) -> str:
        """Return the key file of a service account."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {"type": "service_account", "client_email": "ann@acme", "private_key": private, "private_key_id": "1"}
        return json.dumps({**account, "token_uri": f"{self.url}/token"})

    def take(self, size: int) -> int:
        """Count contents, and return how many of their bytes arrive."""
        with self.lock:
            left = size if self.break_after is None else max(0, self.break_after - self.received)
            self.received += min(size, left)
            return min(size, left)


def running_store(address: str = "127.0.0.1", public: bool = False) -> Iterator[GoogleStore]:
    """Run a store."""
    made = GoogleStore(address, public)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class _Handler(BaseHTTPRequestHandler):
    store: GoogleStore
    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        with self.store.lock:
            self.store.requests.append(f"{self.command} {url.path}")
        if url.path == "/session":
            self.session(query["id"])
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if url.path == "/token":
            self.reply(200, {"access_token": "t0ken", "expires_in": 3600, "token_type": "Bearer"})
        elif not self.store.public and self.headers.get("Authorization") != "Bearer t0ken":
            self.reply(401, {"error": {"message": "Anonymous caller does not have storage.objects.create"}})
        elif not re.match(r"(/upload)?/storage/v1/b/models/|/models", url.path):
            self.reply(404, {"error": {"message": "The specified bucket does not exist."}})
        elif self.command == "POST":
            self.begin(query, body)
        else:
            self.read(url.path, query)

    do_GET = do_POST = do_PUT = serve

    def begin(self, query: dict[str, str], body: bytes) -> None:
        if query["uploadType"] == "media":
            self.store.objects[query["name"]] = body
            self.reply(200, {})
            return
        about = json.loads(body)
        identity = str(len(self.store.sessions))
        size = int(self.headers["X-Upload-Content-Length"])
        self.store.sessions[identity] = Session(query["name"], size, about["md5Hash"])
        self.reply(200, {}, Location=f"{self.store.url}/session?id={identity}")

    def session(self, identity: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        session = self.store.sessions.get(identity)
        if session is None:
            self.rfile.read(length)
            self.reply(404, {})
            return
        taken = self.store.take(length)
        part = self.rfile.read(taken)
        place = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", self.headers["Content-Range"])
        assert place is not None and int(place[2]) == session.size
        if place[1] is not None:
            assert int(place[1]) == len(session.content)
            whole = len(session.content) + len(part) == session.size
            session.content += part if whole else part[: len(part) // UNIT * UNIT]
        if taken < length:
            self.close_connection = True
            self.connection.close()
        elif len(session.content) < session.size:
            kept = {"Range": f"bytes=0-{len(session.content) - 1}"} if session.content else {}
            self.reply(308, {}, **kept)
        elif base64.b64encode(hashlib.md5(session.content, usedforsecurity=False).digest()).decode() != session.md5:
            self.reply(400, {"error": {"message": "Provided MD5 hash does not match calculated MD5 hash."}})
        else:
            self.store.objects[session.key] = bytes(session.content)
            self.reply(200, {})

    def read(self, path: str, query: dict[str, str]) -> None:
        if path in ("/storage/v1/b/models/o", "/models"):
            found = {key: text for key, text in self.store.objects.items() if key.startswith(query["prefix"])}
            items = [{"name": key, "size": str(len(text))} for key, text in found.items()]
            entries = "".join(
                f"<Contents><Key>{escape(item['name'])}</Key><Size>{item['size']}</Size></Contents>" for item in items
            )
            listing = f"<ListBucketResult>{entries}</ListBucketResult>".encode()
            self.reply(200, listing if path == "/models" else {"items": items})
            return
        text = self.store.objects.get(unquote(path.removeprefix("/storage/v1/b/models/o/").removeprefix("/models/")))
        if text is None:
            self.reply(404, {"error": {"message": "No such object"}})
        elif path.startswith("/models/"):
            self.reply(200, text)
        else:
            md5 = base64.b64encode(hashlib.md5(text, usedforsecurity=False).digest()).decode()
            self.reply(200, {"size": str(len(text)), "md5Hash": md5})

    def reply(self, status: int, value: Any, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections."""
