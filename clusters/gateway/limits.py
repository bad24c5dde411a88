"""The limits of the gateway, each with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WORKERS: Final = 1
"""Worker threads of Envoy. With one, a probe that observes a configuration proves it for every later request. Several
workers would apply it at different times. One serves 20 000 requests/s, more than the model servers of one machine."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Limits. The defaults for bodies (64 MiB) and headers (32 KiB, 100) equal those of the model server."""

    body_bytes: int = 64 * 1024 * 1024
    # by Content-Length; the model server limits bodies without it
    header_kib: int = 32
    header_count: int = 100
    header_seconds: float = 10.0
    # from the first byte of a request to the end of its headers, against slow-loris clients
    body_seconds: float = 1205.0
    # for the whole request to arrive: a body waits while its request is held, so above the longest route timeout
    longest_seconds: float = 1205.0
    # a stream without progress: twice Knative's max-revision-timeout-seconds (600), to hold and to serve, plus slack
    client_idle_seconds: float = 3600.0
    # idle keep-alive connections of clients (Envoy's edge guide)
    backend_idle_seconds: float = 4.0
    # idle connections to backends; uvicorn closes after 5 s, and the side that sends requests must close first
    connect_seconds: float = 1.0
    # backends are on loopback, so only a full backlog takes longer
    streams_per_connection: int = 100
    # concurrent HTTP/2 streams (Envoy's edge guide)
    connections: int = 20_000
    # concurrent client connections of some 10 kB, so at most 200 MB
    buffer_bytes: int = 128 * 1024
    # of each of the three buffers of a stream (read, filters, write) before back-pressure; a held request with a large
    # body takes no more than these (tests/faults/ingress/test_large_bodies.py)
    hosts: tuple[str, ...] = ("*",)
    # allowed names in Host and Origin besides those of models; `*.DOMAIN` is any name below DOMAIN, `*` any name
    restart: str = "`KNODEL_GATEWAY_HOSTS=NAME knodel up --detach`"
    # the command that starts the platform with NAME among `hosts`, for messages
    drain_seconds: int = 5
    # time in which clients are asked to reconnect when the listener is replaced or the gateway stops


DEFAULTS: Final = GatewayLimits()
