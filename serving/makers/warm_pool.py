"""The seed of a WarmPool: a Configuration at initial scale 0, of whose Deployment the members are copies. Pure.

Knative makes Revision and Deployment of it, with queue-proxy and all that this cluster adds to Pods; no replica ever
runs. Its Pod template differs from that of a Model with equal fields in arguments and names alone, so a member fits.
"""

from __future__ import annotations

from autoscaler.types import CLASS
from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT
from autoscaler.warmpool.claims.marks import LABEL_SEED, SEED_PREFIX
from clusters.base.objects import ANNOTATION_CLASS, CONFIGURATION, WARM_POOL, Key, Object, owner_reference
from serving.makers.images import server_of
from serving.makers.knative import digest_of
from serving.makers.pod_spec import ANNOTATION_INITIAL_SCALE, make_member_spec
from serving.types.annotations import ANNOTATION_APPLIED
from serving.types.settings.settings import Settings
from serving.types.warm_pool import WarmPool

NO_REPLICA = "0"
"""Initial scale; Knative takes it only where `allow-zero-initial-scale` is on."""


def seed_name(pool: str) -> str:
    """The name of a WarmPool's seed."""
    return f"{SEED_PREFIX}{pool}"


def pool_of_seed(configuration: Key) -> Key | None:
    """The WarmPool whose seed has this name, whether there is one or not."""
    name = configuration.name.removeprefix(SEED_PREFIX)
    return Key(configuration.namespace, name) if name and name != configuration.name else None


def make_seed(pool: WarmPool, settings: Settings) -> Object:
    """The Configuration of a WarmPool; a change of its template or of the server's image makes a revision."""
    labels = {LABEL_SEED: pool.name}
    metadata: Object = {"name": seed_name(pool.name), "labels": dict(labels)}
    if pool.namespace:
        metadata["namespace"] = pool.namespace
    if pool.uid:  # a WarmPool that was never stored cannot own anything yet
        metadata["ownerReferences"] = [owner_reference(WARM_POOL, pool.object)]
    annotations = {ANNOTATION_CLASS: CLASS, ANNOTATION_INITIAL_SCALE: NO_REPLICA}
    wanted = pool.spec.template
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": make_member_spec(wanted, server_of(wanted.runtime, wanted.model_format or DEFAULT_FORMAT, settings)),
    }
    made: Object = {
        "apiVersion": CONFIGURATION.api_version,
        "kind": CONFIGURATION.kind,
        "metadata": metadata,
        "spec": {"template": template},
    }
    metadata["annotations"] = {ANNOTATION_APPLIED: digest_of(made)}
    return made
