"""Policy against server-side request forgery: the addresses that a URL from a user may lead to. Pure.

The caller resolves a host once, passes all its addresses to `check_addresses`, and connects only to one of them. Only
globally reachable unicast addresses pass, unless the host is allowed as written in the URL. The ranges are those of the
IANA special-purpose address registries (RFC 6890 and its updates). They are listed here because `ipaddress.is_global`
differs between patch releases of Python.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

from clusters.base.errors import KnodelError

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts to allow on a machine whose only user configures the platform."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

REFUSED_V4: Final = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; some clouds' metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # public by the registry, but in one cloud the host of the virtual machine
        "169.254.0.0/16",  # link-local: cloud metadata at 169.254.169.254
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; metadata of one cloud at 192.0.0.192
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")  # the rest (::1, fc00::/7, fe80::/10, ff00::/8 …) is not global
REFUSED_V6: Final = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, with Teredo, which wraps IPv4 addresses
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: wraps IPv4 addresses
        "3fff::/20",  # documentation
    )
)
LOCAL: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "::/127", "fd00:ec2::254/128", "fe80::/10", "ff00::/8",
    )
)  # fmt: skip
"""This machine, its link, groups, and the metadata of clouds at other addresses."""
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # the last 32 bits are an IPv4 address


class AddressRefused(KnodelError):
    """A host has an address that the policy refuses to connect to."""


def check_addresses(host: str, addresses: Iterable[str], allow_hosts: frozenset[str]) -> None:
    """Refuse a host when one of its addresses is not public. Raises AddressRefused.

    All addresses must pass, since the caller may connect to any of them. A host in `allow_hosts` may have any address.
    An address in `allow_hosts` allows URLs with that address, but no name that resolves to it, because the owner of a
    name controls its addresses.

    Example:
        check_addresses("models.example", ["10.0.0.1"], frozenset({"models.example"}))  # passes
        check_addresses("models.example", ["10.0.0.1"], frozenset({"10.0.0.1"}))  # raises AddressRefused
    """
    if is_allowed(host, allow_hosts):
        return
    for address in addresses:
        if not is_global(address):
            raise AddressRefused(
                f"host {host!r} has the address {address}, which is private or reserved: "
                f"to allow it, an administrator adds {host!r} to the allowed hosts of the settings"
            )


def check_service(host: str, addresses: Sequence[str], allow_hosts: frozenset[str]) -> None:
    """Refuse a host as `check_addresses` does, and a name that leads to this machine or its link.

    Raises AddressRefused.

    A name in `allow_hosts` may be that of a Service, which its owner can point elsewhere (`type: ExternalName`): to the
    server that checks it, or to a cloud's metadata. Addresses, and `localhost`, are allowed as they are written.
    """
    check_addresses(host, addresses, allow_hosts)
    if is_loopback(host) or _is_address(host):
        return
    for address in addresses:
        if is_local(address):
            raise AddressRefused(f"host {host!r} has the address {address}, which is of this machine or of its link")


def is_local(address: str) -> bool:
    """Return whether an IP address is of this machine, of its link (cloud metadata), or of a group.

    Other private addresses are those of a cluster's Services. True for a text that is not an address.
    """
    try:
        ip = _meant(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return True
    return any(ip in network for network in LOCAL if network.version == ip.version)


def is_allowed(host: str, allow_hosts: frozenset[str]) -> bool:
    """Return whether `allow_hosts` contains this host or address, in any notation."""
    return _normal(host) in {_normal(allowed) for allowed in allow_hosts}


def allowed_after(peer: str, allow_hosts: frozenset[str]) -> frozenset[str]:
    """Return the hosts that remain allowed after a redirect by the address `peer`: none if it is public.

    Otherwise any server on the internet could redirect to hosts that the administrator allowed for direct use.
    """
    return frozenset() if is_global(peer) else allow_hosts


def is_global(address: str) -> bool:
    """Return whether an IP address is globally reachable unicast; False for a text that is not an address."""
    try:
        ip = _meant(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in REFUSED_V4)
    return ip in GLOBAL_V6 and not any(ip in network for network in REFUSED_V6)


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address, without resolving it."""
    try:
        return _meant(ipaddress.ip_address(host)).is_loopback
    except ValueError:
        return host == "localhost"


def _meant(ip: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address embeds, else the address itself."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped:
            return ip.ipv4_mapped
        if ip in NAT64:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _normal(host: str) -> str:
    """Return a canonical notation: addresses as `ipaddress` writes them, names in lower case, no trailing dot."""
    bare = host.strip().lower().removeprefix("[").removesuffix("]")
    try:
        return str(_meant(ipaddress.ip_address(bare)))
    except ValueError:
        return bare.removesuffix(".")
