"""Whether replicas serve the adapters of their list, by their reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoscaler.metrics.stat import AdapterReport, Sample, parse_stats
from autoscaler.reconciler.adapters import WANTED_ANNOTATION, AdapterReports, adapters_state
from autoscaler.reconciler.status import ReplicaState
from autoscaler.types import ADAPTERS_ANNOTATION, Policy
from clusters.base.objects import POD, POD_AUTOSCALER, Key, Object, annotations_of
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.world import REVISION_NAME, World, running
from tests.support.clock import SteppedClock

NEW, OLD = AdapterReport("2", {}), AdapterReport("1", {})
BAD = AdapterReport("2", {"legal": "its rank is 64", "b": "missing"})
FAULTS = 'adapter "b": missing; adapter "legal": its rank is 64'
BEHIND = "1 of 2 replicas do not have the new adapters yet"


@pytest.mark.parametrize(
    ("wanted", "reports", "state"),
    [
        ("", [NEW], None),
        ("2", [], None),
        ("2", [NEW, NEW], ReplicaState("True")),
        ("2", [NEW, OLD], ReplicaState("Unknown", "Loading", BEHIND)),
        ("2", [OLD, BAD], ReplicaState("False", "AdapterFailed", FAULTS)),
        ("2", [AdapterReport("1", {"a": "old"}), NEW], ReplicaState("Unknown", "Loading", BEHIND)),
    ],
)
def test_the_state_of_adapters(wanted: str, reports: list[AdapterReport], state: ReplicaState | None) -> None:
    assert adapters_state(wanted, {f"d/{number}": one for number, one in enumerate(reports)}) == state


def reading(report: AdapterReport | None) -> dict[str, Sample]:
    return {"d/a": Sample(0.0, 0.0, 0.0, 0.0, 0.0, adapters=report)}


def test_a_changed_report_needs_a_pass_and_is_compared_with_the_annotation(cluster: EmbeddedCluster) -> None:
    reports, key = AdapterReports(cluster, "test"), Key("d", "m-00001")
    autoscaler: Object = {"metadata": {"annotations": {ADAPTERS_ANNOTATION: '{"id":"2","adapters":[]}'}}}
    assert not reports.observe(key, reading(None))
    assert reports.state(key, autoscaler) is None
    assert reports.observe(key, reading(OLD)) and not reports.observe(key, reading(OLD))
    assert reports.observe(key, reading(NEW))
    assert reports.state(key, autoscaler) == ReplicaState("True")
    for unreadable in ("{", "[]"):
        assert reports.state(key, {"metadata": {"annotations": {ADAPTERS_ANNOTATION: unreadable}}}) is None
    reports.forget(key)
    assert reports.state(key, autoscaler) is None


async def test_a_replica_behind_is_reported_and_its_pod_is_marked_for_the_kubelet(cluster: EmbeddedCluster) -> None:
    annotations = {ADAPTERS_ANNOTATION: '{"id":"1","adapters":[]}'}
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy(), annotations=annotations)
        pod = await world.start_pod()
        world.replicas.adapters[pod] = OLD

        async def state() -> tuple[str, str]:
            await world.report_services(in_path=True)
            await world.pass_time(1.0)
            return await world.condition("AdaptersReady")

        async def wanted_by_pod() -> str | None:
            await world.pass_time(1.0)
            return annotations_of(await world.get(POD, pod)).get(WANTED_ANNOTATION)

        await world.until(state, ("True", ""))
        assert await wanted_by_pod() is None
        patch = {"metadata": {"annotations": {ADAPTERS_ANNOTATION: '{"id":"2","adapters":[]}'}}}
        await cluster.patch(POD_AUTOSCALER, REVISION_NAME, patch, "default", manager="knodel")
        await world.until(state, ("Unknown", "Loading"))
        await world.until(wanted_by_pod, "2")
        world.replicas.adapters[pod] = BAD
        await world.until(state, ("False", "AdapterFailed"))
        world.replicas.adapters[pod] = NEW
        await world.until(state, ("True", ""))


@pytest.mark.parametrize(
    ("page", "report"),
    [
        ({"list": "1", "faults": {}}, OLD),
        ({"list": "1"}, OLD),
        ({"list": "1", "faults": {"a": "x\ny", "NO": "x"}}, AdapterReport("1", {"a": "x y"})),
        ({"list": "1", "faults": {"a": "x" * 5000}}, AdapterReport("1", {"a": "x" * 400})),
        *((value, None) for value in (None, 7, {}, {"list": 1}, {"list": "1" * 65}, {"list": "1", "faults": [1]})),
    ],
)
def test_the_report_of_a_page_is_read_and_a_wrong_one_does_not_cost_the_reading(page: Any, report: Any) -> None:
    sample = parse_stats(json.dumps({"busySeconds": 1, "requests": 2, "adapters": page}).encode(), 0.0)
    assert (sample.adapters, sample.requests) == (report, 2.0)
