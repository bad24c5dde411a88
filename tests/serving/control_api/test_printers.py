"""Columns and ages as `kubectl get` shows them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from clusters.base.objects import (
    CONFIG_MAP,
    EVENT,
    EVENT_SOURCE,
    KINDS,
    MODEL,
    MODEL_EVENT,
    POD,
    REVISION,
    WARM_POOL,
    Kind,
)
from serving.control_api.printers import columns_of, human_duration, make_table
from tests.eventing.world import START

NOW = START + timedelta(hours=1)
CREATED = "2026-01-01T00:00:00Z"


def cells(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of one object's row by their columns."""
    metadata = {"name": "a", "creationTimestamp": CREATED, **obj.get("metadata", {})}
    table = make_table(kind, [{**obj, "metadata": metadata}], NOW, "7")
    heads = [column["name"] for column in table["columnDefinitions"]]
    [row] = table["rows"]
    return dict(zip(heads, row["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"), (-0.5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (600, "10m"),
        (10_799, "179m"), (10_800, "3h"), (11_700, "3h15m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d"),
        (183_600, "2d3h"), (691_200, "8d"), (63_072_000, "2y"), (63_158_400, "2y1d"), (315_360_000, "10y"),
    ],
)  # fmt: skip
def test_durations_are_those_of_kubectl(seconds: float, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_every_kind_has_columns_and_shows_an_object_without_a_status() -> None:
    for kind in KINDS:
        shown = cells(kind, {})
        assert "a" in shown.values(), kind
        assert all(value is None or isinstance(value, str | int) for value in shown.values()), kind


@pytest.mark.parametrize(
    ("status", "ready", "reason", "restarts"),
    [
        ({}, "0/1", "", "0"),
        ({"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted", "0"),
        ({"state": {"running": {}}, "ready": True}, "1/1", "Running", "0"),
        ({"state": {"running": {}}, "ready": False}, "0/1", "Running", "0"),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3,
          "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:00Z"}}},
         "0/1", "CrashLoopBackOff", "3 (60s ago)"),
        ({"state": {"terminated": {"exitCode": 2}}}, "0/1", "ExitCode:2", "0"),
        ({"state": {"terminated": {"exitCode": 137, "signal": 9}}}, "0/1", "Signal:9", "0"),
        ({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}, "0/1", "Completed", "0"),
    ],
)  # fmt: skip
def test_a_pod_shows_what_its_container_does(status: dict[str, Any], ready: str, reason: str, restarts: str) -> None:
    whole = {"phase": "Running", "containerStatuses": [status]} if "state" in status else status
    shown = cells(POD, {"spec": {"containers": [{"name": "c"}]}, "status": whole})
    assert (shown["Ready"], shown["Status"], shown["Restarts"], shown["IP"]) == (ready, reason, restarts, "<none>")


def test_a_pod_that_is_deleted_is_terminating() -> None:
    deleted = {"metadata": {"deletionTimestamp": CREATED}, "status": {"phase": "Running"}}
    assert cells(POD, deleted)["Status"] == "Terminating"


def test_an_event_shows_when_it_came_last_and_what_it_is_about() -> None:
    event = {
        "involvedObject": {"kind": "Model", "name": "magika"},
        "source": {"component": "knodel", "host": "here"},
        "firstTimestamp": CREATED,
        "lastTimestamp": "2026-01-01T00:55:00Z",
        "count": 3,
        "type": "Warning",
        "reason": "Failed",
        "message": " it broke\n",
    }
    assert cells(EVENT, event) == {
        "Last Seen": "5m", "Type": "Warning", "Reason": "Failed", "Object": "model/magika", "Subobject": "",
        "Source": "knodel, here", "Message": "it broke", "First Seen": "60m", "Count": 3, "Name": "a",
    }  # fmt: skip
    assert cells(EVENT, {"eventTime": CREATED})["Last Seen"] == "60m"
    assert cells(EVENT, {})["Last Seen"] == "<unknown>"


def test_kinds_of_definitions_show_the_columns_of_their_definitions() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "False", "reason": "NotFound"}]}
    labels = {"serving.knative.dev/configurationGeneration": "3", "serving.knative.dev/configuration": "c"}
    revision = cells(REVISION, {"metadata": {"labels": labels}, "status": {**ready, "desiredReplicas": 0}})
    assert (revision["Config Name"], revision["Generation"], revision["Ready"]) == ("c", "3", "False")
    assert (revision["Actual Replicas"], revision["Desired Replicas"]) == (None, 0)
    source = cells(EVENT_SOURCE, {"spec": {"source": "/ci", "models": ["a", "b"]}, "status": ready})
    assert (source["Models"], source["Reason"], source["Age"]) == ('["a","b"]', "NotFound", "60m")
    assert cells(MODEL, {"status": {"traffic": [{"percent": 90, "revision": "r"}]}})["Percent"] == 90
    assert [one.name for one in columns_of(WARM_POOL) if one.wide] == ["Starting", "Seed"]
    assert {one.name for one in columns_of(MODEL_EVENT)} > {"Model", "Phase", "Id"}
    assert cells(CONFIG_MAP, {"data": {"a": "1"}, "binaryData": {"b": "MQ=="}})["Data"] == 2
