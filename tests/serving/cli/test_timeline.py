"""Test the entries of a trace and their order."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import Key, Object, parse_timestamp
from eventing.objects.outbox import ROLLED_BACK, STARTED, OutboxEntry
from eventing.objects.outgoing import make_outgoing
from serving.client.models.event_timeline import timeline
from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.state import Judgement, Passed, RolloutState

CAUSE = {"by": "event", "id": "42", "source": "/train/magika"}
NEW, OLD = "magika-00002", "magika-00001"
PASS = Judgement(Verdict("pass", ("no worse",), {"requests": 900.0}), "2026-01-01T00:01:10.000Z")
FAIL = Judgement(Verdict("fail", ("20 % errors", "slower"), {"requests": 40.0}), "2026-01-01T00:01:20.000Z")


def event(**status: Any) -> Object:
    spec = {
        "eventSource": "train",
        "source": "/train/magika",
        "id": "42",
        "type": "dev.knodel.training.completed.v1",
        "time": "2026-01-01T00:00:09.100Z",
        "receivedAt": "2026-01-01T00:00:09.200000Z",
        "model": {"namespace": "default", "name": "magika"},
        "change": {"storageUri": "s3://models/magika/7"},
    }
    applied = {"phase": "Applied", "message": "generation 2", "at": "2026-01-01T00:00:09.300000Z"}
    return {"metadata": {"name": "e", "namespace": "default"}, "spec": spec, "status": applied | status}


def model(state: RolloutState | None = None) -> Object:
    line = {"revision": NEW, "version": "7", "cause": CAUSE, "at": "2026-01-01T00:00:09Z"}
    status: Object = {"history": [{"revision": OLD, "at": "2026-01-01T00:00:00Z"}, line]}
    if state is not None:
        status["rollout"] = state.to_json()
    return {"metadata": {"name": "magika", "namespace": "default"}, "spec": {}, "status": status}


def state(**fields: Any) -> RolloutState:
    return RolloutState("Progressing", NEW, OLD, "2026-01-01T00:00:09.400Z", "2026-01-01T00:00:09.400Z", **fields)


def outgoing(type: str, time: str, phase: str = "", **data: Any) -> Object:
    known = {"revision": NEW, "cause": CAUSE, **data}
    made = make_outgoing(
        Key("default", "magika"), OutboxEntry("o", type, time, "1", NEW, known, "42"), None, parse_timestamp(time)
    )
    return {**made, "status": {"phase": phase, "message": "the sink answered 503"}} if phase else made


def lines(*parts: Any) -> list[tuple[str, str]]:
    return [(one.kind, one.detail) for one in timeline(*parts)]


def test_a_version_is_listed_after_its_event_despite_whole_seconds() -> None:
    assert [kind for kind, _ in lines(event(), model(), [])] == ["sent", "received", "applied", "revision"]
    assert [one.at for one in timeline(event(), None, [])] == [
        "2026-01-01T00:00:09.100Z", "2026-01-01T00:00:09.200Z", "2026-01-01T00:00:09.300Z",
    ]  # fmt: skip


def test_a_refused_version_shows_the_verdict_and_its_numbers() -> None:
    passed = Passed(10, "2026-01-01T00:00:10.000Z", PASS.at, PASS)
    told = outgoing(ROLLED_BACK, FAIL.at, "Applied", percent=0, reasons=["20 % errors", "slower"])
    shown = lines(event(), model(state(passed=(passed,), judgement=FAIL)), [told])
    assert shown[-3:] == [
        ("step", "10 % since 2026-01-01T00:00:10.000Z: pass: no worse [requests 900]"),
        ("verdict", "fail: 20 % errors; slower [requests 40]"),
        ("rolledback", "0 %: 20 % errors; slower"),
    ]


def test_the_verdict_that_ended_a_step_stands_once() -> None:
    passed = Passed(100, "2026-01-01T00:00:10.000Z", PASS.at, PASS)
    assert [kind for kind, _ in lines(event(), model(state(passed=(passed,), judgement=PASS)), [])][-1] == "step"


def test_steps_of_a_rollout_that_the_model_forgot_are_those_of_the_last_event() -> None:
    passed = Passed(10, "2026-01-01T00:00:10.000Z", PASS.at, PASS).to_json()
    newer = RolloutState("Progressing", "magika-00003", OLD, PASS.at, PASS.at, judgement=FAIL)
    told = outgoing(ROLLED_BACK, FAIL.at, passed=[passed])
    shown = [kind for kind, _ in lines(event(), model(newer), [told])]
    assert shown == ["sent", "received", "applied", "revision", "step", "rolledback"]


def test_an_unsent_event_is_listed_with_the_reason() -> None:
    told = outgoing(STARTED, "2026-01-01T00:00:10Z", "Failed")
    assert lines(event(), model(), [told])[-1] == ("started", f"{NEW} (not sent: the sink answered 503)")


def test_an_event_that_waits_shows_its_next_try() -> None:
    waiting = event(phase="Accepted", at="", retryAt="2026-01-01T00:00:19Z", attempts=2, message="no answer")
    assert lines(waiting, None, [])[-1] == ("next try", "after 2 attempts: no answer")
