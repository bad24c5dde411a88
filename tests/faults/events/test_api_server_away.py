"""The API server is away while trainings end: nobody is promised anything, and all is applied afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from clusters.base.objects import MODEL, MODEL_EVENT, Object, version_of
from clusters.embedded.cluster import EmbeddedCluster
from eventing.emit import emit_training_completed
from tests.eventing.test_main import make_event_source
from tests.eventing.webhook import SECRET, SOURCE
from tests.eventing.world import EventWorld, model_object
from tests.faults.kit.proxy import Proxy, Script
from tests.support.api import api_server
from tests.support.clock import SteppedClock
from tests.support.loops import at_work
from tests.support.ports import free_port
from tests.support.replicas import replica, until_ready
from tests.support.wait import eventually

MODELS = ("magika", "ocr")
EVENTS = 6
"""For each model, one after the other."""
AWAY, AWAY_IN_FULL = 12.0, 600.0  # s
FIRST = 2
"""Events of each model that are taken before."""


def through(kubeconfig: Path, proxy: Proxy) -> Path:
    """The same, by way of the proxy."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    path = kubeconfig.with_name("proxied")
    path.write_text(yaml.safe_dump(config))
    return path


def port_of(kubeconfig: Path) -> int:
    """Where the API server listens."""
    return urlsplit(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]).port or 0


@pytest.mark.timeout(900)
@pytest.mark.fault("E8", shortened=f"away for {AWAY:g} s, not 10 min")
async def test_what_was_refused_meanwhile_is_sent_again_and_all_are_applied_in_order(
    cluster: EmbeddedCluster, tmp_path: Path, full: bool
) -> None:
    away = AWAY_IN_FULL if full else AWAY
    await make_event_source(cluster)
    for name in MODELS:
        await cluster.create(MODEL, model_object(name), manager="test")
    url = f"http://127.0.0.1:{free_port()}"
    async with api_server(cluster, tmp_path) as kubeconfig, Proxy(("127.0.0.1", port_of(kubeconfig))) as proxy:
        options = ["--kubeconfig", str(through(kubeconfig, proxy))]
        async with replica("serving.platform.webhook_main", options, tmp_path, PORT=url.rpartition(":")[2]) as webhook:
            await until_ready(webhook)
            done: dict[str, int] = dict.fromkeys(MODELS, 0)
            trainings = [asyncio.create_task(train(name, f"{url}/events", done, away)) for name in MODELS]
            await eventually(lambda: min(done.values()) >= FIRST)
            proxy.script = Script(silent=True)
            await proxy.reset()
            taken = dict(done)
            await asyncio.sleep(away)
            assert all(done[name] <= taken[name] + 1 for name in MODELS), "it says that it keeps what it cannot keep"
            proxy.script = Script()
            await proxy.reset()
            await asyncio.gather(*trainings)
        await check(cluster)


async def train(name: str, url: str, done: dict[str, int], away: float) -> None:
    """Trainings one after the other, each of which tells of its end until it is heard."""
    for number in range(EVENTS):
        await asyncio.to_thread(
            emit_training_completed, name, f"s3://models/{name}/{number}", version=str(number),
            id=f"{name}-{number}", source=SOURCE, url=url, secret=SECRET, wait=10 * away,
        )  # fmt: skip
        done[name] += 1
        await asyncio.sleep(0.2)


async def check(cluster: EmbeddedCluster) -> None:
    """Every event is there once, those of a model in the order in which they were sent, and the last is in force."""
    kept = (await cluster.list(MODEL_EVENT)).items
    for name in MODELS:
        mine = sorted((one for one in kept if one["spec"]["model"]["name"] == name), key=_arrived)
        assert [one["spec"]["id"] for one in mine] == [f"{name}-{number}" for number in range(EVENTS)]
    world = EventWorld(cluster, SteppedClock())
    async with at_work(world.informers.run(), world.controller.run()):
        await world.becomes(**{f"{name}-{number}": "Superseded" for name in MODELS for number in range(EVENTS - 1)})
        await world.becomes(**{f"{name}-{EVENTS - 1}": "Applied" for name in MODELS})
        for name in MODELS:
            assert (await world.model(name))["spec"]["version"] == str(EVENTS - 1)


def _arrived(event: Object) -> int:
    """The place in which it was stored; nothing has written its status yet."""
    return int(version_of(event))
