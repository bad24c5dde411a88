"""Parts of the embedded cluster that depend on settings: the gateway, images, and the hold policy of the activator."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from autoscaler.types import effective_policy
from clusters.base.clock import Clock
from clusters.base.objects import REVISION, Object
from clusters.devices.machine import DevicesError, DeviceSource, NoDevices
from clusters.devices.sources import find_source
from clusters.embedded.dataplane.routing import HoldPolicy, ReadHoldPolicy
from clusters.embedded.kubelet import ContainerImage
from clusters.gateway.envoy import Envoy
from clusters.gateway.limits import GatewayLimits
from clusters.gateway.route_config import PATH_FORM_DOMAIN
from clusters.net.authority import url_host
from clusters.net.hosts import ANY, LOOPBACK_NAMES
from clusters.net.ssrf import LOOPBACK_HOSTS, is_loopback
from clusters.runtime.informer import Informers
from serving.engines.base.group import ONE_MACHINE_VARIABLE
from serving.modelserver import preload
from serving.storage.kept import FOLDER_VARIABLE, LIMIT_VARIABLE, size_limit
from serving.types.settings.ports import port_options
from serving.types.settings.settings import GatewaySettings, Settings
from serving.types.settings.state import ARTIFACTS_FOLDER, GATEWAY_FOLDER, KEPT_FOLDER

log = logging.getLogger(__name__)


def make_gateway(state: Path, settings: Settings, clock: Clock) -> Envoy:
    """Return the gateway, with its files in the state folder."""
    said, control = settings.gateway, settings.control
    names = ",".join((*_named_hosts(said), "NAME"))
    options = port_options(said.port, control.port, control.tls_port)
    limits = GatewayLimits(
        body_bytes=said.max_request_bytes,
        header_kib=said.max_header_bytes // 1024,
        header_count=said.max_headers,
        header_seconds=said.header_timeout,
        hosts=gateway_hosts(said),
        restart=f"`KNODEL_GATEWAY_HOSTS={names} knodel up --detach{options}`",
    )
    return Envoy(state / GATEWAY_FOLDER, said.address, said.port, clock, limits, said.domain)


def gateway_hosts(said: GatewaySettings) -> tuple[str, ...]:
    """Return the names that Host and Origin may have: any name for a gateway beyond loopback, unless some are set."""
    named = _named_hosts(said)
    if not (named or is_loopback(said.address)):
        return (ANY,)
    return tuple(dict.fromkeys((*LOOPBACK_NAMES, url_host(said.address), f"*.{said.domain}", *named)))


def _named_hosts(said: GatewaySettings) -> tuple[str, ...]:
    return tuple(name for name in map(str.strip, said.hosts.lower().split(",")) if name)


def images(state: Path, settings: Settings) -> dict[str, ContainerImage]:
    """Return all images by name. There are no containers, so every image is the model server of this installation."""
    names = [settings.server.image, *(one.image for one in settings.runtimes)]
    return dict.fromkeys(names, _server_image(state, gateway_hosts(settings.gateway)))


def _server_image(state: Path, hosts: tuple[str, ...]) -> ContainerImage:
    return ContainerImage(
        command=(sys.executable, "-m", "serving.modelserver"),
        entry="serving.modelserver.main:main",
        preload=preload,
        env={
            "KNODEL_CACHE": str(state / ARTIFACTS_FOLDER),
            FOLDER_VARIABLE: str(state / KEPT_FOLDER),
            LIMIT_VARIABLE: str(size_limit(os.environ)),
            ONE_MACHINE_VARIABLE: "1",
            "KNODEL_ALLOW_HOSTS": ",".join(sorted(LOOPBACK_HOSTS)),
            "KNODEL_ALLOWED_HOSTS": ",".join((*hosts, f"*{PATH_FORM_DOMAIN}")),  # as sent by the gateway
            "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime 1.29 and newer sends telemetry by default
        },
    )


def find_devices(environ: Mapping[str, str]) -> DeviceSource:
    """Return where the GPUs of this machine are read from. With a driver that fails, the platform starts without."""
    try:
        return find_source(environ)
    except DevicesError as error:
        log.warning("GPUs are not assigned to models: %s", error)
        return NoDevices()


def hold_policy(informers: Informers) -> ReadHoldPolicy:
    """Return the function from a PodAutoscaler to its hold policy: queue length, slots, and the revision's timeout."""
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
