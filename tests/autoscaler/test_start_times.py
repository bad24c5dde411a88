"""Cold start times passed to the decider: measured by this process, or recorded by an earlier one."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.config import Records
from autoscaler.metrics.stat import Sample
from autoscaler.reconciler.decision_recorder import DecisionRecorder
from autoscaler.reconciler.starts import WAIT_FOR_SERVER, StartTracker, recorded_cold_starts
from autoscaler.types import Policy, read_entries
from autoscaler.warmpool.claims.claim import ClaimStep
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.objects import LABEL_REVISION, POD_AUTOSCALER, Key, Object, timestamp
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer
from tests.autoscaler.world import KEY, REVISION_NAME, TEST, World, running
from tests.support.clock import SteppedClock

ONNX = Sample(0.0, 0.0, 0.0, 0.0, 0.0, format="onnx")


class Scene:
    """A StartTracker with the test's clock, and its results."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.clock = SteppedClock()
        self.clock.step(100.0)
        self.told: list[tuple[Key, float]] = []
        self.notes = DecisionRecorder(cluster, Informer(cluster, POD_AUTOSCALER), self.clock, Records(), TEST)
        self.starts = StartTracker(self.notes, self.clock, lambda key, seconds: self.told.append((key, seconds)))

    def pod(self, *, ready: bool, made: float | None = None) -> Object:
        """Create a replica, `made` seconds ago."""
        at = timestamp(self.clock.now()) if made is None else f"2026-01-01T00:0{int((100 - made) // 60)}:00Z"
        metadata = {
            "name": "m-1", "namespace": KEY.namespace, "labels": {LABEL_REVISION: KEY.name}, "creationTimestamp": at
        }  # fmt: skip
        return {
            "metadata": metadata,
            "spec": {},
            "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
        }

    def ends(self) -> list[float]:
        """End the start and wait for the server's measurements; return the recorded seconds."""
        self.clock.step(WAIT_FOR_SERVER + 1.0)
        self.starts.observe_readings(lambda _: {})
        return [seconds for _, seconds in self.told]


@pytest.fixture
def scene(cluster: EmbeddedCluster) -> Scene:
    return Scene(cluster)


def test_a_cold_start_is_told_from_the_asking_to_its_readiness(scene: Scene) -> None:
    scene.starts.mark_requested(KEY)
    scene.clock.step(2.0)
    scene.starts.on_pod(None, scene.pod(ready=False))
    scene.clock.step(5.0)
    scene.starts.on_pod(None, scene.pod(ready=True))
    assert scene.ends() == [7.0]
    assert scene.told[0][0] == KEY


def test_one_that_nobody_here_asked_for_is_told_from_its_making(scene: Scene) -> None:
    scene.starts.on_pod(None, scene.pod(ready=False))
    scene.clock.step(5.0)
    scene.starts.on_pod(None, scene.pod(ready=True))
    assert scene.ends() == [5.0]


def test_one_that_is_found_half_way_is_not_told_as_a_short_one(scene: Scene) -> None:
    scene.starts.on_pod(None, scene.pod(ready=False, made=90.0))
    scene.clock.step(5.0)
    scene.starts.on_pod(None, scene.pod(ready=True, made=90.0))
    assert scene.ends() == []


def test_one_that_is_found_ready_is_none(scene: Scene) -> None:
    scene.starts.on_pod(None, scene.pod(ready=True))
    assert scene.ends() == []


@pytest.mark.fault("K1")
async def test_of_one_that_ended_while_no_process_lived_the_format_is_told_once(cluster: EmbeddedCluster) -> None:
    scene, pod_autoscaler = Scene(cluster), noted()
    scene.starts.restore(KEY, pod_autoscaler)
    scene.starts.on_pod(None, scene.pod(ready=True))
    sample = Sample(0.0, 0.0, 0.0, 0.0, 0.0, {"load": 4.2}, format="onnx")

    heard = [scene.starts.observe_readings(lambda _: {f"{KEY.namespace}/m-1": sample}) for _ in range(2)]

    assert heard == [[KEY], []]
    await cluster.create(POD_AUTOSCALER, pod_autoscaler, manager=TEST)
    await scene.notes.write(pod_autoscaler)
    [entry] = read_entries(await cluster.get(POD_AUTOSCALER, KEY.name, KEY.namespace), ANNOTATION_STARTS)
    told = {"pod": "m-1", "kind": "cold", "milliseconds": 0.0, "steps": [], "server": {"load": 4.2}, "format": "onnx"}
    assert entry == {"at": scene.pod(ready=True)["metadata"]["creationTimestamp"], **told}
    assert scene.told == []  # to the second is not exact enough for the decider


@pytest.mark.parametrize(
    ("restarts", "ready_after", "milliseconds"),
    [(0, 2_400, 2_400_000.0), (1, 2_400, None), (0, 3_601, None), (0, -1, None)],
)
async def test_how_long_it_took_is_told_where_the_pod_can_know_and_never_to_the_decider(
    cluster: EmbeddedCluster, restarts: int, ready_after: int, milliseconds: float | None
) -> None:
    scene, pod_autoscaler = Scene(cluster), noted()
    pod = scene.pod(ready=True)
    ready_at = timestamp(scene.clock.now() + timedelta(seconds=ready_after))
    pod["status"]["conditions"][0]["lastTransitionTime"] = ready_at
    pod["status"]["containerStatuses"] = [{"restartCount": restarts}]
    scene.starts.restore(KEY, pod_autoscaler)
    scene.starts.on_pod(None, pod)
    scene.starts.observe_readings(lambda _: {f"{KEY.namespace}/m-1": ONNX})

    await cluster.create(POD_AUTOSCALER, pod_autoscaler, manager=TEST)
    await scene.notes.write(pod_autoscaler)

    written = await cluster.get(POD_AUTOSCALER, KEY.name, KEY.namespace)
    [entry] = read_entries(written, ANNOTATION_STARTS)
    assert (entry["at"], entry["format"], entry.get("milliseconds")) == (ready_at, "onnx", milliseconds)
    assert recorded_cold_starts(written) == []


def test_once_a_start_was_seen_whose_server_told_its_format_no_former_one_is_noted(scene: Scene) -> None:
    found = scene.pod(ready=True)
    found["metadata"]["name"] = "m-0"
    scene.starts.restore(KEY, noted())
    scene.starts.on_pod(None, found)
    scene.starts.on_pod(None, scene.pod(ready=False))
    scene.starts.on_pod(None, scene.pod(ready=True))
    scene.clock.step(WAIT_FOR_SERVER + 1.0)

    assert scene.starts.observe_readings(lambda _: {f"{KEY.namespace}/m-1": ONNX}) == [KEY]
    assert scene.starts.observe_readings(lambda _: {f"{KEY.namespace}/m-0": ONNX}) == []


def test_one_that_is_found_ready_and_whose_format_is_known_is_none(scene: Scene) -> None:
    scene.starts.restore(KEY, noted({"kind": "cold", "format": "onnx"}))
    scene.starts.on_pod(None, scene.pod(ready=True))
    assert scene.starts.observe_readings(lambda _: {f"{KEY.namespace}/m-1": ONNX}) == []


def noted(*starts: Any) -> Object:
    """Return the revision's PodAutoscaler with these starts."""
    metadata = {"name": KEY.name, "namespace": KEY.namespace, "annotations": {ANNOTATION_STARTS: json.dumps(starts)}}
    return {"apiVersion": POD_AUTOSCALER.api_version, "kind": "PodAutoscaler", "metadata": metadata, "spec": {}}


def test_a_warm_start_is_no_cold_one(scene: Scene) -> None:
    scene.starts.mark_requested(KEY)
    for step in ("reserve", "assign", "label", "adopt"):
        scene.starts.record_claim_step(ClaimStep(KEY, "m-1", step, scene.clock.monotonic(), 0.01, True))
        scene.clock.step(0.01)
    assert scene.ends() == []


STEPS = [{"name": "create", "milliseconds": 1.0}]
ENTRIES: list[Any] = [
    {"kind": "cold", "milliseconds": 1500.0, "steps": STEPS},
    {"kind": "cold", "milliseconds": 2400000.0, "steps": []},
    {"kind": "warm", "milliseconds": 20.0},
    {"kind": "cold", "milliseconds": 2500, "steps": STEPS},
    {"kind": "cold", "milliseconds": "900", "steps": STEPS},
    {"kind": "cold", "milliseconds": True, "steps": STEPS},
    {"kind": "cold", "milliseconds": -1, "steps": STEPS},
    {"kind": "cold", "milliseconds": 1e300, "steps": STEPS},
    {"kind": "cold", "steps": STEPS},
    "cold",
]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(json.dumps(ENTRIES), [1.5, 2.5]), ('[{"kind": "cold", "milliseconds": NaN, "steps": [{}]}]', []), ("{", [])],
)
def test_of_what_is_noted_the_cold_ones_that_make_sense_are_read_back(text: str, seconds: list[float]) -> None:
    assert recorded_cold_starts({"metadata": {"annotations": {ANNOTATION_STARTS: text}}}) == seconds


async def test_a_process_knows_from_the_start_what_a_former_one_has_measured(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy(), annotations={ANNOTATION_STARTS: json.dumps(ENTRIES)})
        await world.until(world.mode, "Proxy")
        fleet = world.autoscaler._scaler
        assert 1.5 <= fleet.start_time(KEY) <= 2.5
        await world.cluster.delete(POD_AUTOSCALER, REVISION_NAME, "default")

        async def is_known() -> bool:
            return not math.isnan(fleet.start_time(KEY))

        await world.until(is_known, False)
