"""The base of all HTTP connections: uvicorn's protocol on httptools.

uvicorn does not expose the connection to the application. Here the application gets it from `connection_of(scope)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from clusters.net.server.server import HttpServer

C = TypeVar("C", bound="ServerConnection")

_KEY: Final = "knodel.connection"


class ServerConnection(HttpToolsProtocol):
    """A connection of `server`."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(config=server.config, server_state=server.state, app_state={})
        self._server = server
        self._lost = False
        self._disconnect_callback: Callable[[], object] | None = None

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the client disconnects, or now if it has; None removes the callback."""
        if callback is not None and self._lost:
            callback()
        else:
            self._disconnect_callback = callback

    def connection_lost(self, exc: Exception | None) -> None:
        """Call the callback of `on_disconnect`."""
        self._lost = True
        super().connection_lost(exc)
        self._server.connection_lost()
        callback, self._disconnect_callback = self._disconnect_callback, None
        if callback is not None:
            callback()

    def on_message_begin(self) -> None:
        """Start a head."""
        self._server.update_date()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the request, and drop the headers, to which the parser would add trailers."""
        self.scope[_KEY] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        self.headers = []

    def forget_scope(self) -> None:
        """Break the cycle between scope and connection, which keeps bodies until the next garbage collection."""
        if self.scope is not None:
            self.scope.pop(_KEY, None)  # type: ignore[typeddict-item]


def connection_of(scope: Mapping[str, Any], kind: type[C]) -> C:
    """Return the connection of this request. Raises TypeError if it is not a `kind`."""
    connection = scope.get(_KEY)
    if not isinstance(connection, kind):
        raise TypeError(f"the connection of the request is not a {kind.__name__}")
    return connection
