"""Check token, Host and Origin of every request to the control API before anything else.

The rules answer known attacks on local control APIs: DNS rebinding (Host), web pages that post to localhost (Origin),
and APIs without a token (ShadowRay, CVE-2023-48022). They are pure, so each has a test.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from clusters.net.hosts import KnownHosts, host_name

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez"})
"""Paths of probes, which need no token: they show only that the process is alive."""

NO_TOKENS = (
    "this address serves events and probes only; the control API is served over TLS, at the address in the "
    "kubeconfig of the state folder"
)
"""Refusal of connections without TLS. Callers must not send tokens there, since another process could listen."""

DECISIVE = frozenset({"host", "origin", "authorization"})
"""Headers by which the guard decides."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: HTTP status code, Kubernetes reason, message."""

    code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard with a bearer token and the permitted host names (lower case, without port).

    With `token` None, every request is refused, because tokens must not be sent over this connection. Raises ValueError
    for an empty token.
    """

    token: str | None
    hosts: Collection[str]

    def __post_init__(self) -> None:
        if self.token is not None and not self.token.strip():
            raise ValueError("the bearer token of the control API is empty")

    def refuse(self, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return the refusal of a request, or None. `headers` has lower-case names."""
        known = KnownHosts(frozenset(self.hosts))
        host = host_name(headers.get("host", ""))
        if not known.knows(host):
            return Refusal(403, "Forbidden", f"Host {host!r} is not an address of this API: use {min(self.hosts)}")
        origin = headers.get("origin")
        if origin is not None and not known.knows_origin(origin):
            return Refusal(403, "Forbidden", f"Origin {origin!r} may not use this API: web pages are refused")
        if path in OPEN_PATHS:
            return None
        return self._check_token(headers.get("authorization", ""))

    def _check_token(self, authorization: str) -> Refusal | None:
        if self.token is None:
            return Refusal(403, "Forbidden", NO_TOKENS)
        scheme, _, token = authorization.partition(" ")
        known = scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.token.encode())
        if known:
            return None
        return Refusal(401, "Unauthorized", "a bearer token is required: it is in the file `token` of the state folder")


def refuse_repeated(headers: Iterable[tuple[str, str]]) -> Refusal | None:
    """Refuse duplicates of headers by which the guard decides: another party could use the other value."""
    names = [name for name, _ in headers if name in DECISIVE]
    if len(names) == len(set(names)):
        return None
    return Refusal(400, "BadRequest", f"each of the headers {', '.join(sorted(DECISIVE))} may be sent once")
