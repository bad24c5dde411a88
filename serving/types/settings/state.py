"""The state folder of a platform: the names of its files, and the facts by which commands find the platform.

platform.json   the facts, written when the platform is ready, removed when it ends
lock            locked by the platform's process while it runs
control.sock    the control API for commands on this machine (0600)
token           the bearer token of the control API, a new one at each start (0600)
kubeconfig      for kubectl, with that token (0600)
platform.log    the output of a detached platform
cluster.db      every object
artifacts/      fetched model files
kept/           copies of local model files, by digest, which versions serve (`serving.storage.kept`)
tls/            authority, certificate and key of the control API's TLS address
gateway/        Envoy's files, and the record of its process
activator/      the activator's files, and the record of its process
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
PROMETHEUS_FILE = "prometheus.yml"
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
"""Bytes of free space below which the disk counts as full, as in `clusters.embedded.store.database`."""


class StateError(KnodelError):
    """The state folder cannot be read, or its disk is full."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The content of `platform.json`. Addresses are `host:port`; `pid` and `start_ticks` identify the process."""

    pid: int
    start_ticks: int
    version: str
    state: str
    gateway: str
    control: str
    control_tls: str
    domain: str = "localhost"
    prices: dict[str, Any] = field(default_factory=dict)
    """The section of the settings, for bills."""
    kept_limit: int | None = None
    """Limit of the copies of local model files, in bytes; None when it is unknown."""

    @classmethod
    def read(cls, state: Path) -> Facts | None:
        """Read the facts of a state folder; None when it has none. Facts of later releases are ignored.

        Raises StateError for an invalid file.
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
        """Write the file atomically."""
        path = Path(self.state) / PLATFORM_FILE
        write_private(path, json.dumps(asdict(self), indent=2).encode() + b"\n")


def forget(state: Path) -> list[Path]:
    """Remove the facts of a platform that has ended. Return the file if a read-only disk keeps it.

    A remaining file is harmless: it counts only while its process holds the folder's lock.
    """
    return remove_files(state / PLATFORM_FILE)


@contextmanager
def report_full_disk(state: Path) -> Iterator[None]:
    """Turn errors of a full disk inside the block into a StateError with the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise StateError(_full(state)) from error


def full_disk_message(state: Path) -> str:
    """Return the message for a platform that could not write why it ended; empty when the disk is not full."""
    return _full(state) if is_full(state) else ""


def is_full(folder: Path) -> bool:
    """Return whether the disk of the folder is too full for the writes of a platform."""
    return shutil.disk_usage(folder).free < LEAST_ROOM


def _full(state: Path) -> str:
    remedy = "make room, then run `knodel up`; running models continue to serve"
    return f"the disk of the state folder {state} is full: {remedy}"


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `[host]:port` into host and port. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= LARGEST_PORT:
        raise ValueError(f"{address!r} is not an address: write HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read (0600), atomically: temporary file, fsync, rename."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
