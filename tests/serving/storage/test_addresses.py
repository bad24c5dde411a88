"""Which addresses may be asked: every special range, in every disguise."""

from __future__ import annotations

import pytest

from serving.storage.addresses import Target, allowed_after, check_addresses, is_global, parse, shown
from serving.storage.errors import StorageError

PRIVATE = (
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254",
    "172.16.0.1", "192.0.0.192", "192.168.1.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1:2:3:4:5:6",
    "2001:db8::1", "fc00::1", "fe80::1%eth0", "ff02::1", "no address",
)  # fmt: skip
ALLOWED = frozenset({"localhost", "127.0.0.1"})
PUBLIC = ("1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


def target(host: str = "models.internal") -> Target:
    return parse(f"http://{host}/m.onnx")


@pytest.mark.bad_input("artifact-addresses")
@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_not_asked(address: str) -> None:
    assert not is_global(address)
    with pytest.raises(StorageError):
        check_addresses(target(), [address], frozenset(), "uri")


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_asked(address: str) -> None:
    assert is_global(address)
    check_addresses(target(), [address], frozenset(), "uri")


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(StorageError):
        check_addresses(target(), ["1.1.1.1", "10.0.0.1"], frozenset(), "uri")


@pytest.mark.parametrize("allowed", ["models.internal", "MODELS.internal.", "10.0.0.1", "::ffff:10.0.0.1"])
def test_a_host_or_address_can_be_allowed(allowed: str) -> None:
    check_addresses(target(), ["10.0.0.1"], frozenset({allowed}), "uri")


def test_another_host_that_only_ends_alike_is_not_allowed() -> None:
    with pytest.raises(StorageError):
        check_addresses(target("evil-models.internal"), ["10.0.0.1"], frozenset({"models.internal"}), "uri")


def test_a_url_is_taken_apart_as_it_is_sent() -> None:
    parsed = parse("http://HOST:8080/a%20b?c=d#e")
    assert (parsed.host, parsed.port, parsed.request_target) == ("host", 8080, "/a%20b?c=d")
    assert parsed.host_header == "host:8080"
    assert parse("https://[::1]/").host_header == "[::1]"


@pytest.mark.parametrize(
    ("peer", "allowed"),
    [("8.8.8.8", frozenset()), ("2606:4700::1111", frozenset()), ("127.0.0.1", ALLOWED), ("10.1.2.3", ALLOWED)],
)
def test_a_public_server_cannot_redirect_to_what_was_allowed_for_direct_use(peer: str, allowed: frozenset[str]) -> None:
    assert allowed_after(peer, ALLOWED) == allowed


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("https://user:secret@host:8080/m.onnx?sig=secret#secret", "https://host:8080/m.onnx?…"),
        ("https://host?sig=secret/x", "https://host?…"),
        ("https://user:se/cret@host/m.onnx", "https://host/m.onnx"),
        ("https:/user:secret@host/m.onnx?sig=secret", "host/m.onnx?…"),
        ("https://[::1]:8080/a@b.onnx", "https://[::1]:8080/a@b.onnx"),
        ("oci://host/team/m@sha256:00", "oci://host/team/m@sha256:00"),
        ("models/m.onnx", "models/m.onnx"),
    ],
)
def test_no_secret_of_a_uri_is_shown(uri: str, text: str) -> None:
    assert shown(uri) == text
