"""The process of the event webhook on Kubernetes: `python -m serving.platform.webhook_main`.

All replicas accept events. An accepted event is a ModelEvent, whose name only one of them can create. The webhook only
records events; the controller (`serving.platform.main`) applies them. Senders without an EventSource get 401.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from clusters.base.clock import SystemClock
from clusters.base.objects import EVENT_SOURCE
from clusters.base.process_setup import collect_rarely, freeze_loaded_objects
from clusters.kubernetes import KubernetesCluster, Timeouts
from clusters.kubernetes.transport import ApiRequest, Transport
from clusters.runtime.informer import Informer
from clusters.runtime.manager.config_file import ConfigFile
from clusters.runtime.manager.options import Options
from clusters.runtime.manager.process import Listeners, run_process
from eventing.auth.cluster_issuer import ClusterIssuer, Get
from eventing.auth.issuers import Discovery
from eventing.webhook.app import PATH, EventsApp
from eventing.webhook.finished_jobs import FinishedJobs
from eventing.webhook.webhook import make_finished_jobs, make_webhook
from serving.control_api.server import listen, make_server
from serving.platform.event_limits import bounds_of, issuer_hosts_of, limits_of
from serving.platform.replica import port_of, until_stopped
from serving.types.settings.settings import Settings, settings_from_text

log = logging.getLogger(__name__)

NAME = "knodel-eventing"
"""User agent in the API server's audit log."""
SYSTEM = "knodel-system"
"""The platform's namespace, whose EventSources may name Models in all namespaces."""
PORT = 8080
"""Default port of the webhook; the variable PORT overrides it."""
TIMEOUTS = Timeouts(request=10.0, total=10.0)
"""s. A sender waits for the answer, and repeats an event that is not stored by then."""


async def serve(options: Options, port: int, stop: asyncio.Event) -> None:
    """Serve the webhook until `stop` is set. Raises KnodelError."""
    clock = SystemClock()
    config = ConfigFile(options.config, settings_from_text, clock)
    async with KubernetesCluster.connect(
        options.kube_context or None, options.kubeconfig, timeouts=TIMEOUTS, user_agent=NAME
    ) as cluster:
        informer = Informer(cluster, EVENT_SOURCE, namespace=options.namespace, clock=clock)
        issuers = ClusterIssuer(_getter(cluster), Discovery(lambda: issuer_hosts_of(config.value.events)))
        app = make_webhook(cluster, informer, issuers, clock, limits=limits_of(config.value.events), reach=_reach)
        oldest = bounds_of(config.value.events).lifetime
        jobs = make_finished_jobs(cluster, informer, clock, reach=_reach, oldest=oldest)
        synced = asyncio.create_task(informer.synced())
        async with Listeners(options, synced.done, app.families), _listening(app, options.host, port):
            watching = asyncio.create_task(informer.run())
            tasks = (
                synced,
                watching,
                asyncio.create_task(_watch_jobs(synced, jobs)),
                asyncio.create_task(_follow(config, app)),
                asyncio.create_task(collect_rarely(clock)),
            )
            freeze_loaded_objects()
            try:
                await until_stopped(stop, watching)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def _reach(namespace: str) -> bool:
    return namespace == SYSTEM


async def _follow(config: ConfigFile[Settings], app: EventsApp) -> None:
    """Apply changed settings."""
    while True:
        await config.changed()
        app.update_limits(limits_of(config.value.events))
        log.info("changed settings are in force")


async def _watch_jobs(synced: asyncio.Task[None], jobs: FinishedJobs) -> None:
    """Watch finished jobs. A failure stops this, but not the webhook."""
    try:
        await synced
        await jobs.run()
    except Exception:
        log.exception("finished jobs are not watched any more")


@asynccontextmanager
async def _listening(app: EventsApp, host: str, port: int) -> AsyncIterator[None]:
    socket = listen(host, port, "the variable PORT")
    server = make_server(app)
    serving = asyncio.create_task(server.serve(socket))
    log.info("webhook at %s:%d%s", host, socket.getsockname()[1], PATH)
    try:
        yield
    finally:
        server.stop()
        await serving


def _getter(cluster: KubernetesCluster) -> Get:
    transport = Transport(cluster.connection, SystemClock(), TIMEOUTS)

    async def get(path: str) -> Any:
        return await transport.call(ApiRequest("GET", path, path))

    return get


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one replica and return the exit code."""

    async def run(options: Options, stop: asyncio.Event) -> None:
        await serve(options, port_of(environ, PORT), stop)

    return run_process(
        "serving.platform.webhook_main", "Receive CloudEvents and record them as ModelEvents.", run, argv, environ
    )


if __name__ == "__main__":
    sys.exit(main())
