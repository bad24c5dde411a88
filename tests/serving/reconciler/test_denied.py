"""A webhook of the API server denies the objects of a new version, or is not available."""

from __future__ import annotations

from typing import Any, cast

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import ClusterError, FieldError, Forbidden, Invalid, Unavailable
from clusters.base.objects import SECRET, SERVICE, Kind, Object, condition_of, uid_of, version_of
from clusters.embedded.cluster import EmbeddedCluster
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import platform
from tests.support.wait import eventually


class Denying:
    """A cluster that refuses to write Services and to create Secrets, as long as it has a reason."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.error: ClusterError | None = None
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def apply(self, kind: Kind, obj: Object, **options: Any) -> Object:
        """The real apply, or the refusal."""
        if kind is SERVICE and self.error is not None:
            self.asked += 1
            raise self.error
        return await self._cluster.apply(kind, obj, **options)

    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        """The real create, or the refusal."""
        if kind is SECRET and self.error is not None:
            raise self.error
        return await self._cluster.create(kind, obj, **options)


DENIALS: dict[str, tuple[ClusterError, str]] = {
    "invalid": (Invalid("services 'magika'", [FieldError("spec.template", "unsigned image")]), "unsigned image"),
    "forbidden": (Forbidden("services 'magika': denied by policy: images must be signed"), "must be signed"),
}


@pytest.mark.fault("K12")
@pytest.mark.parametrize("denial", DENIALS)
async def test_a_version_that_a_webhook_denies_is_told_with_its_words_and_the_old_one_serves_on(
    guarded: EmbeddedCluster, denial: str
) -> None:
    error, words = DENIALS[denial]
    denying = Denying(guarded)
    async with platform(guarded, seen=cast(Cluster, denying)) as stage:
        await stage.deploy(model_object())
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        await stage.model_is("True")
        before = version_of(await stage.get(SERVICE, "magika"))
        denying.error = error
        await stage.edit({"spec": {"storageUri": "file:///models/v2", "canaryTrafficPercent": 10}})
        told = await stage.model_is("False", reason=error.reason)
        assert words in (condition_of(told, "Ready") or {})["message"]
        assert version_of(await stage.get(SERVICE, "magika")) == before
        assert await stage.host_gets() == {"magika-00001": 100}
        denying.error = None
        await stage.comes_up("magika-00002")
        await stage.traffic_is({"magika-00001": 90, "magika-00002": 10})


@pytest.mark.fault("K2", "K12")
async def test_a_webhook_that_is_away_says_nothing_of_the_model(guarded: EmbeddedCluster) -> None:
    denying = Denying(guarded)
    async with platform(guarded, seen=cast(Cluster, denying)) as stage:
        await stage.deploy(model_object())
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        denying.error = Unavailable("failed calling webhook")
        await stage.edit({"spec": {"storageUri": "file:///models/v2"}})
        await eventually(lambda: denying.asked >= 3)
        conditions = (await stage.model())["status"]["conditions"]
        assert all(one["status"] == "True" for one in conditions)
        denying.error = None
        await stage.comes_up("magika-00002")
        await stage.traffic_is({"magika-00002": 100})


async def test_a_refused_token_of_groups_is_named_until_it_may_be_created(guarded: EmbeddedCluster) -> None:
    denying = Denying(guarded)
    denying.error = Forbidden("exceeded quota: secrets")
    async with platform(guarded, seen=cast(Cluster, denying)) as stage:
        await stage.deploy(model_object(modelFormat="vllm", workers={"count": 2}))
        told = await stage.model_is("False", reason="Forbidden")
        assert "Secret knodel-group-" in (condition_of(told, "Ready") or {})["message"]
        denying.error = None
        await eventually(lambda: stage.find(SECRET, f"knodel-group-{uid_of(told)}"))
