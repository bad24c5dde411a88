"""What the controllers see is seconds old; nothing is made twice for it (K10)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from clusters.base.api import Cluster, WatchEvent
from clusters.base.clock import SystemClock
from clusters.base.objects import CONFIGURATION, MODEL, REVISION, ROUTE, SERVICE, Kind, Object, controller_of, name_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative import KnativeServing
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.reconciler.controller import COMPONENT, ModelController
from serving.reconciler.flags import AllOn
from serving.types.settings.settings import Settings
from serving.types.validation import validate_model
from tests.faults.kit.served import uri
from tests.serving.models import VARIANTS, model_object
from tests.serving.reconciler.conftest import ModelStage
from tests.support.clusters import embedded_cluster
from tests.support.knative_webhook.validation import VALIDATORS
from tests.support.wait import eventually

MODELS = 5
VERSIONS = 3


class Late:
    """A cluster whose watches tell everything late."""

    def __init__(self, cluster: EmbeddedCluster, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def watch(self, kind: Kind, *arguments: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        """The real one's events, each so many seconds after it happened."""
        loop = asyncio.get_running_loop()
        late: asyncio.Queue[tuple[float, WatchEvent]] = asyncio.Queue()

        async def read() -> None:
            async for event in self._cluster.watch(kind, *arguments, **options):
                late.put_nowait((loop.time() + self._seconds, event))

        reading = asyncio.create_task(read())
        try:
            while True:
                due, event = await late.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                yield event
        finally:
            reading.cancel()


@asynccontextmanager
async def platform(folder: Path, seconds: float) -> AsyncIterator[ModelStage]:
    """The controller of Models and Knative's stand-in, both of which see all of it late."""
    validators = {**VALIDATORS, MODEL: validate_model}
    async with embedded_cluster(folder / "cluster.db", validators=validators) as cluster:
        seen, clock = cast(Cluster, Late(cluster, seconds)), SystemClock()
        informers = Informers(seen, clock)
        knative = KnativeServing(
            cluster, informers, clock=clock, domain=lambda space, name: f"{name}.{space}.x", url=lambda host: host
        )
        models = ModelController(
            seen,
            informers,
            settings=Settings(),
            clock=clock,
            recorder=Recorder(cluster, COMPONENT, clock),
            flags=AllOn(),
        )
        tasks = [asyncio.create_task(part.run()) for part in (informers, knative, models)]
        try:
            yield ModelStage(cluster)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.fault("K10", shortened="0.5 s behind, not 10 s")
@pytest.mark.timeout(400)
async def test_no_child_is_made_twice_by_controllers_that_see_all_of_it_late(tmp_path: Path, full: bool) -> None:
    seconds = 10.0 if full else 0.5
    async with platform(tmp_path, seconds) as stage:
        for version in range(1, VERSIONS + 1):
            for number in range(MODELS):
                spec = {"variants": VARIANTS} if number == 0 else {}
                await stage.deploy(model_object(f"m{number}", storageUri=uri(version), **spec))
            await eventually(lambda version=version: _made(stage, version), 12 * seconds + 5)  # type: ignore[misc]
        await asyncio.sleep(3 * seconds)  # for what is made late, and should not be
        revisions = (await stage.cluster.list(REVISION)).items
        children = Counter(_owner(one) for one in revisions)
        kinds = {kind: Counter(_owner(one) for one in (await stage.cluster.list(kind)).items)
                 for kind in (SERVICE, CONFIGURATION, ROUTE)}  # fmt: skip
    assert set(children.values()) == {VERSIONS}
    assert len(children) == MODELS - 1 + len(VARIANTS)
    assert {name_of(one) for one in revisions} == {
        f"{owner}-{number:05d}" for owner in children for number in range(1, VERSIONS + 1)
    }
    assert kinds[SERVICE].total() == MODELS - 1
    assert kinds[ROUTE].total() == MODELS
    assert kinds[CONFIGURATION].total() == MODELS - 1 + len(VARIANTS)


async def _made(stage: ModelStage, version: int) -> bool:
    """Whether each Configuration has its Revisions."""
    return len((await stage.cluster.list(REVISION)).items) >= version * (MODELS - 1 + len(VARIANTS))


def _owner(obj: Object) -> str:
    return str((controller_of(obj) or {}).get("name", ""))
