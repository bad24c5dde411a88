"""Model files for a cluster that cannot see this machine's folders: an HTTP server that Pods reach."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.support import models


class ArtifactServer:
    """Serves a folder of `tests.support.models` at an address of this machine that the cluster's Pods can route to."""

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self._folder = folder
        self._server = ThreadingHTTPServer((address, 0), partial(_Quiet, directory=str(folder)))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def uri(self, name: str) -> str:
        """Write the model `name` (a key of `models.MODELS`) unless it is there; its `http://` URI."""
        path = models.path_of(self._folder, name)
        if not path.exists():
            models.write(self._folder, name)
        return f"http://{self.address}:{self._server.server_address[1]}/{path.name}"

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads a line for each download."""


@contextmanager
def artifact_server(folder: Path, api_server: str) -> Iterator[ArtifactServer]:
    """A server at the address by which this machine reaches the API server (a URL): Pods reach it too."""
    server = ArtifactServer(folder, own_address(api_server))
    try:
        yield server
    finally:
        server.close()


def own_address(url: str) -> str:
    """The source address of a connection to `url`; nothing is sent."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 443))
        return str(probe.getsockname()[0])
