"""Revisions whose Model promises no digest are held to what their first replica loaded. Pure.

    the first replica loads        the autoscaler notes its digest on the PodAutoscaler
    a pass of the Model sees it    the digest goes into the Model's ConfigMap, which replicas mount, then the
                                   PodAutoscaler is marked: later replicas are held to it
    until then                     the revision has one replica at most, and no rollout gives it traffic

A Revision cannot be changed, and what it carries goes into its Pod template: so the record is beside it.
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
from serving.types.model import Model, Scaling


def loaded(world: World) -> dict[str, str]:
    """Return the digest that each revision loaded first, as far as it is known."""
    found = {name_of(one): annotations_of(one).get(LOADED_ANNOTATION, "") for one in world.autoscalers}
    return {name: digest for name, digest in found.items() if digest}


def unheld(world: World) -> frozenset[str]:
    """Return the revisions of which a later replica might still load other bytes than the first one."""
    held = {name_of(one) for one in world.autoscalers if HELD_ANNOTATION in annotations_of(one)}
    return frozenset(name_of(one) for one in world.revisions if _mounts_record(one) and name_of(one) not in held)


def alone(scaling: Scaling) -> Scaling:
    """Return the scaling of a revision that may have one replica only."""
    return replace(scaling, min_replicas=min(1, scaling.min_replicas), max_replicas=1, schedules=())


def recording(model: Model, world: World) -> Iterator[Action]:
    """Record what first replicas loaded, then mark their revisions as held to it: in this order."""
    found, waiting = loaded(world), unheld(world)
    new = [one for one in world.autoscalers if name_of(one) in waiting and name_of(one) in found]
    if not new:
        return
    recorded = {name: digest for name, digest in found.items() if _has_record(world, name)}
    yield Apply(CONFIG_MAP, _config_map(model, recorded), force=True)
    for one in new:
        patch = {"metadata": {"annotations": {HELD_ANNOTATION: found[name_of(one)]}}}
        yield Patch.of(POD_AUTOSCALER, one, patch)


def _config_map(model: Model, recorded: dict[str, str]) -> Object:
    metadata: Object = {
        "name": names.digests(model),
        "namespace": model.namespace,
        "labels": {LABEL_MODEL: model.name},
        "ownerReferences": [owner_reference(MODEL, model.object)],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": recorded}


def _has_record(world: World, revision: str) -> bool:
    return any(name_of(one) == revision and _mounts_record(one) for one in world.revisions)


def _mounts_record(revision: Object) -> bool:
    volumes = (revision.get("spec") or {}).get("volumes") or ()
    return any(volume.get("name") == DIGESTS_VOLUME for volume in volumes)
