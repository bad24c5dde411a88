"""The running server: two ports, one model, one event loop. Composes the parts; `main` calls it."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from concurrent.futures import Future
from typing import Final

import uvloop

from serving.server.access_log import AccessLog
from serving.server.admission import Admission
from serving.server.app import DataApp
from serving.server.infer import Infer
from serving.server.lifecycle import Lifecycle
from serving.server.limits import BodyBudget, Limits
from serving.server.listener import Listener
from serving.server.loading import load_model
from serving.server.management import make_management_app
from serving.server.options import ServerOptions
from serving.server.sockets import Sockets
from serving.server.stats import Stats
from serving.server.workers import Workers
from serving.storage.artifact import Artifact

log = logging.getLogger(__name__)

QUIET: Final = 0.25  # s without a request: those who send to us know by then that they should not
LEAST_THREADS: Final = 4  # so that one long inference does not keep the others out, however little CPU there is


def run(options: ServerOptions, sockets: Sockets, artifact: Future[Artifact], imports: float) -> None:
    """Serve until SIGTERM or SIGINT, then drain. `imports`: ms that the start took so far.

    Raises KnodelError when the model cannot be loaded.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Server(options, sockets, imports).serve(artifact))


class _Server:
    def __init__(self, options: ServerOptions, sockets: Sockets, imports: float) -> None:
        self._options = options
        self._limits = Limits()
        self._lifecycle = Lifecycle()
        self._stats = Stats(options.revision, options.slots, time.monotonic)
        self._stats.startup.imports = imports
        self._sockets = sockets
        self._stop = asyncio.Event()

    async def serve(self, artifact: Future[Artifact]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        workers = Workers(self._threads(), loop)
        data = self._data_listener(workers, loop)
        management = Listener(
            make_management_app(self._stats, self._lifecycle), self._sockets.management, self._options.revision,
            self._limits,
        )  # fmt: skip
        await data.start()
        await management.start()
        await self._load(artifact, workers, loop)
        await self._stop.wait()
        self._lifecycle.drain()
        log.info("stopping: not ready any more, finishing what is in flight")
        await data.drain(QUIET, self._options.timeout)
        await data.close()
        await management.close()
        workers.close()
        log.info("stopped")

    def _data_listener(self, workers: Workers, loop: asyncio.AbstractEventLoop) -> Listener:
        options = self._options
        admission = Admission(options.slots, options.queue, self._stats)
        budget = BodyBudget(self._limits)
        infer = Infer(self._lifecycle, admission, workers, budget, options.timeout, loop)
        app = DataApp(options.name, options.revision, self._lifecycle, infer)
        logged = AccessLog(app, time.monotonic) if options.access_log else app
        return Listener(logged, self._sockets.data, options.revision, self._limits)

    async def _load(self, artifact: Future[Artifact], workers: Workers, loop: asyncio.AbstractEventLoop) -> None:
        """Load in a thread, so that health is answered meanwhile; give up when asked to stop."""
        loading = workers.submit(lambda _: load_model(self._options, artifact, self._limits, self._stats.startup))
        stopping = loop.create_task(self._stop.wait())
        await asyncio.wait((loading.answer, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.answer.done():
            return
        model = loading.answer.result()
        self._lifecycle.serve(model)
        startup = self._stats.startup
        log.info(
            "serving model=%s revision=%s platform=%s imports=%.0fms load=%.0fms warmup=%.0fms",
            model.name, model.revision, model.signature.platform, startup.imports, startup.load, startup.warmup,
        )  # fmt: skip

    def _threads(self) -> int:
        return min(self._options.slots, max(LEAST_THREADS, 2 * math.ceil(self._options.cpu)))
