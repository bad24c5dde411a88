"""The recorder sees what happens in its namespace, on a real (embedded) cluster."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.clock import SystemClock
from clusters.base.errors import Gone
from clusters.base.objects import POD, REVISION, SERVICE, Kind, Object, version_of
from clusters.embedded.cluster import EmbeddedCluster
from tests.golden.recorder import Recorder
from tests.support.clock import SteppedClock

PATIENCE = 5.0  # s
LONG = 60.0  # s, for a machine that is busy


def thing(kind: Kind, namespace: str = "here") -> Object:
    """An object of this kind, named `app`."""
    metadata = {"name": "app", "namespace": namespace}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {}}


def ready(status: str) -> Object:
    """A status with the condition Ready."""
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


async def test_it_tells_births_conditions_and_ends_of_its_namespace(cluster: EmbeddedCluster) -> None:
    async with Recorder(cluster, "here", SystemClock()) as recorder:
        await cluster.create(SERVICE, thing(SERVICE), manager="test")
        await cluster.create(SERVICE, thing(SERVICE, "elsewhere"), manager="test")
        await cluster.create(POD, thing(POD), manager="test")
        await cluster.create(REVISION, thing(REVISION), manager="test")
        await recorder.until(lambda: recorder.get(REVISION, "app") is not None, PATIENCE)
        before = recorder.version
        await cluster.patch(SERVICE, "app", ready("True"), "here", manager="test", subresource="status")
        await cluster.delete(REVISION, "app", "here")
        await recorder.until(lambda: recorder.get(REVISION, "app") is None, PATIENCE)
        await recorder.quiet(0.05, PATIENCE)

    assert [(one.object, one.condition, one.value) for one in recorder.trace(before).changes] == [
        ("Service/app", "Ready", "True"),
        ("Revision/app", "(object)", "gone"),
    ]
    assert recorder.trace().final == {"Service/app": {"(object)": "made", "Ready": "True"}}
    assert not recorder.is_empty


async def test_what_never_comes_ends_in_how_things_stand(cluster: EmbeddedCluster) -> None:
    async with Recorder(cluster, "here", SystemClock()) as recorder:
        await cluster.create(SERVICE, thing(SERVICE), manager="test")
        await recorder.until(lambda: recorder.get(SERVICE, "app") is not None, PATIENCE)
        with pytest.raises(TimeoutError, match="Service/app"):
            await recorder.until(lambda: False, 0.01)


async def test_noise_is_no_quiet(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    async with Recorder(cluster, "here", clock) as recorder:
        await cluster.create(SERVICE, thing(SERVICE), manager="test")
        waiting = asyncio.create_task(recorder.quiet(2, LONG))
        for number in range(10):
            patch = ready("True" if number % 2 else "False")
            made = await cluster.patch(SERVICE, "app", patch, "here", manager="test", subresource="status")
            await recorder.until(lambda made=made: recorder.version >= int(version_of(made)), LONG)  # type: ignore[misc]
            clock.step(1)
        assert not waiting.done()
        with pytest.raises(TimeoutError):
            await recorder.quiet(2, 0.01)

        clock.step(1)
        await waiting


async def test_a_watch_that_lost_its_place_fails_the_recording(cluster: EmbeddedCluster) -> None:
    class Forgetful:
        """A cluster whose watches end at once."""

        list = cluster.list

        def watch(self, kind: Kind, version: str, namespace: str | None = None, selector: str = "") -> object:
            raise Gone("too old")

    with pytest.raises(Gone):
        async with Recorder(Forgetful(), "here", SystemClock()) as recorder:  # type: ignore[arg-type]
            await recorder.until(lambda: False, PATIENCE)
