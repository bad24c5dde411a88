"""Access tokens for Google Cloud Storage, made anew before they end.

google-auth makes them from a service account's key; its request, too, is ours, since the key names the address it is
sent to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from serving.storage.base.errors import StorageError
from serving.storage.sources.source import Access
from serving.storage.sources.token import LARGEST, read_token
from serving.storage.transfer.credentials import read
from serving.storage.transfer.web import Request, Web

KEY_FILE: Final = "gcloud-application-credentials.json"
SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"
METADATA_HOST: Final = "metadata.google.internal"  # GCE_METADATA_HOST names another, as for Google's libraries
_METADATA: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
_SPARE: Final = 60.0  # s before its end from which a token is not used any more

Tokens = Callable[[], str]
"""A token that holds for some time yet, "" to ask anonymously. Raises StorageError."""


def tokens_of(access: Access, name: str) -> Tokens:
    """By the key in the Secret, or the identity of the Pod where the administrator allows the host that gives tokens.

    Raises StorageError.
    """
    web, credentials = access.downloader.web, access.credentials
    key = credentials.file(KEY_FILE)
    path = credentials.get("GOOGLE_APPLICATION_CREDENTIALS")
    if key is None and path:
        key = read(Path(path), "the file that GOOGLE_APPLICATION_CREDENTIALS names")
        if key is None:
            raise StorageError(f"{name}: GOOGLE_APPLICATION_CREDENTIALS names a file that is not there")
    if key is not None:
        return ServiceAccount(key, web, name)
    host = credentials.environ.get("GCE_METADATA_HOST") or METADATA_HOST
    return PodIdentity(host, web, name) if web.allows(host.partition(":")[0]) else _nobody


class ServiceAccount:
    """Tokens for the service account with the key file `key`. Raises StorageError."""

    def __init__(self, key: bytes, web: Web, name: str) -> None:
        from google.auth.exceptions import GoogleAuthError
        from google.oauth2.service_account import Credentials

        # JSON of another form, and times that no date has
        self._errors = (GoogleAuthError, ValueError, TypeError, AttributeError, RecursionError, OverflowError)
        self._web = web
        self._name = name
        maker: Any = Credentials  # whose methods have no types
        try:
            self._account = maker.from_service_account_info(json.loads(key), scopes=[SCOPE])
        except self._errors as error:
            raise self._no_token(error) from error

    def __call__(self) -> str:
        """The token. Raises StorageError."""
        try:
            if not self._account.valid:
                self._account.refresh(_Transport(self._web, self._name))
        except self._errors as error:
            raise self._no_token(error) from error
        return str(self._account.token)

    def _no_token(self, error: Exception) -> StorageError:
        reason = type(error).__name__
        return StorageError(
            f"{self._name}: no access token ({reason}): {KEY_FILE} in the Secret is to be a service account's key"
        )


class PodIdentity:
    """Tokens of the Pod's own identity (Workload Identity), from the metadata service at `host`."""

    def __init__(self, host: str, web: Web, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        url = f"http://{host}{_METADATA}"
        self._request = Request(url, f"{name}: the metadata service", {"Metadata-Flavor": "Google"})
        self._web = web
        self._monotonic = monotonic
        self._token = ""
        self._until = 0.0

    def __call__(self) -> str:
        """The token. Raises StorageError."""
        if not self._token or self._monotonic() >= self._until:
            with self._web.ask(self._request) as answer:
                answer.check()
                token = read_token(self._web, answer)
            self._token, self._until = token.value, self._monotonic() + token.expires_in - _SPARE
        return self._token


def _nobody() -> str:
    return ""


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
            data = self._web.read(answer, LARGEST)
            return _Response(answer.status, dict(answer.response.headers), data)
