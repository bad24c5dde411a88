"""The event webhook of the embedded platform alone: `python -m loadtests.bench.events_server FOLDER`.

It consists of the platform's own parts: the server and guard of the control API, the application, the ledger, and the
store with fsync and admission. It prints its port and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from clusters.base.clock import SystemClock
from clusters.base.objects import EVENT_SOURCE, KINDS, Object
from clusters.base.process_setup import collect_rarely, freeze_loaded_objects
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from clusters.runtime.informer import Informers
from eventing.auth.issuers import Discovery
from eventing.limits import WebhookLimits
from eventing.webhook.webhook import make_webhook
from loadtests.bench.events_load import HOST, NAMESPACE, let_in
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from serving.control_api.server import WithWebhook, listen, make_server
from serving.platform.admission import make_validators
from serving.types.settings.settings import Settings
from serving.types.settings.state import STORE_FILE

UNBOUNDED = 1 << 60
"""Limit of pending events, since no controller processes them here."""


async def run(folder: Path) -> None:
    """Serve until cancelled."""
    clock = SystemClock()
    store = Store.open(folder / STORE_FILE)
    cluster = EmbeddedCluster(store, clock=clock, validators=make_validators(store, Settings()))
    informers = Informers(cluster, clock)
    webhook = make_webhook(
        cluster, informers[EVENT_SOURCE], Discovery(), clock, limits=WebhookLimits(pending=UNBOUNDED)
    )
    api = ControlApi(cluster, kinds=KINDS, writable=(), logs=_NoLogs(), clock=clock, version="", ready=lambda: True)
    server = make_server(WithWebhook(api.app(Guard("token", {HOST})), webhook))
    socket = listen(HOST, 0, "nothing")
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.run())
        group.create_task(informers.run())
        await let_in(cluster, NAMESPACE)
        await informers.synced()
        group.create_task(server.serve(socket))
        freeze_loaded_objects()
        group.create_task(collect_rarely(clock))
        print(socket.getsockname()[1], flush=True)


class _NoLogs:
    """`serving.control_api.app.PodLogs` without Pods."""

    async def follow(self, pod: Object, *, tail: int | None, follow: bool, previous: bool) -> AsyncIterator[bytes]:
        """Nothing."""
        empty: tuple[bytes, ...] = ()
        for line in empty:
            yield line

    def has_previous(self, pod: Object) -> bool:
        """Return no logs."""
        return False


if __name__ == "__main__":
    uvloop.run(run(Path(sys.argv[1])))
