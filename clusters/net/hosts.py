"""The allowed values of Host and Origin for a server without authentication. Pure.

A foreign web page can reach a server on loopback in two ways. With DNS rebinding, its name resolves to 127.0.0.1, and
the Host header contains that name. With a cross-site request, the browser sends an Origin header.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import Final, NamedTuple

from clusters.base.redact import printable

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]", "*.localhost")
ANY: Final = "*"
_PATTERN: Final = re.compile(r"\*|(\*\.)?[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*|\[[0-9a-fA-F:.]+\]")
PATTERN_FORM: Final = "write NAME, *.DOMAIN or *, without scheme, port and path"
"""The remedy for a text that `is_host_pattern` refuses."""
_SHOWN: Final = 100  # characters of a header value in a message


class KnownHosts(NamedTuple):
    """Names in lower case and addresses in the form of URLs; `*.DOMAIN` matches every name below DOMAIN.

    `remedy` ends a message of refusal: how to allow a name, which replaces `{}`.

    Example:
        KnownHosts(frozenset({"localhost"})).refusal("evil.example:80", None)  # "Host 'evil.example' …"
    """

    names: frozenset[str]
    remedy: str = "start it with --allowed-host {} to allow it"

    def knows(self, host: str) -> bool:
        """Return whether the value of a Host header is a name of this server; a port is ignored."""
        return _knows(self.names, host)

    def knows_origin(self, origin: str) -> bool:
        """Return whether a page of this origin may call this server. The origin `null` may not."""
        return _knows(self.names, origin.partition("://")[2])

    def refusal(self, host: str | None, origin: str | None) -> str | None:
        """Return why a request with these headers is refused, None when it is not."""
        if host is not None and not self.knows(host):
            name = host_name(host)
            return f"Host {_shown(name)} is not a name of this server: {self._remedy(name)}"
        if origin is not None and not self.knows_origin(origin):
            name = host_name(origin.partition("://")[2])
            return f"Origin {_shown(origin)} may not call this server: {self._remedy(name)}"
        return None

    def _remedy(self, name: str) -> str:
        """Return the remedy, quoted for a shell. For a name that is not a valid pattern, it allows all names."""
        allowed = name if is_host_pattern(name) and len(name) <= _SHOWN else ANY
        return self.remedy.format(shlex.quote(allowed))


def is_host_pattern(text: str) -> bool:
    """Return whether the text is a host name or address without a port, `*.DOMAIN` for names below it, or `*`."""
    return _PATTERN.fullmatch(text) is not None


def host_name(host: str) -> str:
    """Return `HOST[:PORT]` without the port, in lower case, without a trailing dot; `[::1]:80` gives `[::1]`."""
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
    return printable(text[:_SHOWN]).replace(" ", "?")
