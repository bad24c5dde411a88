"""Several sets of informers run as one: of the same kind with different selectors or namespaces, for one process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from clusters.runtime.informer import Informer, Informers


class InformerSets:
    """What a process has to run, to wait for and to count, as `Informers` has it.

    `later` is not waited for: what a process can do its work without, though worse, and may have no right to see.
    """

    def __init__(self, *sets: Informers, later: Informers | None = None) -> None:
        self._sets = sets
        self._all = sets if later is None else (*sets, later)

    def __iter__(self) -> Iterator[Informer]:
        return (informer for informers in self._all for informer in informers)

    async def run(self) -> None:
        """Run all informers asked for so far, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informers in self._all:
                group.create_task(informers.run())

    async def synced(self) -> None:
        """Return once every informer holds its first list."""
        for informers in self._sets:
            await informers.synced()

    async def caught_up(self) -> None:
        """Return once every informer has seen all that the cluster holds at this moment."""
        await asyncio.gather(*(informers.caught_up() for informers in self._sets))
