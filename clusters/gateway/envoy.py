"""Control of Envoy: start or adopt it, apply route tables, drain and stop it.

    folder/  envoy.json  listeners.json  clusters.json      written once, from address and limits
             routes.json  endpoints.json                    written at each change of the cluster's objects
             admin.sock  envoy.pid.json  envoy.log  access.log

The folder outlives a control plane. A running Envoy continues with its files, and `start` does not change the dynamic
ones before the first `apply`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.gateway.admin import Admin, VersionProbe
from clusters.gateway.bootstrap import BOOTSTRAP, bootstrap, cluster
from clusters.gateway.config import DEFAULT_DOMAIN, Resource, RouteMaker, endpoints, response, starting
from clusters.gateway.errors import ConfigurationRejected, NotServing
from clusters.gateway.limits import DEFAULTS, GatewayLimits
from clusters.gateway.listener import listener
from clusters.gateway.process import LOG, EnvoyProcess, guard_port
from clusters.gateway.route_config import VERSION_DOMAIN
from clusters.gateway.routes import Backend, Table
from clusters.gateway.xds import XdsFiles, replace_file
from clusters.net.sockets import PortGuard, guard_localhost

log = logging.getLogger(__name__)

LISTENERS: Final = "listeners.json"
CLUSTERS: Final = "clusters.json"
ROUTES: Final = "routes.json"
ENDPOINTS: Final = "endpoints.json"
ACCESS_LOG: Final = "access.log"
VERSION_LABEL: Final = "version-label"  # a file with the first label of the Host for the version of the route table

START_TIMEOUT: Final = 15.0  # s from the start of Envoy to its first response; 0.1 s on an idle machine
APPLY_TIMEOUT: Final = 5.0  # s from a written file to a probe that observes it; 2 ms on an idle machine
REPLACE_DRAIN: Final = 5.0  # s for active requests of an Envoy that is replaced
_FIRST_PAUSE: Final = 0.001  # s between two polls of the configuration in force
_LARGEST_PAUSE: Final = 0.05
_POLLS: Final = Backoff(_FIRST_PAUSE, _LARGEST_PAUSE)
LARGEST_ACCESS_LOG: Final = 64 * 1024 * 1024  # bytes; one rotated file is kept, so twice this on disk
ACCESS_LOG_INTERVAL: Final = 60.0  # s between checks of its size; 10 000 requests/s write some 200 MB in this time


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The two dynamic files."""

    routes: Resource
    endpoints: Resource


class Envoy:
    """Envoy on `host:port` with its files in `folder`. Call `start`, then `run` in a task, then `stop` or `close`.

    Hosts of models are below `domain`. An unknown host there gets 404 and is never read as the path form.

    Example:
        gateway = Envoy(folder, "127.0.0.1", 8080, SystemClock())
        await gateway.start()
        await gateway.apply(table)
    """

    def __init__(
        self,
        folder: Path,
        host: str,
        port: int,
        clock: Clock,
        limits: GatewayLimits = DEFAULTS,
        domain: str = DEFAULT_DOMAIN,
    ) -> None:
        self.folder = folder
        self.host = host
        self.port = port
        self._clock = clock
        self._limits = limits
        self._files = XdsFiles(folder)
        self._version_host = _secret_label(folder) + VERSION_DOMAIN
        self._maker = RouteMaker(domain, limits.hosts, self._version_host)
        self._admin = Admin(folder)
        self._probe = VersionProbe(host, port, self._version_host)
        self._process = EnvoyProcess(folder, clock, limits)
        self._guard: PortGuard | None = None
        self._localhost: PortGuard | None = None
        self._confirmed: _Configuration | None = None
        self._refused: _Configuration | None = None
        self._refusals = 0

    @property
    def pid(self) -> int | None:
        """Return the process id of Envoy, None while it does not run."""
        return self._process.identity.pid if self._process.identity is not None and self._process.alive else None

    async def start(self) -> bool:
        """Start or adopt Envoy, wait until it responds, and return whether it was adopted, with its routes in force.

        A new Envoy responds with 503 and Retry-After until the first `apply`. Raises AddressInUse, NotServing.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._localhost = guard_localhost(self.host, self.port, "choose another port with --port")
        try:
            adopted = await self._adopt()
            if not adopted:
                self._guard = guard_port(self.host, self.port)
                self._write_fixed()
                self._files.write(ROUTES, starting(self._version_host))
                self._files.write(ENDPOINTS, endpoints(Table()))
                self._process.start(self.folder / BOOTSTRAP)
            await self._wait_serving()
        except BaseException:
            self._release_ports()
            raise
        return adopted

    async def run(self) -> None:
        """Restart Envoy when it ends, and rotate its access log, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._process.keep_running(self.folder / BOOTSTRAP), name="envoy")
            group.create_task(self._rotate_access_log(), name="access log")

    async def apply(self, table: Table) -> None:
        """Apply `table`: every request after the return is routed by it.

        Only changed files are written. Raises ConfigurationRejected, and NotServing when Envoy does not apply them in
        time. Then the files remain, so that Envoy or its successor can apply them later. Call again to find out.
        """
        routes = self._maker.make(table.hosts, table.models)
        wanted = _Configuration(routes, endpoints(table))
        if wanted == self._confirmed:
            return
        if wanted == self._refused:
            raise self._refusal()
        self._write(wanted)
        try:
            async with asyncio.timeout(APPLY_TIMEOUT):
                await self._wait_applied(wanted)
        except TimeoutError as error:
            raise NotServing(
                f"Envoy did not apply its configuration within {APPLY_TIMEOUT:.0f} s: see {self.folder / LOG}"
            ) from error
        self._confirmed, self._refused = wanted, None

    async def requests_at(self, backend: Backend) -> int:
        """Return the number of active requests at a backend of the current table. Raises NotServing."""
        return await self._admin.requests_at(f"{backend.host}:{backend.port}")

    async def stop(self, grace: float) -> None:
        """Stop accepting connections, wait up to `grace` seconds for active requests, and end Envoy.

        It may be called while `run` runs.
        """
        self._process.retire()
        try:
            if self._process.alive:
                await self._drain(grace)
        except NotServing as error:
            log.warning("stopping the gateway without draining it: %s", error)
        finally:
            await self._process.stop()
            await self.close()

    async def close(self) -> None:
        """Release Envoy, which continues without this control plane."""
        self._release_ports()
        await self._admin.close()
        await self._probe.close()

    def _release_ports(self) -> None:
        self._release_port()
        if self._localhost is not None:
            self._localhost.close()
            self._localhost = None

    def _release_port(self) -> None:
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    async def _adopt(self) -> bool:
        if not self._process.adopt():
            return False
        try:
            if self._write_fixed():
                raise NotServing("its static configuration differs")
            if not self._process.current:
                raise NotServing("its version differs")
            self._guard = PortGuard.join(self.host, self.port)
            await self._probe.version()
        except (NotServing, OSError) as error:
            self._release_port()
            log.warning("replacing the running Envoy: %s", error)
            await self._replace()
            return False
        log.info("adopted Envoy (pid %s)", self.pid)
        return True

    async def _replace(self) -> None:
        """End the adopted Envoy after a short drain. New requests are refused until its successor runs."""
        with contextlib.suppress(NotServing):  # a hanging Envoy cannot be drained
            await self._drain(REPLACE_DRAIN)
        await self._admin.close()
        await self._process.stop()

    def _write_fixed(self) -> bool:
        """Write the static files and return whether they changed, so that a running Envoy must be restarted."""
        files, limits = self._files, self._limits
        route_file, access_log = files.path(ROUTES), files.path(ACCESS_LOG)
        server = listener(self.host, self.port, route_file, access_log, limits)
        changed = files.write(LISTENERS, response([server]))
        changed |= files.write(CLUSTERS, response([cluster(files.path(ENDPOINTS), limits)]))
        content = msgspec.json.encode(bootstrap(files.path(LISTENERS), files.path(CLUSTERS), limits))
        path = files.path(BOOTSTRAP)
        if path.exists() and path.read_bytes() == content:
            return changed
        replace_file(path, content)
        return True

    def _write(self, wanted: _Configuration) -> None:
        """Write endpoints, then routes, so that a new route finds its backends. Raises NotServing on a write error."""
        try:
            self._files.write(ENDPOINTS, wanted.endpoints)
            self._files.write(ROUTES, wanted.routes)
        except OSError as error:
            raise NotServing(f"Envoy's configuration cannot be written to {self.folder}: {error.strerror}") from error

    async def _wait_applied(self, wanted: _Configuration) -> None:
        for polls in itertools.count():
            if await self._is_in_force(wanted):
                return
            await asyncio.sleep(_POLLS.delay(polls))

    async def _is_in_force(self, wanted: _Configuration) -> bool:
        try:
            seen = await self._admin.in_force()
            if (seen.routes, seen.endpoints) == (wanted.routes.version, wanted.endpoints.version):
                return await self._probe.version() == wanted.routes.version
        except NotServing as error:
            log.debug("waiting for Envoy: %s", error)
            return False
        before, self._refusals = self._refusals, seen.refused
        if seen.refused > before:
            self._refused = wanted
            if self._confirmed is not None:  # a restarted Envoy would have no routes with the rejected files
                self._write(self._confirmed)
            raise self._refusal()
        return False

    def _refusal(self) -> ConfigurationRejected:
        return ConfigurationRejected(
            f"Envoy rejected its configuration, the former one remains in force: see {self.folder / LOG}"
        )

    async def _wait_serving(self) -> None:
        deadline = self._clock.monotonic() + START_TIMEOUT
        for polls in itertools.count():
            try:
                await self._probe.version()
            except NotServing as error:
                if not self._process.alive:
                    raise NotServing(f"Envoy ended while it started: see {self.folder / LOG}") from error
                if self._clock.monotonic() > deadline:
                    raise
            else:
                return
            await asyncio.sleep(_POLLS.delay(polls))

    async def _drain(self, grace: float) -> None:
        await self._admin.drain_listeners()
        deadline = self._clock.monotonic() + grace
        while await self._admin.active_requests() and self._clock.monotonic() < deadline:
            await self._clock.sleep(_LARGEST_PAUSE)

    async def _rotate_access_log(self) -> None:
        path = self.folder / ACCESS_LOG
        while True:
            await self._clock.sleep(ACCESS_LOG_INTERVAL)
            if path.exists() and path.stat().st_size > LARGEST_ACCESS_LOG:
                path.replace(path.with_name(f"{ACCESS_LOG}.1"))
                try:
                    await self._admin.reopen_logs()
                except NotServing as error:
                    log.warning("the access log was renamed but not reopened: %s", error)


def _secret_label(folder: Path) -> str:
    """Return a secret label. It is stored, so that the routes of an adopted Envoy stay the same."""
    path = folder / VERSION_LABEL
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, secrets.token_hex(16).encode())
    return path.read_text()
