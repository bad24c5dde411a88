"""Facts of real Knative that the serving reconciler relies on, seen with plain Knative objects.

Which revisions a Service's Route may name, and that a Service can be taken off its children and put back while requests
go on: that is how a Model goes from a Service to Configurations with a Route of its own, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import Invalid, NotFound
from clusters.base.objects import (
    CONFIGURATION,
    LABEL_SERVICE,
    REVISION,
    ROUTE,
    SERVICE,
    Key,
    Kind,
    Object,
    condition_of,
    is_true,
    owner_reference,
    uid_of,
)
from serving.storage.base.digest import of_bytes
from serving.types.settings.settings import ServerSettings
from tests.golden.record import IMAGE
from tests.golden.scene import make_template
from tests.scenarios.world import infer_body
from tests.support import models
from tests.support.artifacts import ArtifactServer
from tests.support.kourier import find_kourier
from tests.support.kubernetes import KNATIVE_CLASS
from tests.support.prober import probing
from tests.support.wait import eventually

MANAGER = "tests"
NAME = "app"
WITHIN = 120.0  # s for a step
RATE = 20.0  # requests a second
ALWAYS_ONE = MappingProxyType({"min_scale": "1", "max_scale": "1"})


class Place:
    """A namespace and what can be put into it."""

    def __init__(self, cluster: Cluster, namespace: str, artifacts: ArtifactServer) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._server = ServerSettings(image=IMAGE, allow_hosts=artifacts.address)
        self._uri = artifacts.uri("double")

    async def make(self, kind: Kind, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> Object:
        """A Service or Configuration whose Revisions bear these labels."""
        digest = of_bytes(models.double())
        template = make_template(name, self._uri, self._server, KNATIVE_CLASS, ALWAYS_ONE, digest)
        template["metadata"]["labels"] = dict(labels)
        metadata = {"name": name, "namespace": self.namespace}
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {"template": template}}
        return await self.cluster.create(kind, made, manager=MANAGER)

    async def get(self, kind: Kind, name: str = NAME) -> Object:
        """An object."""
        return await self.cluster.get(kind, name, self.namespace)

    async def patch(self, kind: Kind, patch: Object) -> Object:
        """Merge `patch` into the object `app`."""
        return await self.cluster.patch(kind, NAME, patch, self.namespace, manager=MANAGER)

    async def ready(self, kind: Kind, name: str = NAME) -> None:
        """Wait until an object is Ready."""

        async def look() -> bool:
            return is_true(await self.get(kind, name), "Ready")

        await eventually(look, WITHIN)

    async def says(self, kind: Kind, condition: str, status: str, reason: str) -> None:
        """Wait until a condition of the object `app` has this status and reason."""

        async def look() -> bool:
            found = condition_of(await self.get(kind), condition) or {}
            return (found.get("status"), found.get("reason", "")) == (status, reason)

        await eventually(look, WITHIN)


@pytest.fixture
def place(cluster: Cluster, namespace: str, artifacts: ArtifactServer) -> Place:
    """A namespace of the test's own."""
    return Place(cluster, namespace, artifacts)


async def test_the_route_of_a_service_leads_only_to_revisions_with_its_label(place: Place) -> None:
    await place.make(SERVICE, NAME)
    await place.make(CONFIGURATION, "stranger")
    await place.make(CONFIGURATION, "friend", {LABEL_SERVICE: NAME})
    await place.ready(SERVICE)
    for name in ("stranger", "friend"):
        await place.ready(CONFIGURATION, name)

    await place.patch(SERVICE, {"spec": {"traffic": [{"revisionName": "stranger-00001", "percent": 100}]}})
    await place.says(ROUTE, "AllTrafficAssigned", "False", "RevisionNotOwned")

    await place.patch(SERVICE, {"spec": {"traffic": [{"revisionName": "friend-00001", "percent": 100}]}})
    await place.ready(ROUTE)
    assert [one["revisionName"] for one in (await place.get(ROUTE))["status"]["traffic"]] == ["friend-00001"]


async def test_the_label_of_a_service_is_only_for_what_it_owns(place: Place) -> None:
    await place.make(CONFIGURATION, NAME)
    with pytest.raises(Invalid, match=LABEL_SERVICE):
        await place.patch(CONFIGURATION, {"metadata": {"labels": {LABEL_SERVICE: NAME}}})


async def test_a_service_is_taken_off_its_children_and_put_back_without_a_lost_request(place: Place) -> None:
    made = await place.make(SERVICE, NAME)
    await place.ready(SERVICE)
    kourier = await find_kourier(place.cluster)
    url = f"{kourier.url}/v2/models/{NAME}/infer"
    headers = {"Host": kourier.host(Key(place.namespace, NAME)), "Content-Type": "application/json"}
    first = uid_of(await place.get(REVISION, f"{NAME}-00001"))

    async with probing(url, headers, infer_body(1.0), RATE) as probes:
        await _take_off(place)
        await _put_back(place, made)
        await eventually(lambda: probes.answered > 10 * RATE, WITHIN)  # seen to go on for a while

    assert probes.failures == []
    assert uid_of(await place.get(REVISION, f"{NAME}-00001")) == first
    with pytest.raises(NotFound):
        await place.get(REVISION, f"{NAME}-00002")


async def _take_off(place: Place) -> None:
    """One patch each; then the Service owns nothing, says so, and goes alone."""
    for kind in (CONFIGURATION, ROUTE):
        await place.patch(kind, {"metadata": {"labels": {LABEL_SERVICE: None}, "ownerReferences": None}})
    await place.says(SERVICE, "ConfigurationsReady", "False", "NotOwned")
    await place.cluster.delete(SERVICE, NAME, place.namespace)

    async def gone() -> bool:
        found = await place.cluster.list(SERVICE, place.namespace)
        return not found.items

    await eventually(gone, WITHIN)
    for kind in (CONFIGURATION, ROUTE):
        assert is_true(await place.get(kind), "Ready")


async def _put_back(place: Place, made: Object) -> None:
    """The Service first, which reports that nothing is its own; then one patch each gives it its children."""
    fresh = {**made, "metadata": {"name": NAME, "namespace": place.namespace}}
    fresh.pop("status", None)
    service = await place.cluster.create(SERVICE, fresh, manager=MANAGER)
    await place.says(SERVICE, "ConfigurationsReady", "False", "NotOwned")
    owner = owner_reference(SERVICE, service)
    for kind in (CONFIGURATION, ROUTE):
        await place.patch(kind, {"metadata": {"labels": {LABEL_SERVICE: NAME}, "ownerReferences": [owner]}})
    await place.ready(SERVICE)
