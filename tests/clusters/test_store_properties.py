"""Property: after any operations the cluster equals a plain dict, also after it was closed and reopened."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.base.api import WatchEvent
from clusters.base.clock import SystemClock
from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.objects import MODEL, name_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store

NAMES = ("a", "b", "c")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SPECS = st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(NAMES), SPECS),
        st.tuples(st.just("set"), st.sampled_from(NAMES), SPECS),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    max_size=25,
)


@dataclass
class World:
    """The cluster under test, the expected state, and the state that a watcher derived from its events."""

    path: Path
    store: Store
    model: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)

    @property
    def cluster(self) -> EmbeddedCluster:
        """The API over the store that is open now."""
        return EmbeddedCluster(self.store, clock=SystemClock())

    async def create(self, name: str, spec: Any) -> None:
        """Create in both."""
        try:
            await self.cluster.create(MODEL, {"metadata": {"name": name, "namespace": "n"}, "spec": spec}, manager="t")
        except AlreadyExists:
            assert name in self.model
        else:
            assert name not in self.model
            self.model[name] = spec

    async def set(self, name: str, spec: Any) -> None:
        """Replace the spec in both."""
        operations = [{"op": "replace", "path": "/spec", "value": spec}]
        try:
            await self.cluster.patch(MODEL, name, operations, "n", manager="t", type="json")
        except NotFound:
            assert name not in self.model
        else:
            self.model[name] = spec

    async def delete(self, name: str, _: Any) -> None:
        """Delete in both."""
        try:
            await self.cluster.delete(MODEL, name, "n")
        except NotFound:
            assert name not in self.model
        else:
            del self.model[name]

    async def reopen(self, *_: Any) -> None:
        """Close the file and open it again."""
        version = self.store.version
        await self.store.close()
        self.store = Store.open(self.path)
        assert self.store.version == version

    def take(self, event: WatchEvent) -> None:
        """Follow a watch."""
        if event.type == "DELETED":
            del self.watched[name_of(event.object)]
        elif event.type != "BOOKMARK":
            self.watched[name_of(event.object)] = event.object["spec"]


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_the_cluster_agrees_with_a_dict(operations: list[tuple[str, Any, Any]]) -> None:
    async def run(path: Path) -> None:
        world = World(path, Store.open(path))
        for verb, name, spec in operations:
            before = (await world.cluster.list(MODEL, "n")).resource_version
            await getattr(world, verb)(name, spec)
            listed = await world.cluster.list(MODEL, "n")
            assert {name_of(obj): obj["spec"] for obj in listed.items} == world.model
            if before != listed.resource_version:
                watch = world.cluster.watch(MODEL, before, "n")
                while world.watched != world.model:
                    world.take(await anext(watch))
        await world.store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder) / "store.db"))
