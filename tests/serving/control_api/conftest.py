"""The control API served over a real embedded cluster on loopback ports, plain and over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.base.objects import KINDS, Object
from clusters.embedded.cluster import EmbeddedCluster
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from serving.control_api.server import listen, make_server
from serving.control_api.tls import ensure_certificate, kubeconfig
from serving.platform.platform import WRITABLE

TOKEN = "t0ken"


class NoLogs:
    """No Pod runs here."""

    async def follow(self, pod: Object, *, tail: int | None, follow: bool, previous: bool) -> AsyncIterator[bytes]:
        """Three lines."""
        for number in range(3 if tail is None else tail):
            yield f"line {number}\n".encode()

    def has_previous(self, pod: Object) -> bool:
        """No container was restarted."""
        return False


@dataclass(frozen=True)
class Served:
    """Where the API is."""

    port: int
    tls_port: int
    kubeconfig: Path


@pytest.fixture
async def served(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[Served]:
    """A running control API."""
    clock = SystemClock()
    api = ControlApi(
        cluster, kinds=KINDS, writable=WRITABLE, logs=NoLogs(), clock=clock, version="0",
        ready=lambda: True,
    )  # fmt: skip
    app = api.app(Guard(TOKEN, frozenset({"127.0.0.1", "localhost"})))
    authority, certificate, key = ensure_certificate(tmp_path / "tls", clock.now())
    plain, secure = listen("127.0.0.1", 0, "--control-port"), listen("127.0.0.1", 0, "--control-tls-port")
    tls_port = secure.getsockname()[1]
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig(f"https://127.0.0.1:{tls_port}", authority.read_bytes(), TOKEN))
    servers = [(make_server(app), plain), (make_server(app, (certificate, key)), secure)]
    tasks = [asyncio.create_task(server.serve(sock)) for server, sock in servers]
    yield Served(plain.getsockname()[1], tls_port, config)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
