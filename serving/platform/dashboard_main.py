"""The process of the dashboard on Kubernetes: `python -m serving.platform.dashboard_main`.

People log in with a bearer token of the cluster, by a form or through a proxy that adds it. The process itself only
reads. Sessions are in its memory, so there is one replica.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from autoscaler.metrics.pod_http import PodHttpClient
from clusters.base.clock import SystemClock
from clusters.base.objects import POD, POD_AUTOSCALER
from clusters.base.process_setup import collect_rarely, freeze_loaded_objects
from clusters.kubernetes import KubernetesCluster
from clusters.runtime.informer import Informers
from clusters.runtime.manager.config_file import ConfigFile
from clusters.runtime.manager.options import Options
from clusters.runtime.manager.process import Listeners, run_process
from serving.control_api.server import DASHBOARD, listen, make_server
from serving.dashboard.app import Dashboard
from serving.dashboard.audit import AuditRecords
from serving.dashboard.cluster import ClusterAccess, ClusterTools, own_context
from serving.dashboard.history import History
from serving.dashboard.objects import Objects
from serving.dashboard.prometheus import PrometheusHistory
from serving.dashboard.sampler import TIMEOUT, Sampler
from serving.dashboard.sessions import Sessions
from serving.platform.replica import port_of, until_stopped
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.settings import settings_from_text

log = logging.getLogger(__name__)

NAME: Final = "knodel-dashboard"
"""User agent in the API server's audit log."""
PORT: Final = 8080
"""Default port; the variable PORT overrides it."""
HOSTS_VARIABLE: Final = "KNODEL_DASHBOARD_HOSTS"
"""Names of the dashboard's address, separated by commas, beside those of a port-forward."""
HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


async def serve(options: Options, port: int, hosts: frozenset[str], stop: asyncio.Event) -> None:
    """Serve the dashboard until `stop` is set. Raises KnodelError."""
    clock = SystemClock()
    settings = ConfigFile(options.config, settings_from_text, clock).value
    context = own_context(options.kube_context or "")
    connecting = KubernetesCluster.connect(options.kube_context or None, options.kubeconfig, user_agent=NAME)
    async with connecting as cluster:
        selectors = {POD: LABEL_MODEL, POD_AUTOSCALER: LABEL_MODEL}
        informers = Informers(cluster, clock, namespace=options.namespace, selectors=selectors)
        history, sessions = History(), Sessions(clock)
        objects = Objects(informers, history, clock, lambda: settings.prices)
        sampler = Sampler(objects.pods, partial(PodHttpClient, TIMEOUT), history, clock)
        access = ClusterAccess(context, sessions, objects)
        tools = ClusterTools(access, objects, AuditRecords(), clock, context)
        url = settings.dashboard.prometheus_url
        prometheus = PrometheusHistory(url, clock) if url else None
        app = Dashboard(objects, sampler, sessions, access, tools, clock, HOSTS | hosts, prometheus)
        server = make_server(OnlyDashboard(app))
        tasks = [asyncio.create_task(one) for one in (_work(informers, sampler), collect_rarely(clock))]
        try:
            async with Listeners(options, lambda: objects.is_synced, tuple):
                listener = listen(options.host, port, "the variable PORT")
                log.info("dashboard at %s:%d", *listener.getsockname()[:2])
                serving = asyncio.create_task(server.serve(listener))
                freeze_loaded_objects()
                await until_stopped(stop, tasks[0])
                server.stop()
                await serving
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class OnlyDashboard:
    """Answers requests of the dashboard, and sends those of `/` there."""

    def __init__(self, app: Dashboard) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "")
        if path == DASHBOARD or path.startswith(f"{DASHBOARD}/"):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            found = path == "/"
            headers = {"Location": f"{DASHBOARD}/"} if found else {}
            await PlainTextResponse("" if found else "not found", 307 if found else 404, headers)(scope, receive, send)


async def _work(informers: Informers, sampler: Sampler) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(informers.run())
        group.create_task(sampler.run())


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the dashboard and return the exit code."""
    named = environ.get(HOSTS_VARIABLE, "")
    hosts = frozenset(name for name in map(str.strip, named.lower().split(",")) if name)

    async def run(options: Options, stop: asyncio.Event) -> None:
        await serve(options, port_of(environ, PORT), hosts, stop)

    return run_process("serving.platform.dashboard_main", "Show Models on web pages.", run, argv, environ)


if __name__ == "__main__":
    sys.exit(main())
