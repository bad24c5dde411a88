"""The event webhook as a process: composition root of `python -m serving.platform.webhook_main` on Kubernetes.

All replicas answer: what they accept is a ModelEvent, whose name two of them cannot both create. They only record; the
controller (`serving.platform.main`) acts. Who may send is an EventSource; without one everybody is answered 401.
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
from clusters.base.python_gc import collect_seldom, spare_what_is_there
from clusters.kubernetes import KubernetesCluster, Timeouts
from clusters.kubernetes.transport import Request, Transport
from clusters.runtime.informer import Informer
from clusters.runtime.manager.config_file import ConfigFile
from clusters.runtime.manager.options import BadOptions, Options
from clusters.runtime.manager.process import Listeners, run_process
from eventing.auth.cluster_issuer import ClusterIssuer, Get
from eventing.auth.issuers import Discovery
from eventing.webhook.app import PATH, EventsApp
from eventing.webhook.finished_jobs import FinishedJobs
from eventing.webhook.webhook import make_finished_jobs, make_webhook
from serving.control_api.server import listen, make_server
from serving.platform.event_limits import bounds_of, issuer_hosts_of, limits_of
from serving.types.settings.settings import Settings, settings_from_text

log = logging.getLogger(__name__)

NAME = "knodel-eventing"
"""As the API server's audit log has it."""
SYSTEM = "knodel-system"
"""The platform's own namespace, whose EventSources may speak of Models in all."""
PORT = 8080
"""Of the webhook; variable PORT."""
TIMEOUTS = Timeouts(request=10.0, total=10.0)
"""s: a sender waits for its answer, and sends again what is not kept by then."""


async def serve(options: Options, port: int, stop: asyncio.Event) -> None:
    """Answer until `stop`. Raises KnodelError."""
    clock = SystemClock()
    config = ConfigFile(options.config, settings_from_text, clock)
    async with KubernetesCluster.connect(
        options.kube_context or None, options.kubeconfig, timeouts=TIMEOUTS, user_agent=NAME
    ) as cluster:
        informer = Informer(cluster, EVENT_SOURCE, namespace=options.namespace, clock=clock)
        issuers = ClusterIssuer(_asking(cluster), Discovery(lambda: issuer_hosts_of(config.value.events)))
        app = make_webhook(cluster, informer, issuers, clock, limits=limits_of(config.value.events), reach=_reach)
        oldest = bounds_of(config.value.events).lifetime
        jobs = make_finished_jobs(cluster, informer, clock, reach=_reach, oldest=oldest)
        synced = asyncio.create_task(informer.synced())
        async with Listeners(options, synced.done, app.families), _listening(app, options.host, port):
            watching = asyncio.create_task(informer.run())
            tasks = (
                synced,
                watching,
                asyncio.create_task(_look(synced, jobs)),
                asyncio.create_task(_follow(config, app)),
                asyncio.create_task(collect_seldom(clock)),
            )
            spare_what_is_there()
            try:
                await _until(stop, watching)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def _reach(namespace: str) -> bool:
    return namespace == SYSTEM


async def _follow(config: ConfigFile[Settings], app: EventsApp) -> None:
    """Take a change of the settings over."""
    while True:
        await config.changed()
        app.adopt(limits_of(config.value.events))
        log.info("the settings have changed: they are in force")


async def _look(synced: asyncio.Task[None], jobs: FinishedJobs) -> None:
    """Whatever fails in it, events of others are taken."""
    try:
        await synced
        await jobs.run()
    except Exception:
        log.exception("finished jobs are not looked for")


async def _until(stop: asyncio.Event, watching: asyncio.Task[None]) -> None:
    """Raises what `watching` ends by."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((stopped, watching), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if watching.done():
        watching.result()


@asynccontextmanager
async def _listening(app: EventsApp, host: str, port: int) -> AsyncIterator[None]:
    socket = listen(host, port, "the variable PORT")
    server = make_server(app)
    serving = asyncio.create_task(server.serve(sockets=[socket]))
    log.info("webhook at %s:%d%s", host, socket.getsockname()[1], PATH)
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def _asking(cluster: KubernetesCluster) -> Get:
    transport = Transport(cluster.connection, SystemClock(), TIMEOUTS)

    async def get(path: str) -> Any:
        return await transport.call(Request("GET", path, path))

    return get


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one replica; returns the exit code."""

    async def run(options: Options, stop: asyncio.Event) -> None:
        await serve(options, _port(environ), stop)

    return run_process("serving.platform.webhook_main", "Take CloudEvents in.", run, argv, environ)


def _port(environ: Mapping[str, str]) -> int:
    text = environ.get("PORT") or str(PORT)
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise BadOptions(f"PORT={text[:80]!r}: a port is a number from 0 (any free one) to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
