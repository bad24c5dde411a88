"""The doors of the embedded platform without what acts on objects: control API and event webhook at one address.

The store, the checks of every kind and the listener are those of `knodel up`; so what a refused request left behind can
be seen by comparing everything there is, before and after.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.base.clock import SystemClock
from clusters.base.objects import EVENT_SOURCE, KINDS, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from clusters.runtime.informer import Informer
from eventing.webhook.webhook import make_webhook
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from serving.control_api.server import WithWebhook, listen, make_server
from serving.platform.admission import make_validators
from serving.platform.platform import WRITABLE
from serving.types.settings.settings import Settings
from tests.serving.modelserver.client import Answer, ask, request

TOKEN = "t0ken"
HOST = "127.0.0.1"


class NoLogs:
    """No Pod runs here."""

    async def follow(self, pod: Object, *, tail: int | None, follow: bool, previous: bool) -> AsyncIterator[bytes]:
        """Nothing to speak of."""
        yield b""

    def has_previous(self, pod: Object) -> bool:
        """No container was restarted."""
        return False


class NoFetcher:
    """No issuer of tokens may be asked: only who is known could make us ask."""

    async def fetch(self, issuer: str) -> Any:
        """Not reached."""
        raise AssertionError(issuer)


@dataclass(frozen=True)
class Doors:
    """The address, and what stands behind it."""

    port: int
    cluster: EmbeddedCluster
    folder: Path

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, token: str = TOKEN
    ) -> Answer:
        """One request of a caller who knows the token; `headers` replace its own, an empty one leaves it out."""
        given = {
            "host": HOST,
            "authorization": f"Bearer {token}",
            "content_type": "application/json",
            "connection": "close",
        }
        said = {name: value for name, value in (given | dict(headers or {})).items() if value}
        return await ask(self.port, request(method, path, body, **said))

    async def everything(self) -> tuple[Mapping[str, list[Object]], list[str]]:
        """All objects of every kind, and the names of all files of the state folder."""
        objects = {kind.resource: list((await self.cluster.list(kind)).items) for kind in KINDS}
        return objects, sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


@contextlib.asynccontextmanager
async def open_doors(folder: Path) -> AsyncIterator[Doors]:
    """A store in `folder`, and its doors at a free port."""
    store = Store.open(folder / "cluster.db")
    clock = SystemClock()
    cluster = EmbeddedCluster(store, clock=clock, validators=make_validators(store, Settings()))
    api = ControlApi(
        cluster, kinds=KINDS, writable=WRITABLE, logs=NoLogs(), clock=clock, version="0", ready=lambda: True
    )
    sources = Informer(cluster, EVENT_SOURCE)
    webhook = make_webhook(cluster, sources, NoFetcher(), clock)
    server = make_server(WithWebhook(api.app(Guard(TOKEN, frozenset({HOST}))), webhook))
    listener = listen(HOST, 0, "--control-port")
    tasks = [asyncio.create_task(one) for one in (cluster.run(), sources.run(), server.serve(listener))]
    try:
        await sources.synced()
        yield Doors(listener.getsockname()[1], cluster, folder)
    finally:
        server.stop_accepting()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


def status_of(answer: Answer) -> dict[str, Any]:
    """The Status of Kubernetes that an answer carries."""
    value: dict[str, Any] = json.loads(answer.body)
    assert value["kind"] == "Status", value
    return value
