"""HTTP connections to an API server with the credentials of a login, which is renewed when they are refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
from yarl import URL

from clusters.base.errors import Unavailable
from clusters.kubernetes.login import LogIn, Login, LoginError, login_for

PARALLEL_REQUESTS = 64
"""Concurrent requests; further ones wait. Watches have separate connections without a limit."""
KEPT_ALIVE = 75.0
"""s until an idle connection is closed; kube-apiserver keeps it for at least 90 s."""
STREAM_BUFFER = 256 * 1024
"""Read-ahead buffer of a stream, in bytes."""
RENEW_EVERY = 10.0
"""Minimum s between two logins, so that a server that refuses every login is not called in a tight loop."""


class ApiConnection:
    """HTTP connections to one API server. Call `close`, or use `async with`."""

    def __init__(self, log_in: LogIn, login: Login, user_agent: str) -> None:
        self._log_in = log_in
        self._login = login
        self._renewed_at = float("-inf")
        self._renewing = asyncio.Lock()
        fixed = {"Accept": "application/json, */*", "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._requests = _session(fixed, PARALLEL_REQUESTS)
        self._streams = _session(fixed, 0)

    @property
    def server(self) -> str:
        """Return the URL of the server."""
        return self._login.server

    @property
    def login(self) -> Login:
        """Return the current credentials."""
        return self._login

    async def send(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        stream: bool = False,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Return the response as a context manager. Raises the errors of aiohttp; redirects are not followed."""
        login = self._login
        headers = await login.headers()
        if body is not None:
            headers["Content-Type"] = content_type
        return (self._streams if stream else self._requests).request(
            method,
            URL(login.server + path, encoded=True).update_query(query or {}),
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=login.tls,
            server_hostname=login.tls_server_name,
            proxy=login.proxy,
        )

    async def renew(self, refused: Login) -> bool:
        """Log in again after a 401, or a failed TLS verification, with `refused`. Return whether there is a new login.

        Raises Unavailable when the login fails.
        """
        async with self._renewing:
            if self._login is not refused:
                return True  # another request renewed it first
            if time.monotonic() - self._renewed_at < RENEW_EVERY:
                return False
            self._renewed_at = time.monotonic()
            try:
                self._login = await self._log_in()
            except LoginError as exc:
                raise Unavailable(str(exc)) from exc  # it worked before, so retry later
            return True

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.close()
        await self._streams.close()

    async def __aenter__(self) -> ApiConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect(
    context: str | None = None, kubeconfig: Path | None = None, *, user_agent: str = "knodel"
) -> ApiConnection:
    """Return a connection with the credentials of a kubeconfig or, in a Pod, of its service account.

    It sends no request yet. Raises LoginError.
    """
    log_in = login_for(context, kubeconfig)
    return ApiConnection(log_in, await log_in(), user_agent)


def _session(headers: Mapping[str, str], limit: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=KEPT_ALIVE),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=STREAM_BUFFER,
    )
