"""The activator process as the control plane holds it: started once, found again after a crash, restarted when it dies.

Its address is fixed for the life of the state folder, so the gateway's configuration never has to follow it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
import sys
from pathlib import Path

from clusters import processes, unix_sockets
from clusters.clock import Clock
from clusters.embedded.activator.wire import LINE_LIMIT, decode
from clusters.embedded.activator_link import ActivatorLink
from clusters.embedded.kubelet.environment import node_environment
from clusters.errors import KnodelError
from clusters.identity import Identity, identify, is_running

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORTS = range(30_000, 32_768)  # below Linux' ephemeral ports, so no outgoing connection takes it during a restart
RECORD = "activator.pid.json"
ADDRESS = "activator.address.json"
SOCKET = "control.sock"
LOG = "activator.log"
OUTPUT = "activator.out"  # what it says outside its log: usage, a crash of the interpreter
START_PATIENCE = 15.0  # s; it takes 0.3 s on a quiet machine
ADOPT_PATIENCE = 3.0  # s; a process that lives but does not say hello by then is replaced
LOOK_EVERY = 0.01  # s, for the socket of a process that is starting
FIRST_BACKOFF = 0.02  # s before a restart: requests to models at zero fail meanwhile
LARGEST_BACKOFF = 4.0  # s; of one that dies again and again: it is back within 5 s even then
STEADY = 30.0  # s after which a start counts as a success


class ActivatorFailed(KnodelError):
    """The activator cannot be started."""


class ActivatorProcess:
    """One activator whose files are in `folder`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._identity: Identity | None = None
        self._stopping = False
        self._backoff = FIRST_BACKOFF
        self.address = _read_address(folder / ADDRESS) or (HOST, _free_port())
        self.link = ActivatorLink(folder / SOCKET, clock)

    @property
    def identity(self) -> Identity | None:
        """The process as it was started or adopted last."""
        return self._identity

    async def start(self) -> None:
        """Adopt the one that a former control plane left, or start one. Raises ActivatorFailed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        former = processes.read_record(self._folder / RECORD)
        found = await self._who_answers(former, ADOPT_PATIENCE)
        if found is not None:
            log.info("adopted the activator (pid %d)", found.pid)
            self._hold(found)
            return
        if former is not None:
            log.warning("the activator (pid %d) does not answer: replaced", former.pid)
            await processes.terminate(former, 0.0)
        launched = self._launch()
        if await self._who_answers(launched, START_PATIENCE) is None:
            await self.stop(0.0)
            raise ActivatorFailed(
                f"the activator did not start on {self.address[0]}:{self.address[1]}: "
                f"see {self._folder / LOG} and {self._folder / OUTPUT}"
            )

    async def run(self) -> None:
        """Keep it running and the link connected, until cancelled; `start` comes first."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.link.run(), name="activator link")
            group.create_task(self._keep_running(), name="activator process")

    async def stop(self, grace: float) -> None:
        """Let it finish what it holds for `grace` seconds at most, then end it; nothing of it is left."""
        self._stopping = True
        if self._identity is not None:
            await processes.terminate(self._identity, grace)
            self._identity = None
        for name in (RECORD, SOCKET):
            (self._folder / name).unlink(missing_ok=True)

    async def _keep_running(self) -> None:
        while True:
            started = self._clock.monotonic()
            if self._identity is not None:
                await processes.wait_ended(self._identity)
            if self._stopping:
                await asyncio.Event().wait()  # its end was wanted
            if self._clock.monotonic() - started > STEADY:
                self._backoff = FIRST_BACKOFF
            log.error("the activator ended: see %s; starting another", self._folder / LOG)
            await self._clock.sleep(self._backoff)
            self._backoff = min(self._backoff * 2, LARGEST_BACKOFF)
            try:
                self._launch()
            except OSError as error:
                log.error("the activator cannot be started: %s", error)

    def _launch(self) -> Identity:
        host, port = self.address
        _write_address(self._folder / ADDRESS, self.address)
        command = [sys.executable, "-P", "-m", "clusters.embedded.activator", "--listen", f"{host}:{port}"]
        command += ["--control", str(self._folder / SOCKET), "--log", str(self._folder / LOG)]
        launched = processes.start_detached(
            command, log=self._folder / OUTPUT, cwd=self._folder, environment=node_environment()
        )
        self._hold(launched)
        return launched

    def _hold(self, identity: Identity) -> None:
        self._identity = identity
        processes.write_record(self._folder / RECORD, identity)

    async def _who_answers(self, expected: Identity | None, patience: float) -> Identity | None:
        """The process that says hello on the control socket in time; None at once when none can."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while True:
                    pid = await self._hello()
                    if pid is not None:
                        return identify(pid)
                    if expected is None or not is_running(expected):
                        return None
                    await self._clock.sleep(LOOK_EVERY)
        return None

    async def _hello(self) -> int | None:
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


def _read_address(path: Path) -> tuple[str, int] | None:
    try:
        host, port = json.loads(path.read_text())
        return str(host), int(port)
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _write_address(path: Path, address: tuple[str, int]) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(address) + "\n")
    temporary.replace(path)


def _free_port() -> int:
    for port in random.sample(PORTS, len(PORTS)):  # nosec B311 - a free port, no secret
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial, contextlib.suppress(OSError):
            trial.bind((HOST, port))
            return port
    raise ActivatorFailed(f"no free port for the activator on {HOST} between {PORTS.start} and {PORTS.stop - 1}")
