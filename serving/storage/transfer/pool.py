"""A pool of open connections to stores."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import weakref

from serving.storage.transfer.connection import Connection
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from serving.storage.transfer.urls import HttpUrl


class StoreConnectionPool:
    """Keeps connections open for further requests to the same scheme, host and port. Thread-safe.

    A connection serves one request at a time. The addresses of its host are checked again for each request, since the
    allowed hosts of requests differ. There are at most two idle connections for each file at once, because a store
    often redirects each file to a second host.
    """

    def __init__(self, limits: TransferLimits, deadline: TransferDeadline) -> None:
        self._limits = limits
        self._deadline = deadline
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self._context: ssl.SSLContext | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    def open(self, url: HttpUrl, name: str, allowed: frozenset[str]) -> Connection:
        """Open a connection. Raises TransferInterrupted, StorageError."""
        own = self._contexts.get(url.host)
        context = self._tls_context if own is None else lambda: own
        return Connection(url, name, allowed, self._limits, self._deadline, context, self._track)

    def trust(self, host: str, context: ssl.SSLContext) -> None:
        """Use these TLS settings for a host, in place of those of the machine."""
        self._contexts[host] = context

    def take(self, url: HttpUrl, allowed: frozenset[str]) -> Connection | None:
        """Return the most recently used idle connection that the request may use, or None."""
        while True:
            with self._lock:
                found = next((one for one in reversed(self._idle) if one.origin == url.origin), None)
                if found is None:
                    return None
                self._idle.remove(found)
            if found.is_usable(allowed):
                return found
            found.close()

    def give_back(self, connection: Connection, response: http.client.HTTPResponse) -> None:
        """Keep the connection if the rest of its response is short and the server leaves it open; else close it."""
        if not connection.finish(response):
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle if self._closed else self._idle[: -2 * self._limits.files_at_once]
            self._idle = self._idle[len(surplus) :]
        for one in surplus:
            one.close()

    def abort(self) -> None:
        """Shut down all connections, also those in use, so that threads that wait for them continue at once."""
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown: it would let a reader in another thread take encrypted bytes for plain ones.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close idle connections now, and those in use when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _track(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.add(sock)

    def _tls_context(self) -> ssl.SSLContext:
        self._context = self._context or ssl.create_default_context()  # about 20 ms
        return self._context
