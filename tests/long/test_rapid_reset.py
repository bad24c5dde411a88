"""HTTP/2 rapid reset (CVE-2023-44487), ten thousand streams a connection: others are answered, and little is kept.

The gateway (Envoy) ends such a connection after some hundred streams. gRPC reads them all: its bounds on the calls of a
connection, and on those that wait to be begun, keep it small and leave others their place. All other ports speak
HTTP/1.1 alone (`tests/doors/test_control_api.py`). The ingress of a real cluster: `tests/cluster/test_rapid_reset.py`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from clusters.base.objects import POD
from clusters.gateway.admin import Admin
from clusters.net.endpoints import endpoint_of
from serving.client.client import Client
from serving.client.state import LocalPlatform
from tests.faults.kit.resources import holdings
from tests.faults.server.process import NAME, STATS, server_process
from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body
from tests.serving.modelserver.client import HOST, ask
from tests.serving.modelserver.grpc_parts import SERVICE, asked, floats, infer
from tests.support import models
from tests.support.http2 import Talk, answered, post, rapid_reset
from tests.support.open_loop import calling
from tests.support.ports import free_port
from tests.support.prober import probing
from tests.support.wait import eventually

CONNECTIONS = 8
"""At once, after one alone."""
STREAMS = 10_000
GROWTH = 128 << 20
"""Bytes by which processes may grow together: buffers, calls that are not ended yet, what the allocator keeps. Seen: 64
MiB of the gateway and 75 of the gRPC port."""
RATE = 20.0  # requests a second of others meanwhile
JSON = "application/json"
BODY = json.dumps(infer_body(1.0)).encode()
SHAPES = {"heads": (False, False), "requests": (True, False), "requests that were begun": (True, True)}
"""Whether a stream is a whole request; whether it has been read when it is reset."""


async def attack(address: tuple[str, int], head: bytes, body: bytes, begun: bool) -> list[Talk]:
    """One connection, and then several at once."""
    first = await rapid_reset(address, head, body, STREAMS, begun=begun)
    rest = (rapid_reset(address, head, body, STREAMS, begun=begun) for _ in range(CONNECTIONS))
    return [first, *await asyncio.gather(*rest)]


@pytest.mark.bad_input("framing-http2")
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_grpc_port_stays_small_and_answers_others(tmp_path: Path, shape: str) -> None:
    whole, begun = SHAPES[shape]
    port = free_port()
    message = asked(floats(1.0), model_name=NAME).SerializeToString()
    head = post(HOST, f"/{SERVICE}/ModelInfer", "application/grpc", te="trailers")
    body = struct.pack(">BI", 0, len(message)) + message
    async with server_process(models.write(tmp_path, "double"), tmp_path, GRPC_PORT=str(port)) as server:
        assert await answered((HOST, port), head, body)
        before = server.memory()
        async with others(port) as answers:
            talks = await attack((HOST, port), head, body if whole else b"", begun)
        print(f"{shape}: {(server.memory('VmHWM') - before) >> 20} MiB more, {len(answers)} answers to others")
        assert {talk.streams for talk in talks if not talk.refused} <= {STREAMS}
        assert server.memory("VmHWM") - before < GROWTH
        await eventually(server.idle)
        assert answers and await answered((HOST, port), head, body)


@asynccontextmanager
async def others(port: int) -> AsyncIterator[list[Any]]:
    """Somebody else's inferences over gRPC for as long as the block runs, each answered."""
    answers: list[Any] = []
    async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:

        async def one() -> None:
            answers.append(await infer(channel, floats(1.0), model_name=NAME))

        async with calling(one, RATE):
            yield answers


@pytest.mark.bad_input("framing-http2")
@pytest.mark.timeout(180)
def test_the_platforms_gateway_ends_the_connection_and_leaves_no_request_behind(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        deploy(here, "warm", minReplicas=1)
        deploy(here, "asleep", scaleToZeroAfter="1s")
        asyncio.run(attacked(here))


def deploy(here: Machine, name: str, **spec: Any) -> None:
    """Ready."""
    spec = {"storageUri": Path(here.artifact("double")).as_uri(), "maxReplicas": 1, **spec}
    made = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": spec}
    here.run("deploy", "-f", "-", "--no-wait", stdin=json.dumps(made))
    here.run("wait", name)


async def attacked(here: Machine) -> None:
    """Every shape, at a model with a replica and at one at zero, whose requests wait in the activator."""
    address = (HOST, here.port)
    heads = {name: post(HOST, f"/v2/models/{name}/infer", JSON) for name in ("warm", "asleep")}
    await eventually(lambda: here.processes().count("replica") == 1)
    assert await answered(address, heads["warm"], BODY)
    base, url = holdings(here.state), f"http://{HOST}:{here.port}/v2/models/warm/infer"
    async with probing(url, {"content-type": JSON}, infer_body(1.0), RATE) as probes:
        for name, head in heads.items():
            for shape, (whole, begun) in SHAPES.items():
                talks = await attack(address, head, BODY if whole else b"", begun)
                assert all(talk.refused for talk in talks), (name, shape, talks)
    growth = sum(held.memory - base[role].memory for role, held in holdings(here.state).items())
    print(f"platform: {growth >> 20} MiB more, {probes.answered} answers to others")
    assert growth < GROWTH
    assert probes.answered and not probes.failures
    await eventually(lambda: at_rest(here))
    assert [await answered(address, head, BODY) for head in heads.values()] == [True, True]


async def at_rest(here: Machine) -> bool:
    """No request in the gateway, none in a model, and no replica that one would have kept."""
    gateway = Admin(here.state / "gateway")
    try:
        assert await gateway.active_requests() == 0
    finally:
        await gateway.close()
    ports = await management_ports(here)
    assert len(ports) == here.processes().count("replica") == 1
    page = (await ask(ports[0], STATS)).json
    return (page["active"], page["queued"]) == (0, 0)


async def management_ports(here: Machine) -> list[int]:
    """Of all replicas."""
    pods = await asyncio.to_thread(Client(LocalPlatform.find(here.state)).list, POD, "default")
    found = [endpoint_of(pod) for pod in pods["items"]]
    return [endpoint.management_port for endpoint in found if endpoint is not None]
