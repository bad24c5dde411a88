"""Certificates that Kubernetes' parts trust each other by."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from tests.testbed import addresses, pki


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("state") / "pki"
    assert pki.ensure(made)
    return made


def load(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pki.certificate(folder, name).read_bytes())


@pytest.mark.parametrize("address", [addresses.NODE_ADDRESS, addresses.KUBERNETES_SERVICE, "127.0.0.1"])
def test_the_api_server_is_trusted_at_all_of_its_addresses(folder: Path, address: str) -> None:
    policy = PolicyBuilder().store(Store([load(folder, pki.CA)])).time(datetime.datetime.now(datetime.UTC))
    verifier = policy.build_server_verifier(x509.IPAddress(ipaddress.ip_address(address)))
    assert len(verifier.verify(load(folder, pki.API_SERVER), [])) == 2


def test_user_and_group_stand_where_kubernetes_reads_them(folder: Path) -> None:
    subject = load(folder, "kubelet").subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:testbed"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"


def test_keys_are_for_root_alone_and_are_not_made_twice(folder: Path) -> None:
    before = pki.key(folder, pki.CA).read_bytes()
    assert pki.ensure(folder) is False
    assert pki.key(folder, pki.CA).read_bytes() == before
    assert {path.stat().st_mode & 0o077 for path in folder.glob("*.key")} == {0}
