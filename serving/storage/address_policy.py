"""Which hosts may be asked for artifacts: the guard against requests forged through a storageUri (SSRF). Pure.

A host is resolved first, then its addresses are checked, then the connection goes to a checked address: a name cannot
change its mind in between. Only public addresses are allowed, unless the host, its address or a network that holds the
address is listed (KNODEL_ALLOW_HOSTS, separated by commas: `models.internal, 10.1.0.0/16, 127.0.0.1`).
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from clusters.errors import KnodelError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_IPV4_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """What is allowed besides public addresses."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AddressPolicy:
        """From a list of names, addresses and networks (CIDR). Raises KnodelError."""
        hosts, networks = set(), []
        for entry in filter(None, (word.strip().lower() for word in text.split(","))):
            try:
                networks.append(ip_network(entry, strict=False))
            except ValueError:
                if "/" in entry or ":" in entry or " " in entry:
                    raise KnodelError(
                        f"KNODEL_ALLOW_HOSTS: {entry!r} is no host name, address or network: list them with commas, "
                        "without schemes and ports"
                    ) from None
                hosts.add(entry.rstrip("."))
        return cls(frozenset(hosts), tuple(networks))

    def permits(self, host: str, address: str) -> bool:
        """Whether `host`, which resolved to `address`, may be connected to there."""
        found = unwrapped(ip_address(address.partition("%")[0]))
        return host.lower() in self.hosts or _is_public(found) or any(found in network for network in self.networks)


def unwrapped(address: Address) -> Address:
    """The IPv4 address inside of an IPv6 one that only carries it (mapped, 6to4, Teredo, NAT64), else the address."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    return IPv4Address(int(address) & _IPV4_MASK) if address in NAT64 else address


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast
