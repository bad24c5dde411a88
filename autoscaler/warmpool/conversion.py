"""Convert Pods and Deployments to the inputs of a pool's plan, and the plan's members to Pods. Pure."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from autoscaler.warmpool.claims.classes import pool_class
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, ENV_TOKEN, LABEL_POOL, LABEL_POOL_CLASS
from autoscaler.warmpool.claims.pods import FINISHED, is_claimed, restarts_of, token_hash_of
from autoscaler.warmpool.pool import Fault, PoolMember, PoolSeed
from autoscaler.warmpool.spec import requests_of
from clusters.base.objects import (
    LABEL_CONFIGURATION_GENERATION,
    POD,
    WARM_POOL,
    Key,
    Object,
    condition_of,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    parse_timestamp,
)
from clusters.base.pod_queues import queue_metadata, queue_of
from clusters.net.endpoints import is_ready

POOL_ARGUMENT: Final = "--pool"
"""Argument of the model server that makes it a member of a pool."""
_ORDINARY_WAITS: Final = ("ContainerCreating", "PodInitializing")
"""Reasons for which a container waits during every start."""
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names, the same as in Kubernetes: without vowels, so that no words result."""
_SUFFIX: Final = 5
_LONGEST_NAME: Final = 63  # a Pod's name is its host name too


def newest_seed(deployments: Iterable[Object]) -> Object | None:
    """Return the seed Deployment of the newest configuration."""
    present = [deployment for deployment in deployments if not is_deleting(deployment)]
    return max(present, key=_generation, default=None)


def seed_of(deployment: Object) -> PoolSeed:
    """Return the plan's view of a seed Deployment."""
    template = deployment["spec"]["template"]
    cpu, memory = requests_of(template["spec"])
    serves = any(_is_server(container) for container in template["spec"].get("containers") or ())
    return PoolSeed(name_of(deployment), pool_class(template), cpu, memory, serves)


def member_of(pod: Object, keys: PoolKey) -> PoolMember:
    """Return the plan's view of a Pod."""
    return PoolMember(
        name=name_of(pod),
        created=parse_timestamp(pod["metadata"]["creationTimestamp"]),
        pool_class=labels_of(pod).get(LABEL_POOL_CLASS, ""),
        ready=is_ready(pod),
        claimed=is_claimed(pod),
        fault=_fault(pod, keys),
        waits=_waits(pod),
    )


def start_time(pod: Object) -> float | None:
    """Return the seconds from the Pod's creation to its readiness, or None while it is not ready."""
    condition = condition_of(pod, "Ready")
    if condition is None or condition.get("status") != "True" or not condition.get("lastTransitionTime"):
        return None
    began: datetime = parse_timestamp(pod["metadata"]["creationTimestamp"])
    return max(0.0, (parse_timestamp(condition["lastTransitionTime"]) - began).total_seconds())


def make_member(pool: Object, deployment: Object, name: str, keys: PoolKey) -> Object:
    """Return a member: the seed's Pod without its labels, so that no Service or ReplicaSet selects it."""
    template = deployment["spec"]["template"]
    queue = queue_metadata(*queue_of(template))
    spec = copy.deepcopy(template["spec"])
    for container in spec["containers"]:
        if _is_server(container):
            kept = [one for one in container.get("env") or () if one.get("name") != ENV_TOKEN]
            container["env"] = [*kept, {"name": ENV_TOKEN, "value": keys.sha256_for(Key(namespace_of(pool), name))}]
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "name": name,
            "namespace": namespace_of(pool),
            "labels": {LABEL_POOL: name_of(pool), LABEL_POOL_CLASS: pool_class(template), **queue.get("labels", {})},
            "annotations": {**((template.get("metadata") or {}).get("annotations") or {}), ANNOTATION_CLAIM: ""},
            "ownerReferences": [owner_reference(WARM_POOL, pool)],
        },
        "spec": spec,
    }


def member_name(pool: str, source: random.Random) -> str:
    """Return a new name. It is chosen here because the member's token depends on it."""
    suffix = "".join(source.choice(_ALPHABET) for _ in range(_SUFFIX))
    return f"{pool[: _LONGEST_NAME - _SUFFIX - 1].rstrip('-.')}-{suffix}"


def _generation(deployment: Object) -> tuple[int, str]:
    text = labels_of(deployment).get(LABEL_CONFIGURATION_GENERATION, "")
    return int(text) if text.isdecimal() else 0, str(deployment["metadata"].get("creationTimestamp", ""))


def _is_server(container: Object) -> bool:
    return POOL_ARGUMENT in (container.get("args") or ())


def _fault(pod: Object, keys: PoolKey) -> Fault | None:
    if (pod.get("status") or {}).get("phase") in FINISHED:
        return Fault.ENDED
    if restarts_of(pod):
        return Fault.RESTARTED
    return None if token_hash_of(pod) == keys.sha256_for(key_of(pod)) else Fault.TOKEN


def _waits(pod: Object) -> str:
    """Return the reason of the scheduler or a container for not starting, in one line."""
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return _line(scheduled)
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _ORDINARY_WAITS:
            return _line(waiting)
    return ""


def _line(condition: Mapping[str, Any]) -> str:
    words = (str(condition.get(field) or "").partition("\n")[0] for field in ("reason", "message"))
    return ": ".join(word for word in words if word)
