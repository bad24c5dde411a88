"""Real ports for the Pods of a node that all share one address."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterable, Mapping
from typing import Final

from clusters.embedded.kubelet.errors import PortsExhausted

FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_767  # the ephemeral range of Linux starts above: no outgoing connection takes a Pod's port


class PortAllocator:
    """Hands out free ports in a circle, so that one given back is the last to be given out again."""

    def __init__(self, host: str, *, first: int = FIRST_PORT, last: int = LAST_PORT, start: int | None = None) -> None:
        self._host = host
        self._first = first
        self._count = last - first + 1
        # At random: two platforms of one machine keep apart, and the ports of an earlier run rest for a while.
        self._cursor = random.randrange(self._count) if start is None else start - first  # noqa: S311 - not a secret
        self._taken: set[int] = set()

    def reserve(self, ports: Iterable[int]) -> None:
        """Take ports that Pods already have."""
        self._taken.update(ports)

    def release(self, ports: Iterable[int]) -> None:
        """Give ports back."""
        self._taken.difference_update(ports)

    def allocate(self, wanted: Iterable[int], former: Mapping[str, int] | None = None) -> dict[str, int]:
        """A real port for each container port of `wanted`: the `former` one when it is still free, else the next.

        Raises PortsExhausted.
        """
        chosen: dict[str, int] = {}
        for port in wanted:
            before = (former or {}).get(str(port))
            chosen[str(port)] = before if before is not None and is_free(self._host, before) else self._next()
        self.release((former or {}).values())
        self.reserve(chosen.values())
        return chosen

    def _next(self) -> int:
        for _ in range(self._count):
            port = self._first + self._cursor
            self._cursor = (self._cursor + 1) % self._count
            if port not in self._taken and is_free(self._host, port):
                self._taken.add(port)
                return port
        raise PortsExhausted(
            f"no port is free on {self._host} between {self._first} and {self._first + self._count - 1}: "
            "delete models, or end other programs that listen there"
        )


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: connections in TIME_WAIT are no bar
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
