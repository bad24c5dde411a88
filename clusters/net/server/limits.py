"""Limits of one HTTP connection, and of all connections of a server together."""

from __future__ import annotations

import msgspec

from clusters.net.hosts import KnownHosts


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits of HTTP connections, in bytes and seconds."""

    body: int = 64 << 20  # of one request; an OCR page as JSON has 13 MB
    unread_responses: int = 256 << 20  # of responses that clients have not read; above it, POST is refused
    head: int = 32 * 1024
    headers: int = 100
    head_time: float = 10.0  # to the end of the head, from its first byte (of a new connection: from its start)
    body_check: float = 5.0  # between checks of a body's progress: one byte by the first check, and from then on …
    body_rate: int = 16 * 1024  # … this many bytes per second; bytes received early make up for at most two checks
    body_time: float = 300.0  # for a whole body, at any rate: the default timeout of a request
    response_check: float = 10.0  # between checks that the client reads a response at `body_rate` or faster
    end: float = 10.0  # for clients to read their responses on shutdown; Kubernetes allows 30 for the whole shutdown
    linger: float = 2.0  # for a refused client to go on sending, so that it receives the response and not a reset
    hosts: KnownHosts | None = None  # names that Host and Origin may have; None allows all
    keep_alive: float = 75.0  # of an idle connection; longer than in gateways, so that they close first
