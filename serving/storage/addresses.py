"""Which addresses a download may connect to: pure policy against server-side request forgery.

A URL is split strictly (`parse`), its host is resolved by the caller, once, and every address that came out is judged
(`check_addresses`): only globally reachable unicast passes, unless the host name or the address is allowed by name.
The ranges are those of the IANA special-purpose address registries (RFC 6890 and its updates), written out here since
`ipaddress.is_global` differs between patch releases of Python.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from serving.storage.errors import StorageError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

REFUSED_V4: Final = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; some clouds' metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # public by the registry, but in one cloud the host that the machine runs on
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
GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")  # all else (::1, fc00::/7, fe80::/10, ff00::/8 …) is not global
REFUSED_V6: Final = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, with Teredo, which wraps IPv4 addresses
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: wraps IPv4 addresses
        "3fff::/20",  # documentation
    )
)
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # the last 32 bits are the IPv4 address that is meant


class Target(msgspec.Struct, frozen=True):
    """A URL that may be asked for, once its addresses are checked: `host` in lower case, without brackets."""

    scheme: str
    host: str
    port: int
    request_target: str  # path and query as sent in the request line

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a credential may be sent to (RFC 6454)."""
        return (self.scheme, self.host, self.port)

    @property
    def host_header(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Target:
    """Split a http(s) URL. Raises StorageError for user names in it, a bad port, and signs that parsers disagree on."""
    parts = _split(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise StorageError(f"{shown(url)}: the scheme must be http or https")
    if "@" in parts.netloc:
        raise StorageError(f"{shown(url)}: a user name in the address is refused: remove what is before the @")
    try:
        host, port = parts.hostname, parts.port
        encoded = _encoded(host or "")
    except ValueError as error:
        raise StorageError(f"{shown(url)}: host or port cannot be understood: write http://HOST:PORT/PATH") from error
    if not encoded or port == 0:
        raise StorageError(f"{shown(url)}: has no host or a bad port: write http://HOST:PORT/PATH")
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return Target(parts.scheme, encoded, port or DEFAULT_PORTS[parts.scheme], target)


def allowed_after(peer: str, allow_hosts: frozenset[str]) -> frozenset[str]:
    """Which hosts stay allowed for a redirect from the address `peer`: none from a public one.

    Otherwise any server on the internet could send us on to what the administrator allowed for direct use.
    """
    return frozenset() if is_global(peer) else allow_hosts


def check_addresses(target: Target, addresses: Iterable[str], allow_hosts: frozenset[str], uri: str) -> None:
    """Refuse the target when one of the addresses that its host has is not for us. Raises StorageError.

    All must pass, so that it does not matter which one is connected to.
    """
    allowed = frozenset(_normal(host) for host in allow_hosts)
    if _normal(target.host) in allowed:
        return
    for address in addresses:
        if not is_global(address) and _normal(address) not in allowed:
            raise StorageError(
                f"{uri}: host {target.host!r} has the address {address}, which is private or reserved; "
                "if it is meant, the administrator can allow the host"
            )


def is_global(address: str) -> bool:
    """Whether an IP address (in its usual notation) is globally reachable unicast; False for what is no address."""
    try:
        ip = _meant(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return not any(ip in network for network in REFUSED_V4)
    return ip in GLOBAL_V6 and not any(ip in network for network in REFUSED_V6)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, without asking anybody."""
    try:
        return _meant(ipaddress.ip_address(host)).is_loopback
    except ValueError:
        return host == "localhost"


def shown(uri: str) -> str:
    """The URI as messages may show it: without password and query (they can carry tokens), on one line."""
    whole, query, _ = uri.partition("#")[0].partition("?")
    head, at, tail = whole.partition("://")
    if at:
        authority, slash, path = tail.partition("/")
        _, colon, port = authority.rpartition("@")[2].rpartition(":")
        broken = bool(colon) and not port.isdigit() and not port.endswith("]")  # a password with a slash in it
        tail = tail.rpartition("@")[2] if broken else f"{authority.rpartition('@')[2]}{slash}{path}"
    else:
        head = head.rpartition("@")[2]
    text = f"{head}{at}{tail}" + ("?…" if query else "")
    return "".join(sign if sign.isprintable() else "�" for sign in text)[:500]


def _split(url: str) -> SplitResult:
    # urlsplit strips such signs silently, and other parsers read a backslash as a slash: what was checked and what is
    # asked for could differ.
    if "\\" in url or any(sign.isspace() or not sign.isprintable() for sign in url):
        raise StorageError(f"{shown(url)}: has a space, control sign or backslash: percent-encode it")
    if not url.isascii():
        raise StorageError(f"{shown(url)}: has signs beyond ASCII: percent-encode them, and write the host in Punycode")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise StorageError(f"{shown(url)}: is no URL ({error})") from error


def _encoded(host: str) -> str:
    if any(sign in host for sign in "%,;*") or len(host) > 253:
        raise ValueError(host)
    return host.lower()


def _meant(ip: _Address) -> _Address:
    """The IPv4 address that an IPv6 address stands for, else the address itself."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped:
            return ip.ipv4_mapped
        if ip in NAT64:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip


def _normal(host: str) -> str:
    """One notation for comparing: addresses as `ipaddress` writes them, names in lower case without the last dot."""
    bare = host.strip().lower().removeprefix("[").removesuffix("]")
    try:
        return str(_meant(ipaddress.ip_address(bare)))
    except ValueError:
        return bare.removesuffix(".")
