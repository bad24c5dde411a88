"""HMAC keys from Secrets in a real store."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from clusters.base.errors import ClusterError, Forbidden, Unavailable
from clusters.base.objects import SECRET, Kind, Object
from eventing.auth.hmac_keys import SecretKeys, keys_of
from tests.eventing.webhook import SECRET as KEY
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster


def secret(**data: str) -> Object:
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "training-key", "namespace": "default"},
        "data": encoded,
    }


class Counted:
    """A cluster that counts reads; they fail while `broken`."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.reads = 0
        self.broken: ClusterError | None = None

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """One more."""
        self.reads += 1
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        found: Object = await self._cluster.get(kind, name, namespace)
        return found


@pytest.mark.fault("E11")
async def test_keys_are_the_secrets_and_a_rotated_one_is_seen_when_it_is_needed(tmp_path: Path) -> None:
    clock = SteppedClock()
    async with embedded_cluster(tmp_path / "store.db", clock=clock) as cluster:
        counted: Any = Counted(cluster)
        keys = SecretKeys(counted, clock)
        assert await keys.secrets("default", "training-key") == ()

        await cluster.create(SECRET, secret(current=KEY), manager="test")
        assert await keys.secrets("default", "training-key", again=True) == ()  # asked a moment ago
        clock.step(2)
        assert await keys.secrets("default", "training-key", again=True) == (KEY,)

        await cluster.patch(SECRET, "training-key", secret(current="new", previous=KEY), "default", manager="test")
        clock.step(29)
        assert await keys.secrets("default", "training-key") == (KEY,)
        clock.step(1)
        assert await keys.secrets("default", "training-key") == ("new", KEY)
        assert counted.reads == 3


@pytest.mark.parametrize("failure", [Unavailable("no answer"), Forbidden("a Role is being written")])
@pytest.mark.fault("E11")
async def test_known_keys_outlast_five_minutes_in_which_they_cannot_be_read(
    tmp_path: Path, failure: ClusterError
) -> None:
    clock = SteppedClock()
    async with embedded_cluster(tmp_path / "store.db", clock=clock) as cluster:
        await cluster.create(SECRET, secret(current=KEY), manager="test")
        counted: Any = Counted(cluster)
        keys = SecretKeys(counted, clock)
        await keys.secrets("default", "training-key")
        counted.broken = failure

        clock.step(300)
        assert await keys.secrets("default", "training-key") == (KEY,)
        clock.step(1)
        with pytest.raises(Unavailable):
            await keys.secrets("default", "training-key")


async def test_keys_that_we_may_not_read_are_not_none(tmp_path: Path) -> None:
    clock = SteppedClock()
    async with embedded_cluster(tmp_path / "store.db", clock=clock) as cluster:
        await cluster.create(SECRET, secret(current=KEY), manager="test")
        counted: Any = Counted(cluster)
        counted.broken = Forbidden("no Role yet")
        keys = SecretKeys(counted, clock)

        with pytest.raises(Unavailable):
            await keys.secrets("default", "training-key")
        counted.broken = None
        clock.step(2)
        assert await keys.secrets("default", "training-key") == (KEY,)


async def test_however_many_want_keys_that_cannot_be_read_the_cluster_is_asked_once_in_two_seconds(
    tmp_path: Path,
) -> None:
    clock = SteppedClock()
    async with embedded_cluster(tmp_path / "store.db", clock=clock) as cluster:
        counted: Any = Counted(cluster)
        counted.broken = Unavailable("no answer")
        keys = SecretKeys(counted, clock)

        told = await asyncio.gather(*(keys.secrets("default", "k") for _ in range(20)), return_exceptions=True)

        assert {type(one) for one in told} == {Unavailable}
        assert counted.reads == 1


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({}, ()),
        ({"data": None}, ()),
        ({"stringData": {"current": "a\n", "previous": "b"}}, ("a", "b")),
        ({"data": {"current": "YQ=="}, "stringData": {"current": "b"}}, ("b",)),
        ({"data": {"current": "/w=="}}, ()),
        ({"data": {"other": "YQ=="}}, ()),
        ({"data": {"current": "Cg==", "previous": "YQ=="}}, ("a",)),
        ({"stringData": {"current": " \n"}}, ()),
    ],
)
def test_keys_of_a_secret(given: Object, keys: tuple[str, ...]) -> None:
    assert keys_of(given) == keys
