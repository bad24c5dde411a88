"""The controller of events: each has one effect, the newest wins, failures are retried and then become dead letters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clusters.base.errors import Conflict, Unavailable
from clusters.base.objects import (
    EVENT,
    EVENT_SOURCE,
    MODEL,
    MODEL_EVENT,
    Key,
    generation_of,
)
from eventing.backoff import LONGEST_WAIT, MOST_ATTEMPTS, wait_after
from eventing.objects.apis import ANNOTATION_NEWEST, ANNOTATION_REPLAY, ModelChange, ModelRef
from eventing.objects.model_event import event_name
from tests.eventing.world import (
    NAMESPACE,
    SOURCE,
    EventWorld,
    Failing,
    event_source,
    event_spec,
    event_world,
    model_object,
)
from tests.support.wait import eventually


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EventWorld]:
    """Run a controller."""
    async with event_world(tmp_path) as running:
        yield running


async def test_an_event_changes_its_model_and_leaves_its_mark_on_it(world: EventWorld) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await world.send(
        event_spec(1, change=ModelChange("s3://models/m/1", "sha256:" + "0" * 64, "v1"), traceparent=trace)
    )
    await world.becomes(e1="Applied")
    model = await world.model()
    assert model["spec"] == {"storageUri": "s3://models/m/1", "digest": "sha256:" + "0" * 64, "version": "v1"}
    annotations = model["metadata"]["annotations"]
    assert json.loads(annotations["knodel.dev/cause"]) == {"by": "event", "id": "1", "source": SOURCE}
    assert json.loads(annotations[ANNOTATION_NEWEST])["id"] == "1"
    assert annotations["knodel.dev/traceparent"] == trace
    assert (await world.statuses())["1"]["generation"] == generation_of(model) == 2


async def test_what_an_event_does_not_say_of_its_artifact_does_not_stay_from_the_one_before(world: EventWorld) -> None:
    await world.send(event_spec(1, change=ModelChange("s3://models/m/1", "sha256:" + "0" * 64, "v1", "onnx")))
    await world.becomes(e1="Applied")
    world.clock.step(60)
    await world.send(event_spec(2, change=ModelChange("s3://models/m/2")))
    await world.becomes(e2="Applied")
    assert (await world.model())["spec"] == {"storageUri": "s3://models/m/2", "version": "2", "modelFormat": "onnx"}


async def test_each_training_at_one_address_is_a_new_version(world: EventWorld) -> None:
    runs = {"run-1": "run-1", "run\u2028-2": event_name(SOURCE, "run\u2028-2")}
    for number, (run, version) in enumerate(runs.items()):
        await world.send(event_spec(number, id=run, change=ModelChange("s3://models/m/latest")))
        await world.becomes(**{run: "Applied"})
        assert (await world.model())["spec"] == {"storageUri": "s3://models/m/latest", "version": version}
        world.clock.step(60)
    await world.send(event_spec(7, change=ModelChange("s3://models/m/latest", "sha256:" + "0" * 64)))
    await world.becomes(e7="Applied")
    assert "version" not in (await world.model())["spec"]


async def test_of_events_that_wait_together_the_newest_alone_has_an_effect(tmp_path: Path) -> None:
    async with event_world(tmp_path, running=False) as world:
        await world.send(*(event_spec(number) for number in (3, 1, 5, 2, 4)))
    async with event_world(tmp_path) as world:
        await world.becomes(e1="Superseded", e2="Superseded", e3="Superseded", e4="Superseded", e5="Applied")
        model = await world.model()
        assert model["spec"]["storageUri"] == "s3://models/magika/5"
        assert generation_of(model) == 2


@pytest.mark.fault("E2")
async def test_an_event_older_than_the_newest_applied_one_has_no_effect(world: EventWorld) -> None:
    await world.send(event_spec(7))
    await world.becomes(e7="Applied")
    world.clock.step(1)
    await world.send(event_spec(6, received_at=event_spec(8).received_at))
    await world.becomes(e6="Superseded")
    assert (await world.model())["spec"]["version"] == "7"


async def test_the_tenth_training_follows_the_ninth(world: EventWorld) -> None:
    for number in (9, 10, 11):
        await world.send(event_spec(number, time=None, sequence=str(number), sequencetype="Integer"))
        await world.becomes(**{f"e{number}": "Applied"})
        world.clock.step(60)
    assert (await world.model())["spec"]["version"] == "11"


async def test_numbers_without_a_type_that_cannot_be_ordered_fail_with_the_remedy(tmp_path: Path) -> None:
    async with event_world(tmp_path, running=False) as world:
        await world.send(*(event_spec(number, sequence=str(number)) for number in (9, 10, 11)))
    async with event_world(tmp_path) as world:
        await world.becomes(e9="Applied", e10="Failed", e11="Failed")
        failed = (await world.statuses())["10"]
        assert failed["reason"] == "NotOrderable"
        assert "'10' cannot be ordered against '9' of event 9" in failed["message"]
        assert "sequencetype Integer" in failed["message"]
        world.clock.step(60)

        await world.send(event_spec(12, sequence="10", sequencetype="Integer"))  # as the message advises
        await world.becomes(e12="Applied")


async def test_what_came_later_is_newer_whichever_webhook_dated_it(world: EventWorld) -> None:
    await world.send(event_spec(5, time=None))
    await world.becomes(e5="Applied")
    world.clock.step(60)
    await world.send(event_spec(3, time=None))
    await world.becomes(e3="Applied")
    statuses = await world.statuses()
    assert statuses["5"]["arrival"] < statuses["3"]["arrival"]
    assert (await world.model())["spec"]["version"] == "3"


async def test_models_do_not_wait_for_each_other(world: EventWorld) -> None:
    await world.cluster.create(MODEL, model_object("other"), manager="tests")
    await world.send(event_spec(1), event_spec(2, "other"))
    await world.becomes(e1="Applied", e2="Applied")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": ModelRef(NAMESPACE, "absent")}, "there is no Model default/absent"),
        ({"model": ModelRef("elsewhere", "magika")}, "does not allow changes of Model"),
        ({"change": ModelChange("s3://others/1")}, "does not allow"),
        ({"change": ModelChange("s3://models/1", model_format="pickle")}, "runs code"),
        ({"event_source": "gone"}, "EventSource default/gone"),
    ],
)
async def test_what_no_repetition_helps_fails_at_once(world: EventWorld, fields: dict[str, Any], words: str) -> None:
    await world.send(event_spec(1, **fields))
    await world.becomes(e1="Failed")
    assert words in (await world.statuses())["1"]["message"]
    assert generation_of(await world.model()) == 1

    async def told() -> bool:
        events = (await world.cluster.list(EVENT, NAMESPACE)).items
        return any(words in event["message"] and event["reason"] == "EventFailed" for event in events)

    await eventually(told)


async def test_an_event_source_of_one_namespace_has_no_say_over_models_of_another(world: EventWorld) -> None:
    await world.cluster.patch(EVENT_SOURCE, "train", {"spec": {"models": ["*/*"]}}, NAMESPACE, manager="tests")
    stranger = {**model_object(), "metadata": {"name": "magika", "namespace": "others"}}
    await world.cluster.create(MODEL, stranger, manager="tests")
    await world.send(event_spec(1, model=ModelRef("others", "magika")))
    await world.becomes(e1="Failed")
    assert (await world.cluster.get(MODEL, "magika", "others"))["spec"] == stranger["spec"]


async def test_a_model_that_is_not_there_is_made_where_the_event_source_says_so(world: EventWorld) -> None:
    await world.cluster.create(EVENT_SOURCE, event_source("makes", createModels=True), manager="tests")
    await world.send(event_spec(1, "fresh", event_source="makes"))
    await world.becomes(e1="Applied")
    fresh = await world.model("fresh")
    assert fresh["spec"] == {"storageUri": "s3://models/fresh/1", "version": "1"}
    assert json.loads(fresh["metadata"]["annotations"][ANNOTATION_NEWEST])["id"] == "1"


async def test_an_event_that_means_nothing_is_recorded_as_ignored(world: EventWorld) -> None:
    await world.send(event_spec(1, model=None, change=None, ignored="no mapping rule matches event type 'x'"))
    await world.becomes(e1="Ignored")
    assert (await world.statuses())["1"]["message"] == "no mapping rule matches event type 'x'"


@pytest.mark.fault("E9")
async def test_an_object_that_is_no_event_fails_and_stops_nobody(world: EventWorld) -> None:
    nonsense = {
        "metadata": {"name": "nonsense", "namespace": NAMESPACE},
        "spec": {"id": "bad", "model": {"namespace": NAMESPACE, "name": "magika"}, "change": {"storageUri": 7}},
    }
    await world.cluster.create(MODEL_EVENT, nonsense, manager="tests")
    await world.send(event_spec(1))
    await world.becomes(ebad="Failed", e1="Applied")


@pytest.mark.fault("E9")
async def test_what_may_get_better_is_tried_again_later_and_later(world: EventWorld) -> None:
    failing = Failing(world, Unavailable("the webhook of models is away"), 3)
    await world.send(event_spec(1))
    for attempt in (1, 2, 3):
        await eventually(partial(_has_attempts, world, attempt))
        status = (await world.statuses())["1"]
        assert (status["phase"], status["reason"]) == ("Accepted", "ServiceUnavailable")
        world.clock.step(_seconds(wait_after(attempt)) - 0.5)
        await eventually(partial(_is_looked_at_again_in, world, 0.5))
        world.clock.step(0.5)
        world.wake()
    await world.becomes(e1="Applied")
    assert failing.left == 0
    assert "retryAt" not in (await world.statuses())["1"]


@pytest.mark.fault("E9")
async def test_after_the_last_try_an_event_is_a_dead_letter_that_people_may_replay(world: EventWorld) -> None:
    failing = Failing(world, Unavailable("away"), MOST_ATTEMPTS)
    await world.send(event_spec(1))
    for attempt in range(1, MOST_ATTEMPTS):
        await eventually(partial(_has_attempts, world, attempt))
        world.clock.step(LONGEST_WAIT)
        world.wake()
    await world.becomes(e1="Failed")
    assert (await world.statuses())["1"]["attempts"] == MOST_ATTEMPTS
    assert failing.left == 0
    world.clock.step(1)
    replay = {"metadata": {"annotations": {ANNOTATION_REPLAY: world.clock.now().isoformat()}}}
    world.clock.step(1)
    await world.cluster.patch(MODEL_EVENT, event_name(SOURCE, "1"), replay, NAMESPACE, manager="tests")
    await world.becomes(e1="Applied")


async def test_a_replay_that_is_dated_in_the_future_happens_once(world: EventWorld) -> None:
    await world.send(event_spec(1, "absent"))
    await world.becomes(e1="Failed")
    later = (world.clock.now() + timedelta(days=30)).isoformat()
    replay = {"metadata": {"annotations": {ANNOTATION_REPLAY: later}}}
    await world.cluster.patch(MODEL_EVENT, event_name(SOURCE, "1"), replay, NAMESPACE, manager="tests")

    async def replayed() -> bool:
        return str((await world.statuses())["1"]["at"]).startswith("2026-01-31")

    await eventually(replayed)
    assert not world.controller._statuses.unwritten(world.informers[MODEL_EVENT].indexed("pending", "default/absent"))


async def test_when_the_newest_is_refused_the_one_that_it_had_beaten_is_applied(tmp_path: Path) -> None:
    async with event_world(tmp_path, running=False) as world:
        await world.send(event_spec(1), event_spec(2, change=ModelChange("s3://others/2")))
    async with event_world(tmp_path) as world:
        await world.becomes(e1="Applied", e2="Failed")
        assert (await world.model())["spec"]["version"] == "1"


async def test_a_change_that_meets_another_model_than_it_was_made_for_is_made_anew(world: EventWorld) -> None:
    failing = Failing(world, Conflict("somebody was faster"), 3)
    await world.send(event_spec(1))
    await world.becomes(e1="Applied")
    assert failing.left == 0
    assert "attempts" not in (await world.statuses())["1"]


@pytest.mark.fault("E4")
async def test_an_effect_whose_status_was_lost_is_not_had_again(tmp_path: Path) -> None:
    async with event_world(tmp_path) as world:
        await world.send(event_spec(1))
        await world.becomes(e1="Applied")
        lost = {"status": {"phase": None, "at": None}}
        before = await world.model()
        world.clock.step(60)
        await world.cluster.patch(
            MODEL_EVENT, event_name(SOURCE, "1"), lost, NAMESPACE, manager="tests", subresource="status"
        )
        await world.becomes(e1="Applied")
        assert await world.model() == before


async def _is_looked_at_again_in(world: EventWorld, seconds: float) -> bool:
    """Once its informer shows the last try."""
    return await world.controller.reconcile(Key(NAMESPACE, "magika")) == pytest.approx(seconds)


async def _has_attempts(world: EventWorld, attempts: int) -> bool:
    return bool((await world.statuses())["1"].get("attempts") == attempts)


def _seconds(wait: float | None) -> float:
    assert wait is not None
    return wait
