"""The queue of a Pod for schedulers that have queues: where each of them reads its name. Pure.

Sources: volcano.sh/volcano 1.14 (`pkg/controllers/podgroup`), KAI scheduler (`docs/queues`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clusters.base.objects import Object

VOLCANO: Final = "volcano"
"""`schedulerName` of Volcano, as its manifests install it."""
KAI: Final = "kai-scheduler"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
"""Annotation of a Pod."""
KAI_QUEUE: Final = "kai.scheduler/queue"
"""Label of a Pod."""
PLACES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {VOLCANO: ("annotations", VOLCANO_QUEUE), KAI: ("labels", KAI_QUEUE)}
)
"""By scheduler: the part of a Pod's metadata, and the key in it."""


def queue_metadata(scheduler: str, queue: str) -> dict[str, dict[str, str]]:
    """Return the metadata of a Pod for this queue, by part: {"annotations": {…}}; empty without a queue."""
    place = PLACES.get(scheduler)
    if place is None or not queue:
        return {}
    part, key = place
    return {part: {key: queue}}


def queue_of(pod: Object) -> tuple[str, str]:
    """Return the scheduler and the queue of a Pod or a Pod template; empty without them."""
    scheduler = str((pod.get("spec") or {}).get("schedulerName") or "")
    part, key = PLACES.get(scheduler, ("annotations", ""))
    return scheduler, str(((pod.get("metadata") or {}).get(part) or {}).get(key) or "")
