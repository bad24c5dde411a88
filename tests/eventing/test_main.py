"""The webhook as a process, from its options to a durable event."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path

import aiohttp
import pytest

from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT, SECRET
from clusters.embedded.cluster import EmbeddedCluster
from eventing.objects.model_event import event_name
from serving.platform.webhook_main import main
from tests.eventing.webhook import SECRET as KEY
from tests.eventing.webhook import SOURCE, STRUCTURED, event, signature
from tests.support.api import api_server
from tests.support.ports import free_port, free_ports
from tests.support.replicas import replica, until_ready
from tests.support.wait import eventually


async def make_event_source(cluster: EmbeddedCluster) -> None:
    """Create an EventSource for `SOURCE` and its key."""
    spec = {
        "source": SOURCE,
        "auth": {"hmac": {"secretRef": {"name": "training-key"}}},
        "models": ["*"],
        "storagePrefixes": ["s3://models/"],
    }
    metadata = {"name": "training", "namespace": "default"}
    source = {"apiVersion": EVENT_SOURCE.api_version, "kind": EVENT_SOURCE.kind, "metadata": metadata, "spec": spec}
    key = {"current": base64.b64encode(KEY.encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": "training-key"}, "data": key}
    await cluster.create(SECRET, secret, manager="test")
    await cluster.create(EVENT_SOURCE, source, manager="test")


async def test_two_replicas_keep_an_event_once_and_end_when_asked(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    await make_event_source(cluster)
    ports = free_ports(2)
    body = json.dumps(event(id="42")).encode()
    async with api_server(cluster, tmp_path) as kubeconfig, aiohttp.ClientSession() as session:
        options = ["--kubeconfig", str(kubeconfig)]
        async with (
            replica("serving.platform.webhook_main", options, tmp_path, "one", PORT=str(ports[0])) as one,
            replica("serving.platform.webhook_main", options, tmp_path, "two", PORT=str(ports[1])) as two,
        ):
            await until_ready(one, two)

            async def send(port: int, content: bytes = body) -> tuple[int, str]:
                headers = {"content-type": STRUCTURED, **signature(body, time.time())}
                async with session.post(f"http://127.0.0.1:{port}/events", data=content, headers=headers) as answer:
                    return answer.status, answer.headers.get("knodel-event", "")

            answers = await asyncio.gather(*(send(port) for port in ports * 10))
            assert sorted(answers) == [(202, "copy")] * 19 + [(202, "taken")]
            assert (await send(ports[0], body + b" "))[0] == 401
            kept = await cluster.get(MODEL_EVENT, event_name(SOURCE, "42"), "default")
            assert kept["spec"]["change"]["storageUri"] == "s3://models/magika/7"

            counted = [await each.metrics() for each in (one, two)]
            assert sum(page['knodel_webhook_events_total{result="taken"}'] for page in counted) == 1
            assert [await asyncio.wait_for(each.end(), 5) for each in (one, two)] == [0, 0]


async def test_an_event_source_that_is_deleted_lets_nobody_in(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    await make_event_source(cluster)
    port = free_port()
    body = json.dumps(event()).encode()
    async with (
        api_server(cluster, tmp_path) as kubeconfig,
        replica(
            "serving.platform.webhook_main", ["--kubeconfig", str(kubeconfig)], tmp_path, PORT=str(port)
        ) as webhook,
        aiohttp.ClientSession() as session,
    ):
        await until_ready(webhook)
        await cluster.delete(EVENT_SOURCE, "training", "default")

        async def is_refused() -> bool:
            headers = {"content-type": STRUCTURED, **signature(body, time.time())}
            async with session.post(f"http://127.0.0.1:{port}/events", data=body, headers=headers) as answer:
                return answer.status == 401

        await eventually(is_refused)


async def test_the_settings_bound_what_is_taken(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    await make_event_source(cluster)
    port, file = free_port(), tmp_path / "config.yaml"
    file.write_text("events: {rate: 1}")
    async with api_server(cluster, tmp_path) as kubeconfig, aiohttp.ClientSession() as session:
        options = ["--kubeconfig", str(kubeconfig), "--config", str(file)]
        async with replica("serving.platform.webhook_main", options, tmp_path, PORT=str(port)) as webhook:
            await until_ready(webhook)

            async def send(number: int) -> int:
                body = json.dumps(event(id=str(number))).encode()
                headers = {"content-type": STRUCTURED, **signature(body, time.time())}
                async with session.post(f"http://127.0.0.1:{port}/events", data=body, headers=headers) as answer:
                    return answer.status

            assert sorted(await asyncio.gather(*map(send, range(5)))) == [202, 429, 429, 429, 429]


def test_a_port_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {"PORT": "many"}) == 2
    assert "PORT='many'" in capsys.readouterr().err
