"""The certificate of the control API: kept while it is good, made anew when it is not."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serving.control_api.tls import LIFETIME, ensure_certificate

NOW = datetime.now(UTC)


def swap(folder: Path) -> None:
    """Put a key there that belongs to another certificate."""
    other = folder.parent / "other"
    ensure_certificate(other, NOW)
    (folder / "server.key").write_bytes((other / "server.key").read_bytes())


BROKEN: dict[str, Callable[[Path], object]] = {
    "an empty key": lambda folder: (folder / "server.key").write_bytes(b""),
    "a key that is not PEM": lambda folder: (folder / "server.key").write_bytes(b"\0key"),
    "half a certificate": lambda folder: (folder / "server.crt").write_text("-----BEGIN CERTIFICATE-----\nMII"),
    "an empty authority": lambda folder: (folder / "ca.crt").write_bytes(b""),
    "the key of another certificate": swap,
    "no key": lambda folder: (folder / "server.key").unlink(),
}


def test_a_good_certificate_is_kept_until_it_is_about_to_expire(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in ensure_certificate(tmp_path, NOW)]

    assert [path.read_bytes() for path in ensure_certificate(tmp_path, NOW + timedelta(days=1))] == first
    assert [path.read_bytes() for path in ensure_certificate(tmp_path, NOW + LIFETIME)] != first


@pytest.mark.parametrize("harm", BROKEN.values(), ids=BROKEN.keys())
def test_files_that_cannot_be_used_are_made_anew(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    folder = tmp_path / "tls"
    ensure_certificate(folder, NOW)
    harm(folder)

    authority, certificate, key = ensure_certificate(folder, NOW)

    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    ssl.create_default_context(cafile=str(authority))
    assert key.stat().st_mode & 0o777 == 0o600
