"""kube-apiserver as a `Server` of the client: its address, TLS, proxy, credentials and error messages."""

from __future__ import annotations

import ssl
import tempfile
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from clusters.base.redact import one_line, redact_url
from serving.client.errors import ClientError
from serving.client.http import Proxy, ServerAddress

if TYPE_CHECKING:
    from serving.client.kube_credentials import Credentials

PORTS = {"https": 443, "http": 80}
OURS, KNATIVE = "knodel.dev", "knative.dev"


class ApiServer:
    """The API server of a context: its `cluster` in the kubeconfig, and the credentials of its user."""

    validates_models = False
    """It checks the schema of a Model and its CEL rules; the command runs the other checks before it sends a Model."""
    restart_window = 30.0
    """s; an API server restarts in a few seconds, on a busy machine in many."""

    def __init__(self, context: str, cluster: Mapping[str, Any], credentials: Credentials) -> None:
        self._context = context
        self._credentials = credentials
        self._endpoint = _endpoint(context, cluster, credentials)

    @property
    def is_current(self) -> bool:
        """Whether its TLS context can still be used: a client certificate of a plugin has not expired."""
        return self._credentials.is_current

    @property
    def endpoint(self) -> ServerAddress:
        """The address of the API server."""
        return self._endpoint

    def credentials(self) -> Mapping[str, str]:
        """Return the Authorization header, if the user has one. Raises ClientError."""
        value = " ".join(self._credentials.authorization().split())  # a token file may end in a newline
        if not value:
            return {}
        if not (value.isascii() and value.isprintable()):
            raise ClientError(
                f"context {self._context}: the token has characters that are not printable ASCII: log in again"
            )
        return {"Authorization": value}

    def unauthorized_message(self, message: str) -> str:
        """Describe a 401: the credentials are absent, wrong or expired."""
        return (
            f"{self._endpoint.what} does not accept the credentials of the context ({message or 'Unauthorized'}): "
            "they are absent, wrong or expired; log in again"
        )

    def forbidden_message(self, message: str) -> str:
        """Describe a 403; the API server's message names the user, the verb and the resource."""
        return f"{message}: ask the administrator of the cluster for this permission"

    def missing_message(self, resource: str) -> str:
        """Describe the 404 of a resource that is not installed."""
        what = f"{self._endpoint.what} does not serve {resource or 'this path'}"
        if resource.endswith(f".{OURS}"):
            return f"{what}: Knodel is not installed there; `knodel install --kube-context {self._context}` installs it"
        owner = "Knative Serving is not installed there; " if resource.endswith(KNATIVE) else ""
        return f"{what}: {owner}`knodel doctor --kube-context {self._context}` shows the missing parts"


def _endpoint(context: str, cluster: Mapping[str, Any], credentials: Credentials) -> ServerAddress:
    url = _address(context, "server", str(cluster.get("server") or ""), tuple(PORTS))
    return ServerAddress(
        url.hostname or "",
        url.port or PORTS[url.scheme],
        f"the API server of context {context}",
        f"`knodel doctor --kube-context {context}` finds the cause",
        tls=_tls(context, cluster, credentials) if url.scheme == "https" else None,
        tls_name=str(cluster.get("tls-server-name") or ""),
        tls_remedy="check certificate-authority, server and tls-server-name of its cluster in the kubeconfig",
        proxy=_proxy(context, url, str(cluster.get("proxy-url") or "")),
        prefix=url.path.rstrip("/"),
    )


def _address(context: str, field: str, text: str, schemes: tuple[str, ...]) -> SplitResult:
    """Parse a URL of one of the schemes. Raises ClientError, without user and password, for any other text."""
    try:
        url = urlsplit(text)
        good = url.scheme in schemes and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:  # the port is not a number
        good = False
    if not good:
        wanted = " or ".join(schemes)
        raise ClientError(
            f"context {context}: {field} {redact_url(text, valid=False)!r} is not an {wanted} URL: "
            "correct the kubeconfig"
        )
    return url


def _tls(context: str, cluster: Mapping[str, Any], credentials: Credentials) -> ssl.SSLContext:
    authority, pair = credentials.data(cluster, "certificate-authority"), credentials.certificate()
    try:
        made = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        if pair:
            with tempfile.TemporaryDirectory(prefix="knodel-") as folder:  # for the key, until TLS has it
                files = Path(folder, "certificate"), Path(folder, "key")
                for path, content in zip(files, pair, strict=True):
                    path.write_bytes(content)
                made.load_cert_chain(*files)
    except (OSError, UnicodeError) as error:  # includes ssl.SSLError
        reason = one_line(str(error))
        raise ClientError(
            f"context {context}: its certificates or key cannot be loaded ({reason}): check them in the kubeconfig"
        ) from error
    return made


def _proxy(context: str, server: SplitResult, given: str) -> Proxy | None:
    """Return the proxy of `proxy-url`, else of the environment unless NO_PROXY has the server, as client-go does."""
    from urllib.request import getproxies, proxy_bypass  # heavy; only clusters need it

    text = given or ("" if proxy_bypass(server.hostname or "") else getproxies().get(server.scheme, ""))
    if not text:
        return None
    url = _address(context, "proxy", text, ("http",))
    headers = {}
    if url.username is not None:
        words = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {b64encode(words).decode()}"
    return Proxy(url.hostname or "", url.port or PORTS["http"], headers)
