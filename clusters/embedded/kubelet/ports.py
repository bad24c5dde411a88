"""Allocate real ports for the Pods of a node, which share one address."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from clusters.embedded.kubelet.process.errors import PortsExhausted, RunContainerError
from clusters.net.sockets import PortGuard

FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_767  # the ephemeral ports of Linux are above, so outgoing connections do not use these


class PortAllocator:
    """Allocate free ports in a circle, so that a released port is reused as late as possible.

    An allocated port is guarded until its release: other users of the machine cannot listen on it, even while the Pod's
    process does not run.
    """

    def __init__(self, host: str, *, first: int = FIRST_PORT, last: int = LAST_PORT, start: int | None = None) -> None:
        self._host = host
        self._first = first
        self._count = last - first + 1
        # A random start keeps platforms on one machine apart and avoids the ports of an earlier run.
        self._cursor = random.randrange(self._count) if start is None else start - first  # noqa: S311 - not a secret
        self._taken: dict[int, PortGuard | None] = {}

    def reserve(self, ports: Iterable[int]) -> None:
        """Exclude the ports of Pods that an earlier kubelet started from allocation. They are not guarded yet."""
        for port in ports:
            self._taken.setdefault(port, None)

    def join(self, ports: Iterable[int]) -> None:
        """Guard ports on which an adopted process listens."""
        for port in ports:
            if self._taken.get(port) is None:
                self._taken[port] = self._guard(port, PortGuard.join)

    def release(self, ports: Iterable[int]) -> None:
        """Release ports."""
        for port in ports:
            guard = self._taken.pop(port, None)
            if guard is not None:
                guard.close()

    def close(self) -> None:
        """Release all ports."""
        self.release(list(self._taken))

    def allocate(self, wanted: Iterable[int], former: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return a guarded real port for each container port of `wanted`, the `former` one if it is free.

        Other ports of `former` are released. Raises PortsExhausted.
        """
        former = former or {}
        chosen: dict[str, int] = {}
        for port in wanted:
            last = former.get(str(port))
            chosen[str(port)] = last if last is not None and self._take(last) else self._next()
        self.release(set(former.values()) - set(chosen.values()))
        return chosen

    @contextlib.contextmanager
    def listening(self, ports: Iterable[int]) -> Iterator[tuple[socket.socket, ...]]:
        """Yield sockets that listen on allocated ports, for a process to inherit. They are closed here afterwards.

        Raises RunContainerError.
        """
        with contextlib.ExitStack() as stack:
            yield tuple(stack.enter_context(self._listen(port)) for port in dict.fromkeys(ports))

    def _listen(self, port: int) -> socket.socket:
        guard = self._taken[port]
        if guard is None:
            raise RunContainerError(f"port {port} of {self._host} is not allocated")
        try:
            return guard.listen()
        except OSError as error:
            raise RunContainerError(f"cannot listen on {self._host}:{port}: {error.strerror}") from error

    def _next(self) -> int:
        for _ in range(self._count):
            port = self._first + self._cursor
            self._cursor = (self._cursor + 1) % self._count
            if port not in self._taken and self._take(port):
                return port
        raise PortsExhausted(
            f"no free port on {self._host} between {self._first} and {self._first + self._count - 1}: "
            "delete models, or stop other programs that use these ports"
        )

    def _take(self, port: int) -> bool:
        """Guard the port unless it is guarded already. Return False when another program uses it."""
        guard = self._taken.get(port) or self._guard(port, PortGuard.take)
        if guard is not None:
            self._taken[port] = guard
        return guard is not None

    def _guard(self, port: int, make: Callable[[str, int], PortGuard]) -> PortGuard | None:
        try:
            return make(self._host, port)
        except OSError:
            return None
