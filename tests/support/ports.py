"""Ports for servers of tests."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
