"""Who may speak to the control API: token, Host and Origin are checked on every method, before anything else happens.

The rules follow the catalogue of attacks on local control APIs (DNS rebinding: the Host; a web page that posts to
localhost: the Origin; ShadowRay, CVE-2023-48022: no token). They are pure, so that each row is a test.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from clusters.net.hosts import KnownHosts, host_name

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/livez"})
"""Probes: they tell nothing but that the process lives."""

NO_TOKENS = (
    "this address takes events and probes; the control API is served over TLS, at the address in the state folder's "
    "kubeconfig"
)
"""Why a connection without TLS is refused: whoever listens there could be anybody, so callers must not send tokens."""

DECISIVE = frozenset({"host", "origin", "authorization"})
"""Headers that decide who may pass."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request may not pass: HTTP status code, Kubernetes reason, message."""

    code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Guard:
    """The bearer token, and the host names under which the API may be addressed (lower case, without port).

    `token` None: nobody may pass, as a token must not travel over this connection. Raises ValueError for a token that a
    caller could guess by sending none.
    """

    token: str | None
    hosts: Collection[str]

    def __post_init__(self) -> None:
        if self.token is not None and not self.token.strip():
            raise ValueError("the bearer token of the control API is empty")

    def refuse(self, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """None when the request may pass; `headers` has lower-case names."""
        known = KnownHosts(frozenset(self.hosts))
        host = host_name(headers.get("host", ""))
        if not known.knows(host):
            return Refusal(403, "Forbidden", f"Host {host!r} is not an address of this API: use {min(self.hosts)}")
        origin = headers.get("origin")
        if origin is not None and not known.knows_origin(origin):
            return Refusal(403, "Forbidden", f"Origin {origin!r} may not use this API: call it without a browser page")
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
        return Refusal(401, "Unauthorized", "a bearer token is needed: the file `token` in the state folder holds it")


def refuse_repeated(headers: Iterable[tuple[str, str]]) -> Refusal | None:
    """Refuse a header twice that the guard decides by: it would look at one, and another party at the other."""
    names = [name for name, _ in headers if name in DECISIVE]
    if len(names) == len(set(names)):
        return None
    return Refusal(400, "BadRequest", f"each of the headers {', '.join(sorted(DECISIVE))} may be sent once")
