"""A control-plane process, from arguments to exit code: 0 after a signal, 1 after a failure, 2 for invalid usage."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, TypeVar

import uvloop

from clusters.base.api import Cluster
from clusters.base.clock import Clock, SystemClock
from clusters.base.errors import KnodelError
from clusters.base.process_setup import disable_core_dumps
from clusters.net.otlp.starting import EXPORT_TIMEOUT, export_if_configured
from clusters.runtime.lease import LeaderLease
from clusters.runtime.manager.config_file import ConfigFile
from clusters.runtime.manager.http import HttpListener, HttpRequest, HttpResponse
from clusters.runtime.manager.logs import configure_logs
from clusters.runtime.manager.manager import Component, Manager
from clusters.runtime.manager.metrics import Family, Histogram, page_of, process_families
from clusters.runtime.manager.options import NO_FILES, InvalidOptions, Options, parse_options

if TYPE_CHECKING:
    from clusters.net.otlp.metrics import PeriodicMetrics

log = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_DURATION = 8.0
"""s. After the death of a leader, another one acts within this duration and one LEASE_PERIOD."""
LEASE_PERIOD = 2.0
"""s between renewals. A leader survives a restart of the API server of 6 s; half a write per second is negligible."""


@dataclass(frozen=True, slots=True)
class ControlPlaneProgram(Generic[T]):
    """The definition of a control-plane process.

    `connect` opens the cluster, `settings(text, where)` parses the file of `--config`, and `make` composes the
    component. `files` are options of this program alone (`options.parse_options`).
    """

    name: str
    about: str
    lease: str
    connect: Callable[[Options], AbstractAsyncContextManager[Cluster]]
    settings: Callable[[str, str], T]
    make: Callable[[Cluster, Options, T, Clock], Component]
    files: Mapping[str, str] = field(default_factory=dict)


def run_program(program: ControlPlaneProgram[T], argv: Sequence[str] | None = None) -> int:
    """Run one replica until SIGTERM or SIGINT; return the exit code."""
    return run_process(program.name, program.about, partial(run_replica, program), argv, files=program.files)


def run_process(
    name: str,
    about: str,
    serve: Callable[[Options, asyncio.Event], Awaitable[None]],
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    files: Mapping[str, str] = NO_FILES,
) -> int:
    """Run `serve(options, stop)` and return the exit code. SIGTERM and SIGINT set `stop`."""
    disable_core_dumps()
    try:
        options = parse_options(name, about, sys.argv[1:] if argv is None else argv, environ, files)
        configure_logs(options.log_format, options.log_level)
        uvloop.run(_until_signal(serve, options))
    except InvalidOptions as error:
        print(f"error: {error}", file=sys.stderr)  # logging is not configured yet
        return 2
    except KnodelError as error:
        log.error("%s", error)
        return 1
    except Exception:
        log.exception("internal error")
        return 1
    return 0


async def _until_signal(serve: Callable[[Options, asyncio.Event], Awaitable[None]], options: Options) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(options, stop)
    log.info("stopped by a signal")


async def run_replica(
    program: ControlPlaneProgram[T], options: Options, stop: asyncio.Event, clock: Clock | None = None
) -> None:
    """Run one replica of the program until `stop`. Raises KnodelError."""
    clock = clock or SystemClock()
    config = ConfigFile(options.config, program.settings, clock)
    async with program.connect(options) as cluster:
        lease = LeaderLease(
            cluster,
            program.lease,
            options.system_namespace,
            options.identity,
            clock,
            duration=LEASE_DURATION,
            renew_every=LEASE_PERIOD,
        )
        manager = Manager(
            cluster, lease, lambda fenced: program.make(fenced, options, config.value, clock), config.changed
        )
        async with Listeners(options, lambda: manager.ready, manager.families):
            await manager.run(stop)


class Listeners:
    """The listeners of probes and metrics, as an async context manager.

    Metrics are also sent to a collector that OpenTelemetry's variables name.
    """

    def __init__(
        self, options: Options, ready: Callable[[], bool], families: Callable[[], Iterable[Family | Histogram]]
    ) -> None:
        self._options = options
        self._ready = ready
        self._families = families
        self._open: list[HttpListener] = []
        self._export: PeriodicMetrics | None = None

    async def __aenter__(self) -> Listeners:
        options = self._options
        for port, handler, what in (
            (options.probe_port, self._probe, "probes"),
            (options.metrics_port, self._metrics, "metrics"),
        ):
            listener = HttpListener(options.host, port, handler)
            try:
                bound = await listener.start()
            except KnodelError:
                await self.__aexit__()
                raise
            self._open.append(listener)
            log.info("%s at %s:%d", what, options.host, bound)
        self._export = export_if_configured(self._all_families, options.program)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._export is not None:
            await asyncio.to_thread(self._export.close, EXPORT_TIMEOUT)
        for listener in self._open:
            await listener.close()

    def _probe(self, request: HttpRequest) -> HttpResponse:
        """Respond to `/healthz` (the event loop runs) and `/readyz` (this replica can act now)."""
        if request.path not in ("/healthz", "/readyz"):
            return HttpResponse(HTTPStatus.NOT_FOUND, "not found: the paths are /healthz and /readyz\n")
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        if request.path == "/readyz" and not self._ready():
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: the first lists are not complete\n")
        return HttpResponse(HTTPStatus.OK, "ok\n")

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        if request.path != "/metrics":
            return HttpResponse(HTTPStatus.NOT_FOUND, "not found: the path is /metrics\n")
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        return HttpResponse(HTTPStatus.OK, *page_of(self._all_families(), request.accept))

    def _all_families(self) -> list[Family | Histogram]:
        return [*self._families(), *process_families()]
