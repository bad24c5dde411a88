"""`gs://BUCKET/KEY`: Google Cloud Storage, by its XML API, which lists and answers as S3 does.

google-auth makes the access token from a service account's key; its request, too, is ours, since the key names the
address it is sent to. Without a key the store is asked anonymously, unless the administrator allows the host of the
metadata service: then the Pod's own identity is used (Workload Identity).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from serving.storage.addresses import shown
from serving.storage.credentials import read
from serving.storage.errors import StorageError
from serving.storage.objects import Objects, split
from serving.storage.source import Access
from serving.storage.web import Request, Web

ENDPOINT: Final = "https://storage.googleapis.com"
KEY_FILE: Final = "gcloud-application-credentials.json"
SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"
METADATA_HOST: Final = "metadata.google.internal"  # GCE_METADATA_HOST names another, as for Google's libraries
_METADATA: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
_LARGEST_TOKEN: Final = 1 << 16  # bytes of the answer that has it


def source(uri: str, access: Access) -> Objects:
    """The object or prefix at the URI. Raises StorageError."""
    bucket, key = split(uri)
    return Objects(uri, key, GoogleBucket(bucket, shown(uri), access), access.downloader)


class GoogleBucket:
    """A bucket that is asked with an access token, or anonymously."""

    def __init__(self, bucket: str, name: str, access: Access) -> None:
        self._bucket = bucket
        self._name = name
        self._access = access
        self._endpoint = access.credentials.get("STORAGE_EMULATOR_HOST", ENDPOINT).rstrip("/")

    def get(self, key: str) -> Request:
        """The request for an object. Raises StorageError."""
        return self._request(f"/{quote(key)}")

    def list(self, prefix: str, after: str) -> Request:
        """The request for a page of keys. Raises StorageError."""
        more = {"continuation-token": after} if after else {}
        return self._request("?" + urlencode({"list-type": "2", "prefix": prefix, "encoding-type": "url", **more}))

    def _request(self, rest: str) -> Request:
        return Request(f"{self._endpoint}/{self._bucket}{rest}", self._name, secrets=self._secrets)

    @cached_property
    def _secrets(self) -> Mapping[str, str]:
        token = self._token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _token(self) -> str:
        web, credentials = self._access.downloader.web, self._access.credentials
        key = credentials.file(KEY_FILE)
        path = credentials.get("GOOGLE_APPLICATION_CREDENTIALS")
        if key is None and path:
            key = read(Path(path), "the file that GOOGLE_APPLICATION_CREDENTIALS names")
            if key is None:
                raise StorageError(f"{self._name}: GOOGLE_APPLICATION_CREDENTIALS names a file that is not there")
        if key is not None:
            return _token_of(key, web, self._name)
        host = credentials.environ.get("GCE_METADATA_HOST") or METADATA_HOST
        return _token_of_pod(host, web, self._name) if web.allows(host.partition(":")[0]) else ""


def _token_of(key: bytes, web: Web, name: str) -> str:
    """An access token for a service account. Raises StorageError."""
    from google.auth.exceptions import GoogleAuthError
    from google.oauth2.service_account import Credentials as ServiceAccount

    try:
        maker: Any = ServiceAccount  # whose methods have no types
        account = maker.from_service_account_info(json.loads(key), scopes=[SCOPE])
        account.refresh(_Transport(web, name))
    except (GoogleAuthError, ValueError, TypeError, AttributeError) as error:  # the latter of JSON of another form
        reason = type(error).__name__
        raise StorageError(
            f"{name}: no access token ({reason}): {KEY_FILE} in the Secret is to be a service account's key"
        ) from error
    return str(account.token)


def _token_of_pod(host: str, web: Web, name: str) -> str:
    request = Request(f"http://{host}{_METADATA}", f"{name}: the metadata service", {"Metadata-Flavor": "Google"})
    with web.ask(request) as answer:
        answer.check()
        body = web.read(answer, _LARGEST_TOKEN)
    try:
        return str(json.loads(body)["access_token"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{name}: the metadata service answered with no access token") from error


class _Response:
    """As `google.auth.transport.Response`."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


class _Transport:
    """As `google.auth.transport.Request`: by our own requests."""

    def __init__(self, web: Web, name: str) -> None:
        self._web = web
        self._name = name

    def __call__(
        self, url: str, method: str = "GET", body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None, timeout: float | None = None, **more: Any,
    ) -> _Response:  # fmt: skip
        """Ask; redirects of a POST are not followed. Raises StorageError."""
        content = body.encode() if isinstance(body, str) else body
        request = Request(url, f"{self._name}: the token's address", headers or {}, body=content)
        with self._web.ask(request) as answer:
            data = self._web.read(answer, _LARGEST_TOKEN)
            return _Response(answer.status, dict(answer.response.headers), data)
