"""The client reads its own writes, and writes only differences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import CONFIGURATION, REVISION, Kind, Object, version_of
from clusters.base.patches import merge_patch
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative.client import CachedClient, difference
from clusters.runtime.informer import Informers
from tests.clusters.knative.stage import configuration
from tests.support.loops import at_work
from tests.support.wait import eventually

LEAVES = st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
TREES = st.recursive(
    LEAVES, lambda children: st.dictionaries(st.sampled_from("abcd"), children, max_size=3), max_leaves=8
)
MAPS = st.dictionaries(st.sampled_from("abcd"), TREES, max_size=4)


@given(have=MAPS, want=MAPS)
def test_the_difference_turns_one_map_into_the_other(have: dict[str, Any], want: dict[str, Any]) -> None:
    assert merge_patch(have, difference(have, want)) == want
    assert difference(want, want) == {}


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[CachedClient]:
    """A client whose informers have not listed yet."""
    client = CachedClient(cluster, Informers(cluster))
    for kind in (CONFIGURATION, REVISION):
        client.informer(kind)
    yield client


def child(name: str) -> Object:
    """Return a Revision with the fields that the client reads."""
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"a": 1}}


async def test_a_write_is_seen_before_the_informer_sees_it(cluster: EmbeddedCluster, client: CachedClient) -> None:
    owner = await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    made = await client.create(REVISION, child("magika-00001"), CONFIGURATION, owner)
    assert client.get(REVISION, "magika-00001", "default") == made
    changed = await client.update(REVISION, made, {"spec": {"a": 2}})
    assert client.get(REVISION, "magika-00001", "default") == changed


class GoneBeforeTheAnswer:
    """A cluster in which a patched object is deleted, and that is observed, before the response."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.informers = Informers(cluster)

    async def patch(self, kind: Kind, name: str, change: Any, namespace: str, **how: Any) -> Object:
        answer = await self._cluster.patch(kind, name, change, namespace, **how)
        await self._cluster.delete(kind, name, namespace)
        await eventually(lambda: self.informers[kind].get(name, namespace) is None)
        return answer


async def test_an_answer_that_comes_after_the_object_was_seen_to_go_does_not_bring_it_back(
    cluster: EmbeddedCluster,
) -> None:
    slow = GoneBeforeTheAnswer(cluster)
    client = CachedClient(cast("Cluster", slow), slow.informers)
    informer = client.informer(REVISION)
    async with at_work(slow.informers.run()):
        made = await cluster.create(REVISION, child("magika-00001"), manager="test")
        await eventually(lambda: informer.get("magika-00001", "default"))
        await client.update(REVISION, made, {"spec": {"a": 2}})
        assert client.get(REVISION, "magika-00001", "default") is None


async def test_a_child_that_is_there_already_is_returned(cluster: EmbeddedCluster, client: CachedClient) -> None:
    owner = await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    there = await cluster.create(REVISION, child("magika-00001"), manager="somebody")
    assert await client.create(REVISION, child("magika-00001"), CONFIGURATION, owner) == there


async def test_no_child_is_made_for_an_owner_that_is_gone(cluster: EmbeddedCluster, client: CachedClient) -> None:
    owner = await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    await cluster.delete(CONFIGURATION, "magika", "default")
    with pytest.raises(NotFound):
        await client.create(REVISION, child("magika-00001"), CONFIGURATION, owner)
    await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    with pytest.raises(NotFound, match="was deleted"):
        await client.create(REVISION, child("magika-00001"), CONFIGURATION, owner)


async def test_what_is_as_it_should_be_is_not_written(cluster: EmbeddedCluster, client: CachedClient) -> None:
    made = await cluster.create(REVISION, child("magika-00001"), manager="test")
    same = await client.update(REVISION, made, {"spec": {"a": 1}, "metadata": {"labels": {}}})
    same = await client.update_status(REVISION, same, {})
    assert version_of(same) == version_of(made)


async def test_the_status_of_an_object_that_is_gone_is_dropped(cluster: EmbeddedCluster, client: CachedClient) -> None:
    made = await cluster.create(REVISION, child("magika-00001"), manager="test")
    await cluster.delete(REVISION, "magika-00001", "default")
    assert await client.update_status(REVISION, made, {"a": 1}) == made
    await client.annotate(REVISION, made, {"labels": {"a": "b"}})
    await client.delete(REVISION, made)
    assert client.get(REVISION, "magika-00001", "default") is None
