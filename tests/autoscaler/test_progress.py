"""The progress of a first replica: parsing of its server's page, and the PodAutoscaler's status."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autoscaler.config import Sampling
from autoscaler.metrics.progress import read_progress
from autoscaler.metrics.source import PodScraper
from autoscaler.metrics.stat import BadSample
from autoscaler.reconciler.status import start_progress_of
from autoscaler.types import Policy, read_entries
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.clock import SystemClock
from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.endpoints import Endpoint
from serving.modelserver.base.stats import StartupTimes
from tests.autoscaler.pages import answer, serving
from tests.autoscaler.world import World, running
from tests.support.clock import SteppedClock

MIB = 1 << 20
UNKNOWN = {"imports": 900.0, "fetch": 0.0, "load": 0.0, "warmup": 0.0, "claimed": False, "readyFor": None}
HALF = {"bytes": 412 * MIB, "total": int(1.3 * 1024 * MIB)}


def page(download: object = None, **known: Any) -> bytes:
    """Return a response of `/stats`; `known` are stages, and `format`."""
    found = known.pop("format", None)
    return json.dumps({"startup": UNKNOWN | known, "download": download, "format": found}).encode()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (page(), "fetching the model"),
        (page(HALF), "downloading 412 MiB of 1.3 GiB (30 %)"),
        (page({"bytes": 0, "total": 2048}), "downloading 0 bytes of 2.0 KiB (0 %)"),
        (page({"bytes": 5 * MIB, "total": None}), "downloading, 5.0 MiB so far"),
        (page({"bytes": 20, "total": 10}), "downloading, 20 bytes so far"),
        (page({"bytes": 0, "total": 0}), "downloading, 0 bytes so far"),
        (page(HALF, fetch=80.0), "loading"),
        (page(HALF, fetch=80.0, format="onnx"), "loading (onnx)"),
        (page(fetch=80.0, format="<b>buy</b>"), "loading"),
        (page(fetch=80.0, load=90.0, format="onnx"), "warming up"),
        (page(fetch=80.0, load=90.0, warmup=3.0), ""),
        (page(fetch=80.0, load=90.0, readyFor=0.0), ""),
    ],
)
def test_a_page_means(body: bytes, told: str) -> None:
    assert read_progress(body) == told


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"\xff", page("much"), page({"bytes": "1"}), page({"bytes": 1e400}), page(fetch="x"),
     page(format=3), b'{"startup": {}, "more": ' + b"[" * 4_000],
)  # fmt: skip
def test_what_is_no_such_page_is_rejected(body: bytes) -> None:
    with pytest.raises(BadSample):
        read_progress(body)


async def test_a_server_is_asked_at_its_management_port() -> None:
    source = PodScraper(SystemClock(), Sampling(timeout=0.5))
    async with serving(answer(page(HALF))) as server:
        told = await source.progress(Endpoint("default/magika-1", server.host, 1, server.port))
        assert server.requests[0].startswith(b"GET /stats HTTP/1.1")
    await source.close()
    assert told.startswith("downloading 412 MiB")


@pytest.fixture
async def world(cluster: EmbeddedCluster) -> AsyncIterator[World]:
    async with running(World(cluster, SteppedClock())) as world:
        yield world


async def tells(world: World, expected: str) -> None:
    """Wait until the PodAutoscaler reports this progress."""

    async def told() -> str:
        world.clock.step(1.0)
        return start_progress_of(await world.pod_autoscaler())

    await world.until(told, expected)


async def test_a_first_replicas_word_is_told_as_it_changes_until_it_is_ready(world: World) -> None:
    await world.create_revision(Policy())
    pod = await world.start_pod(ready=False)
    for word in ("downloading 1 bytes of 2 bytes (50 %)", "loading (onnx)", ""):
        world.replicas.words[pod] = word
        await tells(world, word)
        assert await world.condition("Active") == ("Unknown", "Queued")
    world.replicas.words[pod] = "warming up"
    await tells(world, "warming up")
    world.replicas.silent.add(pod)
    await world.pass_time(5.0)
    assert start_progress_of(await world.pod_autoscaler()) == "warming up"  # it loads, and has no time to answer

    await world.report_services(in_path=True)
    await world.set_ready(pod, True)
    await world.until(lambda: world.condition("Active"), ("True", ""))
    assert start_progress_of(await world.pod_autoscaler()) == ""
    await world.set_ready(pod, False)
    await world.until(lambda: world.condition("Active"), ("Unknown", "Queued"))
    world.replicas.silent.clear()
    await world.pass_time(5.0)
    assert start_progress_of(await world.pod_autoscaler()) == ""  # it was ready once: nobody waits for its first model


async def test_a_pod_that_is_gone_leaves_no_word_behind(world: World) -> None:
    await world.create_revision(Policy())
    first = await world.start_pod(ready=False)
    world.replicas.words[first] = "loading"
    await tells(world, "loading")

    second = await world.start_pod(ready=False)
    world.replicas.silent.add(second)
    await world.stop_pod(first)

    await tells(world, "")


async def test_a_start_is_noted_with_the_format_that_its_server_found(world: World) -> None:
    world.replicas.format = "onnx"
    await world.create_revision(Policy(min_replicas=1))
    await world.start_pod()

    async def formats() -> list[str]:
        world.clock.step(1.0)
        return [start["format"] for start in read_entries(await world.pod_autoscaler(), ANNOTATION_STARTS)]

    await world.until(formats, ["onnx"])


@pytest.mark.parametrize(
    ("startup", "told"), [(StartupTimes(), "fetching the model"), (StartupTimes(fetch=0.02), "loading")]
)
def test_a_fetch_that_took_less_than_a_tenth_of_a_millisecond_is_over(startup: StartupTimes, told: str) -> None:
    body = json.dumps({"startup": startup.to_json(0.0), "download": None}).encode()

    assert read_progress(body) == told
