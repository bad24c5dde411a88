"""Clients of zygotes. One zygote runs for each tuple of modules; it starts with the first Pod that needs it.

A zygote outlives the kubelet. The next kubelet finds it by its socket. Requests that arrive while a zygote still
imports its modules wait in the socket's backlog, so clients need not poll.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from clusters.base.clock import Clock
from clusters.base.identity import Identity, is_running
from clusters.base.removal import remove_files
from clusters.embedded.kubelet.process import zygote
from clusters.embedded.kubelet.process.environment import PROCESS_HOME, PROCESS_OF, PROCESS_ROLE, node_environment
from clusters.embedded.kubelet.process.errors import RunContainerError, ZygoteFailed
from clusters.embedded.kubelet.process.folders import PRIVATE, ContainerRecord, Folders
from clusters.embedded.kubelet.process.process import UNKNOWN_EXIT, ExitStatus, Process, first_of
from clusters.embedded.kubelet.process.runtime import ContainerConfig, ExecRuntime, StartedContainer
from clusters.embedded.kubelet.process.zygote_child import SpawnRequest
from clusters.net import unix_sockets

log = logging.getLogger(__name__)

BACKLOG: Final = 1024  # requests that wait while a zygote imports: as many Pods as a node starts at once
START_TIMEOUT: Final = 60.0  # s; a spawn request waits for imports, also of TensorFlow from a cold disk
RESPONSE_TIMEOUT: Final = 5.0  # s; for a zygote that has started, with many spawn requests in its queue
RETRY_DELAY: Final = 30.0  # s after a failure of the zygote during which Pods start by exec
SOCKET_NAME: Final = "socket"
LOG_NAME: Final = "zygote.log"


class ZygoteRuntime:
    """Start processes by forking zygotes."""

    def __init__(self, folders: Folders, clock: Clock) -> None:
        self._folders = folders
        self._clock = clock
        self._zygotes: dict[str, ZygoteClient] = {}

    async def start(self, config: ContainerConfig) -> StartedContainer:
        """Fork a process from the zygote of `config.command.modules`. Raises ZygoteFailed, RunContainerError."""
        command = config.command
        key = zygote_key(command.modules, command.preload_env)
        client = self._client(key)
        await client.ensure(command.modules, command.preload_env)
        request = SpawnRequest(
            entry=command.entry,
            argv=command.args,
            env=config.env,
            cwd=str(config.cwd),
            log=str(config.log),
            limits=config.limits,
            record=str(config.record_file),
            mark={"zygote": key, "ports": dict(config.ports), "home": config.home},
        )
        identity = await client.spawn(request, [listener.fileno() for listener in config.listeners])
        record = ContainerRecord(identity, key, config.ports, config.home)
        return StartedContainer(Process(identity, client.read_exit_status), record)

    def adopt(self, record: ContainerRecord) -> Process | None:
        """Observe a process that was forked from the zygote `record.zygote`."""
        return Process.adopt(record.identity, self._client(record.zygote).read_exit_status)

    async def read_exit_status(self, record: ContainerRecord) -> ExitStatus:
        """Return the exit status of an ended process, if its zygote still has it."""
        return await self._client(record.zygote).read_exit_status(record.identity)

    async def shut_down(self) -> None:
        """Stop all zygotes of this state folder, also those of earlier kubelets."""
        for folder in self._folders.zygotes.iterdir():
            await self._client(folder.name).shut_down()

    def _client(self, key: str) -> ZygoteClient:
        if key not in self._zygotes:
            self._zygotes[key] = ZygoteClient(self._folders, key, self._clock)
        return self._zygotes[key]


class ZygoteClient:
    """Start, use and stop one zygote."""

    def __init__(self, folders: Folders, key: str, clock: Clock) -> None:
        self._folders = folders
        self._folder = folders.zygotes / key
        self._clock = clock
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._failed_at: float | None = None

    async def ensure(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the zygote unless it runs. It may still be importing when this returns. Raises ZygoteFailed."""
        if self._failed_at is not None and self._clock.monotonic() - self._failed_at < RETRY_DELAY:
            raise ZygoteFailed(f"zygote {self._folder.name} failed recently: see {self._folder / LOG_NAME}")
        async with self._starting:
            if self._process is not None and is_running(self._process.identity):  # `running` may lag behind
                return
            if not await self._adopt():
                self._start(modules, env)
            self._failed_at = None

    async def spawn(self, request: SpawnRequest, listeners: Sequence[int] = ()) -> Identity:
        """Fork a child that inherits the sockets `listeners` (descriptors).

        Raises ZygoteFailed when nothing was started, RunContainerError when the set-up of the child failed.
        """
        try:
            response = await self._request(request.to_json(), START_TIMEOUT, listeners)
        except ZygoteFailed:
            # Killed, because it could still fork the process later, which the caller now starts by exec.
            self._failed_at = self._clock.monotonic()
            await self._terminate(self._find_process(), 0.0)
            raise
        if "error" in response:
            raise RunContainerError(f"cannot start {request.entry}: {response['error']}")
        return Identity.parse(response)

    async def read_exit_status(self, identity: Identity) -> ExitStatus:
        """Return the exit status of an ended child, unknown when the zygote does not have it any more."""
        try:
            status = (await self._request({"op": "status"} | identity.to_json(), RESPONSE_TIMEOUT)).get("status")
        except ZygoteFailed as error:
            log.info("unknown exit status of process %d: %s", identity.pid, error)
            return UNKNOWN_EXIT
        return UNKNOWN_EXIT if status is None else ExitStatus.of_wait_status(int(status))

    async def shut_down(self) -> None:
        """Stop the zygote if it runs and wait for its exit. Its children continue."""
        process = self._find_process()
        try:
            await self._request({"op": "shutdown"}, RESPONSE_TIMEOUT)
        except ZygoteFailed as error:
            log.debug("cannot request the shutdown of a zygote: %s", error)
        await self._terminate(process, RESPONSE_TIMEOUT)

    async def _adopt(self) -> bool:
        """Observe a running zygote of an earlier kubelet and return whether there is one. Stop an outdated one."""
        try:
            response = await self._request({"op": "hello"}, START_TIMEOUT)
        except ZygoteFailed:
            return False
        if response.get("stale"):
            await self.shut_down()
            return False
        self._process = Process.adopt(Identity.parse(response))
        return self._process is not None

    def _start(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the process. It accepts requests at once because its socket listens already."""
        self._folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        environment = node_environment() | dict(env) | zygote.SINGLE_THREADED
        environment |= {PROCESS_OF: str(self._folders.state_dir), PROCESS_HOME: self._folders.home}
        environment |= {PROCESS_ROLE: "zygote", "CUDA_VISIBLE_DEVICES": ""}  # no import may touch a GPU
        path = self._folder / SOCKET_NAME
        with unix_sockets.listen(path, BACKLOG) as listener:
            argv = [sys.executable, "-m", zygote.__name__, "--socket", str(path), "--fd", str(listener.fileno())]
            argv += ["--home", self._folders.home]
            for module in modules:
                argv += ["--module", module]
            try:
                identity = ExecRuntime.spawn(
                    tuple(argv), environment, Path("/"), self._folder / LOG_NAME, listener.fileno()
                )
            except RunContainerError as error:
                raise ZygoteFailed(str(error)) from error
        self._process = Process(identity)  # also reaps it

    async def _terminate(self, process: Process | None, grace: float) -> None:
        """Wait for the exit of the zygote, and kill it after `grace` seconds."""
        remove_files(self._folder / SOCKET_NAME)
        if process is not None:
            await first_of(process.wait(), self._clock.sleep(grace))
            process.kill()
            await process.wait()

    def _find_process(self) -> Process | None:
        """Return the zygote's process, which this or an earlier kubelet started."""
        if self._process is not None and self._process.running:
            return self._process
        try:
            record = ContainerRecord.parse((self._folder / zygote.RECORD_NAME).read_text())
        except FileNotFoundError:
            return None
        return None if record is None else Process.adopt(self._folders.without_foreign(record).identity)

    async def _request(self, message: dict[str, Any], timeout: float, sent: Sequence[int] = ()) -> dict[str, Any]:
        """Send one request with the descriptors `sent` and return the response. Raises ZygoteFailed."""
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(json.dumps(message).encode() + b"\n", sent)
        except TimeoutError as error:
            raise ZygoteFailed(f"zygote {self._folder.name} did not respond within {timeout:g} s") from error
        except (OSError, ValueError) as error:
            raise ZygoteFailed(
                f"cannot reach zygote {self._folder.name}: {str(error) or type(error).__name__}"
            ) from error

    async def _exchange(self, request: bytes, sent: Sequence[int]) -> dict[str, Any]:
        connection = unix_sockets.connect(self._folder / SOCKET_NAME, timeout=0.0)  # does not wait
        try:
            socket.send_fds(
                connection, [request[:1]], sent
            )  # asyncio's streams cannot send descriptors; one byte fits into any buffer
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        try:
            writer.write(request[1:])
            await writer.drain()
            response: dict[str, Any] = json.loads(await reader.readline())  # no line after an exit: a ValueError
        finally:
            writer.close()
        return response


def zygote_key(modules: Sequence[str], env: Mapping[str, str]) -> str:
    """Return a name for the zygote that imports these modules with this interpreter and environment."""
    settings = (f"{name}={value}" for name, value in sorted(env.items()))
    words = "\0".join((sys.executable, sys.version, *modules, "", *settings))
    return hashlib.sha256(words.encode()).hexdigest()[:16]
