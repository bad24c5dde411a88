"""Real ports for the Pods of a node that all share one address."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from clusters.embedded.kubelet.process.errors import PortsExhausted, StartFailed
from clusters.net.sockets import PortGuard

FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_767  # the ephemeral range of Linux starts above: no outgoing connection takes a Pod's port


class PortAllocator:
    """Gives out free ports in a circle, so that one given back is the last to be given out again.

    A port that was given out is guarded until it is released: no other user of the machine can listen on it, not even
    while the Pod's process is not running.
    """

    def __init__(self, host: str, *, first: int = FIRST_PORT, last: int = LAST_PORT, start: int | None = None) -> None:
        self._host = host
        self._first = first
        self._count = last - first + 1
        # At random: two platforms of one machine keep apart, and the ports of an earlier run rest for a while.
        self._cursor = random.randrange(self._count) if start is None else start - first  # noqa: S311 - not a secret
        self._taken: dict[int, PortGuard | None] = {}

    def reserve(self, ports: Iterable[int]) -> None:
        """Do not give out the ports of Pods that an earlier kubelet started. They are not guarded yet."""
        for port in ports:
            self._taken.setdefault(port, None)

    def join(self, ports: Iterable[int]) -> None:
        """Guard ports on which a process that this kubelet adopts listens."""
        for port in ports:
            if self._taken.get(port) is None:
                self._taken[port] = self._guard(port, PortGuard.join)

    def release(self, ports: Iterable[int]) -> None:
        """Give ports back."""
        for port in ports:
            guard = self._taken.pop(port, None)
            if guard is not None:
                guard.close()

    def close(self) -> None:
        """Give all ports back."""
        self.release(list(self._taken))

    def allocate(self, wanted: Iterable[int], former: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return a guarded real port for each container port of `wanted`: the `former` one if free, else the next one.

        Raises PortsExhausted.
        """
        former = former or {}
        chosen: dict[str, int] = {}
        for port in wanted:
            before = former.get(str(port))
            chosen[str(port)] = before if before is not None and self._take(before) else self._next()
        self.release(set(former.values()) - set(chosen.values()))
        return chosen

    @contextlib.contextmanager
    def listening(self, ports: Iterable[int]) -> Iterator[tuple[socket.socket, ...]]:
        """Listen on allocated ports, for a process that inherits the sockets; they are closed here afterwards.

        Raises StartFailed.
        """
        with contextlib.ExitStack() as stack:
            yield tuple(stack.enter_context(self._listen(port)) for port in dict.fromkeys(ports))

    def _listen(self, port: int) -> socket.socket:
        guard = self._taken[port]
        if guard is None:
            raise StartFailed(f"port {port} of {self._host} is not allocated")
        try:
            return guard.listen()
        except OSError as error:
            raise StartFailed(f"cannot listen on {self._host}:{port}: {error.strerror}") from error

    def _next(self) -> int:
        for _ in range(self._count):
            port = self._first + self._cursor
            self._cursor = (self._cursor + 1) % self._count
            if port not in self._taken and self._take(port):
                return port
        raise PortsExhausted(
            f"no port is free on {self._host} between {self._first} and {self._first + self._count - 1}: "
            "delete models, or end other programs that use these ports"
        )

    def _take(self, port: int) -> bool:
        """Guard the port unless it is guarded already; False when another program uses it."""
        guard = self._taken.get(port) or self._guard(port, PortGuard.take)
        if guard is not None:
            self._taken[port] = guard
        return guard is not None

    def _guard(self, port: int, by: Callable[[str, int], PortGuard]) -> PortGuard | None:
        try:
            return by(self._host, port)
        except OSError:
            return None
