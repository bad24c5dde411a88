"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket

RANGE = range(12000, 30000)
"""Below what Linux gives to outgoing connections and to servers that ask for any port (`ip_local_port_range`) and below
Kubernetes' node ports: nobody is given one of these between this look and the start of the server that it is for."""

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on now, and that this process was not given before."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().choice(RANGE)
        if port not in _given and _is_free(port):
            _given.add(port)
            ports.append(port)
    return ports


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
