"""What a scenario may touch: the `Cluster` protocol, the gateway's public address, and model artifacts by URI.

The same scenarios run on every cluster; only the fixture that makes a `World` knows which one it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, TypeVar

import aiohttp
import pytest

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    INGRESS,
    MODEL,
    POD,
    POD_AUTOSCALER,
    REPLICA_SET,
    REVISION,
    ROUTE,
    SECRET,
    SERVERLESS_SERVICE,
    SERVICE,
    WARM_POOL,
    Object,
    condition_of,
    generation_of,
    is_true,
    name_of,
)
from serving.types.annotations import LABEL_MODEL
from tests.scenarios.answers import Answer, Load
from tests.scenarios.events import Events
from tests.support.wait import eventually

T = TypeVar("T")

WITHIN = 30.0  # s that a step may take on one machine; generous: it may be busy
MANAGER = "scenario"
SOON = "20s"
"""The startupDeadline of what is meant to fail: Knative looks at crashed Pods when it is over, not before."""
TRACES = (
    MODEL, SERVICE, CONFIGURATION, ROUTE, REVISION, DEPLOYMENT, REPLICA_SET, POD, POD_AUTOSCALER, SERVERLESS_SERVICE,
    INGRESS,
)  # fmt: skip
"""The kinds in which a Model leaves objects."""


class World:
    """One running platform."""

    def __init__(
        self,
        cluster: Cluster,
        gateway: str,
        domain: str,
        artifacts: Callable[[str], str],
        *,
        namespace: str = "default",
        address: str = "127.0.0.1",
        defaults: Mapping[str, Any] = MappingProxyType({}),
        patience: float = 1.0,
        lacks: Mapping[str, str] = MappingProxyType({}),
        events: Events | None = None,
        openai: str = "",
        forget_downloads: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the platform's `cluster` and its public addresses.

        `namespace` is used where a scenario names none. `address` is where replicas reach servers of a scenario's own,
        `events` the way of events where it stands.

        `openai` is the base URL of the namespace's language models.

        `forget_downloads` takes from later replicas what earlier ones have downloaded, where they share a cache.

        `defaults` are fields of every Model that does not say them; `patience` stretches every wait. `lacks` tells,
        with the reason, what this platform does not have (see `needs`).
        """
        self.cluster = cluster
        self.artifacts = artifacts
        self.namespace = namespace
        self.address = address
        self.events = events
        self.openai = openai
        self.forget_downloads = forget_downloads
        self._gateway = gateway
        self._domain = domain
        self._defaults = defaults
        self._patience = patience
        self._lacks = lacks
        self._made: set[tuple[str, str]] = set()
        self._pools: set[str] = set()
        self._secrets: set[str] = set()
        # A pool that is larger than any scenario's concurrency: the client must not be what queues.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def close(self) -> None:
        """End the client."""
        await self._session.close()

    def needs(self, feature: str) -> None:
        """Skip the scenario, with the reason, where the platform lacks `feature`."""
        if feature in self._lacks:
            pytest.skip(f"no {feature} here: {self._lacks[feature]}")

    async def eventually(self, predicate: Callable[[], Awaitable[T]], within: float = WITHIN) -> T:
        """The first true answer of `predicate`, within that many seconds (more where all is slower)."""
        return await eventually(predicate, within * self._patience)

    async def sweep(self) -> None:
        """Ask for the deletion of every Model that a scenario has left, so that it does not burden the next ones."""
        for name, namespace in self._made:
            with suppress(NotFound):
                await self.cluster.delete(MODEL, name, namespace)
        for name in self._pools:
            with suppress(NotFound):
                await self.cluster.delete(WARM_POOL, name, self.namespace)
        for name in self._secrets:
            with suppress(NotFound):
                await self.cluster.delete(SECRET, name, self.namespace)
        self._made.clear()
        self._pools.clear()
        self._secrets.clear()

    async def deploy(self, name: str, *, namespace: str = "", wait: bool = True, **spec: Any) -> Object:
        """Create the Model or change the named fields of it; None removes a field."""
        namespace = namespace or self.namespace
        try:
            await self.cluster.get(MODEL, name, namespace)
            made = await self.cluster.patch(MODEL, name, {"spec": spec}, namespace, manager=MANAGER)
        except NotFound:
            wanted = model(name, namespace, **{**self._defaults, **spec})
            made = await self.cluster.create(MODEL, wanted, manager=MANAGER)
            self._made.add((name, namespace))
        return await self.ready(name, namespace, generation_of(made)) if wait else made

    async def secret(self, name: str, **values: str) -> None:
        """A Secret for the scenario's Models."""
        metadata = {"name": name, "namespace": self.namespace}
        made = {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "metadata": metadata, "stringData": values}
        self._secrets.add(name)
        await self.cluster.create(SECRET, made, manager=MANAGER)

    async def pool(self, name: str, size: int, **template: Any) -> None:
        """A warm pool for the scenarios' Models, with these fields, once it has that many ready members."""
        wanted = {
            "apiVersion": WARM_POOL.api_version,
            "kind": WARM_POOL.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"template": {**self._defaults, **template}, "size": size},
        }
        await self.cluster.create(WARM_POOL, wanted, manager=MANAGER)
        self._pools.add(name)
        await self.pool_has(name, size)

    async def pool_has(self, name: str, ready: int) -> None:
        """Return once the pool has that many ready members."""

        async def full() -> bool:
            found = await self.cluster.get(WARM_POOL, name, self.namespace)
            return int((found.get("status") or {}).get("ready") or 0) >= ready

        await self.eventually(full)

    async def revisions(self, name: str, namespace: str = "") -> list[Object]:
        """The Model's living Revisions."""
        namespace = namespace or self.namespace
        return list((await self.cluster.list(REVISION, namespace, f"{LABEL_MODEL}={name}")).items)

    async def delete(self, name: str, namespace: str = "") -> None:
        """Delete the Model and wait until nothing that belonged to it is left."""
        namespace = namespace or self.namespace
        await self.cluster.delete(MODEL, name, namespace)

        async def gone() -> bool:
            for kind in TRACES:
                found = await self.cluster.list(kind, namespace)
                if any(name_of(item) == name or name_of(item).startswith(f"{name}-0") for item in found.items):
                    return False
            return True

        await self.eventually(gone)

    async def ready(self, name: str, namespace: str = "", generation: int = 0) -> Object:
        """The Model once it is Ready at `generation` or later."""

        def done(found: Object) -> bool:
            seen = int((found.get("status") or {}).get("observedGeneration", 0))
            return seen >= generation and is_true(found, "Ready")

        return await self.until(name, done, namespace)

    async def carries(self, name: str, shares: Mapping[str, int], namespace: str = "") -> Object:
        """The Model once its Route has these shares, revision → percent, and the ingress has them, too."""
        return await self.until(
            name, lambda found: traffic_of(found) == shares and is_true(found, "RoutesReady"), namespace
        )

    async def until(
        self, name: str, done: Callable[[Object], bool], namespace: str = "", within: float = WITHIN
    ) -> Object:
        """The Model once it exists and `done` says so."""
        namespace = namespace or self.namespace
        found: Object = {}

        async def look() -> bool:
            nonlocal found
            try:
                found = await self.cluster.get(MODEL, name, namespace)
            except NotFound:  # an event may still have to create it
                return False
            return done(found)

        try:
            await self.eventually(look, within)
        except AssertionError:
            raise AssertionError(f"{name}: {json.dumps(found.get('status'), indent=1)}") from None
        return found

    async def ask(
        self,
        name: str,
        *,
        namespace: str = "",
        tag: str = "",
        tag_header: str = "",
        value: float = 1.0,
        body: Object | None = None,
    ) -> Answer:
        """One inference request, by Host (with a tag in front when given); `body` in the place of `value`'s."""
        headers = {"Host": self.host(f"{tag}-{name}" if tag else name, namespace)}
        if tag_header:
            headers["Knative-Serving-Tag"] = tag_header
        return await self.send("POST", f"/v2/models/{name}/infer", headers, body or infer_body(value))

    def host(self, name: str, namespace: str = "") -> str:
        """Return the public host of a Model, or of `TAG-NAME`."""
        return f"{name}.{namespace or self.namespace}.{self._domain}"

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: Any = None) -> Answer:
        """Any request to the gateway."""
        async with self._session.request(method, self._gateway + path, headers=headers, json=body) as answer:
            content = await answer.read()
            parsed = json.loads(content) if content[:1] in (b"{", b"[") else content
            return Answer(answer.status, answer.headers.get("knodel-revision", ""), parsed, dict(answer.headers))

    async def requests(self, name: str, count: int, concurrency: int = 8) -> Load:
        """`count` requests, `concurrency` at a time."""
        load, left = Load(), iter(range(count))

        async def worker() -> None:
            for _ in left:
                await self._one(name, load)

        await asyncio.gather(*(worker() for _ in range(concurrency)))
        return load

    @asynccontextmanager
    async def under_load(
        self, name: str, concurrency: int = 4, body: Object | None = None, *, namespace: str = ""
    ) -> AsyncIterator[Load]:
        """A closed loop of requests for as long as the block runs, plus one round after it."""
        load, stop = Load(), asyncio.Event()

        async def worker() -> None:
            while not stop.is_set():
                await self._one(name, load, body, namespace)
            await self._one(name, load, body, namespace)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
            try:
                yield load
            finally:
                stop.set()

    async def _one(self, name: str, load: Load, body: Object | None = None, namespace: str = "") -> None:
        try:
            answer = await self.ask(name, body=body, namespace=namespace)
        except aiohttp.ClientError as error:
            load.failures.append(repr(error))
            return
        if answer.status == 200:
            load.answers[answer.revision] += 1
        else:
            load.failures.append(f"{answer.status} {answer.body}")


def model(name: str, namespace: str = "default", **spec: Any) -> Object:
    """A Model object."""
    return {
        "apiVersion": MODEL.api_version,
        "kind": MODEL.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def infer_body(value: float) -> Object:
    """A request for the artifacts' models: one FP32 tensor `x` of shape [1]."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [value]}]}


def traffic_of(found: Object) -> dict[str, int]:
    """Revision → percent, as the Model's status tells."""
    entries = (found.get("status") or {}).get("traffic") or ()
    shares: dict[str, int] = {}
    for entry in entries:
        shares[entry["revision"]] = shares.get(entry["revision"], 0) + int(entry.get("percent") or 0)
    return {revision: percent for revision, percent in shares.items() if percent}


def reason_of(found: Object) -> str:
    """`Reason: message` of the Ready condition."""
    ready = condition_of(found, "Ready") or {}
    return f"{ready.get('reason', '')}: {ready.get('message', '')}"
