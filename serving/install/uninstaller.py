"""Removes what an installation made, found by its label; Models and WarmPools first, Knative's own never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_SEED
from clusters.base.api import Cluster
from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import (
    CONFIGURATION,
    MODEL,
    NAMESPACE,
    POD,
    ROUTE,
    SERVICE,
    WARM_POOL,
    Kind,
    Object,
    key_of,
    name_of,
)
from serving.install.installer import Change, installed, remove
from serving.install.kinds import CRD, ORDER
from serving.install.waiting import Deadline, still_there
from serving.makers.knative_flags import NAMESPACE as KNATIVE_NAMESPACE
from serving.types.annotations import LABEL_MODEL

WHAT_PEOPLE_MADE = ((MODEL, "models"), (WARM_POOL, "warm pools"))
MADE_FOR_THEM = (
    (SERVICE, LABEL_MODEL),
    (CONFIGURATION, LABEL_MODEL),
    (ROUTE, LABEL_MODEL),
    (CONFIGURATION, LABEL_SEED),
    (POD, LABEL_POOL),
)
MOST_NAMED = 5
"""Models, and WarmPools, that a message names."""


class ModelsLeft(KnodelError):
    """There are Models or WarmPools, and nobody said that they may go; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A Model or WarmPool."""

    kind: Kind
    object: Object

    @property
    def deleted(self) -> Change:
        """That it goes."""
        return Change(self.kind, key_of(self.object), "deleted")


async def owned_by_people(cluster: Cluster) -> list[Owned]:
    """All Models and WarmPools; none where they are not defined."""
    found = []
    for kind, _ in WHAT_PEOPLE_MADE:
        try:
            found += [Owned(kind, obj) for obj in (await cluster.list(kind)).items]
        except NotFound:
            continue
    return found


def require_none(owned: Sequence[Owned]) -> None:
    """Raises ModelsLeft, which names some of them."""
    told = []
    for kind, words in WHAT_PEOPLE_MADE:
        keys = [str(key_of(one.object)) for one in owned if one.kind is kind]
        if keys:
            more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
            told.append(f"{words} are still there: {', '.join(keys[:MOST_NAMED])}{more}")
    if told:
        raise ModelsLeft(f"{'; '.join(told)}; delete them first, or all of them by --delete-models")


async def delete_owned(cluster: Cluster, owned: Sequence[Owned], deadline: Deadline) -> list[Change]:
    """Delete Models and WarmPools, and wait until what was made for them is gone. Raises NotDone."""
    for one in owned:
        await remove(cluster, one.kind, one.object)

    async def missing() -> str:
        left = await owned_by_people(cluster)
        if left:
            return f"{len(left)} models and warm pools are still going"
        for kind, label in MADE_FOR_THEM:
            if children := (await cluster.list(kind, selector=label)).items:
                return f"{len(children)} {kind.resource} of models and warm pools are still going"
        return ""

    await deadline.until(missing)
    return [one.deleted for one in owned]


async def remove_all(cluster: Cluster, deadline: Deadline, dry_run: bool = False) -> list[Change]:
    """Remove every object of an installation: what runs first, definitions last. Raises NotDone."""
    changes = []
    for kind in (NAMESPACE, *(kind for kind in reversed(ORDER) if kind not in (NAMESPACE, CRD)), CRD):
        for obj in await _ours(cluster, kind):
            if not dry_run:
                await remove(cluster, kind, obj)
                if kind in (NAMESPACE, CRD):
                    await _gone(cluster, kind, obj, deadline)
            changes.append(Change(kind, key_of(obj), "deleted"))
    return changes


async def _ours(cluster: Cluster, kind: Kind) -> list[Object]:
    """What was installed; what stands in our own namespace goes with it."""
    found = await installed(cluster, kind, [KNATIVE_NAMESPACE])
    return [obj for obj in found if kind is not CRD or name_of(obj).endswith(f".{MODEL.group}")]


async def _gone(cluster: Cluster, kind: Kind, obj: Object, deadline: Deadline) -> None:
    async def missing() -> str:
        return await still_there(cluster, kind, key_of(obj))

    await deadline.until(missing)
