"""The kubelet's side of the zygotes: one for each tuple of modules, started with the first Pod that needs it.

A zygote outlives the kubelet; the next one finds it by its socket. Pods that come while it still imports wait in the
socket's queue, so nothing has to be polled.
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
from clusters.embedded.kubelet.process.errors import StartFailed, ZygoteFailed
from clusters.embedded.kubelet.process.folders import PRIVATE, Folders, Run
from clusters.embedded.kubelet.process.process import UNKNOWN_EXIT, Exit, Process, first_of
from clusters.embedded.kubelet.process.runtime import ExecRuntime, Launch, Started
from clusters.embedded.kubelet.process.zygote_child import Spawn
from clusters.net import unix_sockets

log = logging.getLogger(__name__)

BACKLOG: Final = 1024  # requests that wait while a zygote imports: as many Pods as a node starts at once
START_TIMEOUT: Final = 60.0  # s; a spawn waits for imports, of TensorFlow from a cold disk too
ANSWER_TIMEOUT: Final = 5.0  # s; what a zygote that has started takes at most, with many spawns before
RETRY_AFTER: Final = 30.0  # s in which Pods start without the zygote after it failed
SOCKET_NAME: Final = "socket"
LOG_NAME: Final = "zygote.log"


class ZygoteRuntime:
    """Processes forked from zygotes."""

    def __init__(self, folders: Folders, clock: Clock) -> None:
        self._folders = folders
        self._clock = clock
        self._zygotes: dict[str, ZygoteClient] = {}

    async def start(self, launch: Launch) -> Started:
        """Fork it from the zygote of `launch.command.modules`. Raises ZygoteFailed, StartFailed."""
        command = launch.command
        key = key_of(command.modules, command.preload_env)
        client = self._client(key)
        await client.ensure(command.modules, command.preload_env)
        identity = await client.spawn(_spawn_of(launch, key), [one.fileno() for one in launch.listeners])
        return Started(Process(identity, client.exit_of), Run(identity, key, launch.ports, launch.home))

    def adopt(self, run: Run) -> Process | None:
        """Watch a process that was forked from the zygote `run.zygote`."""
        return Process.adopt(run.identity, self._client(run.zygote).exit_of)

    async def exit_of(self, run: Run) -> Exit:
        """How a process that ended while nobody watched has ended, as far as its zygote remembers."""
        return await self._client(run.zygote).exit_of(run.identity)

    async def shut_down(self) -> None:
        """End all zygotes of this state folder, those of earlier kubelets too."""
        for folder in self._folders.zygotes.iterdir():
            await self._client(folder.name).shut_down()

    def _client(self, key: str) -> ZygoteClient:
        if key not in self._zygotes:
            self._zygotes[key] = ZygoteClient(self._folders, key, self._clock)
        return self._zygotes[key]


class ZygoteClient:
    """One zygote, running or not."""

    def __init__(self, folders: Folders, key: str, clock: Clock) -> None:
        self._folders = folders
        self._folder = folders.zygotes / key
        self._clock = clock
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._failed_at: float | None = None

    async def ensure(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        """Have a zygote that runs, or at least imports; one that was ended from outside is replaced at once.

        Raises ZygoteFailed.
        """
        if self._failed_at is not None and self._clock.monotonic() - self._failed_at < RETRY_AFTER:
            raise ZygoteFailed(f"zygote {self._folder.name} failed a moment ago: see {self._folder / LOG_NAME}")
        async with self._starting:
            if self._process is not None and is_running(self._process.identity):  # its end may not have been seen yet
                return
            if not await self._is_current():
                self._start(modules, env)
            self._failed_at = None

    async def spawn(self, spawn: Spawn, listeners: Sequence[int] = ()) -> Identity:
        """Fork a child that inherits the sockets `listeners` (descriptors).

        Raises ZygoteFailed (nothing was started), StartFailed (the child could not become it).
        """
        try:
            answer = await self._ask(spawn.to_json(), START_TIMEOUT, listeners)
        except ZygoteFailed:
            await self._give_up()
            raise
        if "error" in answer:
            raise StartFailed(f"cannot start {spawn.entry}: {answer['error']}")
        return Identity.parse(answer)

    async def exit_of(self, identity: Identity) -> Exit:
        """How a child ended; unknown when the zygote is gone or has forgotten."""
        question = {"op": "status"} | identity.to_json()
        try:
            status = (await self._ask(question, ANSWER_TIMEOUT)).get("status")
        except ZygoteFailed as error:
            log.info("how process %d ended is not known: %s", identity.pid, error)
            return UNKNOWN_EXIT
        return UNKNOWN_EXIT if status is None else Exit.of_wait_status(int(status))

    async def shut_down(self) -> None:
        """End it, if it runs, and return once it has ended; its children go on."""
        process = self._running()
        try:
            await self._ask({"op": "shutdown"}, ANSWER_TIMEOUT)
        except ZygoteFailed as error:
            log.debug("no zygote to ask for its end: %s", error)
        await self._end(process, ANSWER_TIMEOUT)

    async def _is_current(self) -> bool:
        """Whether one of an earlier kubelet runs, to be watched from now on; one with outdated modules is ended."""
        try:
            answer = await self._ask({"op": "hello"}, START_TIMEOUT)
        except ZygoteFailed:
            return False
        if answer.get("stale"):
            await self.shut_down()
            return False
        self._process = Process.adopt(Identity.parse(answer))
        return self._process is not None

    def _start(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it; it need not be ready, since its socket is there already."""
        self._folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        environment = node_environment() | dict(env) | zygote.SINGLE_THREADED
        environment |= {PROCESS_OF: str(self._folders.state_dir), PROCESS_HOME: self._folders.home}
        environment |= {PROCESS_ROLE: "zygote"}
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
            except StartFailed as error:
                raise ZygoteFailed(str(error)) from error
        self._process = Process(identity)  # reaps it, too

    async def _give_up(self) -> None:
        """It did not answer. End it for good, so that it does not fork later what is started without it now."""
        self._failed_at = self._clock.monotonic()
        await self._end(self._running(), 0.0)

    async def _end(self, process: Process | None, grace: float) -> None:
        """See it end; after `grace` seconds, by force."""
        remove_files(self._folder / SOCKET_NAME)
        if process is not None:
            await first_of(process.wait(), self._clock.sleep(grace))
            process.kill()
            await process.wait()

    def _running(self) -> Process | None:
        """The zygote's process: the one started here, or by an earlier kubelet."""
        if self._process is not None and self._process.running:
            return self._process
        try:
            run = Run.parse((self._folder / zygote.RECORD).read_text())
        except FileNotFoundError:
            return None
        return None if run is None else Process.adopt(self._folders.own(run).identity)

    async def _ask(self, message: dict[str, Any], timeout: float, sent: Sequence[int] = ()) -> dict[str, Any]:
        """Send one request, with the descriptors `sent`, and return its answer. Raises ZygoteFailed."""
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(json.dumps(message).encode() + b"\n", sent)
        except TimeoutError as error:
            raise ZygoteFailed(f"zygote {self._folder.name} did not answer within {timeout:g} s") from error
        except (OSError, ValueError) as error:
            raise ZygoteFailed(
                f"zygote {self._folder.name} does not answer: {str(error) or type(error).__name__}"
            ) from error

    async def _exchange(self, request: bytes, sent: Sequence[int]) -> dict[str, Any]:
        connection = unix_sockets.connect(self._folder / SOCKET_NAME, timeout=0.0)  # at once, or not at all
        try:
            socket.send_fds(connection, [request[:1]], sent)  # asyncio's streams cannot; a byte fits into any buffer
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        try:
            writer.write(request[1:])
            await writer.drain()
            answer: dict[str, Any] = json.loads(await reader.readline())  # an empty line (it ended) is a ValueError
        finally:
            writer.close()
        return answer


def key_of(modules: Sequence[str], env: Mapping[str, str]) -> str:
    """Names the zygote of this interpreter that imported these modules under this environment."""
    settings = (f"{name}={value}" for name, value in sorted(env.items()))
    words = "\0".join((sys.executable, sys.version, *modules, "", *settings))
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _spawn_of(launch: Launch, key: str) -> Spawn:
    return Spawn(
        entry=launch.command.entry,
        argv=launch.command.args,
        env=launch.env,
        cwd=str(launch.cwd),
        log=str(launch.log),
        limits=launch.limits,
        record=str(launch.run_file),
        mark={"zygote": key, "ports": dict(launch.ports), "home": launch.home},
    )
