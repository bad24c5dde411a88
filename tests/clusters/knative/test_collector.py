"""Garbage collection of Revisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clusters.base.objects import CONFIGURATION, REVISION, Key, Object, name_of, timestamp
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.configuration import INDEX, by_configuration
from clusters.embedded.knative.defaults import HOUR, RevisionGC
from clusters.embedded.knative.gc import RevisionCollector, next_collection, non_active, stale
from clusters.runtime.informer import Informers
from tests.clusters.knative.stage import configuration
from tests.support.clock import SteppedClock
from tests.support.loops import at_work

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 24 * HOUR
KEY = Key("default", "magika")


def revision(
    number: int, *, state: str = "reserve", active: float = 0.0, created: float = 0.0, no_gc: str = "false"
) -> Object:
    """Return a Revision that was created `created` seconds after the start, and inactive after `active` seconds."""
    return {
        "metadata": {
            "name": f"magika-{number:05d}",
            "namespace": "default",
            "uid": str(number),
            "creationTimestamp": timestamp(START + timedelta(seconds=created)),
            "labels": {
                "serving.knative.dev/configuration": "magika",
                "serving.knative.dev/routingState": state,
            },
            "annotations": {
                "serving.knative.dev/routingStateModified": timestamp(START + timedelta(seconds=active)),
                "serving.knative.dev/no-gc": no_gc,
            },
        }
    }


def doomed(revisions: list[Object], after: float, **settings: float | int | None) -> list[int]:
    """Return the numbers of the Revisions that are deleted `after` seconds from the start."""
    gc = RevisionGC(**{"min_non_active": 0, **settings})  # type: ignore[arg-type]
    return [int(name_of(found)[-5:]) for found in stale(revisions, gc, START + timedelta(seconds=after))]


def test_the_defaults_are_knatives() -> None:
    assert RevisionGC() == RevisionGC(48 * HOUR, 15 * HOUR, 20, 1000)


def test_a_revision_goes_when_it_is_old_and_long_without_traffic() -> None:
    revisions = [revision(1)]
    assert doomed(revisions, 2 * DAY - 1) == []
    assert doomed(revisions, 2 * DAY) == [1]
    lately = [revision(1, active=2 * DAY)]
    assert doomed(lately, 2 * DAY + 15 * HOUR - 1) == []
    assert doomed(lately, 2 * DAY + 15 * HOUR) == [1]


def test_the_youngest_are_kept_whatever_their_age() -> None:
    revisions = [revision(number, active=float(number)) for number in (1, 2, 3)]
    assert doomed(revisions, 9 * DAY, min_non_active=2) == [1]
    assert doomed(revisions, 9 * DAY, min_non_active=3) == []


def test_more_than_the_maximum_go_however_young() -> None:
    revisions = [revision(number, active=float(number)) for number in (1, 2, 3)]
    assert doomed(revisions, 60, max_non_active=1) == [1, 2]
    assert doomed(revisions, 60, max_non_active=None) == []


def test_without_times_only_the_maximum_counts() -> None:
    revisions = [revision(1), revision(2)]
    rules = {"retain_since_create": None, "retain_since_active": None}
    assert doomed(revisions, 999 * DAY, **rules) == []
    assert doomed(revisions, 0, max_non_active=1, **rules) == [1]


@pytest.mark.parametrize(
    "kept",
    [
        revision(1, state="active"),
        revision(1, state="pending"),
        revision(1, no_gc="True"),
    ],
    ids=["routed", "not yet seen by a Route", "no-gc"],
)
def test_some_revisions_are_no_candidates(kept: Object) -> None:
    assert non_active([kept, revision(2)], {"status": {}}) == [revision(2)]


def test_the_latest_ready_revision_is_no_candidate() -> None:
    assert non_active([revision(1)], {"status": {"latestReadyRevisionName": "magika-00001"}}) == []


def test_the_next_look_is_when_the_first_becomes_stale() -> None:
    revisions = [revision(1), revision(2, created=HOUR)]
    now = START + timedelta(days=1)
    assert next_collection(revisions, RevisionGC(min_non_active=1), now) == DAY
    assert next_collection(revisions, RevisionGC(min_non_active=2), now) is None
    assert next_collection(revisions, RevisionGC(None, None, 0), now) is None


async def test_a_pass_deletes_and_says_when_to_look_again(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(datetime.now(UTC).replace(microsecond=0))
    informers = Informers(cluster)
    client = CachedClient(cluster, informers)
    client.informer(CONFIGURATION)
    client.informer(REVISION).add_index(INDEX, by_configuration)
    collector = RevisionCollector(client, clock, RevisionGC(min_non_active=0))
    await cluster.create(CONFIGURATION, configuration("magika"), manager="test")
    made = revision(1)
    made["metadata"]["annotations"] = {}
    await cluster.create(REVISION, {**made, "spec": {}}, manager="test")
    async with at_work(informers.run()):
        await informers.synced()
        wait = await collector.reconcile(KEY)
        assert wait == pytest.approx(2 * DAY, abs=2)
        clock.step(2 * DAY + 2)
        assert await collector.reconcile(KEY) is None
        assert (await cluster.list(REVISION)).items == []
