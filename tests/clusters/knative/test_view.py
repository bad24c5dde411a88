"""The view reads its own writes, and writes only what differs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative.view import View, difference
from clusters.errors import NotFound
from clusters.informer import Informers
from clusters.objects import CONFIGURATION, REVISION, Object, version_of
from clusters.patches import merge_patch
from tests.clusters.knative.stage import configuration

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
async def view(cluster: EmbeddedCluster) -> AsyncIterator[View]:
    """A view whose informers have not even listed."""
    view = View(cluster, Informers(cluster))
    for kind in (CONFIGURATION, REVISION):
        view.informer(kind)
    yield view


def child(name: str) -> Object:
    """A Revision, as far as the view cares."""
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"a": 1}}


async def test_a_write_is_seen_before_the_informer_sees_it(cluster: EmbeddedCluster, view: View) -> None:
    owner = await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    made = await view.create(REVISION, child("magika-00001"), CONFIGURATION, owner)
    assert view.get(REVISION, "magika-00001", "default") == made
    changed = await view.update(REVISION, made, {"spec": {"a": 2}})
    assert view.get(REVISION, "magika-00001", "default") == changed


async def test_a_child_that_is_there_already_is_returned(cluster: EmbeddedCluster, view: View) -> None:
    owner = await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    there = await cluster.create(REVISION, child("magika-00001"), manager="somebody")
    assert await view.create(REVISION, child("magika-00001"), CONFIGURATION, owner) == there


async def test_no_child_is_made_for_an_owner_that_is_gone(cluster: EmbeddedCluster, view: View) -> None:
    owner = await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    await cluster.delete(CONFIGURATION, "magika", "default")
    with pytest.raises(NotFound):
        await view.create(REVISION, child("magika-00001"), CONFIGURATION, owner)
    await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    with pytest.raises(NotFound, match="is gone"):
        await view.create(REVISION, child("magika-00001"), CONFIGURATION, owner)


async def test_what_is_as_it_should_be_is_not_written(cluster: EmbeddedCluster, view: View) -> None:
    made = await cluster.create(REVISION, child("magika-00001"), manager="test")
    same = await view.update(REVISION, made, {"spec": {"a": 1}, "metadata": {"labels": {}}})
    same = await view.update_status(REVISION, same, {})
    assert version_of(same) == version_of(made)


async def test_the_status_of_an_object_that_is_gone_is_dropped(cluster: EmbeddedCluster, view: View) -> None:
    made = await cluster.create(REVISION, child("magika-00001"), manager="test")
    await cluster.delete(REVISION, "magika-00001", "default")
    assert await view.update_status(REVISION, made, {"a": 1}) == made
    await view.annotate(REVISION, made, {"labels": {"a": "b"}})
    await view.delete(REVISION, made)
    assert view.get(REVISION, "magika-00001", "default") is None
