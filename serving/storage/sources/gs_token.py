"""Access tokens for Google Cloud Storage, renewed before they expire.

google-auth signs the token request of a service account. The request itself is sent by our client, since the key file
names its URL.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from serving.storage.base.errors import StorageError
from serving.storage.transfer.client import StoreClient, StoreRequest
from serving.storage.transfer.credentials import LARGEST_TOKEN, Credentials, read_access_token, read_small_file

KEY_FILE: Final = "gcloud-application-credentials.json"
SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"
WRITE_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
AMBIENT_REMEDY: Final = (
    "log in with `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
)
_LOGIN_FILE: Final = "application_default_credentials.json"  # of gcloud, in its folder of settings
METADATA_HOST: Final = "metadata.google.internal"
"""Host of the metadata service, unless GCE_METADATA_HOST names another one, as for Google's libraries."""
_METADATA: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
_MARGIN: Final = 60.0  # s before its expiry, in which a token is not used any more

GetToken = Callable[[], str]
"""Return a valid token, or "" for anonymous requests. Raises StorageError."""


def token_getter(client: StoreClient, credentials: Credentials, name: str) -> GetToken:
    """Return the source of tokens: the key in the Secret, else the identity of the Pod, else anonymous requests.

    The identity of the Pod is used only if the administrator allows the host of the metadata service. Raises
    StorageError.
    """
    key = _key(credentials, name)
    if key is not None:
        remedy = f"{KEY_FILE} in the Secret must be the key of a service account"
        return KeyFile(key, client, name, SCOPE, remedy, ("service_account",))
    host = credentials.environ.get("GCE_METADATA_HOST") or METADATA_HOST
    return PodIdentity(host, client, name) if client.allows(host.partition(":")[0]) else lambda: ""


def ambient_token_getter(client: StoreClient, credentials: Credentials, name: str) -> GetToken:
    """Return the source of tokens that may write, of the user of this machine, by the order of Google's libraries.

    That is GOOGLE_APPLICATION_CREDENTIALS, else the login of gcloud, else the identity of a machine on Google's cloud;
    with STORAGE_EMULATOR_HOST and without the first, requests are anonymous. Raises StorageError.
    """
    key = _key(credentials, name)
    if key is None and credentials.get("STORAGE_EMULATOR_HOST"):
        return lambda: ""
    if key is None:
        folder = credentials.get("CLOUDSDK_CONFIG") or Path("~/.config/gcloud").expanduser()
        key = read_small_file(Path(folder) / _LOGIN_FILE, "the login of gcloud")
    if key is not None:
        return KeyFile(key, client, name, WRITE_SCOPE, AMBIENT_REMEDY, ("service_account", "authorized_user"))
    identity = PodIdentity(credentials.environ.get("GCE_METADATA_HOST") or METADATA_HOST, client, name)

    def of_machine() -> str:
        try:
            return identity()
        except StorageError as error:
            raise StorageError(f"{name}: has no credentials for Google Cloud Storage: {AMBIENT_REMEDY}") from error

    return of_machine


def _key(credentials: Credentials, name: str) -> bytes | None:
    """Return the key file of the Secret, else of GOOGLE_APPLICATION_CREDENTIALS. Raises StorageError."""
    key = credentials.file(KEY_FILE)
    path = credentials.get("GOOGLE_APPLICATION_CREDENTIALS")
    if key is None and path:
        key = read_small_file(Path(path), "the file in GOOGLE_APPLICATION_CREDENTIALS")
        if key is None:
            raise StorageError(f"{name}: the file in GOOGLE_APPLICATION_CREDENTIALS does not exist")
    return key


class KeyFile:
    """Tokens for the content `key` of a credentials file of one of these `types`.

    Raises StorageError with the `remedy`.
    """

    def __init__(
        self, key: bytes, client: StoreClient, name: str, scope: str, remedy: str, types: Sequence[str]
    ) -> None:
        from google.auth.exceptions import GoogleAuthError
        from google.oauth2.credentials import Credentials as UserCredentials
        from google.oauth2.service_account import Credentials as ServiceCredentials

        # the other ones: for JSON of another form, and for times out of range
        self._errors = (GoogleAuthError, ValueError, TypeError, AttributeError, RecursionError, OverflowError)
        self._client = client
        self._name = name
        self._remedy = remedy
        service: Any = ServiceCredentials  # their methods have no types
        user: Any = UserCredentials
        try:
            info = json.loads(key)
            kind = info.get("type", types[0])
            if kind not in types:
                raise ValueError(kind)
            if kind == "authorized_user":  # its scopes were chosen at the login
                self._account = user.from_authorized_user_info(info)
            else:
                self._account = service.from_service_account_info(info, scopes=[scope])
        except self._errors as error:
            raise self._no_token(error) from error

    def __call__(self) -> str:
        """Return the token. Raises StorageError."""
        try:
            if not self._account.valid:
                self._account.refresh(_Transport(self._client, self._name))
        except self._errors as error:
            raise self._no_token(error) from error
        return str(self._account.token)

    def _no_token(self, error: Exception) -> StorageError:
        reason = type(error).__name__
        return StorageError(f"{self._name}: no access token ({reason}): {self._remedy}")


class PodIdentity:
    """Tokens of the Pod's identity (Workload Identity), from the metadata service at `host`."""

    def __init__(
        self, host: str, client: StoreClient, name: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        url = f"http://{host}{_METADATA}"
        self._request = StoreRequest(url, f"{name}: the metadata service", {"Metadata-Flavor": "Google"})
        self._client = client
        self._monotonic = monotonic
        self._token = ""
        self._until = 0.0

    def __call__(self) -> str:
        """Return the token. Raises StorageError."""
        if not self._token or self._monotonic() >= self._until:
            with self._client.stream(self._request) as response:
                response.raise_for_status()
                token = read_access_token(self._client, response)
            self._token, self._until = token.value, self._monotonic() + token.expires_in - _MARGIN
        return self._token


class _Response:
    """Implements `google.auth.transport.Response`."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


class _Transport:
    """Implements `google.auth.transport.Request` with our client."""

    def __init__(self, client: StoreClient, name: str) -> None:
        self._client = client
        self._name = name

    def __call__(
        self, url: str, method: str = "GET", body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None, timeout: float | None = None, **more: Any,
    ) -> _Response:  # fmt: skip
        """Send a request; redirects of a POST are not followed. Raises StorageError."""
        content = body.encode() if isinstance(body, str) else body
        request = StoreRequest(url, f"{self._name}: the token endpoint", headers or {}, body=content)
        with self._client.stream(request) as response:
            data = self._client.read(response, LARGEST_TOKEN)
            return _Response(response.status, dict(response.response.headers), data)
