"""An embedded cluster with the controller of ModelEvents, for tests; the clock only advances in steps."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from clusters.base.clock import SystemClock
from clusters.base.errors import AlreadyExists
from clusters.base.objects import EVENT_SOURCE, MODEL, MODEL_EVENT, Key, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from eventing.controller.controller import EventController
from eventing.objects.apis import ModelChange, ModelRef
from eventing.objects.model_event import EventSpec, make_model_event
from serving.platform.event_files import EventFiles
from serving.platform.model_events import ModelTarget
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work
from tests.support.wait import eventually

NAMESPACE = "default"
SOURCE = "/train/magika"
START = datetime(2026, 1, 1, tzinfo=UTC)


def event_source(name: str = "train", **spec: Any) -> Object:
    """Return an EventSource that may change all Models of its namespace from s3://models/."""
    spec = {
        "source": SOURCE,
        "auth": {"hmac": {"secretRef": {"name": "keys"}}},
        "models": ["*"],
        "storagePrefixes": ["s3://models/"],
        **spec,
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def event_spec(number: int, name: str = "magika", **fields: Any) -> EventSpec:
    """Return the event of a training that ended `number` seconds after the start and arrived at once."""
    at = START + timedelta(seconds=number)
    known = {
        "event_source": "train",
        "source": SOURCE,
        "id": str(number),
        "type": "dev.knodel.training.completed.v1",
        "received_at": at,
        "time": at,
        "model": ModelRef(NAMESPACE, name),
        "change": ModelChange(f"s3://models/{name}/{number}", version=str(number)),
    }
    return EventSpec(**{**known, **fields})


def model_object(name: str = "magika", **spec: Any) -> Object:
    """Return a Model as users deploy it."""
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"storageUri": "s3://models/first", **spec}}


class EventWorld:
    """The cluster, the controller, and helpers for tests."""

    def __init__(self, cluster: EmbeddedCluster, clock: SteppedClock, files: EventFiles | None = None) -> None:
        self.cluster = cluster
        self.clock = clock
        self.informers = Informers(cluster, SystemClock())
        self.target = ModelTarget(cluster, reach=lambda namespace: namespace == "knodel-system", files=files)
        self.controller = EventController(
            cluster,
            self.informers,
            target=self.target,
            clock=clock,
            recorder=Recorder(cluster, "tests", clock),
        )

    async def send(self, *specs: EventSpec, copies: bool = False) -> None:
        """Record the events like the webhook; with `copies` they may exist already."""
        objects = [make_model_event(NAMESPACE, spec) for spec in specs]
        answers = await self.cluster.create_all(MODEL_EVENT, objects, manager="tests")
        for answer in answers:
            if isinstance(answer, Exception) and not (copies and isinstance(answer, AlreadyExists)):
                raise answer

    async def model(self, name: str = "magika") -> Object:
        """Read a Model."""
        return await self.cluster.get(MODEL, name, NAMESPACE)

    async def statuses(self) -> dict[str, Object]:
        """Return the status of each event by its id."""
        events = (await self.cluster.list(MODEL_EVENT)).items
        return {event["spec"]["id"]: event.get("status") or {} for event in events}

    async def phases(self) -> dict[str, str]:
        """Return the phase of each event by its id."""
        return {number: status.get("phase", "") for number, status in (await self.statuses()).items()}

    def wake(self, name: str = "magika") -> None:
        """Enqueue the Model: timers of the queue use the machine's clock."""
        self.controller.controller.queue.add(Key(NAMESPACE, name))

    async def becomes(self, **phases: str) -> None:
        """Wait until the events (`e1` has id 1) are in these phases."""
        wanted = {number.removeprefix("e"): phase for number, phase in phases.items()}

        async def reached() -> bool:
            found = await self.phases()
            assert {number: found.get(number) for number in wanted} == wanted
            return True

        await eventually(reached)


class Failing:
    """A target that fails a given number of times."""

    def __init__(self, world: EventWorld, error: Exception, times: int) -> None:
        self._apply = world.target.apply
        self._error = error
        self.left = times
        world.target.apply = self  # type: ignore[method-assign, assignment]

    async def __call__(self, *arguments: Any) -> Any:
        """Raise the error, or apply the event."""
        if self.left <= 0:
            return await self._apply(*arguments)
        self.left -= 1
        raise self._error


@contextlib.asynccontextmanager
async def event_world(
    folder: Path, *, running: bool = True, models: Sequence[str] = ("magika",), files: EventFiles | None = None
) -> AsyncIterator[EventWorld]:
    """Run a world with these Models and an EventSource `train`; with `running` its controller runs."""
    clock = SteppedClock(START)
    async with embedded_cluster(folder / "cluster.db", clock=clock) as cluster:
        world = EventWorld(cluster, clock, files)
        for kind, obj in ((EVENT_SOURCE, event_source()), *((MODEL, model_object(name)) for name in models)):
            with contextlib.suppress(AlreadyExists):
                await cluster.create(kind, obj, manager="tests")
        controller = (world.controller.run(),) if running else ()
        async with at_work(world.informers.run(), *controller):
            await world.informers.synced()
            yield world
