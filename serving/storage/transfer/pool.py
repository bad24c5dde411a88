"""A pool of open connections to stores."""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import ssl
import threading
import weakref

from serving.storage.transfer.addresses import Target
from serving.storage.transfer.connection import Connection
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits


class ConnectionPool:
    """Keeps connections open for further requests to the same scheme, host and port. Thread-safe.

    A connection serves one request at a time. It stays with the addresses that were checked when it was made, and they
    are checked again for each request, since the allowed hosts of requests differ. Idle connections are bounded by two
    for each file at once: a store often redirects each file to a second host.
    """

    def __init__(self, limits: DownloadLimits, deadline: Deadline) -> None:
        self._limits = limits
        self._deadline = deadline
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False

    def open(self, target: Target, name: str, allowed: frozenset[str]) -> Connection:
        """Return a new connection. Raises Interrupted, StorageError."""
        return Connection(target, name, allowed, self._limits, self._deadline, self._tls, self._track)

    def take(self, target: Target, allowed: frozenset[str]) -> Connection | None:
        """Return an idle connection that the request may use, the most recently used first; None without one."""
        while True:
            with self._lock:
                found = next((one for one in reversed(self._idle) if one.origin == target.origin), None)
                if found is None:
                    return None
                self._idle.remove(found)
            if found.is_usable(allowed):
                return found
            found.close()

    def give_back(self, connection: Connection, response: http.client.HTTPResponse) -> None:
        """Keep the connection if its response is complete or nearly so and the server keeps it open; else close it."""
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
        """Shut down all connections, also those in use: threads that wait for them go on at once."""
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown: it would let a reader in another thread take encrypted bytes for plain ones.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close idle connections, and those in use when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _track(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.add(sock)

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # takes some 20 ms

    def _tls(self) -> ssl.SSLContext:
        return self._context
