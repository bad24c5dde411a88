"""The addresses that the SSRF policy allows: every special range, in every notation."""

from __future__ import annotations

import pytest

from clusters.net.ssrf import LOOPBACK_HOSTS, AddressRefused, allowed_after, check_addresses, check_service, is_global

PRIVATE = (
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254",
    "172.16.0.1", "192.0.0.192", "192.168.1.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1:2:3:4:5:6",
    "2001:db8::1", "fc00::1", "fe80::1%eth0", "ff02::1", "no address",
)  # fmt: skip
HOST = "models.internal"
ALLOWED = frozenset({"localhost", "127.0.0.1"})
PUBLIC = ("1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.mark.bad_input("artifact-addresses")
@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_not_asked(address: str) -> None:
    assert not is_global(address)
    with pytest.raises(AddressRefused):
        check_addresses(HOST, [address], frozenset())


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_asked(address: str) -> None:
    assert is_global(address)
    check_addresses(HOST, [address], frozenset())


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(AddressRefused):
        check_addresses(HOST, ["1.1.1.1", "10.0.0.1"], frozenset())


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("models.internal", "models.internal"),
        ("models.internal", "MODELS.internal."),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::1", "[::1]"),
    ],
)
def test_a_host_or_address_can_be_allowed(host: str, allowed: str) -> None:
    check_addresses(host, ["10.0.0.1"], frozenset({allowed}))


@pytest.mark.parametrize(
    ("name", "address"), [("evil.example", "127.0.0.1"), ("x.localhost", "::1"), (HOST, "10.0.0.1")]
)
def test_an_allowed_address_allows_no_name_that_resolves_to_it(name: str, address: str) -> None:
    with pytest.raises(AddressRefused, match=f"adds '{name}' to the allowed hosts"):
        check_addresses(name, [address], frozenset({*LOOPBACK_HOSTS, "10.0.0.1"}))


def test_another_host_that_only_ends_alike_is_not_allowed() -> None:
    with pytest.raises(AddressRefused):
        check_addresses("evil-models.internal", ["10.0.0.1"], frozenset({"models.internal"}))


@pytest.mark.parametrize(
    ("peer", "allowed"),
    [("8.8.8.8", frozenset()), ("2606:4700::1111", frozenset()), ("127.0.0.1", ALLOWED), ("10.1.2.3", ALLOWED)],
)
def test_a_public_server_cannot_redirect_to_what_was_allowed_for_direct_use(peer: str, allowed: frozenset[str]) -> None:
    assert allowed_after(peer, ALLOWED) == allowed


@pytest.mark.parametrize("address", ["10.0.0.1", "198.18.3.4", "100.64.0.1", "fc00::1", "8.8.8.8"])
def test_an_allowed_service_may_have_any_address_of_the_cluster(address: str) -> None:
    check_service("ranker-serve-svc", [address], frozenset({"ranker-serve-svc"}))


@pytest.mark.bad_input("artifact-addresses")
@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1", "fd00:ec2::254", "0.0.0.0"]
)
def test_an_allowed_service_does_not_lead_to_this_machine_or_to_metadata(address: str) -> None:
    with pytest.raises(AddressRefused, match="this machine"):
        check_service("ranker-serve-svc", ["10.0.0.1", address], frozenset({"ranker-serve-svc"}))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_this_machine_is_allowed_as_it_is_written(host: str) -> None:
    check_service(host, ["127.0.0.1"], LOOPBACK_HOSTS)


def test_a_service_that_is_not_allowed_must_be_public() -> None:
    check_service("ray.example", ["8.8.8.8"], frozenset())
    with pytest.raises(AddressRefused, match="private"):
        check_service("ranker-serve-svc.other.svc", ["10.0.0.1"], frozenset({"ranker-serve-svc"}))
