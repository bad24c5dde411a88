"""Test `knodel status`: one page about the platform, and its exit code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.base.objects import EVENT, WARM_POOL, Object, timestamp
from serving.cli.summary import summarize
from tests.serving.cli.conftest import Done, Served, check
from tests.serving.cli.test_rollout import rolling

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
READY = {"type": "Ready", "status": "True"}
FAILED = {"type": "Ready", "status": "False", "reason": "RevisionFailed", "message": "the files are damaged"}


def event(kind: str, name: str, at: datetime, **fields: Any) -> Object:
    """Return a Warning about an object in the namespace default."""
    about = {"kind": kind, "name": name, "namespace": "default"}
    metadata = {"name": f"{name}.1", "namespace": "default"}
    return {"metadata": metadata, "type": "Warning", "reason": "Failed", "message": "no room", "involvedObject": about,
            "lastTimestamp": timestamp(at), **fields}  # fmt: skip


def model(name: str, *conditions: Object) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": {"conditions": list(conditions)}}


def test_warnings_of_other_objects_and_old_ones_are_left_out() -> None:
    events = [
        event("Pod", "iris-00001-deployment-x", NOW),
        event("Pod", "another-application", NOW),
        event("EventSource", "mlflow", NOW - timedelta(minutes=2), count=3),
        event("Model", "iris", NOW - timedelta(hours=2)),
        event("Model", "iris", NOW, type="Normal"),
    ]

    found = summarize([model("iris", READY)], [], events, NOW).warnings

    assert [(one.object, one.times) for one in found] == [("Pod iris-00001-deployment-x", 1), ("EventSource mlflow", 3)]


@pytest.mark.parametrize(
    ("conditions", "healthy", "state"),
    [((READY,), True, ""), ((FAILED,), False, "failed"), ((), True, "starting"),
     (({"type": "Ready", "status": "Unknown", "reason": "Deploying"},), True, "starting")],
)  # fmt: skip
def test_a_model_that_starts_is_no_failure(conditions: tuple[Object, ...], healthy: bool, state: str) -> None:
    found = summarize([model("iris", *conditions)], [], [], NOW)

    assert found.healthy is healthy
    assert [one.state for one in found.waiting] == ([state] if state else [])
    assert found.ready == (not state)


async def status(served: Served, *options: str) -> Done:
    done = await served.knodel("status", *options)
    assert done.err == ""
    return done


async def test_an_empty_platform_is_healthy(served: Served) -> None:
    done = await status(served)

    assert done.code == 0
    assert "Models:    none yet" in done.out
    assert "Gateway:   http://127.0.0.1:9" in done.out
    assert "free at" in done.out


async def test_the_page_shows_what_needs_attention(served: Served) -> None:
    for name, condition in (("iris", READY), ("broken", FAILED)):
        await served.deploy(name)
        await served.set_status(name, {"conditions": [condition]})
    await served.set_status("iris", {"rollout": rolling("Progressing")})
    await served.cluster.create(EVENT, event("Model", "broken", datetime.now(UTC)), manager="test")
    pool = {"metadata": {"name": "small", "namespace": "default"}, "spec": {"size": 2, "template": {}}}
    await served.cluster.create(WARM_POOL, pool, manager="test")

    done, found = await status(served), (await status(served, "-o", "json")).value()

    assert done.code == 1
    assert "Models:    1 ready, 1 failed (1 of them without a replica)" in done.out
    for words in ("RevisionFailed", "the files are damaged", "magika-00002", "step 2: 10 %", "Model broken", "small"):
        assert words in done.out
    assert found["healthy"] is False
    assert found["models"]["waiting"][0]["name"] == "broken"
    assert found["rollouts"][0]["candidate"] == "magika-00002"
    assert found["warnings"][0]["message"] == "no room"
    assert found["disk"]["freeBytes"] > 0
    assert (await status(served, "-n", "default", "-o", "json")).value()["models"] == found["models"]


async def test_the_remedy_is_named_if_no_platform_runs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNODEL_STATE", "/nonexistent/state")
    check(await served.knodel("status"), 1, ["no platform runs on /nonexistent/state", "knodel up --detach"])
