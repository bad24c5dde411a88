"""Start the activator process, adopt it after a crash of the control plane, and restart it when it ends.

Its address does not change while a platform runs, so the gateway's configuration stays valid. The control plane holds
the listening socket, so requests wait while a new activator starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import random
import signal
import socket
import sys
from pathlib import Path

from clusters.base import processes
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.base.identity import Identity, folder_id, identify, is_running
from clusters.base.removal import remove_files
from clusters.embedded.activator.link import ActivatorLink
from clusters.embedded.activator.wire import LINE_LIMIT, decode
from clusters.embedded.kubelet.process.environment import node_environment
from clusters.gateway.token import VARIABLE
from clusters.net import unix_sockets
from clusters.net.sockets import PortGuard

log = logging.getLogger(__name__)

RECEIVE_BUFFER = 32 * 1024  # bytes; SO_RCVBUF of callers' sockets, which limits the body of a held request in memory
HOST = "127.0.0.1"
PORTS = range(30_000, 32_768)  # below Linux' ephemeral ports, so no outgoing connection takes one during a restart
RECORD = "activator.pid.json"
ADDRESS = "activator.address.json"
SOCKET = "control.sock"
LOG = "activator.log"
OUTPUT = "activator.out"  # output beside its log: usage, a crash of the interpreter
REPLACE_TIMEOUT = 60.0  # s to wait until an activator of another version is idle; then its requests finish as it ends
REBIND_EVERY = 0.002  # s
START_TIMEOUT = 15.0  # s; a start takes 0.3 s on an idle machine
ADOPT_TIMEOUT = 3.0  # s; a process that runs but does not answer by then is replaced
POLL_INTERVAL = 0.01  # s, for the socket of a process that is starting
FIRST_BACKOFF = 0.02  # s before a restart; requests to models at zero fail in the meantime
LARGEST_BACKOFF = 4.0  # s, after repeated crashes: it is back within 5 s
_BACKOFF = Backoff(FIRST_BACKOFF, LARGEST_BACKOFF)
STABLE_AFTER = 30.0  # s of running after which the back-off is reset


class ActivatorFailed(KnodelError):
    """The activator cannot be started."""


class ActivatorProcess:
    """An activator with its files in `folder`. `token` is its gateway token (`clusters.gateway.token`)."""

    def __init__(self, folder: Path, clock: Clock, token: str | None = None) -> None:
        self._folder = folder
        self._token = token or ""
        self._clock = clock
        self._identity: Identity | None = None
        self._version = code_version()
        self._outdated = False
        self._guard: PortGuard | None = None
        self._listener: socket.socket | None = None
        self._stopping = False
        self._failures = 0
        self.address = self._choose_address()
        self.link = ActivatorLink(folder / SOCKET, clock)

    @property
    def identity(self) -> Identity | None:
        """The process that was started or adopted last."""
        return self._identity

    async def start(self) -> None:
        """Adopt a running activator of this folder, or start one. Raises ActivatorFailed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = processes.read_record(self._folder / RECORD)
        former = None if record is None else record.identity
        found = await self._find_process(former, ADOPT_TIMEOUT)
        if found is not None:
            log.info("adopted the activator (pid %d)", found.pid)
            version = record.version if record is not None else ""
            self._outdated = version != self._version
            self._record(found, version)
            with contextlib.suppress(OSError):  # a version that did not share its port
                self._guard = PortGuard.join(*self.address)
            return
        if former is not None:
            log.warning("the activator (pid %d) does not answer: replacing it", former.pid)
            await processes.terminate(former, 0.0)
        launched = self._launch()
        if await self._find_process(launched, START_TIMEOUT) is None:
            await self.stop(0.0)
            raise ActivatorFailed(
                f"the activator did not start on {self.address[0]}:{self.address[1]}: "
                f"see {self._folder / LOG} and {self._folder / OUTPUT}"
            )

    async def run(self) -> None:
        """Keep the process running and the link connected until cancelled. Call `start` before."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.link.run(), name="activator link")
            group.create_task(self._keep_running(), name="activator process")
            if self._outdated:
                group.create_task(self._replace(), name="activator upgrade")

    async def stop(self, grace: float) -> None:
        """Stop the process, after up to `grace` seconds for its requests, and remove its files."""
        self._stopping = True
        self.close()
        if self._identity is not None:
            await processes.terminate(self._identity, grace)
            self._identity = None
        remove_files(self._folder / RECORD, self._folder / SOCKET)

    def close(self) -> None:
        """Close the listening socket of this control plane. The activator continues."""
        for opened in (self._listener, self._guard):
            if opened is not None:
                opened.close()
        self._listener = self._guard = None

    async def _keep_running(self) -> None:
        while True:
            started = self._clock.monotonic()
            if self._identity is not None:
                await processes.wait_ended(self._identity)
            if self._stopping:
                await asyncio.Event().wait()  # `stop` ended it
            if self._outdated:
                self._outdated = False  # `_replace` ended it
            else:
                if self._clock.monotonic() - started > STABLE_AFTER:
                    self._failures = 0
                log.error("the activator ended: see %s; restarting it", self._folder / LOG)
                await self._clock.sleep(_BACKOFF.delay(self._failures))
                self._failures += 1
            try:
                self._launch()
            except (OSError, ActivatorFailed) as error:
                log.error("cannot start the activator: %s", error)

    async def _replace(self) -> None:
        """End an adopted activator of another version while it has no requests; `_keep_running` starts another.

        The control plane listens at the address as soon as the former one does not.
        """
        await self.link.wait_connected()
        deadline = self._clock.monotonic() + REPLACE_TIMEOUT
        while self.link.busy and self._clock.monotonic() < deadline:
            await self._clock.sleep(POLL_INTERVAL)
        if self._identity is None or self._stopping:
            return
        log.info("replacing the activator (pid %d): it is of another version", self._identity.pid)
        processes.send_signal(self._identity, signal.SIGTERM)
        while self._outdated and not self._stopping:
            with contextlib.suppress(ActivatorFailed):
                self._listen()
                return
            await self._clock.sleep(REBIND_EVERY)

    def _launch(self) -> Identity:
        """Start a process on the listening socket. Raises ActivatorFailed, OSError."""
        listener = self._listen()
        path, (host, port) = self._folder / ADDRESS, self.address
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(json.dumps({"host": host, "port": port, "home": folder_id(path.parent)}) + "\n")
        temporary.replace(path)
        command = [sys.executable, "-P", "-m", "clusters.embedded.activator", "--fd", str(listener.fileno())]
        command += ["--control", str(self._folder / SOCKET), "--log", str(self._folder / LOG)]
        launched = processes.start_detached(
            command,
            log=self._folder / OUTPUT,
            cwd=self._folder,
            environment={**node_environment(), VARIABLE: self._token},
            files=[listener.fileno()],
        )
        self._record(launched, self._version)
        return launched

    def _record(self, identity: Identity, version: str) -> None:
        self._identity = identity
        processes.write_record(self._folder / RECORD, processes.ProcessRecord(identity, version))

    def _listen(self) -> socket.socket:
        """Return the listening socket, which is kept. Raises ActivatorFailed when the address is taken."""
        if self._listener is None:
            try:
                self._guard = self._guard or PortGuard.take(*self.address)
                self._listener = self._guard.listen()
                self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)  # of callers' sockets
            except OSError as error:
                host, port = self.address
                raise ActivatorFailed(f"the activator cannot listen on {host}:{port}: {error.strerror}") from error
        return self._listener

    def _choose_address(self) -> tuple[str, int]:
        """Return the recorded address if an activator may still run there or if it is free, else another one."""
        known = _read_address(self._folder / ADDRESS)
        if known is not None and (self._former_runs() or _is_free(*known)):
            return known
        for port in random.sample(PORTS, len(PORTS)):  # nosec B311 - a free port, no secret
            if _is_free(HOST, port):
                return HOST, port
        raise ActivatorFailed(f"no free port for the activator on {HOST} between {PORTS.start} and {PORTS.stop - 1}")

    def _former_runs(self) -> bool:
        if processes.read_record(self._folder / RECORD) is not None:
            return True
        try:
            unix_sockets.connect(self._folder / SOCKET, ADOPT_TIMEOUT).close()
        except OSError:
            return False
        return True

    async def _find_process(self, expected: Identity | None, timeout: float) -> Identity | None:
        """Return the process that answers on the control socket within the time, or None."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    pid = await self._request_pid()
                    if pid is not None:
                        return identify(pid)
                    if expected is None or not is_running(expected):
                        return None
                    await self._clock.sleep(POLL_INTERVAL)
        return None

    async def _request_pid(self) -> int | None:
        try:
            reader, writer = await unix_sockets.open_connection(self._folder / SOCKET, LINE_LIMIT)
        except OSError:
            return None
        try:
            return int(decode(await reader.readline())["hello"]["pid"])
        except (OSError, ValueError, KeyError):
            return None
        finally:
            writer.close()


def code_version() -> str:
    """Return a digest that changes with the activator's code and with the Python version."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _read_address(path: Path) -> tuple[str, int] | None:
    """Return the address in the file, unless the folder is a copy, which gets an address of its own."""
    try:
        record = json.loads(path.read_text())
        return (str(record["host"]), int(record["port"])) if record["home"] == folder_id(path.parent) else None
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _is_free(host: str, port: int) -> bool:
    try:
        PortGuard.take(host, port).close()
    except OSError:
        return False
    return True
