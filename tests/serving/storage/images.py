"""A registry on loopback by the OCI distribution specification, and images for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from serving.storage.base.digest import of_bytes
from tests.serving.storage.conftest import Answer, Store

REPOSITORY = "acme/magika"
LOGIN = base64.b64encode(b"user:password").decode()


class Registry:
    """Serve a registry with a `Store`; a `private` one requires a token, for which LOGIN is needed.

    A token expires after `lasts` uses.
    """

    def __init__(
        self, store: Store, blobs: Store, private: bool = False, lasts: int = 1000, repository: str = REPOSITORY
    ) -> None:
        self._repository = repository
        self._lasts = lasts
        self._uses = 0
        self._store = store
        self._blobs = blobs
        self._private = private
        store.answers["/token"] = self._give_token

    @property
    def _token(self) -> str:
        return f"t0ken-{self._uses // self._lasts}"

    def uri(self, reference: str = ":latest") -> str:
        """Return the URI of an image."""
        return f"oci://127.0.0.1:{self._store.server.server_port}/{self._repository}{reference}"

    def push(self, layers: Sequence[bytes], tag: str = "latest") -> str:
        """Publish an image and return the digest of its manifest."""
        descriptors = [self.blob(layer) for layer in layers]
        return self.push_manifest({"schemaVersion": 2, "layers": descriptors}, tag)

    def push_manifest(self, manifest: dict[str, Any], tag: str = "latest") -> str:
        """Publish a manifest and return its digest."""
        content = json.dumps(manifest).encode()
        digest = of_bytes(content)
        for reference in (tag, digest):
            self._publish(f"/v2/{self._repository}/manifests/{reference}", content)
        return digest

    def push_index(self, platforms: dict[str, str], tag: str = "latest") -> str:
        """Publish an index of manifests by architecture and return its digest."""
        manifests = [
            {"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": architecture}}
            for architecture, digest in platforms.items()
        ]
        return self.push_manifest({"schemaVersion": 2, "manifests": manifests}, tag)

    def blob(self, content: bytes, breaks: Sequence[int | None] = ()) -> dict[str, Any]:
        """Publish a blob behind a redirect; `breaks` as in `Store.versioned`."""
        digest = of_bytes(content)
        path = f"/v2/{self._repository}/blobs/{digest}"
        self._store.redirect(path, self._blobs.versioned(f"/{digest}?signature=x", content, '"1"', breaks))
        self._store.answers[path] = self._guarded(self._store.answers[path])
        return {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest, "size": len(content)}

    def _publish(self, path: str, content: bytes) -> None:
        self._store.file(path, content)
        self._store.answers[path] = self._guarded(self._store.answers[path])

    def _guarded(self, answer: Answer) -> Answer:
        def guarded(handler: BaseHTTPRequestHandler) -> None:
            if not self._private or handler.headers.get("Authorization") == f"Bearer {self._token}":
                self._uses += 1
                answer(handler)
                return
            realm = self._store.url("/token")
            handler.send_response(401)
            handler.send_header("WWW-Authenticate", f'Bearer realm="{realm}",service="tests",scope="repository:x:pull"')
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        return guarded

    def _give_token(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Authorization") != f"Basic {LOGIN}":
            handler.send_error(401)
            return
        content = json.dumps({"token": self._token}).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
