"""The cost of a storm of events, and unchanged results when the store or the ledger fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clusters.base.errors import FieldError, Invalid, Unavailable
from clusters.base.objects import EVENT, MODEL, MODEL_EVENT, Kind, Object, generation_of, key_of, version_of
from eventing.controller.target import AppliedEvent
from eventing.objects.apis import ModelChange
from eventing.objects.model_event import EventStatus, ModelEvent, event_name
from tests.eventing.world import NAMESPACE, SOURCE, EventWorld, Failing, event_spec, event_world, model_object
from tests.support.wait import eventually


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EventWorld]:
    """Run a controller."""
    async with event_world(tmp_path) as running:
        yield running


@pytest.mark.fault("E7")
async def test_a_storm_of_events_makes_few_changes_and_ends_at_the_newest(world: EventWorld) -> None:
    for number in range(1, 200):
        await world.send(event_spec(number))

    async def settled() -> bool:
        world.clock.step(1)
        world.wake()
        return "" not in (await world.phases()).values()

    await eventually(settled)
    model = await world.model()
    assert model["spec"]["version"] == "199"
    assert generation_of(model) < 20


async def test_what_fails_for_all_of_them_costs_one_pass_and_is_told_once(tmp_path: Path) -> None:
    async with event_world(tmp_path, running=False) as world:
        await world.send(*(event_spec(number, "absent") for number in range(150)))
        await world.send(
            *(event_spec(number, change=ModelChange("s3://models/1", model_format="pickle")) for number in (200, 201))
        )
    async with event_world(tmp_path) as world:
        await world.becomes(**{f"e{number}": "Failed" for number in (*range(150), 200, 201)})
        assert world.controller.controller.passes < 10
        statuses = await world.statuses()
        assert all("there is no Model default/absent" in statuses[str(number)]["message"] for number in range(150))
        told = [event["message"] for event in (await world.cluster.list(EVENT, NAMESPACE)).items]
        assert sorted(words.rpartition("(")[2] for words in told) == ["and 1 more events)", "and 149 more events)"]


async def test_what_the_model_refuses_of_one_change_fails_with_its_equals(tmp_path: Path) -> None:
    wrong = ModelChange("s3://models/1", model_format="nonsense")
    async with event_world(tmp_path, running=False) as world:
        await world.send(*(event_spec(number, change=wrong) for number in range(1, 50)), event_spec(0))
    async with event_world(tmp_path) as world:
        Failing(world, Invalid("Model", [FieldError("spec.modelFormat", "there is none")]), 1)
        await world.becomes(e49="Failed", e1="Failed", e0="Applied")


async def test_the_newest_does_not_wait_for_what_became_of_the_old_ones(tmp_path: Path) -> None:
    async with event_world(tmp_path, running=False) as world:
        await world.send(*(event_spec(number) for number in range(1, 201)))
    async with event_world(tmp_path) as world:
        hold, patch = asyncio.Event(), world.cluster.patch

        async def slow(kind: Kind, name: str, change: Any, *arguments: Any, **options: Any) -> Object:
            if change.get("status", {}).get("phase") == "Superseded":
                await hold.wait()
            return await patch(kind, name, change, *arguments, **options)

        world.cluster.patch = slow  # type: ignore[method-assign, assignment]
        await world.becomes(e200="Applied")
        world.clock.step(60)
        await world.send(event_spec(201))
        await world.becomes(e201="Applied", e1="")
        hold.set()

        async def settled() -> bool:
            world.clock.step(1)
            return "" not in (await world.phases()).values()

        await eventually(settled)


async def test_a_status_that_cannot_be_written_now_is_written_later(tmp_path: Path) -> None:
    async with event_world(tmp_path, running=False) as world:
        await world.send(event_spec(1), event_spec(2))
    async with event_world(tmp_path) as world:
        patch, failures = world.cluster.patch, [Unavailable("away"), Unavailable("away")]

        async def failing(kind: Kind, name: str, change: Any, *arguments: Any, **options: Any) -> Object:
            if failures and change.get("status", {}).get("phase") == "Superseded":
                raise failures.pop()
            return await patch(kind, name, change, *arguments, **options)

        world.cluster.patch = failing  # type: ignore[method-assign, assignment]

        async def settled() -> bool:
            world.clock.step(1)
            return (await world.phases())["1"] == "Superseded"

        await eventually(settled)
        assert not failures


@pytest.mark.fault("E5")
async def test_a_copy_that_the_ledger_has_forgotten_has_no_second_effect(world: EventWorld) -> None:
    """Their times are equal, so the later arrival of the duplicate would decide."""
    for number in (1, 2):
        await world.send(event_spec(number, time=None))
        await world.becomes(**{f"e{number}": "Applied"})
        world.clock.step(60)
    await world.cluster.delete(MODEL_EVENT, event_name(SOURCE, "1"), NAMESPACE)
    await world.send(event_spec(1, time=None, received_at=event_spec(99).received_at))
    await world.becomes(e1="Superseded")
    assert (await world.model())["spec"]["version"] == "2"


@pytest.mark.fault("E5")
async def test_a_copy_that_comes_thirty_days_late_is_older_than_what_was_applied_since(world: EventWorld) -> None:
    for number in (1, 2):
        await world.send(event_spec(number))
        await world.becomes(**{f"e{number}": "Applied"})
        world.clock.step(60)
    before = await world.model()
    world.clock.step(30 * 86_400)
    for number in (1, 2):  # their records have expired
        await world.cluster.delete(MODEL_EVENT, event_name(SOURCE, str(number)), NAMESPACE)
        await world.send(event_spec(number, received_at=world.clock.now()))
    await world.becomes(e1="Superseded", e2="Applied")
    assert await world.model() == before


@pytest.mark.fault("E9")
async def test_a_poison_event_keeps_neither_its_models_next_one_nor_other_models_waiting(world: EventWorld) -> None:
    await world.cluster.create(MODEL, model_object("other"), manager="tests")
    apply = world.target.apply

    async def poisoned(event: ModelEvent, *arguments: Any) -> AppliedEvent:
        if event.spec.id == "1":
            raise Unavailable("this one never works")
        return await apply(event, *arguments)

    world.target.apply = poisoned  # type: ignore[method-assign, assignment]
    await world.send(event_spec(1), event_spec(2, "other"))
    await world.becomes(e1="Accepted", e2="Applied")
    status = (await world.statuses())["1"]
    assert (status["attempts"], status["reason"], status["message"]) == (
        1,
        "ServiceUnavailable",
        "this one never works",
    )
    await world.send(event_spec(3))

    async def applied() -> bool:
        world.clock.step(1)
        world.wake()
        return (await world.phases())["3"] == "Applied"

    await eventually(applied)
    await world.becomes(e1="Superseded")


async def test_what_is_tried_again_is_not_passed_over_before_its_informer_shows_it(world: EventWorld) -> None:
    await world.send(event_spec(2))
    await world.becomes(e2="Applied")
    obj = await world.cluster.get(MODEL_EVENT, event_name(SOURCE, "2"), NAMESPACE)
    shown = {**obj, "status": {}}
    world.controller._statuses._written[key_of(shown)] = (version_of(shown), EventStatus("Accepted", attempts=1))
    assert world.controller._statuses.has_unseen_retry([shown])
    assert world.controller._statuses.unwritten([shown]) == []
    world.controller._statuses.observe(shown, None)
    assert not world.controller._statuses.has_unseen_retry([shown])


async def test_nothing_is_remembered_of_events_that_are_settled(world: EventWorld) -> None:
    """The watch delivers a write before the response arrives."""
    await world.send(*(event_spec(number) for number in range(20)), event_spec(30, "absent"))
    await world.becomes(e0="Superseded", e19="Applied", e30="Failed")
    await eventually(lambda: not world.controller._statuses._written)
