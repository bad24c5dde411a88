"""From a training's end to a judged rollout: by events in, by events out, under callers that never stop.

A Model serves; trainings end and tell so. What one made fails every fifth time, what another made takes three times as
long: both are undone within two looks of the judge. What the third made, which is `examples/training.py`, is promoted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clusters.base.objects import Object, is_true, parse_timestamp
from eventing.objects.outbox import PROGRESSED, PROMOTED, ROLLED_BACK, STARTED
from knodel import emit_training_completed
from serving.reconciler.rollout.state import RolloutState, rollout_of, seconds_between
from serving.types.rollout import Judge
from tests.eventing.scripted_receiver import Receiver
from tests.scenarios.events import Events, run, told
from tests.scenarios.steady import Steady, steadily
from tests.scenarios.test_formats import allow_code
from tests.scenarios.world import World, traffic_of

pytestmark = pytest.mark.timeout(600)

EXAMPLE = Path(__file__).parents[2] / "examples" / "training.py"
NAME, SOURCE = "iris", "/training/iris"
FLOWER: Object = {"inputs": [{"name": "input-0", "datatype": "FP64", "shape": [1, 4], "data": [5.1, 3.5, 1.4, 0.2]}]}
RATE = 100.0
"""Requests a second: at a step of 50 % the canary gets 50 of them."""
INTERVAL = 10.0
"""s between two looks, by default."""
HALF: dict[str, Any] = {"steps": [50, 100]}
"""The judge's defaults; a step is longer than what is to be undone lasts."""
QUICK: dict[str, Any] = {"steps": [10, 50, 100], "stepDuration": "5s", "judge": {"interval": "1s"}}
"""The default steps and bounds; a step lasts until it is ruled out that the version is worse."""
WITHIN = 90.0
"""s for such a rollout: at 10 % the judge needs some 80 requests, at 50 % some 450."""
UNDONE = [(STARTED, 0), (PROGRESSED, 50), (ROLLED_BACK, 0)]
DONE = [(STARTED, 0), (PROGRESSED, 10), (PROGRESSED, 50), (PROGRESSED, 100), (PROMOTED, 100)]
"""Types and percents of the events that go out."""
WAY = ["sent", "received", "applied", "revision", "started"]
"""How the timeline of an event begins."""


@dataclass(frozen=True, slots=True)
class Training:
    """One that has told of its end: the event's id, the trace that it ran in, the revision that is to come of it."""

    id: str
    traceparent: str
    revision: str


async def bring(world: World, events: Events, key: str, artifact: str, revision: str) -> Training:
    """A training ends that made this artifact, which is code."""
    trace = new_trace()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRACEPARENT", trace)
        emit = partial(emit_training_completed, model_format="python", url=events.webhook, secret=key)
        return Training(await asyncio.to_thread(emit, NAME, world.artifacts(artifact)), trace, revision)


async def train(world: World, events: Events, key: str, revision: str) -> Training:
    """`examples/training.py` runs to its end."""
    trace, version = new_trace(), uuid.uuid4().hex[:8]
    where = [str(events.folder / "trained"), "--address", f"{prefix_of(world)}trained"]
    variables = {"KNODEL_EVENTS_URL": events.webhook, "KNODEL_EVENTS_SECRET": key, "TRACEPARENT": trace}
    argv = [sys.executable, str(EXAMPLE), *where, "--model", NAME, "--version", version]
    await run(argv, variables | {"PYTHONPATH": os.pathsep.join(sys.path)})
    return Training(f"{NAME}-{version}", trace, revision)


def new_trace() -> str:
    """W3C trace context of a run."""
    return f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01"


def prefix_of(world: World) -> str:
    """Below which all artifacts of scenarios lie."""
    return world.artifacts("brisk").rpartition("/")[0] + "/"


async def end_of(world: World, training: Training, phase: str) -> RolloutState:
    """The rollout of its version once it has ended so, and callers have the one that won."""

    def over(found: Object) -> bool:
        state = rollout_of(found)
        if state is None or state.candidate != training.revision or state.runs:
            return False
        won = state.candidate if state.phase == "Promoted" else state.stable
        return traffic_of(found) == {won: 100} and is_true(found, "RoutesReady")

    state = rollout_of(await world.until(NAME, over, within=WITHIN))
    assert state is not None and state.phase == phase, state
    return state


def check_judged(state: RolloutState) -> None:
    """Two looks of the judge, at a canary with half of the requests, were enough."""
    assert state.judgement is not None and state.judgement.verdict.decision == "fail"
    seconds = seconds_between(state.seen_at, parse_timestamp(state.ended_at))
    assert seconds <= 2 * INTERVAL + 1.0
    assert state.judgement.verdict.numbers["candidate.requests"] == pytest.approx(seconds * RATE / 2, rel=0.4)


def check_callers(seen: Steady, flaky: Training) -> None:
    """Each got a good answer, but for every fifth of those that the flaky version gave."""
    assert seen.broken == []
    assert {(one.status, one.revision) for one in seen.failures} == {(500, flaky.revision)}
    given = sum(one.revision == flaky.revision for one in seen.answers)
    assert len(seen.failures) == pytest.approx(given / 5, abs=2)  # what warms a server up counts


async def check_told(world: World, sink: Receiver, training: Training, wanted: list[tuple[str, int]]) -> None:
    """The sink gets all that the training brought about, in order, with cause and trace."""

    async def all_told() -> bool:
        return len(_caused(sink, training)) >= len(wanted)

    await world.eventually(all_told)
    caused = _caused(sink, training)
    assert [(event["type"], event["data"]["percent"]) for event in caused] == wanted
    assert {event["data"]["revision"] for event in caused} == {training.revision}
    assert {event.get("traceparent") for event in caused} == {training.traceparent}
    assert {event.get("correlationid") for event in caused} == {training.id}
    assert {event["data"]["cause"]["source"] for event in caused} == {SOURCE}


def _caused(sink: Receiver, training: Training) -> list[dict[str, Any]]:
    return [event for event in told(sink, NAME) if event.get("causationid") == training.id]


async def traced(events: Events, training: Training) -> list[str]:
    """What happened, each in one word, as `knodel events trace` tells it."""
    lines = (await events.knodel("events", "trace", training.id)).splitlines()
    return [line.split()[1] for line in lines[1:]]


async def test_of_three_trainings_under_load_the_worse_two_are_undone_and_the_good_one_is_promoted(
    world: World,
) -> None:
    events, prefix = world.events, prefix_of(world)
    assert events is not None
    await allow_code(world, world.namespace, "true")
    granted = ("--models", NAME, "--storage-prefix", prefix, "--allow-code")
    async with events.sink() as sink, events.allowed(world.cluster, SOURCE, *granted) as key:
        first: dict[str, Any] = {"modelFormat": "python", "version": "first", "minReplicas": 1, "maxReplicas": 1}
        await world.deploy(NAME, storageUri=world.artifacts("brisk"), rollout=HALF, **first)
        async with steadily(lambda: world.ask(NAME, body=FLOWER), RATE) as seen:
            flaky = await bring(world, events, key, "flaky", f"{NAME}-00002")
            failing = await end_of(world, flaky, "RolledBack")
            lame = await bring(world, events, key, "lame", f"{NAME}-00003")
            slow = await end_of(world, lame, "RolledBack")
            await world.deploy(NAME, wait=False, rollout=QUICK)
            good = await train(world, events, key, f"{NAME}-00004")
            promoted = await end_of(world, good, "Promoted")

        for training, wanted in ((flaky, UNDONE), (lame, UNDONE), (good, DONE)):
            await check_told(world, sink, training, wanted)
        timelines = [await traced(events, training) for training in (flaky, lame, good)]
        sequences = [event["sequence"] for event in told(sink, NAME)]

    check_callers(seen, flaky)
    check_judged(failing)
    check_judged(slow)
    assert failing.judgement is not None and slow.judgement is not None
    assert failing.judgement.verdict.numbers["candidate.errors"] == pytest.approx(0.2, abs=0.05)
    found = slow.judgement.verdict.numbers  # and what a request takes beside the model's 10 or 30 ms
    assert found["candidate.latency"] > Judge().max_latency_ratio * found["stable.latency"]
    assert any(
        one.startswith("share of answers slower") and "at least" in one for one in slow.judgement.verdict.reasons
    )
    assert [one.percent for one in promoted.passed] == [10, 50, 100]
    assert all(one.judgement is not None and one.judgement.verdict.decision == "pass" for one in promoted.passed)
    assert sequences == sorted(sequences)
    assert [line[: len(WAY)] for line in timelines] == [WAY] * 3
    assert [line[-1] for line in timelines] == ["rolledback", "rolledback", "promoted"]
