"""A connection to one API server: HTTP with the login's credentials, and a new login when they are refused."""

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
"""Requests under way at once; others wait. Watches have connections of their own, without a limit."""
KEPT_ALIVE = 75.0
"""s that an idle connection is kept; kube-apiserver keeps it for 90 s and more."""
STREAM_BUFFER = 256 * 1024
"""Bytes of a stream that are read ahead."""
RENEW_EVERY = 10.0
"""s between two new logins: a server that refuses every login is not asked in a tight loop."""


class Connection:
    """HTTP to one API server. Close it, or use it with `async with`."""

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
        """The server's URL."""
        return self._login.server

    @property
    def login(self) -> Login:
        """The present credentials."""
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
        """Ready to be entered: the response. Raises what aiohttp raises; redirects are not followed."""
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
        """Log in anew after `refused` got a 401, or did not trust the server; returns whether there is a new login.

        Raises Unavailable when that fails.
        """
        async with self._renewing:
            if self._login is not refused:
                return True  # another request was first
            if time.monotonic() - self._renewed_at < RENEW_EVERY:
                return False
            self._renewed_at = time.monotonic()
            try:
                self._login = await self._log_in()
            except LoginError as exc:
                raise Unavailable(str(exc)) from exc  # it was there before, and will be again
            return True

    async def close(self) -> None:
        """End all connections."""
        await self._requests.close()
        await self._streams.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect(
    context: str | None = None, kubeconfig: Path | None = None, *, user_agent: str = "knodel"
) -> Connection:
    """A connection by kubeconfig or, in a Pod, by its service account. Raises LoginError; nothing is sent yet."""
    log_in = login_for(context, kubeconfig)
    return Connection(log_in, await log_in(), user_agent)


def _session(headers: Mapping[str, str], limit: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=KEPT_ALIVE),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=STREAM_BUFFER,
    )
