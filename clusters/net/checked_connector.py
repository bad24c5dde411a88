"""Restrict aiohttp to checked addresses: it resolves a host once, checks the addresses, and connects to one of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from clusters.net.ssrf import AddressRefused, check_addresses

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Return the IP addresses of a host. Raises OSError."""


def checked_connector(allow_hosts: frozenset[str], resolve: Resolve | None = None) -> aiohttp.TCPConnector:
    """Return a connector whose requests raise AddressRefused for hosts that `ssrf.check_addresses` refuses.

    `resolve` replaces the system's resolver.

    Example:
        async with aiohttp.ClientSession(connector=checked_connector(frozenset())) as session: ...
    """
    resolver = _CheckedResolver(allow_hosts, resolve or resolve_by_system)
    return aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, socket_factory=resolver.open_socket)


async def resolve_by_system(host: str) -> Sequence[str]:
    """Return the IP addresses of a host from the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


class _CheckedResolver(AbstractResolver):
    def __init__(self, allow_hosts: frozenset[str], resolve: Resolve) -> None:
        self._allow_hosts = allow_hosts
        self._resolve = resolve
        self._checked: set[str] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = list(dict.fromkeys(await self._resolve(host)))
        check_addresses(host, addresses, self._allow_hosts)
        self._checked.update(addresses)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Return a socket for a checked address. aiohttp does not resolve hosts that are addresses."""
        family, kind, protocol, _, place = info
        address = str(place[0])
        if address not in self._checked:
            check_addresses(address, [address], self._allow_hosts)
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        self._checked.clear()


__all__ = ["AddressRefused", "Resolve", "checked_connector", "resolve_by_system"]
