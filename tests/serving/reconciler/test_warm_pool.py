"""The seeds of WarmPools on a real embedded cluster."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from autoscaler.warmpool.claims.marks import LABEL_SEED
from clusters.base.clock import SystemClock
from clusters.base.errors import NotFound
from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    MODEL,
    REVISION,
    SERVICE,
    WARM_POOL,
    Object,
    controller_of,
    labels_of,
    name_of,
    uid_of,
    version_of,
)
from clusters.base.objects import NAMESPACE as NAMESPACES
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative import KnativeServing
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.reconciler.controller import COMPONENT, ModelController
from serving.reconciler.flags import AllOn
from serving.reconciler.warm_pools.controller import WarmPoolController
from serving.types.settings.settings import ServerSettings, Settings
from serving.types.validation import validate_model
from serving.types.warm_pool import validate_warm_pool
from tests.clusters.knative.stage import NAMESPACE
from tests.serving.models import model_object
from tests.serving.pools import pool_object
from tests.serving.reconciler.conftest import ModelStage
from tests.support.clusters import embedded_cluster
from tests.support.knative_webhook.annotation_rules import ALLOW_ZERO_INITIAL_SCALE
from tests.support.knative_webhook.validation import KNATIVE_FEATURES, validators
from tests.support.loops import at_work
from tests.support.wait import eventually

WITHIN = 5.0  # s for a step
SEED = "knodel-pool-small"
READY = {"ready": True, "message": ""}


@contextlib.asynccontextmanager
async def door(path: Path, features: frozenset[str]) -> AsyncIterator[EmbeddedCluster]:
    """A cluster whose Knative has these features on."""
    checks = {**validators(features), MODEL: validate_model, WARM_POOL: validate_warm_pool}
    async with embedded_cluster(path / "cluster.db", validators=checks) as running:
        yield running


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A cluster that takes initial scale 0."""
    async with door(tmp_path, KNATIVE_FEATURES | {ALLOW_ZERO_INITIAL_SCALE}) as running:
        yield running


@contextlib.asynccontextmanager
async def acting(cluster: EmbeddedCluster, settings: Settings | None = None) -> AsyncIterator[None]:
    """Stand-in and both controllers, from their start to their end."""
    clock, informers, settings = SystemClock(), Informers(cluster), settings or Settings()
    parts = (
        informers,
        KnativeServing(
            cluster,
            informers,
            clock=clock,
            domain=lambda namespace, name: f"{name}.{namespace}.localhost",
            url=lambda host: f"http://{host}:8080",
        ),
        ModelController(
            cluster,
            informers,
            settings=settings,
            clock=clock,
            recorder=Recorder(cluster, COMPONENT, clock),
            flags=AllOn(),
        ),
        WarmPoolController(cluster, informers, settings=settings, parts_of_gpus=True),
    )
    async with at_work(*(part.run() for part in parts)):
        yield


async def make(cluster: EmbeddedCluster, name: str = "small", **spec: Any) -> Object:
    """A user applies a WarmPool."""
    return await cluster.apply(WARM_POOL, pool_object(name, **spec), manager="user", force=True)


async def seed_is(cluster: EmbeddedCluster, check: Callable[[Object], bool], name: str = "small") -> Object:
    """Wait for `status.seed`."""

    async def holds() -> Object:
        seed: Object = ((await cluster.get(WARM_POOL, name, NAMESPACE)).get("status") or {}).get("seed") or {}
        assert check(seed), seed
        return seed

    return await eventually(holds, WITHIN)


async def comes_up(cluster: EmbeddedCluster, revision: str) -> None:
    """Autoscaler: this revision is ready without a replica."""
    await ModelStage(cluster).revision_comes_up(revision)


async def test_a_pool_gets_a_deployment_without_replicas_and_says_when_it_is_there(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        pool = await make(guarded)
        await seed_is(guarded, lambda seed: seed.get("ready") is False)

        async def deployed() -> bool:
            return bool((await guarded.list(DEPLOYMENT, NAMESPACE)).items)

        await eventually(deployed, WITHIN)
        deployment = await guarded.get(DEPLOYMENT, f"{SEED}-00001-deployment", NAMESPACE)
        assert deployment["spec"]["replicas"] == 0
        assert labels_of(deployment)[LABEL_SEED] == "small"
        assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][0] == "--pool"
        await comes_up(guarded, f"{SEED}-00001")
        await seed_is(guarded, lambda seed: seed == READY)
        owner = controller_of(await guarded.get(CONFIGURATION, SEED, NAMESPACE))
        assert owner is not None
        assert owner["uid"] == uid_of(pool)


async def test_another_template_or_server_image_makes_a_revision_and_another_size_none(
    guarded: EmbeddedCluster,
) -> None:
    async def revisions(*expected: str) -> None:
        async def holds() -> bool:
            found = sorted(name_of(one) for one in (await guarded.list(REVISION, NAMESPACE)).items)
            assert found == list(expected)
            return True

        await eventually(holds, WITHIN)

    async with acting(guarded):
        await make(guarded, size=1)
        await revisions(f"{SEED}-00001")
        await make(guarded, size=2)
        await make(guarded, size=2, template={"resources": {"cpu": "2"}})
        await revisions(f"{SEED}-00001", f"{SEED}-00002")
    async with acting(guarded, Settings(server=ServerSettings(image="knodel.dev/server:9"))):
        await revisions(f"{SEED}-00001", f"{SEED}-00002", f"{SEED}-00003")


async def test_a_pool_of_a_format_that_runs_code_waits_until_its_namespace_allows_it(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        await make(guarded, template={"modelFormat": "python"})
        await seed_is(guarded, lambda seed: seed.get("message", "").startswith("CodeNotAllowed: modelFormat: python"))

        patch = {"metadata": {"labels": {"knodel.dev/allow-code": "true"}}}
        await guarded.patch(NAMESPACES, NAMESPACE, patch, manager="administrator")

        await eventually(lambda: exists(guarded, f"{SEED}-00001"), WITHIN)


async def test_a_pool_of_a_runtime_that_is_not_there_says_so(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        await make(guarded, template={"runtime": {"name": "large"}})
        await seed_is(guarded, lambda seed: seed.get("message", "").startswith("UnknownRuntime: runtime.name: large"))


async def test_a_controller_that_starts_anew_writes_nothing(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        await make(guarded)
        await seed_is(guarded, lambda seed: "ready" in seed)
        await eventually(lambda: exists(guarded, f"{SEED}-00001"), WITHIN)
        await comes_up(guarded, f"{SEED}-00001")
        await seed_is(guarded, lambda seed: seed == READY)
    before = [version_of(await guarded.get(kind, name, NAMESPACE)) for kind, name in OBJECTS]
    async with acting(guarded):
        await make(guarded, "other")  # comes after what the controller saw at its start
        await seed_is(guarded, lambda seed: "ready" in seed, "other")
        assert [version_of(await guarded.get(kind, name, NAMESPACE)) for kind, name in OBJECTS] == before


OBJECTS = ((WARM_POOL, "small"), (CONFIGURATION, SEED))


async def uid(cluster: EmbeddedCluster) -> str:
    """The seed's, empty while there is none."""
    found = {name_of(one): uid_of(one) for one in (await cluster.list(CONFIGURATION, NAMESPACE)).items}
    return found.get(SEED, "")


async def exists(cluster: EmbeddedCluster, revision: str) -> bool:
    """Whether there is such a Revision."""
    return revision in [name_of(one) for one in (await cluster.list(REVISION, NAMESPACE)).items]


async def test_the_pool_managers_part_of_the_status_is_left_alone(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        await make(guarded)
        await seed_is(guarded, lambda seed: seed.get("ready") is False)
        theirs = {"size": 2, "ready": 1, "reasons": ["because"]}
        await guarded.patch(WARM_POOL, "small", {"status": theirs}, NAMESPACE, manager="pools", subresource="status")
        await eventually(lambda: exists(guarded, f"{SEED}-00001"), WITHIN)
        await comes_up(guarded, f"{SEED}-00001")
        await seed_is(guarded, lambda seed: seed == READY)
        assert (await guarded.get(WARM_POOL, "small", NAMESPACE))["status"] == {**theirs, "seed": READY}


async def test_a_seed_that_somebody_changes_or_deletes_is_mended(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        await make(guarded)
        await eventually(lambda: exists(guarded, f"{SEED}-00001"), WITHIN)
        patch = {"spec": {"template": {"metadata": {"annotations": {"autoscaling.knative.dev/initial-scale": "1"}}}}}
        await guarded.patch(CONFIGURATION, SEED, patch, NAMESPACE, manager="user")

        async def mended() -> bool:
            found = await guarded.get(CONFIGURATION, SEED, NAMESPACE)
            annotations = found["spec"]["template"]["metadata"]["annotations"]
            return bool(annotations["autoscaling.knative.dev/initial-scale"] == "0")

        await eventually(mended, WITHIN)
        former = await uid(guarded)
        await guarded.delete(CONFIGURATION, SEED, NAMESPACE)

        async def anew() -> bool:
            return await uid(guarded) not in ("", former)

        await eventually(anew, WITHIN)


@pytest.mark.fault("K6")
async def test_a_configuration_of_somebody_else_is_told_and_not_written_over(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        template = {"spec": {"containers": [{"image": "theirs"}]}}
        theirs = {
            "apiVersion": CONFIGURATION.api_version,
            "kind": CONFIGURATION.kind,
            "metadata": {"name": SEED, "namespace": NAMESPACE},
            "spec": {"template": template},
        }
        await guarded.create(CONFIGURATION, theirs, manager="user")
        await make(guarded)
        seed = await seed_is(guarded, lambda seed: "does not belong" in seed.get("message", ""))
        assert seed["message"].startswith(
            f"Configuration {SEED} exists and does not belong to this pool: delete it, or"
        )
        assert controller_of(await guarded.get(CONFIGURATION, SEED, NAMESPACE)) is None

        await guarded.delete(CONFIGURATION, SEED, NAMESPACE)

        async def ours() -> bool:
            found = (await guarded.list(CONFIGURATION, NAMESPACE)).items
            return any(controller_of(one) is not None for one in found)

        await eventually(ours, WITHIN)


async def test_a_knative_that_refuses_initial_scale_0_is_named_with_the_remedy(tmp_path: Path) -> None:
    async with door(tmp_path, KNATIVE_FEATURES) as cluster, acting(cluster):
        await make(cluster)
        seed = await seed_is(cluster, lambda seed: "initial-scale" in seed.get("message", ""))
        assert not seed["ready"]
        assert 'set allow-zero-initial-scale to "true" in ConfigMap config-autoscaler' in seed["message"]
        assert "`knodel install --kube-context NAME --configure-knative`" in seed["message"]


async def test_a_deleted_pool_takes_its_seed_along(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        await make(guarded)
        await eventually(lambda: exists(guarded, f"{SEED}-00001"), WITHIN)
        await guarded.delete(WARM_POOL, "small", NAMESPACE)

        async def gone() -> bool:
            for kind, name in ((CONFIGURATION, SEED), (DEPLOYMENT, f"{SEED}-00001-deployment")):
                with contextlib.suppress(NotFound):
                    await guarded.get(kind, name, NAMESPACE)
                    return False
            return True

        await eventually(gone, WITHIN)


async def test_models_and_seeds_do_not_see_each_other(guarded: EmbeddedCluster) -> None:
    async with acting(guarded):
        await make(guarded, "magika")
        await guarded.create(MODEL, model_object("magika"), manager="user")

        async def there() -> bool:
            names = {name_of(one) for one in (await guarded.list(REVISION, NAMESPACE)).items}
            return names == {"magika-00001", "knodel-pool-magika-00001"}

        await eventually(there, WITHIN)
        await guarded.delete(WARM_POOL, "magika", NAMESPACE)
        await ModelStage(guarded).comes_up("magika-00001")
        assert (await guarded.get(SERVICE, "magika", NAMESPACE))["metadata"]["name"] == "magika"
        status = (await guarded.get(MODEL, "magika", NAMESPACE))["status"]
        assert "knodel-pool" not in str(status)
