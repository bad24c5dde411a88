"""Remove the objects of an installation by their label: Models and WarmPools first, objects of Knative never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_SEED
from clusters.base.api import Cluster
from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
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
from serving.install.installer import ManifestChange, installed, remove
from serving.install.kinds import CRD, ORDER
from serving.install.waiting import WaitDeadline, still_there
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
"""Maximum number of Models, and of WarmPools, that a message names."""


class ModelsLeft(KnodelError):
    """There are Models or WarmPools, and their deletion was not requested. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A Model or WarmPool."""

    kind: Kind
    object: Object

    @property
    def deleted(self) -> ManifestChange:
        """The change that deletes it."""
        return ManifestChange(self.kind, key_of(self.object), "deleted")


async def owned_by_people(cluster: Cluster) -> list[Owned]:
    """Return all Models and WarmPools; none if the kinds are not defined."""
    found = []
    for kind, _ in WHAT_PEOPLE_MADE:
        try:
            found += [Owned(kind, obj) for obj in (await cluster.list(kind)).items]
        except NotFound:
            continue
    return found


def require_none(owned: Sequence[Owned]) -> None:
    """Raise ModelsLeft, which names some of them, unless there are none."""
    told = []
    for kind, words in WHAT_PEOPLE_MADE:
        keys = [str(key_of(one.object)) for one in owned if one.kind is kind]
        if keys:
            more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
            told.append(f"{words} still exist: {', '.join(keys[:MOST_NAMED])}{more}")
    if told:
        raise ModelsLeft(f"{'; '.join(told)}; delete them first, or delete all of them with --delete-models")


async def delete_owned(cluster: Cluster, owned: Sequence[Owned], deadline: WaitDeadline) -> list[ManifestChange]:
    """Delete Models and WarmPools, and wait until their dependents are gone. Raises NotDone."""
    for one in owned:
        await remove(cluster, one.kind, one.object)

    async def missing() -> str:
        left = await owned_by_people(cluster)
        if left:
            return f"{len(left)} models and warm pools are still being deleted"
        for kind, label in MADE_FOR_THEM:
            if children := (await cluster.list(kind, selector=label)).items:
                return f"{len(children)} {kind.resource} of models and warm pools are still being deleted"
        return ""

    await deadline.until(missing)
    return [one.deleted for one in owned]


async def remove_all(cluster: Cluster, deadline: WaitDeadline, dry_run: bool = False) -> list[ManifestChange]:
    """Remove all objects of an installation: workloads first, definitions last. Raises NotDone.

    The Pods are gone before their namespace is deleted. Kubernetes would wait for half of their longest grace period
    otherwise, which is ten minutes for the router, whenever one of them does not end within 5 s.
    """
    changes = []
    for kind in (NAMESPACE, *(kind for kind in reversed(ORDER) if kind not in (NAMESPACE, CRD)), CRD):
        for obj in await _ours(cluster, kind):
            if not dry_run:
                if kind is NAMESPACE:
                    await _end_pods(cluster, name_of(obj), deadline)
                await remove(cluster, kind, obj)
                if kind in (NAMESPACE, CRD):
                    await deadline.until(partial(still_there, cluster, kind, key_of(obj)))
            changes.append(ManifestChange(kind, key_of(obj), "deleted"))
    return changes


async def _end_pods(cluster: Cluster, namespace: str, deadline: WaitDeadline) -> None:
    """Delete our Deployments in a namespace, and wait until their Pods are gone. Raises NotDone."""
    for deployment in await installed(cluster, DEPLOYMENT, [namespace]):
        await remove(cluster, DEPLOYMENT, deployment)

    async def left() -> str:
        pods = await installed(cluster, POD, [namespace])
        return f"{len(pods)} pods in {namespace} are still ending" if pods else ""

    await deadline.until(left)


async def _ours(cluster: Cluster, kind: Kind) -> list[Object]:
    """Return the installed objects. Objects in our namespace are deleted with it."""
    found = await installed(cluster, kind, [KNATIVE_NAMESPACE])
    return [obj for obj in found if kind is not CRD or name_of(obj).endswith(f".{MODEL.group}")]
