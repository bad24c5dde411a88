"""The index of EventSources: by name, and by the source attribute of an event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clusters.base.errors import Invalid
from clusters.base.objects import EVENT_SOURCE
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer
from eventing.mapping.event_source import nowhere, read_event_source, within_reach
from eventing.objects.ports import EventSource, HmacAuth, OidcAuth
from eventing.webhook.sources import InformedSources
from tests.eventing.world import NAMESPACE, event_source
from tests.support.clusters import embedded_cluster
from tests.support.wait import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster without admission."""
    async with embedded_cluster(tmp_path / "cluster.db") as running:
        yield running


@contextlib.asynccontextmanager
async def sources(cluster: EmbeddedCluster) -> AsyncIterator[InformedSources]:
    informer = Informer(cluster, EVENT_SOURCE)
    made = InformedSources(informer, nowhere)
    task = asyncio.create_task(informer.run())
    await informer.synced()
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def make(cluster: EmbeddedCluster, name: str, **spec: Any) -> None:
    await cluster.create(EVENT_SOURCE, event_source(name, **spec), manager="tests")


async def test_exact_ones_come_first_then_longer_prefixes_then_names(cluster: EmbeddedCluster) -> None:
    for name, source in (
        ("z", "*"),
        ("short", "/a*"),
        ("b", "/a/b*"),
        ("a", "/a/b*"),
        ("exact", "/a/b"),
        ("no", "/c*"),
    ):
        await make(cluster, name, source=source)
    async with sources(cluster) as known:
        assert [one.name for one in known.matching("/a/b")] == ["exact", "a", "b", "short", "z"]
        assert [one.name for one in known.matching("/a/b/")] == ["a", "b", "short", "z"]
        assert [one.name for one in known.matching("/A")] == ["z"]


async def test_changes_and_deletions_are_followed(cluster: EmbeddedCluster) -> None:
    await make(cluster, "train", source="/a")
    async with sources(cluster) as known:
        for source in ("/b*", "/c"):
            await cluster.patch(EVENT_SOURCE, "train", {"spec": {"source": source}}, NAMESPACE, manager="tests")
            await eventually(partial(known.matching, source.rstrip("*")))
        assert not known.matching("/a") and not known.matching("/b")
        await cluster.delete(EVENT_SOURCE, "train", NAMESPACE)
        await eventually(lambda: known.named(NAMESPACE, "train") is None)
        assert not known.matching("/c")


async def test_one_that_cannot_be_read_lets_nobody_in(cluster: EmbeddedCluster) -> None:
    await make(cluster, "bad", source="/a", auth={})
    await make(cluster, "good", source="/a")
    async with sources(cluster) as known:
        assert [one.name for one in known.matching("/a")] == ["good"]
        assert known.named(NAMESPACE, "bad") is None
        assert known.named(NAMESPACE, "good") is not None


def test_all_fields_are_read() -> None:
    oidc = {"issuer": "https://i", "audience": "a", "subject": "s"}
    obj = event_source(auth={"oidc": oidc}, allowCode=True, createModels=True)
    assert read_event_source(obj) == EventSource(
        NAMESPACE, "train", "/train/magika", OidcAuth("https://i", "a", "s"), ("*",), ("s3://models/",),
        allow_code=True, create_models=True, is_counted=False,
    )  # fmt: skip
    assert read_event_source(event_source()).auth == HmacAuth("keys")


@pytest.mark.parametrize("auth", [{}, {"hmac": {"secretRef": {"name": "k"}}, "oidc": {}}, {"hmac": {}}, None, "none"])
def test_without_one_way_to_prove_who_sends_it_is_none(auth: Any) -> None:
    with pytest.raises(Invalid, match="default/train"):
        read_event_source(event_source(auth=auth))


@pytest.mark.parametrize(
    ("models", "within"),
    [
        (["*"], ("*",)),
        (["*/*"], ("*",)),
        (["default/m-*"], ("m-*",)),
        (["other/*", "def*/x"], ("x",)),
        (["other/*"], ()),
    ],
)
def test_an_event_source_without_reach_is_for_models_of_its_own_namespace(
    models: list[str], within: tuple[str]
) -> None:
    source = read_event_source(event_source(models=models))
    assert within_reach(source, nowhere).models == within
    assert within_reach(source, lambda namespace: namespace == NAMESPACE) == source


async def test_the_webhook_knows_event_sources_as_far_as_they_reach(cluster: EmbeddedCluster) -> None:
    await make(cluster, "wide", models=["*/*", "other/iris"])
    async with sources(cluster) as made:
        named = await eventually(lambda: made.named(NAMESPACE, "wide"))
        assert named is not None and named.models == ("*",)
