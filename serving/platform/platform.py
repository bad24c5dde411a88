"""The composition root of `knodel up`: joins the embedded cluster, the controllers and the control API in one loop.

The start is in this order: lock, ports, store, informers, data plane processes (adopted if they still run),
controllers, API. Then `platform.json` is written. The end is the reverse: no new requests, replicas drain, processes
end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvloop

from autoscaler.config import AutoscalerSettings, WarmStart
from autoscaler.controller import Autoscaler
from autoscaler.gpu.sharing import GpuSharing
from autoscaler.gpu.watch import GpuWatch
from autoscaler.metrics.source import PodScraper
from autoscaler.warmpool.claims.caller import HttpLoadCaller
from autoscaler.warmpool.claims.keys import PoolKey
from clusters.base.clock import SystemClock
from clusters.base.distribution import VERSION
from clusters.base.errors import AlreadyExists, KnodelError
from clusters.base.identity import identify
from clusters.base.objects import (
    CONFIG_MAP,
    EVENT_SOURCE,
    KINDS,
    MODEL,
    MODEL_EVENT,
    NAMESPACE,
    POD,
    SECRET,
    WARM_POOL,
    Object,
)
from clusters.base.process_setup import collect_rarely, disable_core_dumps, freeze_loaded_objects
from clusters.embedded.activator.process import ActivatorProcess
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane.controller import DataPlane
from clusters.embedded.knative import KnativeServing
from clusters.embedded.kubelet import Kubelet
from clusters.embedded.kubelet.log_rotation import LogRotator
from clusters.embedded.kubelet.pod_logs import PodLogReader
from clusters.embedded.store.lock import FolderLock
from clusters.embedded.store.store import Store
from clusters.embedded.workloads import Workloads
from clusters.gateway.token import ACTIVATOR, GatewayTokens
from clusters.net.otlp.starting import EXPORT_TIMEOUT, export_if_configured
from clusters.net.ssrf import LOOPBACK_HOSTS
from clusters.runtime.informer import Informers
from clusters.runtime.manager.metrics import (
    Family,
    Histogram,
    controller_families,
    informer_families,
    process_families,
)
from eventing.auth.issuers import Discovery
from eventing.webhook.webhook import make_webhook
from serving.control_api.app import ControlApi
from serving.observability.collector import ObjectMetrics
from serving.observability.scraping import scrape_targets
from serving.platform.admission import make_validators
from serving.platform.control_server import Control, ensure_key_file
from serving.platform.controllers import Controllers, Part
from serving.platform.dashboard import MachineDashboard
from serving.platform.event_files import EventFiles
from serving.platform.event_limits import issuer_hosts_of, limits_of
from serving.platform.kept_files import KeptFiles
from serving.platform.local_node import find_devices, hold_policy, images, make_gateway
from serving.platform.task_group import BackgroundTasks
from serving.reconciler.apply import FIELD_MANAGER
from serving.reconciler.flags import AllOn
from serving.storage.kept import size_limit
from serving.types.annotations import LABEL_ALLOW_CODE
from serving.types.code import ALLOWED
from serving.types.settings.prices import prices_to_dict
from serving.types.settings.settings import Settings
from serving.types.settings.state import (
    ACTIVATOR_FOLDER,
    GATEWAY_FOLDER,
    GATEWAY_KEY_FILE,
    KEPT_FOLDER,
    LOG_FILE,
    POOL_KEY_FILE,
    STORE_FILE,
    Facts,
    forget,
    report_full_disk,
)

log = logging.getLogger(__name__)

WRITABLE = frozenset({CONFIG_MAP, EVENT_SOURCE, MODEL, MODEL_EVENT, NAMESPACE, SECRET, WARM_POOL})
"""Kinds that callers of the control API may write: our own, Namespaces, Secrets of Models and EventSources, and
ConfigMaps, which the platform stores but does not use."""

SERVICE = "knodel"
"""Name of the platform at a collector of metrics and traces."""
HOME = "default"
"""The default namespace. Its models may run code, because the machine belongs to its user."""

SCALING = AutoscalerSettings(warm=WarmStart(create_burst=1))
"""Members of a pool start one after the other, because serving replicas share the same processors."""

LOGS = (LOG_FILE, f"{GATEWAY_FOLDER}/envoy.log", f"{ACTIVATOR_FOLDER}/*.out", "zygotes/*/*.log")
"""Log files that are rotated for the processes that write them."""

OpenStore = Callable[[Path], Store]

DRAIN = 30.0  # s for requests in flight when the platform ends, for all parts together
LEAST_DRAIN = 2.0  # s


class Platform:
    """The platform of one machine."""

    def __init__(self, state: Path, settings: Settings, open_store: OpenStore = Store.open) -> None:
        """Prepare a platform in the folder `state`; `open_store` opens its store file."""
        self.state = state
        self._open = open_store
        self.ready = asyncio.Event()
        self._settings = settings
        self._clock = SystemClock()
        self._ending = False

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then stop all parts in order.

        Raises KnodelError if it cannot start: another platform in this folder, a taken port, a broken store, a full
        disk.
        """
        with report_full_disk(self.state), FolderLock(self.state):
            forget(self.state)
            self._control = Control(self.state, self._settings.control)
            try:
                self.cluster = self._open_store()
                await self._run_parts(stop)
            finally:
                forget(self.state)
                self._control.close()

    async def _make_home(self) -> None:
        """Create the default namespace. An existing one is not changed, so a label that was removed stays removed."""
        metadata = {"name": HOME, "labels": {LABEL_ALLOW_CODE: ALLOWED}}
        with suppress(AlreadyExists):
            await self.cluster.create(NAMESPACE, {"metadata": metadata}, manager=FIELD_MANAGER)

    async def _run_parts(self, stop: asyncio.Event) -> None:
        self._compose()
        try:
            await self._make_home()
            await self._start_data_plane()
            async with BackgroundTasks() as loops:
                self._start_loops(loops)
                await loops.until(self._informers.synced())
                self._control.serve(self._control_api(), self._webhook, self._dashboard, loops, self._clock.now())
                await loops.until(self._settled())
                freeze_loaded_objects()
                loops.start(collect_rarely(self._clock))
                export = export_if_configured(self._families, SERVICE)
                self._announce()
                await loops.until(stop.wait())
                forget(self.state)
                if export is not None:
                    await asyncio.to_thread(export.close, EXPORT_TIMEOUT)
                await self._end()
        finally:
            await self._controllers.close()
            await self._gateway.close()
            await self._store.close()

    async def _start_data_plane(self) -> None:
        """Start or adopt Envoy and the activator together. If one fails, the other is stopped."""
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
        self._store = self._open(self.state / STORE_FILE)
        return EmbeddedCluster(
            self._store,
            clock=self._clock,
            validators=make_validators(self._store, self._settings),
            creates_namespaces=False,
        )

    def _compose(self) -> None:
        cluster, clock, settings = self.cluster, self._clock, self._settings
        informers = self._informers = Informers(cluster, clock)
        self._compose_data_plane(informers)
        self._autoscaler = self._make_autoscaler(informers)
        self._machine: tuple[Part, ...] = (
            KnativeServing(cluster, informers, clock=clock, domain=self._domain, url=self._url),
            Workloads(cluster, informers, clock),
            self._autoscaler,
        )
        files = EventFiles(self.state / KEPT_FOLDER, size_limit(os.environ))
        self._controllers = Controllers(cluster, informers, settings, clock, AllOn(), reach=_everywhere, files=files)
        issuers = Discovery(lambda: LOOPBACK_HOSTS | issuer_hosts_of(settings.events))
        limits = limits_of(settings.events)
        self._objects = ObjectMetrics(informers)
        self._dashboard = MachineDashboard(self.state, informers, clock, settings, self._control.hosts)
        self._webhook = make_webhook(cluster, informers[EVENT_SOURCE], issuers, clock, limits=limits, reach=_everywhere)

    def _compose_data_plane(self, informers: Informers) -> None:
        self._gateway = make_gateway(self.state, self._settings, self._clock)
        tokens = GatewayTokens(ensure_key_file(self.state / GATEWAY_KEY_FILE).read_bytes())
        self._activator = ActivatorProcess(self.state / ACTIVATOR_FOLDER, self._clock, tokens.of(ACTIVATOR))
        self._dataplane = DataPlane(
            self.cluster,
            informers,
            envoy=self._gateway,
            activator=self._activator.link,
            activator_address=self._activator.address,
            read_hold_policy=hold_policy(informers),
            tokens=tokens,
            clock=self._clock,
        )
        self._kubelet = Kubelet(
            self.cluster,
            informers,
            state_dir=self.state,
            images=images(self.state, self._settings),
            drain=self._release,
            tokens=tokens,
            clock=self._clock,
            devices=find_devices(os.environ),
        )

    def _make_autoscaler(self, informers: Informers) -> Autoscaler:
        replicas = PodScraper(self._clock)
        watch = GpuWatch(self.cluster, self._clock, {})
        return Autoscaler(
            self.cluster,
            informers,
            source=replicas,
            progress=replicas,
            digests=replicas,
            answers=replicas,
            activator=self._activator.link,
            caller=HttpLoadCaller(),
            keys=PoolKey.from_file(ensure_key_file(self.state / POOL_KEY_FILE)),
            clock=self._clock,
            settings=SCALING,
            gpus=GpuSharing(watch, self._settings.gpu, self._clock, SCALING.sampling.tick),
        )

    def _start_loops(self, loops: BackgroundTasks) -> None:
        for loop in (
            self.cluster.run(),
            self._informers.run(),
            self._gateway.run(),
            self._activator.run(),
            self._kubelet.run(),
            LogRotator(self.state, self._clock, patterns=LOGS, rotated=1).run(),
            *(part.run() for part in (*self._machine, *self._controllers.parts)),
            KeptFiles(self.state / KEPT_FOLDER, self._informers, self._clock).run(),
            self._dashboard.sampler.run(),
        ):
            loops.start(loop)
        self._routing = loops.start(self._dataplane.run())

    async def _settled(self) -> None:
        """Wait until running processes are adopted and the gateway has the configuration of the objects."""
        await self._kubelet.synced()
        await self._dataplane.ready()

    def _domain(self, namespace: str, name: str) -> str:
        return f"{name}.{namespace}.{self._settings.gateway.domain}"

    def _url(self, host: str) -> str:
        return f"http://{host}:{self._settings.gateway.port}"

    def _control_api(self) -> ControlApi:
        return ControlApi(
            self.cluster,
            kinds=KINDS,
            writable=WRITABLE,
            logs=PodLogReader(self.state, self._clock),
            clock=self._clock,
            version=VERSION,
            ready=self.ready.is_set,
            trouble=self._store.write_error,
            metrics=self._families,
            targets=lambda: scrape_targets(self._informers[POD]),
            link=self._dashboard.make_link,
        )

    def _families(self) -> list[Family | Histogram]:
        """Return the metrics of all controllers of this process, of their objects, and of the webhook."""
        return [
            *controller_families((*self._controllers.queues, *self._autoscaler.controllers)),
            *informer_families(self._informers),
            *self._autoscaler.families(),
            *self._objects.families(),
            *self._webhook.families(),
            *process_families(),
        ]

    def _announce(self) -> None:
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
            control=self._control.address,
            control_tls=self._control.tls_address,
            domain=self._settings.gateway.domain,
            prices=prices_to_dict(self._settings.prices),
            kept_limit=size_limit(os.environ),
        )
        facts.write()
        log.info("ready: gateway http://%s, control https://%s", facts.gateway, facts.control_tls)
        self.ready.set()

    async def _release(self, pod: Object) -> None:
        """Take a Pod out of the routing. When the platform ends, nothing is routed any more."""
        if not self._ending:
            await self._dataplane.release(pod)

    def _remaining(self, deadline: float) -> float:
        """Return the seconds until `deadline`, at least LEAST_DRAIN, in which an idle part can end."""
        return max(LEAST_DRAIN, deadline - self._clock.monotonic())

    async def _end(self) -> None:
        """Stop accepting requests, wait for those in flight, then stop the processes."""
        self._control.stop_accepting()
        deadline = self._clock.monotonic() + DRAIN
        await self._gateway.stop(DRAIN)
        await self._activator.stop(self._remaining(deadline))
        self._routing.cancel()  # nothing is left to route
        self._ending = True
        await self._kubelet.stop_all(self._remaining(deadline))
        await self._control.drained()


def run_platform(state: Path, settings: Settings, open_store: OpenStore = Store.open) -> int:
    """Run a platform in this process until SIGINT or SIGTERM, and return the exit code."""
    disable_core_dumps()
    os.umask(0o077)  # logs and records are private even if the folder is not
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return uvloop.run(_until_signal(Platform(state, settings, open_store)))


async def _until_signal(platform: Platform) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await platform.run(stop)
    except Exception as error:
        if not isinstance(error, KnodelError):
            log.exception(
                "the platform ends because of an internal error; models go on serving, and `knodel up` takes them over"
            )
        raise
    return 0


def _everywhere(_namespace: str) -> bool:
    """Allow every namespace: all belong to the user of the machine."""
    return True
