"""The stand-in's door refuses what real Knative refuses and takes what it takes (`tests/cluster/test_goldens.py`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.base.errors import Invalid
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from tests.golden.bad_objects import BAD
from tests.golden.good_objects import GOOD, STRICTER, Stricter
from tests.golden.objects import Example
from tests.support.knative_webhook.validation import VALIDATORS


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """An embedded cluster that checks what comes in."""
    store = Store.open(tmp_path / "cluster.db")
    yield EmbeddedCluster(store, clock=SystemClock(), validators=VALIDATORS)
    await store.close()


async def enter(door: EmbeddedCluster, example: Example) -> None:
    """Ask for the object to be created."""
    placed = {**example.object, "metadata": {**example.object["metadata"], "namespace": "default"}}
    await door.create(example.kind, placed, manager="test", dry_run=True)


@pytest.mark.parametrize("example", BAD, ids=str)
async def test_a_bad_object_is_refused(door: EmbeddedCluster, example: Example) -> None:
    with pytest.raises(Invalid):
        await enter(door, example)


@pytest.mark.parametrize("example", GOOD, ids=str)
async def test_a_good_object_is_accepted(door: EmbeddedCluster, example: Example) -> None:
    await enter(door, example)


@pytest.mark.parametrize("stricter", STRICTER, ids=str)
async def test_the_door_is_stricter_only_for_a_reason(door: EmbeddedCluster, stricter: Stricter) -> None:
    assert stricter.reason
    with pytest.raises(Invalid) as refused:
        await enter(door, stricter.example)
    assert [cause.path for cause in refused.value.causes] == [stricter.field]


def test_every_example_has_a_name_of_its_own() -> None:
    names = [example.name for example in (*BAD, *GOOD, *(one.example for one in STRICTER))]
    assert len(names) == len(set(names))
