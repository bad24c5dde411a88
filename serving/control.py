"""Where a platform's control API listens: two sockets, the servers on them, and the files that let callers in."""

from __future__ import annotations

import asyncio
import secrets
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

from clusters.errors import KnodelError
from eventing.app import EventsApp
from serving.api.app import ControlApi
from serving.api.guard import Guard
from serving.api.server import listen, make_server
from serving.api.tls import ensure_certificate, kubeconfig
from serving.api.webhook import WithWebhook
from serving.apis.settings import ControlSettings
from serving.apis.state import KUBECONFIG_FILE, TLS_FOLDER, TOKEN_FILE, write_private
from serving.loops import Loops

HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Control:
    """The control API over plain HTTP and over TLS. Made, it listens; nobody answers before `serve`."""

    def __init__(self, state: Path, settings: ControlSettings) -> None:
        """Raises PortInUse."""
        self._state = state
        self._settings = settings
        self._sockets = [listen(settings.address, settings.port, "--control-port")]
        self._serving: list[tuple[Any, asyncio.Task[None]]] = []
        try:
            self._sockets.append(listen(settings.address, settings.tls_port, "KNODEL_CONTROL_TLS_PORT"))
        except KnodelError:
            self.close()
            raise

    @property
    def address(self) -> str:
        """`host:port`."""
        return _address(self._sockets[0])

    @property
    def tls_address(self) -> str:
        """`host:port`."""
        return _address(self._sockets[1])

    def serve(self, api: ControlApi, webhook: EventsApp, loops: Loops, now: datetime) -> None:
        """Answer from now on."""
        token = made_once(self._state / TOKEN_FILE).read_text().strip()
        authority, certificate, key = ensure_certificate(self._state / TLS_FOLDER, now)
        config = kubeconfig(f"https://{self.tls_address}", authority.read_bytes(), token)
        write_private(self._state / KUBECONFIG_FILE, config.encode())
        app = WithWebhook(api.app(Guard(token, HOSTS | {self._settings.address})), webhook)
        servers = [make_server(app), make_server(app, (certificate, key))]
        self._serving = [
            (server, loops.start(server.serve(sockets=[one])))
            for server, one in zip(servers, self._sockets, strict=True)
        ]

    def take_no_more(self) -> None:
        """No new requests."""
        for server, _ in self._serving:
            server.should_exit = True

    async def ended(self) -> None:
        """Return once the last request has its answer."""
        await asyncio.gather(*(task for _, task in self._serving))

    def close(self) -> None:
        """Listen no more."""
        for one in self._sockets:
            one.close()


def made_once(path: Path) -> Path:
    """A file with random text that only its owner reads, made when it is not there."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode() + b"\n")
    return path


def _address(one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
