"""Certificates of the testbed: one authority, one certificate by component, the key of the service accounts.

Made at once and whole: the folder appears with all of its files or not at all. Nothing of it outlives `down`.
"""

from __future__ import annotations

import datetime
import ipaddress
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.testbed import addresses, files

_LIFE: Final = datetime.timedelta(days=365)  # a testbed lives for hours
_SKEW: Final = datetime.timedelta(hours=1)  # clocks that were set back in between
_MASTERS: Final = "system:masters"

CA: Final = "ca"
API_SERVER: Final = "kube-apiserver"
API_SERVER_TO_KUBELET: Final = "kube-apiserver-kubelet-client"
KUBELET_SERVER: Final = "kubelet-server"
SERVICE_ACCOUNT: Final = "service-account"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who a certificate is for: Kubernetes reads the user out of the common name, the group out of the organization."""

    user: str
    group: str = ""
    names: tuple[str, ...] = ()  # DNS names of a server
    addresses: tuple[str, ...] = ()  # IP addresses of a server


ADMIN: Final = "admin"
CLIENTS: Final = {
    ADMIN: Holder("knodel-admin", _MASTERS),
    "kube-controller-manager": Holder("system:kube-controller-manager"),
    "kube-scheduler": Holder("system:kube-scheduler"),
    "kubelet": Holder(f"system:node:{addresses.NODE}", "system:nodes"),
    "kube-proxy": Holder("system:kube-proxy"),
}
_SERVERS: Final = {
    API_SERVER: Holder(
        "kube-apiserver",
        names=(
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            f"kubernetes.default.svc.{addresses.CLUSTER_DOMAIN}",
        ),
        addresses=(addresses.NODE_ADDRESS, addresses.KUBERNETES_SERVICE, "127.0.0.1"),
    ),
    KUBELET_SERVER: Holder(
        f"system:node:{addresses.NODE}",
        "system:nodes",
        names=(addresses.NODE,),
        addresses=(addresses.NODE_ADDRESS,),
    ),
}
_HOLDERS: Final = CLIENTS | _SERVERS | {API_SERVER_TO_KUBELET: Holder("kube-apiserver-kubelet-client", _MASTERS)}


def certificate(folder: Path, name: str) -> Path:
    """The certificate (PEM) of `name` in a folder that `ensure` made."""
    return folder / f"{name}.crt"


def key(folder: Path, name: str) -> Path:
    """The private key (PEM) of `name`."""
    return folder / f"{name}.key"


def ensure(folder: Path) -> bool:
    """Make all certificates and keys, when the folder is not there yet; whether they were made."""
    if folder.exists():
        return False
    making = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key)
    _put(making, CA, authority_key, authority)
    for name, holder in _HOLDERS.items():
        holder_key = ec.generate_private_key(ec.SECP256R1())
        _put(making, name, holder_key, _issue(holder, holder_key.public_key(), authority, authority_key))
    _put(making, SERVICE_ACCOUNT, ec.generate_private_key(ec.SECP256R1()))
    making.rename(folder)
    return True


def _authority(own: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name(Holder(f"{addresses.CLUSTER}-ca"))
    builder = _builder(name, name, own.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
    return builder.sign(own, hashes.SHA256())


def _issue(
    holder: Holder, own: ec.EllipticCurvePublicKey, authority: x509.Certificate, signer: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    builder = _builder(_name(holder), authority.subject, own)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    server = bool(holder.names)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if server:
        builder = builder.add_extension(_alternatives(holder), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return builder.add_extension(issuer, critical=False).sign(signer, hashes.SHA256())


def _builder(subject: x509.Name, issuer: x509.Name, own: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
    )


def _name(holder: Holder) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, holder.user)]
    if holder.group:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, holder.group))
    return x509.Name(attributes)


def _alternatives(holder: Holder) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in holder.names]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in holder.addresses]
    return x509.SubjectAlternativeName(names)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _put(folder: Path, name: str, own: ec.EllipticCurvePrivateKey, issued: x509.Certificate | None = None) -> None:
    # Kubernetes reads a public key out of this form of a private key ("EC PRIVATE KEY"), not out of PKCS 8.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    secret = own.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    files.write(key(folder, name), secret.decode())
    if issued is not None:
        files.write(certificate(folder, name), issued.public_bytes(serialization.Encoding.PEM).decode())
