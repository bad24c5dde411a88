"""Models blocked by other objects, without admission: the later Model reports it, and its objects do not change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, NAMESPACE, SERVICE, Object, condition_of, key_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer
from serving.makers.knative_flags import TAG_HEADER, Flag
from serving.reconciler.preconditions import add_claims_index, collision, rival_keys
from serving.types.references import claims
from serving.types.settings.runtimes import Runtime
from serving.types.settings.settings import RolloutSettings, Settings
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage, platform
from tests.support.clusters import embedded_cluster
from tests.support.knative_webhook.validation import VALIDATORS
from tests.support.wait import eventually


@pytest.fixture
async def open_door(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A cluster whose door sees one Model at a time at most: Knative's checks only."""
    async with embedded_cluster(tmp_path / "cluster.db", validators=VALIDATORS) as running:
        yield running


@pytest.fixture
async def stage(open_door: EmbeddedCluster) -> AsyncIterator[ModelStage]:
    """The stage behind that door."""
    async with platform(open_door) as stage:
        yield stage


async def create(stage: ModelStage, name: str, **spec: object) -> Object:
    """A Model as it passes a CRD."""
    return await stage.cluster.create(MODEL, model_object(name, **spec), manager="tests")


async def applied(stage: ModelStage, name: str, status: str, reason: str = "") -> str:
    """Wait for the condition ObjectsApplied; its message."""
    found: Object = {}

    async def holds() -> bool:
        nonlocal found
        found = condition_of(await stage.get(MODEL, name), "ObjectsApplied") or {}
        assert (found.get("status"), found.get("reason", "")) == (status, reason), found
        return True

    await eventually(holds)
    return str(found.get("message", ""))


@pytest.mark.bad_input("object-references")
async def test_the_later_model_of_two_says_what_it_collides_with_and_gets_no_objects(stage: ModelStage) -> None:
    await create(stage, "magika", variants=[{"name": "a", "percent": 100}])
    await applied(stage, "magika", "True")
    await create(stage, "magika-a")

    message = await applied(stage, "magika-a", "False", "Collision")

    assert message == "metadata.name: the name magika-a belongs to model magika: choose another"
    with pytest.raises(NotFound):
        await stage.get(SERVICE, "magika-a")


@pytest.mark.bad_input("object-references")
async def test_when_the_earlier_one_gives_the_name_back_the_later_one_gets_its_objects_at_once(
    stage: ModelStage,
) -> None:
    first = await create(stage, "magika", traffic=[{"latest": True, "percent": 100, "tag": "zoo"}])
    await applied(stage, "magika", "True")
    await create(stage, "zoo-magika")
    await applied(stage, "zoo-magika", "False", "Collision")

    await stage.cluster.patch(MODEL, first["metadata"]["name"], {"spec": {"traffic": None}}, "default", manager="tests")

    await applied(stage, "zoo-magika", "True")
    assert await stage.get(SERVICE, "zoo-magika")


@pytest.mark.bad_input("object-references")
async def test_a_living_model_that_starts_to_collide_serves_on_as_it_was(stage: ModelStage) -> None:
    await create(stage, "blue-zebra")
    await applied(stage, "blue-zebra", "True")
    await create(stage, "zebra", maxReplicas=2)
    await applied(stage, "zebra", "True")
    before = await stage.get(SERVICE, "zebra")

    traffic = [{"latest": True, "percent": 100, "tag": "blue"}]
    change = {"spec": {"storageUri": "file:///models/other", "traffic": traffic}}
    await stage.cluster.patch(MODEL, "zebra", change, "default", manager="tests")

    assert "blue-zebra" in await applied(stage, "zebra", "False", "Collision")
    assert (await stage.get(SERVICE, "zebra"))["spec"] == before["spec"]
    assert await stage.get(SERVICE, "blue-zebra")


@pytest.mark.bad_input("object-references")
async def test_a_model_that_lacks_a_flag_says_which_and_what_stands_stays(open_door: EmbeddedCluster) -> None:
    class Off:
        parts_of_gpus = True

        async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
            return tuple(flag for flag in needed if flag is TAG_HEADER)

    async with platform(open_door, Off()) as stage:
        await create(stage, "magika")
        await applied(stage, "magika", "True")
        change = {"spec": {"traffic": [{"latest": True, "percent": 100, "tag": "blue"}]}}
        await stage.cluster.patch(MODEL, "magika", change, "default", manager="tests")

        message = await applied(stage, "magika", "False", "KnativeFeatureDisabled")

        assert 'set tag-header-based-routing to "enabled" in ConfigMap config-features' in message
        assert all("tag" not in entry for entry in (await stage.get(SERVICE, "magika"))["spec"]["traffic"])
        await stage.tells_of("KnativeFeatureDisabled")


@pytest.mark.bad_input("object-references")
async def test_a_part_of_a_gpu_is_refused_where_the_kubelet_gives_whole_units(open_door: EmbeddedCluster) -> None:
    class Kubernetes:
        parts_of_gpus = False

        async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
            return ()

    async with platform(open_door, Kubernetes()) as stage:
        await create(stage, "magika", resources={"gpuFraction": 0.5})
        message = await applied(stage, "magika", "False", "GpuFractionUnsupported")
        assert "set gpu: 1 and gpuResource" in message
        with pytest.raises(NotFound):
            await stage.get(SERVICE, "magika")
        change = {"spec": {"resources": {"gpuFraction": None, "gpu": 1, "gpuResource": "nvidia.com/gpu.shared"}}}
        await stage.cluster.patch(MODEL, "magika", change, "default", manager="tests")
        await applied(stage, "magika", "True")


@pytest.mark.bad_input("object-references")
async def test_code_runs_once_the_namespace_allows_it(stage: ModelStage) -> None:
    await create(stage, "magika", modelFormat="python")

    message = await applied(stage, "magika", "False", "CodeNotAllowed")

    assert "python runs code of the artifact" in message
    assert "`knodel namespace default --label knodel.dev/allow-code=true`" in message
    with pytest.raises(NotFound):
        await stage.get(SERVICE, "magika")
    await label(stage, "true")
    await applied(stage, "magika", "True")
    assert await stage.get(SERVICE, "magika")
    await label(stage, "false")
    await applied(stage, "magika", "False", "CodeNotAllowed")


async def label(stage: ModelStage, value: str) -> None:
    """An administrator labels the namespace."""
    patch = {"metadata": {"labels": {"knodel.dev/allow-code": value}}}
    await stage.cluster.patch(NAMESPACE, "default", patch, manager="administrator")


@pytest.mark.bad_input("object-references")
async def test_a_runtime_that_the_platform_does_not_have_is_told_with_those_that_it_has(
    open_door: EmbeddedCluster,
) -> None:
    async with platform(open_door, settings=Settings(runtimes=(Runtime("big", "r/big:1"),))) as stage:
        await create(stage, "magika", runtime={"name": "large"})

        assert "use one of: big" in await applied(stage, "magika", "False", "UnknownRuntime")

        await stage.cluster.patch(MODEL, "magika", {"spec": {"runtime": {"name": "big"}}}, "default", manager="tests")
        await applied(stage, "magika", "True")
        template = (await stage.get(SERVICE, "magika"))["spec"]["template"]
        assert template["spec"]["containers"][0]["image"] == "r/big:1"


@pytest.mark.bad_input("object-references")
async def test_metrics_that_no_prometheus_answers_are_told_until_the_platform_has_one(
    open_door: EmbeddedCluster,
) -> None:
    asked = {"judge": {"metrics": [{"name": "drift", "query": "drift", "max": 1}]}}
    async with platform(open_door) as stage:
        await create(stage, "magika", rollout=asked)
        assert "rollout.prometheusUrl" in await applied(stage, "magika", "False", "NoPrometheus")
        with pytest.raises(NotFound):
            await stage.get(SERVICE, "magika")
    answered = Settings(rollout=RolloutSettings(prometheus_url="http://127.0.0.1:9"))
    async with platform(open_door, settings=answered) as stage:
        await applied(stage, "magika", "True")


@pytest.mark.bad_input("object-references")
async def test_a_version_that_is_made_is_not_left_half_way_for_want_of_a_prometheus(
    open_door: EmbeddedCluster,
) -> None:
    async with platform(open_door) as stage:
        await create(stage, "magika")
        await applied(stage, "magika", "True")
        judged = {"rollout": {"judge": {"metrics": [{"name": "drift", "query": "drift", "max": 1}]}}}
        made = {"traffic": [{"revision": "magika-00001", "percent": 100, "tag": "blue"}], **judged}
        await stage.cluster.patch(MODEL, "magika", {"spec": made}, "default", manager="tests")

        async def is_in_force() -> bool:
            service = await stage.get(SERVICE, "magika")
            return [one.get("tag") for one in service["spec"]["traffic"]] == ["blue"]

        await eventually(is_in_force)
        await applied(stage, "magika", "True")
        await stage.cluster.patch(MODEL, "magika", {"spec": {"version": "2"}}, "default", manager="tests")
        assert "rollout.prometheusUrl" in await applied(stage, "magika", "False", "NoPrometheus")


@pytest.mark.bad_input("object-references")
async def test_a_model_that_is_none_is_told_so_and_its_old_version_serves_on(stage: ModelStage) -> None:
    await create(stage, "magika")
    await applied(stage, "magika", "True")
    before = await stage.get(SERVICE, "magika")

    broken = {"spec": {"variants": "none", "traffic": [3], "minReplicas": -1}}
    await stage.cluster.patch(MODEL, "magika", broken, "default", manager="tests")

    assert "spec.minReplicas" in await applied(stage, "magika", "False", "InvalidSpec")
    assert (await stage.get(SERVICE, "magika"))["spec"] == before["spec"]


@pytest.mark.bad_input("object-references")
async def test_of_two_of_the_same_second_the_name_decides(open_door: EmbeddedCluster) -> None:
    informer = Informer(open_door, MODEL)
    add_claims_index(informer)
    born = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    one, other = (
        {**model_object(name), "metadata": {"name": name, "namespace": "default", **born}} for name in ("a-b", "b")
    )
    other["spec"]["traffic"] = [{"latest": True, "percent": 100, "tag": "a"}]
    for obj in (one, other):
        informer._set(key_of(obj), obj)

    assert collision(informer, one) is None
    assert collision(informer, other) is not None
    assert [key.name for key in rival_keys(informer, one)] == ["b"]


@pytest.mark.bad_input("object-references")
@pytest.mark.parametrize("spec", [None, {}, {"variants": "x"}, {"variants": [1, {}]}, {"traffic": [None]}, [1]])
def test_what_is_no_model_claims_its_name_alone(spec: object) -> None:
    assert claims({"metadata": {"name": "m"}, "spec": spec}) == {"host/m", "name/m"}
