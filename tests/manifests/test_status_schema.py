"""The status that the reconciler writes fits the definition: what does not would be pruned, or the write refused."""

from __future__ import annotations

from pathlib import Path

from clusters.base.objects import REVISION, Object
from serving.crds.status import make_status_schema
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.state import Judgement, Passed, RolloutState
from tests.manifests.checker import faults
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import platform
from tests.support.clusters import embedded_cluster

SCHEMA = make_status_schema()

NOW = "2026-01-01T00:00:00.000Z"
LOOK = Judgement(Verdict("pass", ("good",), {"needed": 1.5}), NOW)

FULL: Object = {
    "observedGeneration": 3,
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "ExitCode1", "message": "m",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ],
    "url": "http://magika.default.localhost",
    "address": {"url": "http://magika.default.svc.cluster.local"},
    "addresses": [{"name": "public", "url": "http://magika.default.localhost"}],
    "latestCreatedRevision": "magika-00002",
    "latestReadyRevision": "magika-00001",
    "modelFormat": "onnx",
    "traffic": [{"revision": "magika-00001", "version": "7", "percent": 100, "tag": "blue", "url": "http://b"}],
    "replicas": {"desired": 1, "ready": 0, "starting": 1},
    "decisions": [
        {"revision": "magika-00001", "at": "2026-01-01T00:00:00Z", "from": 0, "to": 1,
         "reasons": [{"rule": "Waiting", "message": "m", "values": {"work": 1.5}}]},
        {"revision": "magika-00001", "scribble": [1]},
    ],
    "starts": [
        {"revision": "magika-00001", "at": "2026-01-01T00:00:00Z", "pod": "p", "kind": "warm", "milliseconds": 28.5,
         "steps": [{"name": "reserve", "milliseconds": 4.0}], "server": {"load": 20.5}},
    ],
    "rollout": RolloutState(
        "Paused", "magika-00002", "magika-00001", NOW, NOW, 1, 50, NOW, NOW, NOW, LOOK, ("r",),
        Counts(9, 1, {-8: 8}, 2, 1, between_tokens={-40: 3}), Counts(1), Counts(3),
        (Passed(10, NOW, NOW, LOOK),), {"magika": 2}, True,
    ).to_json(),
    "lastSequence": "01767225600000000000",
    "history": [
        {"revision": "magika-00001", "version": "7", "digest": "sha256:0f", "storageUri": "file:///m",
         "cause": {"by": "event", "id": "42", "source": "/train"}, "outcome": "promoted",
         "at": "2026-01-01T00:00:00Z", "promotedAt": "2026-01-01T00:00:00Z"},
    ],
}  # fmt: skip


def granular_maps(schema: Object, path: str = "") -> list[str]:
    """Paths of maps of any names of which each entry has an owner."""
    if schema.get("x-kubernetes-map-type") == "atomic" or schema["type"] == "array":  # lists are atomic, too
        return []
    own = [path] if "additionalProperties" in schema else []
    return own + [
        one for name, below in schema.get("properties", {}).items() for one in granular_maps(below, f"{path}.{name}")
    ]


def test_no_map_becomes_null_when_a_status_empties_it() -> None:
    assert granular_maps(SCHEMA) == []


def test_the_fullest_status_fits() -> None:
    assert list(faults(SCHEMA, FULL)) == []


def test_a_field_that_nobody_declared_would_be_noticed() -> None:
    assert list(faults(SCHEMA, {**FULL, "phase": "x"})) == [".phase"]


async def test_what_the_reconciler_writes_fits(tmp_path: Path) -> None:
    """One Model through a split with tags, a broken version and a refused spec."""
    async with embedded_cluster(tmp_path / "cluster.db") as cluster, platform(cluster) as stage:
        await stage.deploy(model_object(version="1", digest="sha256:" + "0f" * 32))
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        statuses = [(await stage.model_is("True"))["status"]]

        traffic = [{"revision": "magika-00001", "percent": 90, "tag": "old"}, {"latest": True, "percent": 10}]
        await stage.edit({"spec": {"storageUri": "file:///models/v2", "traffic": traffic}})
        await stage.comes_up("magika-00002")
        statuses.append((await stage.traffic_is({"magika-00001": 90, "magika-00002": 10}))["status"])

        await stage.edit({"spec": {"storageUri": "file:///models/broken"}})
        await stage.appears(REVISION, "magika-00003")
        await stage.deployment_reports("magika-00003", 0)
        await stage.container_ends("magika-00003", 1, "no model is there")
        statuses.append((await stage.model_is("False", reason="ExitCode1"))["status"])

        await stage.edit({"spec": {"template": {}}})
        statuses.append((await stage.model_is("False", reason="InvalidSpec"))["status"])

    for status in statuses:
        assert list(faults(SCHEMA, status)) == []
