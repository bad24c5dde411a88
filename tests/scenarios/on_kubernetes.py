"""The scenarios on Kubernetes: Knodel as it is installed there, seen through API server and ingress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.scenarios.world import World
from tests.support.artifacts import artifact_server
from tests.support.kubernetes import installed_settings, kube_target, kubernetes_cluster

SMALL = {"resources": {"cpu": "50m", "memory": "256Mi"}}
"""Of every Model: many of them share the testbed's two cores."""
PATIENCE = 4.0
"""A Pod takes seconds to start, and a leaving one half a minute: queue-proxy drains."""
LACKS = {"gateway": "plain Knative; knodel-gateway comes in front of it later"}


@asynccontextmanager
async def world(config: pytest.Config, folder: Path) -> AsyncIterator[World]:
    """The cluster that the options name, with Knodel installed, and artifacts in `folder`."""
    target = kube_target(config)
    async with kubernetes_cluster(target) as cluster:
        gateway = (await installed_settings(cluster)).gateway
        with artifact_server(folder, target.server) as artifacts:
            made = World(
                cluster,
                f"http://{gateway.address}:{gateway.port}",
                gateway.domain,
                artifacts.uri,
                defaults=SMALL,
                patience=PATIENCE,
                lacks=LACKS,
            )
            yield made
            await made.close()
