"""The state folder of a platform: how its files are called, and the facts by which commands find it.

platform.json   the facts, written when the platform is ready, removed when it ends
lock            held by the platform's process for as long as it runs
control.sock    the control API for the commands of this machine (0600)
token           the bearer token of the control API, a new one at each start (0600)
kubeconfig      for kubectl, with that token (0600)
platform.log    what a detached platform says
cluster.db      every object
artifacts/      fetched model files
kept/           copies of local model files, by content: what versions serve (`serving.storage.kept`)
tls/            authority, certificate and key of the control API's TLS address
gateway/        Envoy's files, and the record by which it is found again
activator/      the activator's files, and the record by which it is found again
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clusters.base.errors import KnodelError
from clusters.base.removal import remove_files

PLATFORM_FILE = "platform.json"
CONTROL_SOCKET = "control.sock"
TOKEN_FILE = "token"  # noqa: S105 - a file's name
POOL_KEY_FILE = "pool-key"
GATEWAY_KEY_FILE = "gateway-key"
KUBECONFIG_FILE = "kubeconfig"
LOG_FILE = "platform.log"
STORE_FILE = "cluster.db"
ARTIFACTS_FOLDER = "artifacts"
KEPT_FOLDER = "kept"
TLS_FOLDER = "tls"
GATEWAY_FOLDER = "gateway"
ACTIVATOR_FOLDER = "activator"
LARGEST_PORT = 65_535
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
LEAST_ROOM = 1 << 20
"""Bytes: with less the store says that it cannot be written, too (clusters.embedded.store.database)."""


class StateError(KnodelError):
    """The state folder does not tell of a platform."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What `platform.json` says; addresses are `host:port`, `pid` and `start_ticks` name the process."""

    pid: int
    start_ticks: int
    version: str
    state: str
    gateway: str
    control: str
    control_tls: str
    domain: str = "localhost"
    prices: dict[str, Any] = field(default_factory=dict)
    """The section of the settings, for who makes bills."""
    kept_limit: int | None = None
    """The most bytes that copies of local model files may have; None: not known."""

    @classmethod
    def read(cls, state: Path) -> Facts | None:
        """The facts, None when there are none; what a later platform says besides is left out.

        Raises StateError for a file that cannot be understood.
        """
        path = state / PLATFORM_FILE
        try:
            found = json.loads(path.read_text())
            facts = cls(**{name: found[name] for name in cls.__slots__ if name in found})
            for address in (facts.gateway, facts.control, facts.control_tls):
                split_address(address)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{path} cannot be read ({error.strerror}): is {state} your state folder?") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise StateError(f"{path} cannot be read ({error}): `knodel up` writes it anew") from error
        return facts

    def write(self) -> None:
        """Write the file, whole or not at all."""
        path = Path(self.state) / PLATFORM_FILE
        write_private(path, json.dumps(asdict(self), indent=2).encode() + b"\n")


def forget(state: Path) -> list[Path]:
    """Remove the facts, since no platform is ready here. Return the file when a read-only disk keeps it.

    A file that stays is harmless: it counts only while the process that it names holds the folder's lock.
    """
    return remove_files(state / PLATFORM_FILE)


@contextmanager
def told_when_full(state: Path) -> Iterator[None]:
    """What fails inside for want of room on the disk raises StateError, which says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise StateError(_full(state)) from error


def full_disk(state: Path) -> str:
    """What to tell of a platform that could not even write why it ended; empty when there is room."""
    return _full(state) if is_full(state) else ""


def is_full(folder: Path) -> bool:
    """Whether its disk has no room for what a platform writes."""
    return shutil.disk_usage(folder).free < LEAST_ROOM


def _full(state: Path) -> str:
    return f"the disk of the state folder {state} is full: make room, then `knodel up`; models go on serving meanwhile"


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `[host]:port` → (host, port). Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= LARGEST_PORT:
        raise ValueError(f"{address!r} is no address: HOST:PORT is expected")
    return host.removeprefix("[").removesuffix("]"), int(port)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read (0600), at once: temporary file, fsync, rename."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
