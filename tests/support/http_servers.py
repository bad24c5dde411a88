"""A small HTTP server in a thread, for a test."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def served_by(handler: type[BaseHTTPRequestHandler], address: str, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Its base address, on a free port; it ends with the block."""
    server = ThreadingHTTPServer((address, 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
