"""A router over an embedded cluster, in front of a stub backend."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import yarl

from clusters.base.clock import SystemClock
from clusters.base.objects import MODEL, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer
from serving.platform.router_main import listening
from serving.router.app import BODIES, RouterApp
from serving.router.models import KnownModels
from serving.router.upstream import Upstream
from tests.support.loops import at_work

PATH = "/openai/v1/chat/completions"


@dataclass
class Router:
    """A running router, and a client of it."""

    app: RouterApp
    port: int
    session: aiohttp.ClientSession

    def url(self, path: str) -> yarl.URL:
        return yarl.URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)

    async def ask(self, body: Any, path: str = PATH, **more: Any) -> tuple[int, Any]:
        """Send a body by POST, and return status and JSON."""
        async with self.session.post(self.url(path), data=body, **more) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.url(path)) as response:
            return response.status, await response.json()

    def metric(self, name: str, **labels: str) -> float:
        [family] = [one for one in self.app.families() if one.name == name]
        return sum(value for found, value in family.samples if labels.items() <= dict(found).items())


class Hasty(KnownModels):
    """Models whose requests have hardly any time."""

    def timeout(self, namespace: str, name: str) -> float:
        return 0.1


def model(name: str, namespace: str = "default", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "spec": spec}


@contextlib.asynccontextmanager
async def router(
    cluster: EmbeddedCluster, backend_port: int, known: type[KnownModels] = KnownModels, bodies: int = BODIES
) -> AsyncIterator[Router]:
    """A router whose Models are `m` with the adapter `legal`, `team/m`, and `tabular`, which is no language model."""
    adapters = [{"name": "legal", "uri": "s3://models/legal"}]
    for made in (
        model("m", modelFormat="gguf", llm={"adapters": adapters}),
        model("m", "team", modelFormat="vllm"),
        model("tabular", modelFormat="onnx"),
    ):
        await cluster.create(MODEL, made, manager="test")
    informer = Informer(cluster, MODEL)
    upstream = Upstream("cluster.local", lambda key: f"http://127.0.0.1:{backend_port}")
    app = RouterApp(known(informer), upstream, bodies)
    async with (
        at_work(informer.run()),
        upstream,
        aiohttp.ClientSession() as session,
    ):
        await informer.synced()
        async with listening(app, "127.0.0.1", 0, SystemClock(), asyncio.Event()) as port:
            try:
                yield Router(app, port, session)
            finally:
                await session.close()
