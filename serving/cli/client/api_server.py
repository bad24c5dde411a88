"""A real API server as the command's client sees it: address, TLS, proxy, credentials, and what its errors mean."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from clusters.base.redact import one_line
from serving.cli.base.errors import CommandError
from serving.cli.client.http import Endpoint, Proxy

if TYPE_CHECKING:
    from kubernetes.client import Configuration

PORTS = {"https": 443, "http": 80}
OURS, KNATIVE = "knodel.dev", "knative.dev"


class ApiServer:
    """The API server of a context, and who asks it.

    `proxy` is the `proxy-url` of its cluster; `authorization` gives the header of that name, empty for none.
    """

    checks_models = False
    """It has the schema of a Model and its CEL rules; what needs more is checked before it is sent."""
    restarts_within = 30.0
    """s; an API server is back in a few, on a busy machine in many."""

    def __init__(
        self, context: str, configuration: Configuration, proxy: str, authorization: Callable[[], str]
    ) -> None:
        self._context = context
        self._authorization = authorization
        self._endpoint = _endpoint(context, configuration, proxy)

    @property
    def endpoint(self) -> Endpoint:
        """Where it is."""
        return self._endpoint

    def credentials(self) -> Mapping[str, str]:
        """The Authorization header, if the user has one. Raises CommandError."""
        value = " ".join(self._authorization().split())  # a token file may end in a newline
        if not value:
            return {}
        if not (value.isascii() and value.isprintable()):
            raise CommandError(f"context {self._context}: its token has characters that no token has")
        return {"Authorization": value}

    def unauthorized(self, message: str) -> str:
        """Credentials that are absent, wrong or expired."""
        return (
            f"{self._endpoint.what} does not know who asks ({message or 'Unauthorized'}): the credentials of the "
            "context are absent, wrong or expired; log in again"
        )

    def forbidden(self, message: str) -> str:
        """A right that is missing: the message names who, which verb, which resource."""
        return f"{message}: ask who runs the cluster for this right"

    def lacks(self, resource: str) -> str:
        """Something that is not installed."""
        what = f"{self._endpoint.what} does not know {resource or 'this path'}"
        if resource.endswith(f".{OURS}"):
            return f"{what}: Knodel is not installed there; `knodel install --kube-context {self._context}` does it"
        owner = "Knative Serving is not installed there; " if resource.endswith(KNATIVE) else ""
        return f"{what}: {owner}`knodel doctor --kube-context {self._context}` says what is missing"


def _endpoint(context: str, found: Configuration, proxy: str) -> Endpoint:
    url = _address(context, "server", found.host, tuple(PORTS))
    return Endpoint(
        url.hostname or "",
        url.port or PORTS[url.scheme],
        f"the API server of context {context}",
        f"`knodel doctor --kube-context {context}` looks for the cause",
        tls=_tls(context, found) if url.scheme == "https" else None,
        tls_name=found.tls_server_name or "",
        tls_remedy="check certificate-authority, server and tls-server-name of its cluster in the kubeconfig",
        proxy=_proxy(context, url, proxy),
        prefix=url.path.rstrip("/"),
    )


def _without_user(address: str) -> str:
    """What may be no URL, without user and password: `://` may be missing, and a password may have any sign."""
    head, at, rest = address.rpartition("@")
    scheme, separator, _ = head.partition("://")
    return f"{scheme}{separator}…@{rest}" if at and separator else f"…@{rest}" if at else address


def _address(context: str, field: str, text: str, schemes: tuple[str, ...]) -> SplitResult:
    """The URL's parts. Raises CommandError, without user and password, for one that is none or of another scheme."""
    try:
        url = urlsplit(text)
        good = url.scheme in schemes and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:  # its port is no number
        good = False
    if not good:
        raise CommandError(f"context {context}: {field} {_without_user(text)!r} is no {' or '.join(schemes)} URL")
    return url


def _tls(context: str, found: Configuration) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=found.ssl_ca_cert)
        if not found.verify_ssl:  # insecure-skip-tls-verify
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        if found.cert_file:
            made.load_cert_chain(found.cert_file, found.key_file)
    except OSError as error:  # ssl.SSLError is one
        reason = one_line(str(error))
        raise CommandError(f"context {context}: its certificates or key are refused ({reason}): check them") from error
    return made


def _proxy(context: str, server: SplitResult, given: str) -> Proxy | None:
    """`proxy-url`, else that of the environment unless NO_PROXY names the server, as client-go has it."""
    from urllib.request import getproxies, proxy_bypass  # the kubernetes package has imported it already

    text = given or ("" if proxy_bypass(server.hostname or "") else getproxies().get(server.scheme, ""))
    if not text:
        return None
    url = _address(context, "proxy", text, ("http",))
    headers = {}
    if url.username is not None:
        words = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {b64encode(words).decode()}"
    return Proxy(url.hostname or "", url.port or PORTS["http"], headers)
