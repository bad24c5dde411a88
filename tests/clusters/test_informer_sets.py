"""Several sets of informers in one process."""

from __future__ import annotations

import asyncio

from clusters.base.errors import Forbidden
from clusters.base.objects import MODEL, POD, SECRET
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers, InformerSets
from tests.clusters.test_informer import Troubled, make, running
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


async def test_what_may_come_later_runs_and_is_not_waited_for(cluster: EmbeddedCluster) -> None:
    await make(cluster, "a")
    forbidden = Troubled(cluster)
    forbidden.list_errors.append(Forbidden("secrets: not allowed"))
    first, second, later = Informers(cluster), Informers(cluster), Informers(forbidden, clock := SteppedClock())
    kept, _, late = first[MODEL], second[POD], later[SECRET]
    sets = InformerSets(first, second, later=later)

    async with running(sets):
        async with asyncio.timeout(10.0):
            await sets.synced()
            await sets.caught_up()
        assert len(kept) == 1 and len(list(sets)) == 3
        await eventually(lambda: forbidden.lists == 1)
        synced = asyncio.create_task(late.synced())
        clock.step(1.0)  # the right is there now
        async with asyncio.timeout(10.0):
            await synced
