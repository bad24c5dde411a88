"""Ports for servers of tests."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def neighbouring_ports(count: int) -> list[int]:
    """Ports as of `free_ports`, each one above the last."""
    while True:
        first = free_port()
        ports = range(first, first + count)
        if all(_is_free(port) for port in ports[1:]) and not _given.intersection(ports[1:]):
            _given.update(ports)
            return list(ports)


@contextmanager
def suggested_ports() -> Iterator[None]:
    """Have the ports that `knodel up` suggests for this test alone, among all tests of the user on this machine.

    It suggests the first free ones of a fixed row, so two tests at the same time would be given the same.
    """
    with (Path(tempfile.gettempdir()) / f"knodel-suggested-ports-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
