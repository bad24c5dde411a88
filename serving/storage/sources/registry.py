"""Read manifests and blobs of a registry, with the token that it requires.

Sources: the OCI distribution specification, and Docker's token authentication
(https://distribution.github.io/distribution/spec/auth/token/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from serving.storage.base import digest as digests
from serving.storage.base.errors import HttpStatusError, StorageError
from serving.storage.sources.oci_reference import ImageReference
from serving.storage.transfer.client import StoreClient, StoreRequest, StoreResponse
from serving.storage.transfer.credentials import read_access_token
from serving.storage.transfer.downloader import Download
from serving.storage.transfer.retry import Retry
from serving.storage.transfer.urls import parse_url

LARGEST_MANIFEST: Final = 4 << 20  # bytes; registries must accept at least this size by the specification
MANIFESTS: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_UNAUTHORIZED: Final = (401, 403)
_FIELD: Final = re.compile(r'(\w+)="([^"]*)"')


PULL: Final = "pull"
PUSH: Final = "pull,push"
REPLICA_REMEDY: Final = "check .dockerconfigjson in the Secret"


class Registry:
    """One repository of a registry. `login` are the credentials for HTTP Basic (base64), "" without any.

    `actions` are those that a token must allow, PULL or PUSH; `remedy` is that of a refused login.
    """

    def __init__(
        self, reference: ImageReference, login: str, client: StoreClient, retry: Retry, name: str,
        *, actions: str = PULL, remedy: str = REPLICA_REMEDY,
    ) -> None:  # fmt: skip
        self._reference = reference
        self._login = login
        self._client = client
        self._retry = retry
        self._name = name
        self._actions = actions
        self._remedy = remedy
        self._secrets: Mapping[str, str] = {}

    def manifest(self, reference: str) -> bytes:
        """Return the manifest with a tag or a digest, which is verified. Raises StorageError."""
        content = self._retry.run(partial(self._manifest, reference))
        if reference.startswith(digests.PREFIX):
            digests.check(self._name, reference, digests.of_bytes(content))
        return content

    def layer(self, digest: str, size: int, path: Path) -> Download:
        """Return the download of a layer into the file at `path`."""
        request = partial(self.request, f"/blobs/{digest}")
        return Download(f"{self._name}: a layer", request, path, size, size, digest)

    def _manifest(self, reference: str) -> bytes:
        request = self.request(f"/manifests/{reference}", {"Accept": ", ".join(MANIFESTS)})
        with self._client.stream(request) as response:
            if response.status == 404:
                raise HttpStatusError(f"{self._name}: the registry has no such manifest: check repository and tag", 404)
            if response.status in _UNAUTHORIZED:
                raise HttpStatusError(f"{self._name}: the registry denies access: {self._remedy}", response.status)
            response.raise_for_status()
            return self._client.read(response, LARGEST_MANIFEST)

    def request(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "", body: bytes | None = None
    ) -> StoreRequest:
        """Return a request for a path of the repository's API, or for a URL that the registry has responded with.

        Only the registry's own origin gets the token.
        """
        url = path if "://" in path else f"{self._reference.base}{path}"
        own = parse_url(url).origin == parse_url(self._reference.base).origin
        login = self._log_in if own else None
        secrets = self._secrets if own else {}
        return StoreRequest(url, self._name, headers or {}, secrets, login=login, method=method, body=body)

    def _log_in(self, response: StoreResponse) -> Mapping[str, str]:
        """Return the Authorization header after a 401, and keep it for further requests. Raises StorageError."""
        secrets = self._secrets = self._authorize(response.header("WWW-Authenticate"), response.allowed)
        return secrets

    def _authorize(self, challenge: str, allowed: frozenset[str]) -> Mapping[str, str]:
        """Return the header for a challenge: `Basic`, or `Bearer` with a token from its realm."""
        kind, _, fields = challenge.partition(" ")
        basic = {"Authorization": f"Basic {self._login}"} if self._login else {}
        if kind.lower() != "bearer":
            return basic
        given = dict(_FIELD.findall(fields))
        realm = given.get("realm", "")
        if self._reference.base.startswith("https:") and not realm.startswith("https:"):
            raise StorageError(f"{self._name}: the registry requires a login without encryption: refused")
        scope = f"repository:{self._reference.repository}:{self._actions}"
        query = urlencode({"service": given.get("service", ""), "scope": scope})
        url = realm + ("&" if "?" in realm else "?") + query
        with self._client.stream(StoreRequest(url, f"{self._name}: the login", secrets=basic), allowed) as response:
            if response.status != 200:
                raise HttpStatusError(f"{self._name}: the login was refused: {self._remedy}", response.status)
            return {"Authorization": f"Bearer {read_access_token(self._client, response).value}"}
