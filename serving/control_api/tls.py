"""Certificates and the kubeconfig of the control API, in the state folder.

kubectl sends no token over plain HTTP, so the API is served over TLS.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import yaml

from serving.types.settings.state import write_private

log = logging.getLogger(__name__)

LIFETIME = timedelta(days=825)  # the longest lifetime of a leaf certificate that common TLS clients accept
RENEW_BEFORE = timedelta(days=30)
NAMES = ("localhost",)
ADDRESSES = ("127.0.0.1", "::1")


def ensure_certificate(folder: Path, now: datetime) -> tuple[Path, Path, Path]:
    """Return (CA certificate, server certificate, server key) in `folder`.

    They are created if one is missing or broken, if key and certificate do not match, and before they expire.

    The CA's key signs one server certificate and is not stored.
    """
    authority, certificate, key = folder / "ca.crt", folder / "server.crt", folder / "server.key"
    if _is_usable(authority, certificate, key) and _expires(certificate) - now > RENEW_BEFORE:
        return authority, certificate, key
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, content in zip((authority, certificate, key), _issue(now), strict=True):
        write_private(path, content)
    return authority, certificate, key


def kubeconfig(server: str, authority: bytes, token: str) -> str:
    """Return a kubeconfig (YAML) with one context, `knodel`. `authority` is the CA certificate in PEM."""
    encoded = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "knodel",
        "clusters": [{"name": "knodel", "cluster": {"server": server, "certificate-authority-data": encoded}}],
        "users": [{"name": "knodel", "user": {"token": token}}],
        "contexts": [{"name": "knodel", "context": {"cluster": "knodel", "user": "knodel", "namespace": "default"}}],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _is_usable(authority: Path, certificate: Path, key: Path) -> bool:
    try:
        ssl.create_default_context(cafile=str(authority))
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        log.warning("%s is replaced, with a new kubeconfig: its files cannot be used (%s)", certificate.parent, error)
        return False
    return True


def _no_password() -> str:
    """Return an empty password, so that OpenSSL does not prompt for the one of an encrypted key."""
    return ""


def _expires(certificate: Path) -> datetime:
    from cryptography import x509  # imported only where it is needed: it takes 40 ms

    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def _issue(now: datetime) -> tuple[bytes, bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def builder(subject: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("knodel CA"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + LIFETIME)
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = builder("knodel CA", ca_key.public_key()).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    alternatives = [x509.DNSName(dns) for dns in NAMES] + [x509.IPAddress(ipaddress.ip_address(a)) for a in ADDRESSES]
    leaf = builder("knodel", key.public_key()).add_extension(x509.SubjectAlternativeName(alternatives), False)
    pem = serialization.Encoding.PEM
    return (
        ca.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
