"""The part of a registry's HTTP API that reads: manifests and blobs, with the token that the registry asks for.

As the OCI distribution specification has it; the login (401 with a realm, where a token is had) is Docker's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from serving.storage.base import digest as digests
from serving.storage.base.errors import Refused, StorageError
from serving.storage.sources.oci_reference import Reference
from serving.storage.sources.token import read_token
from serving.storage.transfer.http import Download, Downloader
from serving.storage.transfer.web import Answer, Request

LARGEST_MANIFEST: Final = 4 << 20  # bytes; the specification's least that registries have to take
MANIFESTS: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CLOSED: Final = (401, 403)
_FIELD: Final = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """One repository of a registry; `login` is what follows `Basic `, "" without one."""

    def __init__(self, reference: Reference, login: str, downloader: Downloader, name: str) -> None:
        self._reference = reference
        self._login = login
        self._downloader = downloader
        self._web = downloader.web
        self._name = name
        self._secrets: Mapping[str, str] = {}

    def manifest(self, reference: str) -> bytes:
        """The manifest with a tag or digest; one with a digest is verified. Raises StorageError."""
        content = self._downloader.retry.run(partial(self._manifest, reference))
        if reference.startswith(digests.PREFIX):
            digests.check(self._name, reference, digests.of_bytes(content))
        return content

    def layer(self, digest: str, size: int, path: Path) -> Download:
        """Return the download of a layer into the file at `path`."""
        request = partial(self._request, f"/blobs/{digest}")
        return Download(f"{self._name}: a layer", request, path, size, size, digest)

    def _manifest(self, reference: str) -> bytes:
        request = self._request(f"/manifests/{reference}", {"Accept": ", ".join(MANIFESTS)})
        with self._web.ask(request) as answer:
            if answer.status == 404:
                raise Refused(f"{self._name}: the registry has no such manifest: check repository and tag", 404)
            if answer.status in _CLOSED:
                raise Refused(
                    f"{self._name}: the registry refuses: check .dockerconfigjson in the Secret", answer.status
                )
            answer.check()
            return self._web.read(answer, LARGEST_MANIFEST)

    def _request(self, path: str, headers: Mapping[str, str] | None = None) -> Request:
        return Request(f"{self._reference.base}{path}", self._name, headers or {}, self._secrets, login=self._log_in)

    def _log_in(self, answer: Answer) -> Mapping[str, str]:
        """What opens a registry that asks who is there; kept for the requests that follow, until it asks again."""
        secrets = self._secrets = self._answer_to(answer.header("WWW-Authenticate"), answer.allowed)
        return secrets

    def _answer_to(self, challenge: str, allowed: frozenset[str]) -> Mapping[str, str]:
        """The header that opens what `WWW-Authenticate` says is closed."""
        kind, _, fields = challenge.partition(" ")
        basic = {"Authorization": f"Basic {self._login}"} if self._login else {}
        if kind.lower() != "bearer":
            return basic
        given = dict(_FIELD.findall(fields))
        realm = given.get("realm", "")
        if self._reference.base.startswith("https:") and not realm.startswith("https:"):
            raise StorageError(f"{self._name}: the registry wants the login sent unencrypted: refused")
        scope = f"repository:{self._reference.repository}:pull"
        query = urlencode({"service": given.get("service", ""), "scope": scope})
        url = realm + ("&" if "?" in realm else "?") + query
        with self._web.ask(Request(url, f"{self._name}: the login", secrets=basic), allowed) as answer:
            if answer.status != 200:
                raise Refused(
                    f"{self._name}: the login was refused: check .dockerconfigjson in the Secret", answer.status
                )
            return {"Authorization": f"Bearer {read_token(self._web, answer).value}"}
