"""What one machine has in the place of a cluster's parts, as the settings want it: gateway, images, holding."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from autoscaler.apis import effective_policy
from clusters.clock import Clock
from clusters.embedded.dataplane_view import Hold, HoldPolicy
from clusters.embedded.kubelet import Image
from clusters.gateway.envoy import Envoy
from clusters.gateway.limits import Limits
from clusters.informer import Informers
from clusters.net.ssrf import LOOPBACK_HOSTS
from clusters.objects import REVISION, Object
from serving.apis.settings import GatewaySettings, Settings
from serving.apis.state import ARTIFACTS_FOLDER, GATEWAY_FOLDER, KEPT_FOLDER
from serving.server import preload
from serving.storage.kept import FOLDER_VARIABLE, LIMIT, LIMIT_VARIABLE


def make_gateway(state: Path, said: GatewaySettings, clock: Clock) -> Envoy:
    """The gateway, with its files in the state folder."""
    limits = Limits(
        body_bytes=said.max_request_bytes,
        header_kib=said.max_header_bytes // 1024,
        header_count=said.max_headers,
        header_seconds=said.header_timeout,
    )
    return Envoy(state / GATEWAY_FOLDER, said.address, said.port, clock, limits, said.domain)


def images(state: Path, settings: Settings) -> dict[str, Image]:
    """By name: there are no containers here, so each stands for the server of this installation."""
    names = [settings.server.image, *(one.image for one in settings.runtimes)]
    return dict.fromkeys(names, _server_image(state))


def _server_image(state: Path) -> Image:
    return Image(
        command=(sys.executable, "-m", "serving.server"),
        entry="serving.server.main:main",
        preload=preload,
        env={
            "KNODEL_CACHE": str(state / ARTIFACTS_FOLDER),
            FOLDER_VARIABLE: str(state / KEPT_FOLDER),
            LIMIT_VARIABLE: os.environ.get(LIMIT_VARIABLE) or str(LIMIT),
            "KNODEL_ALLOW_HOSTS": ",".join(sorted(LOOPBACK_HOSTS)),
            "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime 1.29 and newer would report to its makers by default
        },
    )


def hold_policy(informers: Informers) -> Hold:
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
