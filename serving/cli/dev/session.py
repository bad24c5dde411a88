"""Run `knodel dev`: connect the watch of the files, the decisions of `reload`, the server processes and the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from clusters.base.sizes import format_size
from clusters.embedded.activator.proxy.caller import CallerConnection
from clusters.net.hosts import KnownHosts
from clusters.net.server.server import HttpServer
from serving.cli.dev import reload, texts
from serving.cli.dev.code import detected_format, sets_environment
from serving.cli.dev.display import DevDisplay, Show
from serving.cli.dev.files import FASTEST, Settling, TooManyFiles, pause_after, scan
from serving.cli.dev.messages import Failure, Load, Loaded
from serving.cli.dev.proxy import DevProxy, Upstream
from serving.cli.dev.server_process import HOST, ServerProcess
from serving.engines.base.registry import FORMATS

KEEP_ALIVE: Final = 75  # s of an idle connection of a client
STOP_WITHIN: Final = 2.0  # s to finish requests after Ctrl-C
DRAINED_WITHIN: Final = 10.0  # s for a former version without requests to end by itself
REPORT_GRACE: Final = 1.0  # s for a server to report what it is doing when its load takes too long


@dataclass(frozen=True, slots=True)
class DevOptions:
    """What to serve, and how.

    `path` is absolute. `format` is "" to detect it. `server_options` are added to the command line of the model server.
    `load_timeout` is in seconds, `memory_limit` of one version in bytes (None: no limit). `ignored` are patterns of
    files whose changes do not matter.
    """

    path: Path
    name: str
    port: int
    format: str = ""
    server_options: tuple[str, ...] = ()
    hosts: KnownHosts | None = None
    load_timeout: float = 60.0
    memory_limit: int | None = None
    ignored: tuple[str, ...] = ()


@dataclass(slots=True)
class _Version:
    """A version that was started: its process, its place in the proxy, and the task that supervises it."""

    process: ServerProcess
    upstream: Upstream
    supervisor: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Save:
    """The reason for the newest version, such as what was saved, and when it was seen (monotonic, s)."""

    what: str
    at: float = field(default_factory=time.monotonic)


class DevSession:
    """One run of `knodel dev` on the listening socket `sock`; `show` prints a line, `coloured` or not."""

    def __init__(self, options: DevOptions, sock: socket.socket, show: Show, *, coloured: bool) -> None:
        self._options = options
        self._sock = sock
        self._display = DevDisplay(show, f"http://{HOST}:{options.port}", options.name, coloured=coloured)
        self._proxy = DevProxy(options.hosts)
        self._events: asyncio.Queue[reload.Event] = asyncio.Queue()
        self._state = reload.Reload()
        self._versions: dict[int, _Version] = {}
        self._spare: asyncio.Task[ServerProcess] | None = None
        self._modules: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._save = _Save("start")

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then no process is left."""
        server = HttpServer(self._proxy, CallerConnection, keep_alive=KEEP_ALIVE, drain=STOP_WITHIN)
        serving = asyncio.create_task(server.serve(self._sock))
        work = [asyncio.create_task(self._watch()), asyncio.create_task(self._advance())]
        stopping: asyncio.Task[Any] = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((stopping, serving, *work), return_when=asyncio.FIRST_COMPLETED)
            for task in (serving, *work):
                if task.done():
                    task.result()  # raises its error
            server.stop()
            await serving
        finally:
            tasks: list[asyncio.Task[Any]] = [stopping, serving, *work, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end_processes()
            self._proxy.close()
            self._display.close()

    async def _watch(self) -> None:
        """Report each save once it is complete. Raises TooManyFiles only for the first scan."""
        path, ignored = self._options.path, self._options.ignored
        self._display.say(f"watching {path}; Ctrl-C ends it")
        settling = Settling(await asyncio.to_thread(scan, path, ignored))
        self._events.put_nowait(reload.Saved())
        seen, wait, refused = 0.0, FASTEST, ""
        while True:
            await asyncio.sleep(wait)
            began = time.monotonic()
            try:
                marks = await asyncio.to_thread(scan, path, ignored)
            except TooManyFiles as error:
                if refused != (refused := str(error)):
                    self._display.say(f"not reloaded: {refused}", "red")
                continue
            seen = seen if settling.is_settling else began
            found = settling.observe(marks)
            wait = pause_after(time.monotonic() - began, settling.is_settling)
            if found is not None:
                self._save = _Save(str(found), seen)
                self._events.put_nowait(reload.Saved() if marks else reload.Gone(str(path)))

    async def _advance(self) -> None:
        """Apply the events, one after the other."""
        while True:
            event = await self._events.get()
            before, (self._state, effects) = self._state, reload.advance(self._state, event)
            if isinstance(event, reload.Ended) and event.version == before.serving:
                self._save = _Save(f"the process of version {event.version} ended {event.how}")
            for effect in effects:
                match effect:
                    case reload.Start(version):
                        self._display.say(f"{self._save.what}: loading version {version}")
                        self._spawn(self._start(version))
                    case reload.Kill(version):
                        if (killed := self._versions.pop(version, None)) is not None:
                            self._spawn(_end(killed, killed.process.kill()))
                    case reload.Serve(version):
                        served = self._versions[version]
                        self._proxy.serve(served.upstream)
                        took = time.monotonic() - self._save.at
                        self._spawn(self._display.show_version(version, served.process.address, took))
                    case reload.Drain(version):
                        self._spawn(self._drain(self._versions.pop(version)))
            failure = self._state.failure
            if self._state.serving is None:
                self._proxy.refuse(failure.reason if failure is not None else "")
            if failure is None or failure is before.failure:
                continue
            if isinstance(event, reload.Gone | reload.LoadFailed | reload.Ended):
                self._display.show_failure(texts.failure_heading(before, event), failure)

    async def _start(self, version: int) -> None:
        """Load a version in a process, and report how that went, and later its end."""
        spare, self._spare = self._spare, None
        try:
            process = await spare if spare is not None else None
            if process is None or process.has_ended:  # the kernel may have ended it, if memory is short
                process = await self._start_process()
        except OSError as error:  # no more memory, processes or files
            reason = f"its process cannot be started: {error.strerror}; save again to try again"
            self._events.put_nowait(reload.LoadFailed(version, Failure(reason)))
            return
        if version != self._state.loading:  # it was replaced meanwhile
            await process.kill()
            return
        self._versions[version] = started = _Version(process, Upstream(process.address))
        started.supervisor = asyncio.current_task()
        limit = asyncio.create_task(self._limit_memory(version, process))
        timeout = self._options.load_timeout
        try:
            report = await process.load(self._load_message(version), timeout + REPORT_GRACE)
        except TimeoutError:
            report = Failure(f"it was not loaded within {timeout:g} s: raise --load-timeout")
        finally:
            limit.cancel()
        if isinstance(report, Loaded):
            self._modules = [] if sets_environment(self._options.path) else report.modules
            self._events.put_nowait(reload.Ready(version))
        elif isinstance(report, Failure):
            self._events.put_nowait(reload.LoadFailed(version, report))
        self._spare = self._spare or asyncio.create_task(self._start_process())  # its imports delay the next load
        if not isinstance(report, Failure):
            self._events.put_nowait(reload.Ended(version, await process.wait()))

    def _load_message(self, version: int) -> Load:
        options = self._options
        model_format = options.format or detected_format(options.path)
        runs_code = model_format in FORMATS and FORMATS[model_format].runs_code
        argv = ["--name", options.name, "--storage-uri", options.path.as_uri(), *options.server_options]
        argv += [f"--format={model_format}"] if model_format else []
        argv += ["--allow-code"] if runs_code and "--allow-code" not in argv else []
        return Load(argv, {"K_REVISION": f"{options.name}-{version:05d}"}, options.load_timeout)

    def _start_process(self) -> Coroutine[Any, Any, ServerProcess]:
        path = self._options.path
        model_format = self._options.format or detected_format(path)
        return ServerProcess.start(model_format, path.as_uri(), self._modules, os.environ)

    async def _limit_memory(self, version: int, process: ServerProcess) -> None:
        """Report a version that takes too much memory while it loads."""
        limit = self._options.memory_limit
        while limit is not None:
            if (taken := process.resident_bytes()) > limit:
                reason = f"it took {format_size(taken)} of memory before it was loaded: raise --memory-limit"
                self._events.put_nowait(reload.LoadFailed(version, Failure(reason)))
                return
            await asyncio.sleep(0.05)

    async def _drain(self, version: _Version) -> None:
        await version.upstream.wait_idle()
        await _end(version, version.process.stop(DRAINED_WITHIN))

    async def _end_processes(self) -> None:
        endings = [_end(version, version.process.kill()) for version in self._versions.values()]
        if self._spare is not None:
            with contextlib.suppress(OSError):
                endings.append((await self._spare).kill())
        await asyncio.gather(*endings, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _end(version: _Version, ending: Coroutine[Any, Any, None]) -> None:
    """End the process of a version, which is not a crash."""
    if version.supervisor is not None:
        version.supervisor.cancel()
    await ending
