"""The composition root of `knodel up`: joins the embedded cluster, the controllers and the control API in one loop.

Start, in order: lock, ports, store, informers, data plane processes (adopted when they still run), controllers, API;
then `platform.json` says that it is ready. The end is the reverse: no new requests, replicas drain, processes end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from autoscaler.apis import effective_policy
from autoscaler.config import Settings as Scaling
from autoscaler.config import WarmStart
from autoscaler.controller import Autoscaler
from autoscaler.metrics.source import PodScraper
from autoscaler.warmpool.caller import HttpLoadCaller
from autoscaler.warmpool.keys import PoolKey
from clusters.clock import SystemClock
from clusters.embedded.activator.process import ActivatorProcess
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane import DataPlane
from clusters.embedded.dataplane_view import Hold, HoldPolicy
from clusters.embedded.knative import KnativeServing
from clusters.embedded.knative.validation import PLATFORM_FEATURES, validators
from clusters.embedded.kubelet import Image, Kubelet
from clusters.embedded.lock import FolderLock
from clusters.embedded.pod_logs import PodLogs
from clusters.embedded.store import Store
from clusters.embedded.workloads import Workloads
from clusters.errors import FieldError, KnodelError
from clusters.gateway.envoy import Envoy
from clusters.gateway.limits import Limits
from clusters.identity import identify
from clusters.informer import Informers
from clusters.objects import (
    EVENT_SOURCE,
    KINDS,
    MODEL,
    MODEL_EVENT,
    NAMESPACE,
    REVISION,
    WARM_POOL,
    Object,
)
from clusters.recorder import Recorder
from serving.api.app import ControlApi
from serving.api.guard import Guard
from serving.api.server import listen, make_server
from serving.api.tls import ensure_certificate, kubeconfig
from serving.apis.references import make_validator
from serving.apis.settings import Settings
from serving.apis.state import (
    ACTIVATOR_FOLDER,
    ARTIFACTS_FOLDER,
    GATEWAY_FOLDER,
    KUBECONFIG_FILE,
    POOL_KEY_FILE,
    STORE_FILE,
    TLS_FOLDER,
    TOKEN_FILE,
    Facts,
    forget,
    write_private,
)
from serving.apis.version import VERSION
from serving.apis.warm_pool import validate_warm_pool
from serving.loops import Loops
from serving.reconciler.controller import ModelController
from serving.reconciler.flags import AllOn
from serving.reconciler.warm_pool_controller import WarmPoolController
from serving.server import preload

log = logging.getLogger(__name__)

WRITABLE = frozenset({MODEL, NAMESPACE, WARM_POOL})
"""What callers of the control API may write: the kinds of ours that do something already, and namespaces' labels."""

SCALING = Scaling(warm=WarmStart(create_burst=1))
"""Members of a pool start one after the other: here the replicas that serve have the same processors."""

DRAIN = 30.0  # s that requests under way get when the platform ends, all parts together
LEAST_DRAIN = 2.0  # s
API_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Platform:
    """One machine's platform, from `run` to the end of `run`."""

    def __init__(self, state: Path, settings: Settings) -> None:
        self.state = state
        self.ready = asyncio.Event()
        self._settings = settings
        self._clock = SystemClock()
        self._ending = False

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then end everything in order.

        Raises KnodelError when it cannot start: a second platform on this folder, a taken port, a broken store.
        """
        with FolderLock(self.state):
            forget(self.state)
            sockets = self._listen()
            try:
                self.cluster = self._open_store()
                await self._run_parts(sockets, stop)
            finally:
                forget(self.state)
                for one in sockets:
                    one.close()

    async def _run_parts(self, sockets: Sequence[socket.socket], stop: asyncio.Event) -> None:
        self._compose()
        try:
            await self._start_data_plane()
            async with Loops() as loops:
                self._start_loops(loops)
                await loops.until(self._informers.synced())
                serving = self._serve_api(loops, sockets)
                await loops.until(self._settled())
                self._announce(sockets)
                await loops.until(stop.wait())
                forget(self.state)
                await self._end(serving)
        finally:
            await self._gateway.close()
            await self._store.close()

    async def _start_data_plane(self) -> None:
        """Envoy and the activator at once, adopted or fresh; neither stays alone when the other fails to start."""
        starts = (self._gateway.start(), self._activator.start())
        gateway, activator = await asyncio.gather(*starts, return_exceptions=True)
        if isinstance(gateway, BaseException):
            await self._activator.stop(0)
            raise gateway
        if isinstance(activator, BaseException):
            if not gateway:
                await self._gateway.stop(0)
            raise activator

    def _open_store(self) -> EmbeddedCluster:
        self._store = Store.open(self.state / STORE_FILE)
        models = self._store.of_kind(MODEL)
        doors = {
            **validators(PLATFORM_FEATURES),
            MODEL: make_validator(models.values, self._store.of_kind(REVISION).values),
            WARM_POOL: validate_warm_pool,
            EVENT_SOURCE: _later,
            MODEL_EVENT: _later,
        }
        return EmbeddedCluster(self._store, clock=self._clock, validators=doors)

    def _compose(self) -> None:
        cluster, clock, settings = self.cluster, self._clock, self._settings
        informers = self._informers = Informers(cluster, clock)
        self._gateway = self._make_gateway()
        self._activator = ActivatorProcess(self.state / ACTIVATOR_FOLDER, clock)
        self._dataplane = DataPlane(
            cluster,
            informers,
            envoy=self._gateway,
            activator=self._activator.link,
            activator_address=self._activator.address,
            hold=_hold_policy(informers),
            clock=clock,
        )
        self._kubelet = Kubelet(
            cluster,
            informers,
            state_dir=self.state,
            images={settings.server.image: self._server_image()},
            drain=self._release,
            clock=clock,
        )
        self._controllers = (
            KnativeServing(cluster, informers, clock=clock, domain=self._domain, url=self._url),
            Workloads(cluster, informers, clock),
            Autoscaler(
                cluster,
                informers,
                source=PodScraper(clock),
                activator=self._activator.link,
                caller=HttpLoadCaller(),
                keys=self._pool_key(),
                clock=clock,
                settings=SCALING,
            ),
            ModelController(
                cluster,
                informers,
                settings=settings,
                clock=clock,
                recorder=Recorder(cluster, "knodel", clock),
                flags=AllOn(),
            ),
            WarmPoolController(cluster, informers, settings=settings),
        )

    def _start_loops(self, loops: Loops) -> None:
        for loop in (
            self.cluster.run(),
            self._informers.run(),
            self._gateway.run(),
            self._activator.run(),
            self._kubelet.run(),
            *(controller.run() for controller in self._controllers),
        ):
            loops.start(loop)
        self._routing = loops.start(self._dataplane.run())

    async def _settled(self) -> None:
        """What was left running is known again, and what the objects say is in force at the gateway."""
        await self._kubelet.settled()
        await self._dataplane.ready()

    def _domain(self, namespace: str, name: str) -> str:
        return f"{name}.{namespace}.{self._settings.gateway.domain}"

    def _url(self, host: str) -> str:
        return f"http://{host}:{self._settings.gateway.port}"

    def _make_gateway(self) -> Envoy:
        said = self._settings.gateway
        limits = Limits(
            body_bytes=said.max_request_bytes,
            header_kib=said.max_header_bytes // 1024,
            header_count=said.max_headers,
            header_seconds=said.header_timeout,
        )
        folder = self.state / GATEWAY_FOLDER
        return Envoy(folder, said.address, said.port, self._clock, limits, said.domain)

    def _server_image(self) -> Image:
        return Image(
            command=(sys.executable, "-m", "serving.server"),
            entry="serving.server.main:main",
            preload=preload,
            env={
                "KNODEL_CACHE": str(self.state / ARTIFACTS_FOLDER),
                "KNODEL_ALLOW_HOSTS": "localhost,127.0.0.1",
                "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime 1.29 and newer would report to its makers by default
            },
        )

    def _listen(self) -> list[socket.socket]:
        control = self._settings.control
        first = listen(control.address, control.port, "--control-port")
        try:
            return [first, listen(control.address, control.tls_port, "KNODEL_CONTROL_TLS_PORT")]
        except KnodelError:
            first.close()
            raise

    def _serve_api(self, loops: Loops, sockets: Sequence[socket.socket]) -> list[tuple[Any, asyncio.Task[None]]]:
        token = self._token()
        authority, certificate, key = ensure_certificate(self.state / TLS_FOLDER, self._clock.now())
        tls_address = _address(sockets[1])
        config = kubeconfig(f"https://{tls_address}", authority.read_bytes(), token)
        write_private(self.state / KUBECONFIG_FILE, config.encode())
        api = ControlApi(
            self.cluster,
            kinds=KINDS,
            writable=WRITABLE,
            logs=PodLogs(self.state, self._clock),
            clock=self._clock,
            version=VERSION,
            ready=self.ready.is_set,
        )
        app = api.app(Guard(token, API_HOSTS | {self._settings.control.address}))
        servers = [make_server(app), make_server(app, (certificate, key))]
        return [
            (server, loops.start(server.serve(sockets=[one]))) for server, one in zip(servers, sockets, strict=True)
        ]

    def _token(self) -> str:
        return self._secret(TOKEN_FILE).read_text().strip()

    def _pool_key(self) -> PoolKey:
        return PoolKey.from_file(self._secret(POOL_KEY_FILE))

    def _secret(self, name: str) -> Path:
        """A file of the state folder with random text, made when it is not there."""
        path = self.state / name
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode() + b"\n")
        return path

    def _announce(self, sockets: Sequence[socket.socket]) -> None:
        own = identify(os.getpid())
        if own is None:
            raise KnodelError(
                "/proc does not show this process: Knodel's embedded cluster needs Linux with /proc mounted"
            )
        facts = Facts(
            pid=own.pid,
            start_ticks=own.start_ticks,
            version=VERSION,
            state=str(self.state),
            gateway=f"{self._settings.gateway.address}:{self._settings.gateway.port}",
            control=_address(sockets[0]),
            control_tls=_address(sockets[1]),
            domain=self._settings.gateway.domain,
        )
        facts.write()
        log.info("ready: gateway http://%s, control http://%s", facts.gateway, facts.control)
        self.ready.set()

    async def _release(self, pod: Object) -> None:
        """Keep new requests off a Pod; at the end of the platform none come any more."""
        if not self._ending:
            await self._dataplane.release(pod)

    def _left(self, deadline: float) -> float:
        """Seconds until then, and a moment in any case: what has nothing under way ends within it."""
        return max(LEAST_DRAIN, deadline - self._clock.monotonic())

    async def _end(self, serving: Sequence[tuple[Any, asyncio.Task[None]]]) -> None:
        """No new requests, then what is under way ends, then the processes do."""
        for server, _ in serving:
            server.should_exit = True
        deadline = self._clock.monotonic() + DRAIN
        await self._gateway.stop(DRAIN)
        await self._activator.stop(self._left(deadline))
        self._routing.cancel()  # there is nothing left to route to, nor by
        self._ending = True
        await self._kubelet.stop_all(self._left(deadline))
        await asyncio.gather(*(task for _, task in serving))


def run_platform(state: Path, settings: Settings) -> int:
    """Run a platform in this process until SIGINT or SIGTERM; returns the exit code."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return uvloop.run(_until_signal(Platform(state, settings)))


async def _until_signal(platform: Platform) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await platform.run(stop)
    return 0


def _hold_policy(informers: Informers) -> Hold:
    """How the activator holds requests of a revision: from its PodAutoscaler's policy and its own timeout."""
    revisions = informers[REVISION]

    def policy(pod_autoscaler: Object) -> HoldPolicy:
        said = effective_policy(pod_autoscaler)
        metadata = pod_autoscaler["metadata"]
        revision = revisions.get(metadata["name"], metadata["namespace"]) or {}
        spec = revision.get("spec") or {}
        concurrency = int(spec.get("containerConcurrency") or 0)
        slots = concurrency or max(1, round(said.scale_target))
        return HoldPolicy(said.hold_queue, slots, float(spec.get("timeoutSeconds") or 300))

    return policy


def _later(_old: Object | None, new: Object) -> Sequence[FieldError]:
    return (FieldError("kind", f"{new.get('kind')} is not supported yet: deploy Models"),)


def _address(one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
