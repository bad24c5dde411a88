"""Host names under which a server without authentication may be addressed. Pure.

A web page of somebody else can reach a server on loopback in two ways. By a name that resolves to 127.0.0.1 (DNS
rebinding): then the Host header has that name. By a request to another site: then the browser sends an Origin header.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]", "*.localhost")
ANY: Final = "*"
_SHOWN: Final = 100  # characters of a caller's own words that a message repeats


class KnownHosts(msgspec.Struct, frozen=True):
    """Names in lower case, addresses as URLs write them; `*.DOMAIN` stands for every name below DOMAIN.

    Example:
        KnownHosts(frozenset({"localhost"})).refusal("evil.example:80", None)  # "Host 'evil.example' …"
    """

    names: frozenset[str]

    def knows(self, host: str) -> bool:
        """Return whether the value of a Host header names this server; a port is ignored."""
        return _knows(self.names, host)

    def knows_origin(self, origin: str) -> bool:
        """Return whether a page of this origin may call this server; `null` may not."""
        return _knows(self.names, origin.partition("://")[2])

    def refusal(self, host: str | None, origin: str | None) -> str | None:
        """Return why a request with these headers is refused, None when it is not."""
        if host is not None and not self.knows(host):
            name = _shown(host_name(host))
            return f"Host {name} is not a name of this server: start it with --allowed-host {name} to allow it"
        if origin is not None and not self.knows_origin(origin):
            name = _shown(host_name(origin.partition("://")[2]) or ANY)
            return f"Origin {_shown(origin)} may not call this server: start it with --allowed-host {name} to allow it"
        return None


def host_name(host: str) -> str:
    """Return `HOST[:PORT]` without the port, in lower case and without a last dot; `[::1]:80` gives `[::1]`."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower().removesuffix(".")


@lru_cache(256)
def _knows(names: frozenset[str], host: str) -> bool:
    name = host_name(host)
    domain = name.partition(".")[2]
    while domain:
        if f"*.{domain}" in names:
            return True
        domain = domain.partition(".")[2]
    return bool(name) and name in names


def _shown(text: str) -> str:
    return "".join(sign if sign.isprintable() and not sign.isspace() else "?" for sign in text[:_SHOWN])
