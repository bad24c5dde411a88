"""The group of a replica with workers: the leader, which answers requests, and the workers, which compute with it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from serving.engines.base.errors import LoadFailed

GROUP_VARIABLE: Final = "KNODEL_GROUP"
"""Environment variable with the folder of the token, in leaders and workers."""
TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name
LEADER_VARIABLE: Final = "KNODEL_LEADER"
"""Environment variable of a worker: the address of its leader's Pod (`10.0.3.7`)."""
RANK_VARIABLE: Final = "KNODEL_RANK"
"""Environment variable of a worker: its number, from 1. The leader has rank 0 and no variable."""
ONE_MACHINE_VARIABLE: Final = "KNODEL_ONE_MACHINE"
"""Environment variable of a leader whose workers are no Pods: it has their CPUs itself."""

CONNECT_TIMEOUT: Final = 2.0  # s


class GroupOptions(NamedTuple):
    """The group of this process.

    workers       number of workers; 0: the replica is this process alone
    worker_cpu    cores of each worker
    tolerates     whether the replica serves on when a worker is lost
    rank          0 in the leader, from 1 in workers
    leader        address of the leader
    token         secret that leader and workers share
    one_machine   whether the workers are no Pods
    """

    workers: int = 0
    worker_cpu: float = 0.0
    tolerates: bool = False
    rank: int = 0
    leader: str = ""
    token: str = ""
    one_machine: bool = False

    @property
    def nodes(self) -> int:
        """The number of Pods of the replica."""
        return 1 if self.one_machine else self.workers + 1

    @property
    def local_cpus(self) -> float:
        """Cores of workers that this process has beside its own."""
        return self.workers * self.worker_cpu if self.one_machine else 0.0


NO_GROUP: Final = GroupOptions()


class WorkerProcess(Protocol):
    """The process by which a worker computes with its leader."""

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        ...

    def exit_reason(self) -> str:
        """Return how the process ended, with the last lines that it wrote."""
        ...

    def close(self) -> None:
        """End the process and its children."""
        ...


def read_group(workers: int, worker_cpu: float, tolerates: bool, environ: Mapping[str, str]) -> GroupOptions:
    """Return the group of this process from its options and environment. Raises LoadFailed."""
    if not workers:
        return NO_GROUP
    if environ.get(ONE_MACHINE_VARIABLE):
        return GroupOptions(workers, worker_cpu, tolerates, one_machine=True)
    rank = environ.get(RANK_VARIABLE, "0")
    if not (rank.isascii() and rank.isdigit() and int(rank) <= workers):
        raise LoadFailed(f"{RANK_VARIABLE}={rank[:40]!r} must be a whole number from 0 to {workers}")
    leader = environ.get(LEADER_VARIABLE) or own_address()
    return GroupOptions(workers, worker_cpu, tolerates, int(rank), leader, _token(environ))


def own_address() -> str:
    """Return the address of this Pod, which its name has in every Pod's /etc/hosts. Raises LoadFailed."""
    try:
        return str(socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise LoadFailed(f"the name {socket.gethostname()} of this Pod has no address: {error.strerror}") from error


def listens(address: str, port: int) -> bool:
    """Return whether a server accepts connections there."""
    try:
        socket.create_connection((address, port), CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


def address_towards(leader: str) -> str:
    """Return the address of this Pod by which it reaches its leader. Raises LoadFailed."""
    family = socket.AF_INET6 if ":" in leader else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as unconnected:
        try:
            unconnected.connect((leader, 1))  # chooses a route, and sends nothing
            return str(unconnected.getsockname()[0])
        except OSError as error:
            raise LoadFailed(f"the leader {leader} is not reachable: {error.strerror}") from error


def _token(environ: Mapping[str, str]) -> str:
    folder = environ.get(GROUP_VARIABLE)
    if not folder:
        raise LoadFailed(f"--workers needs a platform, which sets {GROUP_VARIABLE}: omit it on your own server")
    try:
        token = (Path(folder) / TOKEN_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadFailed(f"{folder}/{TOKEN_FILE}, the token of the group, is not readable: {error}") from error
    if not token:
        raise LoadFailed(f"{folder}/{TOKEN_FILE}, the token of the group, is empty")
    return token
