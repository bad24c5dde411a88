"""The transport of `knodel.Client`, on httpx2: pooled connections that threads share."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpcore2
import httpx2

from clusters.net import unix_sockets
from knodel.transport.common import (
    BodyParts,
    Deadline,
    LineParts,
    LineStream,
    answer_of,
    arguments_of,
    opened,
    pool_options,
    translated,
)
from serving.client.effects import OK_BELOW, HttpAnswer, HttpRequest
from serving.client.http import ServerAddress


class HttpxTransport:
    """Performs the requests of operations; `http_client` sends inference requests if it is given.

    A process that was forked from this one gets connections of its own.
    """

    def __init__(self, http_client: Any = None) -> None:
        self._given = http_client
        self._deadline = Deadline()
        self._start()

    def _start(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._clients: dict[tuple[ServerAddress, bool], httpx2.Client] = {}

    def exchange(self, request: HttpRequest) -> HttpAnswer:
        """Perform `Exchange`."""
        client, library = self._client(request)
        with self._until(request.timeout), translated(library, request):
            response = client.send(client.build_request(**arguments_of(request)), stream=True)
            try:
                return answer_of(response, self._body(request, response))
            finally:
                response.close()

    def open(self, request: HttpRequest, silence: float | None) -> HttpAnswer:
        """Perform `OpenStream`."""
        client, library = self._client(request)
        arguments = arguments_of(request)
        left = request.timeout
        arguments["timeout"] = library.Timeout(connect=left, write=left, pool=left, read=silence)
        with translated(library, request):
            with self._until(request.timeout):
                response = client.send(client.build_request(**arguments), stream=True)
            if response.status_code < OK_BELOW:
                lines = LineParts(request.endpoint.where)
                return answer_of(response, stream=LineStream(request, response, response.iter_raw(), lines, library))
            try:
                with self._until(request.timeout):
                    return answer_of(response, self._body(request, response))
            finally:
                response.close()

    def read_line(self, stream: LineStream) -> bytes:
        """Perform `ReadLine`."""
        with translated(stream.library, stream.request):
            while not (line := stream.lines.next(ended=False)):
                part = next(stream.parts, None)
                if part is None:
                    stream.response.close()
                    return stream.lines.next(ended=True)
                stream.lines.add(part)
            return line

    def close(self, stream: LineStream) -> None:
        """Close a stream; a `read_line` in another thread ends."""
        with suppress(Exception):  # it may be closed, or have no socket
            wire = stream.response.extensions["network_stream"].get_extra_info("socket")
            wire.shutdown(socket.SHUT_RDWR)
        with suppress(Exception):
            stream.response.close()

    def close_all(self) -> None:
        """Close all connections of this process; a client that the caller gave stays open."""
        if self._pid != os.getpid():
            return
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _client(self, request: HttpRequest) -> tuple[Any, Any]:
        """Return the HTTP client for a request, and its library."""
        if request.inference and self._given is not None:
            return opened(self._given)
        if self._pid != os.getpid():
            self._start()  # the connections belong to the parent process
        key = request.endpoint, request.inference
        with self._lock:
            found = self._clients.get(key)
            if found is None:
                found = httpx2.Client(transport=_PoolTransport(request, self._deadline), trust_env=False)
                self._clients[key] = found
        return found, httpx2

    @contextmanager
    def _until(self, timeout: float) -> Iterator[None]:
        self._deadline.at = time.monotonic() + timeout
        try:
            yield
        finally:
            self._deadline.at = None

    def _body(self, request: HttpRequest, response: Any) -> bytes:
        body = BodyParts(request)
        for part in _raw(response):
            body.add(part)
            self._deadline.limit(None)
        return body.content()


def _raw(response: Any) -> Iterator[bytes]:
    """Return the parts of a body; a response that a mock transport made is in memory already."""
    return iter([response.content]) if response.is_stream_consumed else response.iter_raw()


class _PoolTransport(httpx2.HTTPTransport):
    """The transport to one server: through its unix socket or proxy, and within the deadline of the thread."""

    def __init__(self, request: HttpRequest, deadline: Deadline) -> None:
        # Not the initializer of the base class: it makes a pool without a `network_backend`.
        endpoint, backend = request.endpoint, _Backend(request.endpoint, deadline)
        shared: dict[str, Any] = {
            "ssl_context": endpoint.tls, "network_backend": backend, **pool_options(request),
        }  # fmt: skip
        proxy = endpoint.proxy
        if proxy is not None:
            self._pool = httpcore2.HTTPProxy(
                proxy_url=f"http://{proxy.host}:{proxy.port}", proxy_headers=list(proxy.headers.items()), **shared
            )
        else:
            uds = str(endpoint.socket) if endpoint.socket is not None else None
            self._pool = httpcore2.ConnectionPool(uds=uds, **shared)


class _Backend(httpcore2.NetworkBackend):
    """Connects within the deadline of the thread; to a unix socket only if its owner listens there."""

    def __init__(self, endpoint: ServerAddress, deadline: Deadline) -> None:
        self._endpoint = endpoint
        self._deadline = deadline
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:  # fmt: skip
        """Connect to a TCP port."""
        limit = self._deadline.limit(timeout)
        return _Stream(self._inner.connect_tcp(host, port, limit, local_address, socket_options), self._deadline)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.NetworkStream:
        """Connect to a unix socket. Raises ConnectError when another user listens there: nothing is sent then."""
        try:
            with unix_sockets.short_address(Path(path)) as address:
                stream = self._inner.connect_unix_socket(address, self._deadline.limit(timeout), socket_options)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        try:
            check_owner(stream.get_extra_info("socket"), self._endpoint)
        except httpcore2.ConnectError:
            stream.close()
            raise
        return _Stream(stream, self._deadline)


class _Stream(httpcore2.NetworkStream):
    """A connection whose operations end at the deadline of the thread."""

    def __init__(self, inner: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read."""
        return self._inner.read(max_bytes, self._deadline.limit(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write."""
        self._inner.write(buffer, self._deadline.limit(timeout))

    def close(self) -> None:
        """Close."""
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        """Start TLS."""
        limit = self._deadline.limit(timeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, limit), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return a fact about the connection."""
        return self._inner.get_extra_info(info)


def check_owner(wire: Any, endpoint: ServerAddress) -> None:
    """Raise ConnectError unless the owner in `endpoint` listens at the other end."""
    uid = unix_sockets.peer_of(wire).uid
    if uid != endpoint.owner:
        raise httpcore2.ConnectError(f"user {uid} listens there, not user {endpoint.owner}")
