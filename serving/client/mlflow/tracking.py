"""Requests to a tracking server of MLflow, with the address and credentials of MLflow's environment variables.

    MLFLOW_TRACKING_URI, MLFLOW_REGISTRY_URI                    the address; the registry's, if it has another
    MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD          HTTP Basic; else those in ~/.mlflow/credentials
    MLFLOW_TRACKING_TOKEN                                       a bearer token
    MLFLOW_TRACKING_SERVER_CERT_PATH, MLFLOW_TRACKING_INSECURE_TLS     trust of the server's certificate

Source: mlflow `utils/credentials.py` and `utils/rest_utils.py` (3.17).
"""

from __future__ import annotations

import base64
import configparser
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from clusters.base.redact import one_line, redact_url
from serving.client.errors import ClientError, DoesNotExist, UsageError
from serving.client.home import expand_home
from serving.client.http import ServerAddress, exchange

TRACKING_URI, REGISTRY_URI = "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"
TIMEOUT: Final = 30.0  # s for one response
API: Final = "/api/2.0/mlflow"
ARTIFACTS: Final = "/api/2.0/mlflow-artifacts/artifacts"
_PORTS: Final = {"http": 80, "https": 443}
_START_SERVER: Final = (
    "start `mlflow server --backend-store-uri STORE --port 5000`, and set MLFLOW_TRACKING_URI=http://127.0.0.1:5000"
)
_LOGIN: Final = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
_LONGEST: Final = 300  # characters of the server's message that ours repeat


@dataclass(frozen=True, slots=True)
class TrackingServer:
    """A tracking server. `secrets` are the headers with the credentials."""

    address: ServerAddress
    secrets: Mapping[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        """The address as a URL, without a slash at the end."""
        scheme, host = ("http" if self.address.tls is None else "https"), self.address.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.address.port}{self.address.prefix}"

    def get(self, endpoint: str, missing: str, **query: str) -> Any:
        """Return the JSON of a GET. Raises DoesNotExist with `missing`, UsageError, ClientError, Unreachable."""
        return self._request("GET", f"{endpoint}?{urlencode(query)}", None, missing)

    def post(self, endpoint: str, body: Any, missing: str) -> Any:
        """Return the JSON of a POST. Raises as `get`."""
        return self._request("POST", endpoint, json.dumps(body).encode(), missing)

    def files(self, path: str) -> list[Any]:
        """Return the entries of one folder of proxied artifacts. Raises as `get`."""
        found = self.get(ARTIFACTS, f"{self.address.where} has no artifacts at {path!r}", path=path)
        files = found.get("files", [])
        if not isinstance(files, list):
            raise self._foreign()
        return files

    def file_url(self, path: str) -> str:
        """Return the URL of a proxied artifact."""
        return f"{self.url}{ARTIFACTS}/{quote(path)}"

    def _request(self, method: str, target: str, body: bytes | None, missing: str) -> Any:
        headers = {"Content-Type": "application/json", "User-Agent": "knodel", **self.secrets}
        with exchange(self.address, method, target, body=body, headers=headers, timeout=TIMEOUT) as response:
            content = response.body()
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        reason = found if isinstance(found, dict) else {}
        if response.status in (401, 403):
            raise UsageError(f"{self.address.where} denies access ({response.status}): {_LOGIN}")
        said = one_line(str(reason.get("message", "")), _LONGEST)
        absent = reason.get("error_code") in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
        if response.status == 404 or absent:
            hint = f" ({said})" if said else f", or {self.address.where} is not MLflow's: check {TRACKING_URI}"
            raise DoesNotExist(f"{missing}{hint}")
        if response.status != 200 or not isinstance(found, dict):
            if response.status == 200 or not reason:
                raise self._foreign()
            raise ClientError(f"{self.address.where} answered {response.status}: {said or 'no reason given'}")
        return found

    def _foreign(self) -> ClientError:
        return ClientError(f"{self.address.where} does not answer as MLflow: check {TRACKING_URI}")


def tracking_server(environ: Mapping[str, str], uri: str, *, registry: bool) -> TrackingServer:
    """Return the server that resolves `uri`; the registry's with `registry`. Raises UsageError."""
    named = (environ.get(REGISTRY_URI) if registry else "") or environ.get(TRACKING_URI) or ""
    variable = REGISTRY_URI if registry and environ.get(REGISTRY_URI) else TRACKING_URI
    if not named:
        raise UsageError(f"{uri} needs a tracking server of MLflow: set {TRACKING_URI}=http://HOST:PORT")
    try:
        parts = urlsplit(named)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in _PORTS or not parts.hostname or not port:
        shown = redact_url(named)
        raise UsageError(f"{variable}={shown} is not the address of a tracking server: {_START_SERVER}")
    address = ServerAddress(
        parts.hostname,
        port,
        "the tracking server of MLflow",
        f"check {variable} and that the server runs",
        tls=_tls(environ) if parts.scheme == "https" else None,
        tls_remedy="set MLFLOW_TRACKING_SERVER_CERT_PATH to the certificate of its CA",
        prefix=parts.path.rstrip("/"),
    )
    return TrackingServer(address, _credentials(environ))


def _tls(environ: Mapping[str, str]) -> ssl.SSLContext:
    file = environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or None
    try:
        context = ssl.create_default_context(cafile=file)
    except OSError as error:
        raise UsageError(f"MLFLOW_TRACKING_SERVER_CERT_PATH={file} cannot be read: {error.strerror}") from error
    if environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _credentials(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the Authorization header; a name with a password comes before a token, as in MLflow."""
    saved = _saved_credentials(expand_home("~/.mlflow/credentials"))
    user = environ.get("MLFLOW_TRACKING_USERNAME") or saved.get("mlflow_tracking_username", "")
    password = environ.get("MLFLOW_TRACKING_PASSWORD") or saved.get("mlflow_tracking_password", "")
    if user and password:
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
    token = environ.get("MLFLOW_TRACKING_TOKEN", "")
    if not token.isprintable() or not token.isascii():
        raise UsageError("MLFLOW_TRACKING_TOKEN has a line break or another character that no header may have")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _saved_credentials(path: Path) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
        return dict(parser["mlflow"]) if parser.has_section("mlflow") else {}
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
