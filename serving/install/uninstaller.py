"""Removes what an installation made, found by its label; Models first, Knative's own never."""

from __future__ import annotations

from collections.abc import Sequence

from clusters.api import Cluster
from clusters.errors import KnodelError, NotFound
from clusters.objects import CONFIGURATION, MODEL, NAMESPACE, ROUTE, SERVICE, Kind, Object, key_of, name_of
from serving.apis.annotations import LABEL_MODEL
from serving.install.installer import Change, installed, remove
from serving.install.kinds import CRD, ORDER
from serving.install.waiting import Deadline, still_there
from serving.resources.knative_flags import NAMESPACE as KNATIVE_NAMESPACE

MADE_FOR_MODELS = (SERVICE, CONFIGURATION, ROUTE)
MOST_NAMED = 5
"""Models that a message names."""


class ModelsLeft(KnodelError):
    """There are Models, and nobody said that they may go; nothing was changed."""


async def models_of(cluster: Cluster) -> list[Object]:
    """All Models; none where they are not defined."""
    try:
        return list((await cluster.list(MODEL)).items)
    except NotFound:
        return []


def require_no_models(models: Sequence[Object]) -> None:
    """Raises ModelsLeft, which names some of them."""
    if models:
        names = ", ".join(str(key_of(model)) for model in models[:MOST_NAMED])
        more = f" and {len(models) - MOST_NAMED} more" if len(models) > MOST_NAMED else ""
        raise ModelsLeft(
            f"models are still served: {names}{more}; delete them first, or all of them by --delete-models"
        )


async def delete_models(cluster: Cluster, models: Sequence[Object], deadline: Deadline) -> list[Change]:
    """Delete Models, and wait until the Knative objects that were made for them are gone. Raises NotDone."""
    for model in models:
        await remove(cluster, MODEL, model)

    async def missing() -> str:
        left = await models_of(cluster)
        if left:
            return f"{len(left)} models are still going"
        for kind in MADE_FOR_MODELS:
            if children := (await cluster.list(kind, selector=LABEL_MODEL)).items:
                return f"{len(children)} {kind.resource} of models are still going"
        return ""

    await deadline.until(missing)
    return [Change(MODEL, key_of(model), "deleted") for model in models]


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
