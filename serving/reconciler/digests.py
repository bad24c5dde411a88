"""Make later replicas of a revision load the same bytes as its first one, when the spec has no digest. Pure.

    the first replica loads        the autoscaler records its digest on the PodAutoscaler
    the next pass of the Model     writes the digest to the Model's ConfigMap, which replicas mount, then marks the
                                   PodAutoscaler: later replicas must have this digest
    until then                     the revision has one replica at most, and no rollout gives it traffic

A Revision is immutable, and its annotations go into its Pod template. So the digest is stored in a separate object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoscaler.types import HELD_ANNOTATION, LOADED_ANNOTATION
from autoscaler.warmpool.claims.marks import DIGESTS_VOLUME
from clusters.base.objects import CONFIG_MAP, MODEL, POD_AUTOSCALER, Object, annotations_of, name_of, owner_reference
from serving.makers import names
from serving.reconciler.actions import Action, Apply, Patch
from serving.reconciler.observe import World
from serving.types.annotations import LABEL_MODEL
from serving.types.model import Model
from serving.types.scaling import Scaling


def loaded_digests(world: World) -> dict[str, str]:
    """Return the known digests of what each revision loaded first."""
    found = {name_of(one): annotations_of(one).get(LOADED_ANNOTATION, "") for one in world.autoscalers}
    return {name: digest for name, digest in found.items() if digest}


def unheld_revisions(world: World) -> frozenset[str]:
    """Return the revisions whose later replicas may still load other bytes than the first one."""
    held = {name_of(one) for one in world.autoscalers if HELD_ANNOTATION in annotations_of(one)}
    return frozenset(name_of(one) for one in world.revisions if _mounts_record(one) and name_of(one) not in held)


def single_replica(scaling: Scaling) -> Scaling:
    """Return the scaling of a revision that may have only one replica."""
    return replace(scaling, min_replicas=min(1, scaling.min_replicas), max_replicas=1, schedules=())


def record_actions(model: Model, world: World) -> Iterator[Action]:
    """Return the writes that record the digests of first replicas, then mark their revisions, in this order."""
    found, waiting = loaded_digests(world), unheld_revisions(world)
    new = [one for one in world.autoscalers if name_of(one) in waiting and name_of(one) in found]
    if not new:
        return
    mounting = {name_of(one) for one in world.revisions if _mounts_record(one)}
    recorded = {name: digest for name, digest in found.items() if name in mounting}
    metadata: Object = {
        "name": names.digests(model),
        "namespace": model.namespace,
        "labels": {LABEL_MODEL: model.name},
        "ownerReferences": [owner_reference(MODEL, model.object)],
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": recorded}
    yield Apply(CONFIG_MAP, config_map, force=True)
    for one in new:
        patch = {"metadata": {"annotations": {HELD_ANNOTATION: found[name_of(one)]}}}
        yield Patch.of(POD_AUTOSCALER, one, patch)


def _mounts_record(revision: Object) -> bool:
    volumes = (revision.get("spec") or {}).get("volumes") or ()
    return any(volume.get("name") == DIGESTS_VOLUME for volume in volumes)
