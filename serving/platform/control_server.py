"""The servers of the control API, and the token and kubeconfig of its callers.

STATE/control.sock   for commands. No other user can listen there, so a command cannot send its token to another user.
TLS port             for kubectl, which verifies the certificate with the authority in the kubeconfig.
plain port           for event senders, probes and the dashboard. It accepts no tokens.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from clusters.base.errors import KnodelError
from clusters.base.removal import remove_files
from clusters.net import unix_sockets
from clusters.net.authority import authority
from clusters.net.sockets import PortGuard, guard_localhost
from eventing.webhook.app import EventsApp
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from serving.control_api.server import WithWebhook, listen, make_server
from serving.control_api.tls import ensure_certificate, kubeconfig
from serving.observability.scraping import prometheus_config
from serving.platform.task_group import BackgroundTasks
from serving.types.settings.settings import ControlSettings
from serving.types.settings.state import (
    CONTROL_SOCKET,
    KUBECONFIG_FILE,
    PROMETHEUS_FILE,
    TLS_FOLDER,
    TOKEN_FILE,
    write_private,
)

TOKEN_BYTES = 32
HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Control:
    """The listeners of the control API. Ports are taken at once; requests are answered after `serve`."""

    def __init__(self, state: Path, settings: ControlSettings) -> None:
        """Listen at the ports of `settings`. Raises AddressInUse."""
        self._state = state
        self._settings = settings
        self._sockets: list[socket.socket] = []
        self._guards: list[PortGuard] = []
        self._serving: list[tuple[Any, asyncio.Task[None]]] = []
        try:
            self._listen(settings.port, "--control-port")
            self._listen(settings.tls_port, "--control-tls-port")
        except KnodelError:
            self.close()
            raise

    def _listen(self, port: int, setting: str) -> None:
        host = self._settings.address
        made = listen(host, port, setting)
        self._sockets.append(made)
        guard = guard_localhost(host, made.getsockname()[1], f"choose another port with {setting}")
        self._guards += [] if guard is None else [guard]

    @property
    def address(self) -> str:
        """The address of the plain port, as `host:port`."""
        return _address(self._sockets[0])

    @property
    def tls_address(self) -> str:
        """The address of the TLS port, as `host:port`."""
        return _address(self._sockets[1])

    @property
    def hosts(self) -> frozenset[str]:
        """The names and addresses that callers may use."""
        return HOSTS | {self._settings.address}

    def serve(
        self, api: ControlApi, webhook: EventsApp, dashboard: ASGIApp, loops: BackgroundTasks, now: datetime
    ) -> None:
        """Write a new token and the files of callers that use it, then serve requests.

        They are a kubeconfig and a configuration of Prometheus. Raises OSError if they cannot be written.
        """
        token = secrets.token_urlsafe(TOKEN_BYTES)
        write_private(self._state / TOKEN_FILE, token.encode() + b"\n")
        authority, certificate, key = ensure_certificate(self._state / TLS_FOLDER, now)
        config = kubeconfig(f"https://{self.tls_address}", authority.read_bytes(), token)
        write_private(self._state / KUBECONFIG_FILE, config.encode())
        scraping = prometheus_config(self.tls_address, self._state / TOKEN_FILE, authority)
        write_private(self._state / PROMETHEUS_FILE, scraping.encode())
        app = WithWebhook(api.app(Guard(token, self.hosts)), webhook)
        plain = WithWebhook(api.app(Guard(None, self.hosts)), webhook, dashboard)
        self._sockets.append(unix_sockets.listen(self._state / CONTROL_SOCKET))
        servers = [make_server(plain), make_server(app, (certificate, key)), make_server(app)]
        self._serving = [
            (server, loops.start(server.serve(one))) for server, one in zip(servers, self._sockets, strict=True)
        ]

    def stop_accepting(self) -> None:
        """Accept no new requests."""
        for server, _ in self._serving:
            server.stop()

    async def drained(self) -> None:
        """Wait until the last request is answered."""
        await asyncio.gather(*(task for _, task in self._serving))

    def close(self) -> None:
        """Stop listening."""
        for one in self._sockets:
            one.close()
        for guard in self._guards:
            guard.close()
        remove_files(self._state / CONTROL_SOCKET)


def ensure_key_file(path: Path) -> Path:
    """Create a private file with a random key, unless it exists. Return its path."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode() + b"\n")
    return path


def _address(one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    return authority(host, port)
