"""A second pass writes nothing, and later passes complete one that was interrupted anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusters.base.api import Cluster
from clusters.base.clock import Clock, SystemClock
from clusters.base.errors import Conflict, Unavailable
from clusters.base.objects import (
    CONFIGURATION,
    INGRESS,
    MODEL,
    REVISION,
    ROUTE,
    SERVICE,
    Key,
    Kind,
    controller_of,
    uid_of,
    version_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative import KnativeServing
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.groups.states import OneMachine
from serving.reconciler.flags import AllOn
from serving.reconciler.model import ModelReconciler
from serving.reconciler.observe import prepare_informers
from serving.reconciler.rollout.judging.observer_port import NoObserver
from serving.reconciler.rollouts import RolloutJudge
from serving.types.settings.settings import Settings
from serving.types.validation import validate_model
from tests.serving.models import VARIANTS, model_object
from tests.serving.reconciler.conftest import ModelStage, platform
from tests.support.clusters import embedded_cluster
from tests.support.knative_webhook.validation import VALIDATORS
from tests.support.loops import at_work
from tests.support.wait import eventually

WRITES = ("create", "apply", "patch", "delete", "scale")


class Watched:
    """A cluster that counts writes, and that fails the one with the number `breaks_at` before it is done."""

    def __init__(self, cluster: EmbeddedCluster, breaks_at: int = -1) -> None:
        self._cluster = cluster
        self._breaks_at = breaks_at
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        if name not in WRITES:
            return method

        async def call(kind: Kind, *arguments: Any, **options: Any) -> Any:
            self.writes.append(f"{name} {kind}")
            if len(self.writes) - 1 == self._breaks_at:
                raise Unavailable("cut off here")
            return await method(kind, *arguments, **options)

        return call


@contextlib.asynccontextmanager
async def settled_informers(cluster: EmbeddedCluster) -> AsyncIterator[Informers]:
    informers = Informers(cluster)
    prepare_informers(informers)
    async with at_work(informers.run()):
        await informers.synced()
        yield informers


def make_reconciler(cluster: Cluster, informers: Informers, clock: Clock) -> ModelReconciler:
    """A reconciler without an observer of rollouts."""
    recorder, rollouts = Recorder(cluster, "knodel", clock), RolloutJudge(NoObserver(), NoObserver())
    return ModelReconciler(cluster, informers, Settings(), clock, recorder, AllOn(), rollouts, OneMachine())


async def second_pass(cluster: EmbeddedCluster) -> list[str]:
    """The writes of one more pass over `magika` by a reconciler that has never seen it."""
    watched = Watched(cluster)
    seen = cast(Cluster, watched)
    async with settled_informers(cluster) as informers:
        clock = SystemClock()
        reconciler = make_reconciler(seen, informers, clock)
        await reconciler.reconcile(Key("default", "magika"))
    return watched.writes


def specs() -> st.SearchStrategy[dict[str, Any]]:
    optional = {
        "version": st.sampled_from(["1", "2"]),
        "minReplicas": st.integers(0, 4),
        "scaleTarget": st.sampled_from([1, 2.5, 8]),
        "containerConcurrency": st.sampled_from([0, 1, 8]),
        "visibility": st.sampled_from(["public", "cluster-local"]),
        "canaryTrafficPercent": st.integers(0, 100),
        "variants": st.just(VARIANTS),
        "rollout": st.just({"steps": [50, 100]}),
        "resources": st.sampled_from([{"cpu": "1000m"}, {"memory": "1024Mi"}, {"cpu": 0.5}]),
        "traffic": st.sampled_from(
            [
                [{"latest": True, "percent": 100, "tag": "blue"}],
                [{"revision": "magika-00001", "percent": 60}, {"latest": True, "percent": 40}],
                [{"revision": "magika-00009", "percent": 100}],
            ]
        ),
    }
    return st.fixed_dictionaries({}, optional=optional)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(specs(), min_size=1, max_size=3), st.booleans())
def test_a_second_pass_writes_nothing(lives: list[dict[str, Any]], comes_up: bool) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            validators = {**VALIDATORS, MODEL: validate_model}
            async with embedded_cluster(Path(folder) / "cluster.db", validators=validators) as cluster:
                async with platform(cluster) as stage:
                    for spec in lives:
                        await stage.deploy(model_object(**spec))
                        await stage.quiet()
                        if comes_up:
                            await everything_comes_up(stage)
                    await asyncio.wait_for(stage.quiet(), 5)
                assert await second_pass(cluster) == []

    asyncio.run(play())


async def everything_comes_up(stage: ModelStage) -> None:
    for revision in (await stage.cluster.list(REVISION)).items:
        await stage.comes_up(revision["metadata"]["name"])
    for _ in range(2):
        await stage.quiet()
        for ingress in (await stage.cluster.list(INGRESS)).items:
            await stage.ingress_is_ready(ingress["metadata"]["name"])
    await stage.quiet()


async def passes_until_cut_off(cluster: EmbeddedCluster, breaks_at: int) -> bool:
    """Passes of one reconciler beside the stand-in until it is cut off (True), or nothing is left to write (False)."""
    watched = Watched(cluster, breaks_at)
    informers = Informers(cluster)
    prepare_informers(informers)
    clock = SystemClock()
    knative = KnativeServing(
        cluster, informers, clock=clock, domain=lambda space, name: f"{name}.{space}.x", url=lambda host: host
    )
    async with at_work(informers.run(), knative.run()):
        await informers.synced()
        seen = cast(Cluster, watched)
        reconciler = make_reconciler(seen, informers, clock)
        still = 0
        while still < 10:
            before = len(watched.writes)
            try:
                await reconciler.reconcile(Key("default", "magika"))
            except Unavailable:
                return True
            except Exception as error:
                assert type(error).__name__ in ("Conflict", "NotFound"), error
            still = still + 1 if len(watched.writes) == before else 0
            await asyncio.sleep(0.002)
        return False


async def there(stage: ModelStage, variants: bool) -> None:
    """The Model is or becomes one with variants, or without, and all of it is up."""
    await stage.deploy(model_object(variants=VARIANTS) if variants else model_object())
    await stage.quiet()
    await everything_comes_up(stage)


@pytest.mark.fault("K1")
@pytest.mark.parametrize(
    ("lives", "owner"),
    [
        pytest.param([False, True], MODEL, id="to variants"),
        pytest.param([True, False], SERVICE, id="from variants to a new version"),
        pytest.param([False, True, False], SERVICE, id="from variants to a version that still stands"),
    ],
)
async def test_a_change_of_shape_cut_off_at_any_write_loses_no_object(
    tmp_path: Path, lives: list[bool], owner: Kind
) -> None:
    *former, last = lives
    validators = {**VALIDATORS, MODEL: validate_model}
    async with embedded_cluster(tmp_path / "former.db", validators=validators) as cluster, platform(cluster) as stage:
        for variants in former:
            await there(stage, variants)
    for breaks_at in itertools.count():
        path = shutil.copyfile(tmp_path / "former.db", tmp_path / f"{breaks_at}.db")
        async with embedded_cluster(path, validators=validators) as cluster:
            before = await objects_of(cluster)
            change = {"spec": {"variants": VARIANTS if last else None}}
            await cluster.patch(MODEL, "magika", change, "default", manager="tester")
            cut = await passes_until_cut_off(cluster, breaks_at)
            async with platform(cluster) as stage:
                await stage.quiet()
                await everything_comes_up(stage)

                async def is_handed_over(cluster: EmbeddedCluster = cluster) -> bool:
                    present = await cluster.get(ROUTE, "magika", "default")
                    return (controller_of(present) or {}).get("kind") == owner.kind

                await eventually(is_handed_over)
                assert before <= await objects_of(cluster)
        if not cut:
            assert breaks_at > 1
            return


async def objects_of(cluster: EmbeddedCluster) -> set[str]:
    """The Route, Configurations and Revisions that stand, as themselves: made again they would be others."""
    return {uid_of(one) for kind in (ROUTE, CONFIGURATION, REVISION) for one in (await cluster.list(kind)).items}


@pytest.mark.fault("K10")
async def test_what_was_just_written_is_not_written_again_before_it_is_seen(cluster: EmbeddedCluster) -> None:
    """Passes over informers that lag: each write is sent once, though every pass plans it."""
    await cluster.create(MODEL, model_object(), manager="tests")
    async with settled_informers(cluster) as informers:
        watched = Watched(cluster)
        seen = cast(Cluster, watched)
        clock = SystemClock()
        reconciler = make_reconciler(seen, informers, clock)
        key = Key("default", "magika")
        frozen = informers[MODEL].get("magika", "default")
        assert frozen is not None

        await reconciler.reconcile(key)
        informers[MODEL]._set(key, frozen)  # the watch has not told of the status yet
        await reconciler.reconcile(key)

    assert watched.writes.count("apply models.knodel.dev") == 1


@pytest.mark.fault("K5", "K8")
async def test_what_another_has_written_since_is_not_written_over(cluster: EmbeddedCluster) -> None:
    """A leader whose informers lag meets a conflict, not its successor's Service."""
    await cluster.create(MODEL, model_object(), manager="tests")
    await second_pass(cluster)
    async with settled_informers(cluster) as informers:
        clock = SystemClock()
        lagging = make_reconciler(cluster, informers, clock)
        key = Key("default", "magika")
        older = informers[SERVICE].get("magika", "default")
        assert older is not None
        change = {"spec": {"template": {"spec": {"timeoutSeconds": 7}}}}
        newer = await cluster.patch(SERVICE, "magika", change, "default", manager="successor")
        informers[SERVICE]._set(key, {**older, "spec": {}})

        with pytest.raises(Conflict):
            await lagging.reconcile(key)

    assert version_of(await cluster.get(SERVICE, "magika", "default")) == version_of(newer)
