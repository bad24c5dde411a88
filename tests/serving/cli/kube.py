"""A scripted API server over TLS on loopback, its certificates, and kubeconfigs for it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CONTEXT = "lab"
TOKEN = "t0ken"
SERVER_NAME = "api.test"
CONFIG_PATH = "/api/v1/namespaces/knodel-system/configmaps/knodel-config"
SETTINGS = "gateway: {{address: 127.0.0.1, port: {port}, domain: knodel.test}}\n"
"""Settings of an installed Knodel; `format` takes the port of the ingress."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Pki:
    """An authority with a server's and a client's certificate, and another authority that signed neither."""

    authority: Path
    stranger: Path
    server: Pair
    client: Pair


def make_pki(folder: Path) -> Pki:
    """Create certificates that are valid for an hour; that of the server is for 127.0.0.1 and api.test."""
    authority, signer = _sign(folder, "ca", None)
    stranger, _ = _sign(folder, "stranger", None)
    server, _ = _sign(folder, "server", signer)
    client, _ = _sign(folder, "client", signer)
    return Pki(authority.certificate, stranger.certificate, server, client)


Signer = tuple[x509.Name, ec.EllipticCurvePrivateKey]


def _sign(folder: Path, name: str, signer: Signer | None) -> tuple[Pair, Signer]:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signing = signer or (subject, key)
    names: list[x509.GeneralName] = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName(SERVER_NAME)]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signing, hashes.SHA256())
    )
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pair.key.write_bytes(key.private_bytes(*form))
    return pair, (subject, key)


@dataclass(frozen=True)
class Seen:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    client: str = ""


@dataclass(frozen=True)
class Reply:
    """A response: JSON of `value`, or `text`."""

    status: int
    value: Any = None
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Script = Callable[[Seen], Reply]
NOTHING = Reply(200, {"items": []})
"""An empty list."""


def failure(code: int, reason: str, message: str, **details: Any) -> Reply:
    """Return a `Status` like that of kube-apiserver."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return Reply(code, {**status, "code": code, "reason": reason, "message": message, "details": details})


class FakeApi:
    """A running server with its URL and its received requests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Seen] = []
        self.port = 0
        self.scheme = "https"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"{self.scheme}://127.0.0.1:{self.port}"


@contextmanager
def fake_api(script: Script, tls: Pki | None, *, demand_certificate: bool = False) -> Iterator[FakeApi]:
    """Run a server that responds by `script`; with `demand_certificate`, only to clients of the authority."""
    api = FakeApi(script)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = self.rfile.read(length)
            url = urlsplit(self.path)
            peer = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
            name = dict(part[0] for part in peer["subject"])["commonName"] if peer else ""  # type: ignore[misc]
            body = json.loads(content) if content else None
            query = dict(parse_qsl(url.query))
            seen = Seen(self.command, url.path, query, dict(self.headers.items()), body, str(name))
            api.seen.append(seen)
            reply = api.script(seen)
            text = reply.text if reply.text is not None else json.dumps(reply.value)
            self.send_response(reply.status)
            for header, value in reply.headers.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore clients that close the connection early, as some tests do."""

    with Server(("127.0.0.1", 0), Handler) as server:
        api.port = server.server_address[1]
        api.scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.server.certificate, tls.server.key)
            if demand_certificate:
                context.load_verify_locations(tls.authority)
                context.verify_mode = ssl.CERT_REQUIRED
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join(10)


def kubeconfig(
    server: str,
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    *,
    name: str = CONTEXT,
    namespace: str = "",
) -> str:
    """Return a kubeconfig (YAML) with one context."""
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
            "users": [{"name": name, "user": dict(user)}],
            "contexts": [{"name": name, "context": context}],
        }
    )
