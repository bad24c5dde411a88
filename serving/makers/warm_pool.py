"""Make the seed of a WarmPool: a Configuration at initial scale 0, whose Deployment is the members' template. Pure.

Knative creates its Revision and Deployment, with queue-proxy and everything that this cluster adds to Pods. No replica
of it ever runs. Its Pod template differs from that of a Model with equal fields only in arguments and names, so members
can serve such a Model.
"""

from __future__ import annotations

from autoscaler.types import CLASS
from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT
from autoscaler.warmpool.claims.marks import LABEL_SEED, SEED_PREFIX
from clusters.base.objects import ANNOTATION_CLASS, CONFIGURATION, WARM_POOL, Key, Object, owner_reference
from serving.makers.names import digest_of
from serving.makers.pod_spec import (
    ANNOTATION_INITIAL_SCALE,
    FULL_DUPLEX,
    add_queue,
    make_fraction_annotation,
    make_member_spec,
    server_settings,
)
from serving.types.annotations import ANNOTATION_APPLIED
from serving.types.settings.settings import Settings
from serving.types.warm_pool import WarmPool

NO_REPLICA = "0"
"""Initial scale. Knative accepts it only with the flag `allow-zero-initial-scale`."""


def seed_name(pool: str) -> str:
    """Return the name of a WarmPool's seed."""
    return f"{SEED_PREFIX}{pool}"


def pool_of_seed(configuration: Key) -> Key | None:
    """Return the WarmPool whose seed would have this name, whether the pool exists or not; None for other names."""
    name = configuration.name.removeprefix(SEED_PREFIX)
    return Key(configuration.namespace, name) if name and name != configuration.name else None


def make_seed(pool: WarmPool, settings: Settings) -> Object:
    """Return the seed of a WarmPool. A change of the pool's template or of the server's image creates a revision."""
    labels = {LABEL_SEED: pool.name}
    metadata: Object = {"name": seed_name(pool.name), "labels": dict(labels)}
    if pool.namespace:
        metadata["namespace"] = pool.namespace
    if pool.uid:  # a WarmPool that was never stored has no uid, and cannot own objects
        metadata["ownerReferences"] = [owner_reference(WARM_POOL, pool.object)]
    wanted = pool.spec.template
    annotations = {ANNOTATION_CLASS: CLASS, ANNOTATION_INITIAL_SCALE: NO_REPLICA, **FULL_DUPLEX}
    annotations |= make_fraction_annotation(wanted.resources)
    server = server_settings(wanted.runtime, wanted.model_format or DEFAULT_FORMAT, settings)
    template_metadata: Object = {"labels": labels, "annotations": annotations}
    if wanted.resources.gpu:
        add_queue(template_metadata, pool.namespace, server)
    template = {"metadata": template_metadata, "spec": make_member_spec(wanted, server)}
    made: Object = {
        "apiVersion": CONFIGURATION.api_version,
        "kind": CONFIGURATION.kind,
        "metadata": metadata,
        "spec": {"template": template},
    }
    metadata["annotations"] = {ANNOTATION_APPLIED: digest_of(made)}
    return made
