"""The bounds that the gateway holds, one typed value; each constant with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WORKERS: Final = 1
"""Worker threads of Envoy. With one, a probe that saw a configuration proves it for every request after it; with more,
each worker takes it over at its own time. One does 20 000 requests/s, more than the model servers of one machine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Defaults are those of the Open Inference Protocol reading in docs (64 MiB bodies, 32 KiB and 100 headers)."""

    body_bytes: int = 64 * 1024 * 1024
    # by Content-Length; a body without one is counted by the model server
    header_kib: int = 32
    header_count: int = 100
    header_seconds: float = 10.0
    # from the first byte of a request to the end of its headers: a slow-loris head holds a connection no longer
    body_seconds: float = 1205.0
    # for the whole request to arrive: a body waits with its held request, so longer than the longest route
    longest_seconds: float = 1205.0
    # a stream without any progress; twice Knative's max-revision-timeout-seconds (600), held and served, and slack
    client_idle_seconds: float = 3600.0
    # an idle keep-alive connection of a client (Envoy's edge guide)
    backend_idle_seconds: float = 4.0
    # an idle connection to a backend; uvicorn closes after 5 s, and who closes first must be the one that sends next
    connect_seconds: float = 1.0
    # backends are on this machine's loopback; a full backlog shows within this
    streams_per_connection: int = 100
    # concurrent HTTP/2 streams (Envoy's edge guide)
    connections: int = 20_000
    # of clients, at once; a connection costs some 10 kB, so 200 MB at the very most
    buffer_bytes: int = 128 * 1024
    # before back-pressure, of each of the three buffers that a stream passes: as read, within, to be written; a held
    # request with a large body costs these and no more (tests/faults/ingress/test_large_bodies.py)
    hosts: tuple[str, ...] = ("*",)
    # names that Host and Origin may have besides those of models; `*.DOMAIN` any name below DOMAIN, `*` any name
    restart: str = "`KNODEL_GATEWAY_HOSTS=NAME knodel up --detach`"
    # the command that starts the platform with NAME among `hosts`, for messages
    drain_seconds: int = 5
    # a listener that is replaced, or the gateway going down, tells clients to reconnect for this long


DEFAULTS: Final = Limits()
