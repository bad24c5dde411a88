"""The process of the router on Kubernetes: `python -m serving.platform.router_main`.

All replicas route requests. They only read Models, and keep routing while the API server does not respond.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from clusters.base.clock import Clock, SystemClock
from clusters.base.objects import MODEL
from clusters.base.process_setup import collect_rarely, freeze_loaded_objects
from clusters.kubernetes import KubernetesCluster
from clusters.net.language_models import LARGEST_BODY
from clusters.net.server.connection import HttpConnection
from clusters.net.server.limits import ConnectionLimits
from clusters.net.server.server import HttpServer
from clusters.net.server.write_backpressure import ListenerState
from clusters.runtime.informer import Informer
from clusters.runtime.manager.config_file import ConfigFile
from clusters.runtime.manager.options import Options
from clusters.runtime.manager.process import Listeners, run_process
from serving.control_api.server import listen
from serving.platform.replica import port_of, until_stopped
from serving.router.app import RouterApp
from serving.router.models import KnownModels
from serving.router.upstream import Upstream
from serving.types.settings.settings import settings_from_text

log = logging.getLogger(__name__)

NAME: Final = "knodel-router"
"""User agent in the API server's audit log."""
PORT: Final = 8080
"""Default port; the variable PORT overrides it."""
KEEP_ALIVE: Final = 75  # s of an idle connection; SDKs close theirs after 5 s
LEAVING: Final = 5.0
"""s from SIGTERM until no connection is accepted any more. Services take this long to leave out a replica."""
DRAIN: Final = 600.0
"""s for requests to finish after that; the Pod's terminationGracePeriodSeconds is a little longer."""
LIMITS: Final = ConnectionLimits(
    body=2 * LARGEST_BODY,  # the application refuses large bodies first, in OpenAI's form
    unread_responses=64 << 20,
    keep_alive=KEEP_ALIVE,
)


async def serve(options: Options, port: int, stop: asyncio.Event) -> None:
    """Serve the router until `stop` is set. Raises KnodelError."""
    clock = SystemClock()
    settings = ConfigFile(options.config, settings_from_text, clock).value
    async with (
        KubernetesCluster.connect(options.kube_context or None, options.kubeconfig, user_agent=NAME) as cluster,
        Upstream(settings.autoscaler.cluster_domain) as upstream,
    ):
        informer = Informer(cluster, MODEL, namespace=options.namespace, clock=clock)
        app = RouterApp(KnownModels(informer), upstream)
        synced = asyncio.create_task(informer.synced())
        watching = asyncio.create_task(informer.run())
        collecting = asyncio.create_task(collect_rarely(clock))
        stopping = asyncio.Event()
        try:
            async with (
                Listeners(options, lambda: synced.done() and not stopping.is_set(), app.families),
                listening(app, options.host, port, clock, stopping),
            ):
                freeze_loaded_objects()
                await until_stopped(stop, watching)
                stopping.set()
        finally:
            for task in (synced, watching, collecting):
                task.cancel()
            await asyncio.gather(synced, watching, collecting, return_exceptions=True)


@asynccontextmanager
async def listening(app: RouterApp, host: str, port: int, clock: Clock, stopping: asyncio.Event) -> AsyncIterator[int]:
    """Serve `app` while the block runs, and yield the port. At the end, requests in progress are finished.

    If `stopping` is set then, connections are still accepted for `LEAVING` seconds.
    """
    socket = listen(host, port, "the variable PORT")
    bound: int = socket.getsockname()[1]
    state = ListenerState()
    server = HttpServer(
        app,
        lambda server: HttpConnection(server, LIMITS, state, join_head=False),
        keep_alive=KEEP_ALIVE,
        date_header=True,
        drain=DRAIN,
    )
    serving = asyncio.create_task(server.serve(socket))
    log.info("router at %s:%d", host, bound)
    try:
        yield bound
    finally:
        state.draining = True  # each response is the last one on its connection
        if stopping.is_set():
            await clock.sleep(LEAVING)
        server.stop()
        await serving


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one replica and return the exit code."""

    async def run(options: Options, stop: asyncio.Event) -> None:
        await serve(options, port_of(environ, PORT), stop)

    about = "Route requests of OpenAI's API to the Models that their bodies name."
    return run_process("serving.platform.router_main", about, run, argv, environ)


if __name__ == "__main__":
    sys.exit(main())
