"""One model server: two ports, one model, one event loop. Composes the parts."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from concurrent.futures import Future
from typing import Final

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


class Server:
    """Serves on `sockets` from `start` to `close`; made inside of the loop that runs it."""

    def __init__(self, options: ServerOptions, sockets: Sockets, limits: Limits) -> None:
        self._options = options
        self._limits = limits
        self.stats = Stats(options.revision, options.slots, time.monotonic)
        loop = asyncio.get_running_loop()
        threads = min(options.slots, max(LEAST_THREADS, 2 * math.ceil(options.cpu)))
        self._workers = Workers(threads, loop)
        self._lifecycle = Lifecycle(self._workers)
        self._budget = BodyBudget(limits.bodies)
        admission = Admission(options.slots, options.queue, self.stats)
        infer = Infer(self._lifecycle, admission, self._workers, self._budget, options.timeout, loop)
        app = DataApp(options.name, options.revision, self._lifecycle, infer)
        logged = AccessLog(app, time.monotonic, sys.stderr) if options.access_log else app
        management = make_management_app(self.stats, self._lifecycle)
        self._data = Listener(logged, sockets.data, options.revision, limits)
        self._management = Listener(management, sockets.management, options.revision, limits)

    async def start(self) -> None:
        """Answer on both ports; not ready before `load`."""
        await self._data.start()
        await self._management.start()

    async def load(self, artifact: Future[Artifact]) -> None:
        """Load the model in a thread, so that health is answered meanwhile. Raises StorageError, EngineError."""
        loading = self._workers.submit(lambda _: load_model(self._options, artifact, self._limits, self.stats.startup))
        model = await loading.answer
        self._lifecycle.serve(model)
        startup = self.stats.startup
        log.info(
            "serving model=%s revision=%s platform=%s imports=%.0fms load=%.0fms warmup=%.0fms",
            model.name, model.revision, model.signature.platform, startup.imports, startup.load, startup.warmup,
        )  # fmt: skip

    async def drain(self) -> None:
        """Not ready from now on; return when nobody sends requests any more and all are answered."""
        self._lifecycle.drain()
        log.info("stopping: not ready any more, finishing what is in flight")
        await self._data.drain(QUIET, self._options.timeout)

    async def close(self) -> None:
        """Accept nothing more, and return when what is in flight has ended."""
        await self._data.close()
        await self._management.close()
        self._workers.close()
        log.info("stopped")
